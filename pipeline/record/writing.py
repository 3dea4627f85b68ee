"""One recording on its way into the store, behind a bounded buffer: whoever fills it never waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from turnstream.record.storing import Store, StoredFile

__all__ = ["Allowance", "RecordingWriter"]


class Allowance:
    """Bytes that all recordings together may have in memory.

    Args:
        total: for all.
        each: for one.
    """

    def __init__(self, total: int, each: int) -> None:
        self.each = each
        self._left = total

    def take(self, held: int, more: int) -> bool:
        """Whether somebody who holds ``held`` bytes gets ``more``."""
        if held + more > self.each or more > self._left:
            return False
        self._left -= more
        return True

    def give(self, size: int) -> None:
        """Back."""
        self._left += size


class RecordingWriter:
    """Takes bytes at once, writes them when the store lets it.

    Args:
        store: where to.
        name: the file's.
        allowance: of bytes in memory.
        largest: bytes of one recording.
        on_end: called once, with None when the recording is there, else with why it isn't: ``slow``, ``failed``,
            ``large`` or ``unfinished``, and the error if there was one.

    Attributes:
        written: bytes that the store has taken.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        allowance: Allowance,
        largest: int,
        on_end: Callable[[str | None, BaseException | None], None],
    ) -> None:
        self._store = store
        self._name = name
        self._allowance = allowance
        self._largest = largest
        self._on_end = on_end
        self._parts: list[bytes] = []
        self._held = 0
        self._taken = 0
        self._more = asyncio.Event()
        self._complete = False
        self._why: str | None = None
        self._told = False
        self.written = 0
        self.task = asyncio.create_task(self._run(), name="turnstream.record: recording")

    def take(self, data: bytes) -> None:
        """Take ``data``; if there is no room for it, the recording is dropped."""
        if self._told or not data:
            return
        self._taken += len(data)
        if self._taken > self._largest:
            self._drop("large")
        elif not self._allowance.take(self._held, len(data)):
            self._drop("slow")
        else:
            self._held += len(data)
            self._parts.append(data)
            self._more.set()

    def end(self) -> None:
        """That was all."""
        self._complete = True
        self._more.set()

    def drop(self, why: str) -> None:
        """No recording, after all."""
        if not self._told:
            self._drop(why)

    def _drop(self, why: str) -> None:
        self._tell(why, None)
        self.task.cancel()

    def _tell(self, why: str | None, error: BaseException | None) -> None:
        if not self._told:
            self._told = True
            self._release()
            self._on_end(why, error)

    def _release(self) -> None:
        self._allowance.give(self._held)
        self._held = 0
        self._parts.clear()

    async def _run(self) -> None:
        file: StoredFile | None = None
        committed = False
        try:
            file = await self._store.create(self._name)
            while not self._told:
                await self._more.wait()
                self._more.clear()
                while self._parts:
                    data = b"".join(self._parts)
                    self._parts.clear()
                    await file.write(data)
                    if self._told:
                        break  # a store that takes no cancellation
                    self._held -= len(data)
                    self._allowance.give(len(data))
                    self.written += len(data)
                if self._complete and not self._told:
                    await file.commit()
                    committed = True
                    self._tell(None, None)
        except asyncio.CancelledError:
            self._tell("unfinished", None)
        except Exception as error:  # noqa: BLE001 - whatever a store or its device says
            self._tell("failed", error)
        if file is not None and not committed:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await file.discard()
