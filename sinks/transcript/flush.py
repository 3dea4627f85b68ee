"""From the queue to the file: what may go is serialized on the loop and written by the worker."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from turnstream.messages.codec import decode_line
from turnstream.messages.errors import TranscriptError
from turnstream.sinks.transcript.chain import Bridge
from turnstream.sinks.transcript.files import TranscriptFile, Written
from turnstream.sinks.transcript.guards import Budget
from turnstream.sinks.transcript.journal import Journal
from turnstream.sinks.transcript.lazy import Entry
from turnstream.sinks.transcript.sidefiles import SideFile
from turnstream.sinks.transcript.tombstones import Erased
from turnstream.sinks.transcript.worker import Worker

__all__ = ["Flusher"]

_log = logging.getLogger("turnstream.transcript")

# Serialized at once, bytes: a longer piece would hold up the loop, and memory that is new each time is dear.
_GROUP: Final = 1 << 19
_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 30.0
_NEVER: Final = float("inf")


class _Job:
    """One write in flight, or lines that are taken out of the file."""

    __slots__ = ("bridges", "data", "entries", "erased", "loop", "side_files", "sizes", "uuids", "written")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        entries: list[Entry],
        data: bytearray,
        sizes: list[int],
        side_files: Sequence[SideFile] = (),
        uuids: Sequence[str] = (),
        bridges: Sequence[Bridge] = (),
    ) -> None:
        self.loop = loop
        self.entries = entries
        self.data = data
        self.sizes = sizes
        self.side_files = side_files
        self.uuids = uuids
        self.bridges = bridges
        self.written: Written | None = None
        self.erased: Erased | None = None


class Flusher:
    """Writes the queue, one group of lines at a time.

    One write is in flight; what ripens meanwhile goes with the next one. If the device fails, the lines
    are kept, a timer tries again, and so does everything that waits for them. One timer exists at a time.

    Args:
        journal: what waits, and how lines are made of it.
        file: where it goes.
        budget: what of the limits is left.
        high_water: bytes in flight and ready to go, above which it is full.
        low_water: bytes below which it has room again; beyond it lines don't wait for their time.
        patience: seconds that a failing device holds the source before ``room`` raises; None: no limit.

    Attributes:
        begun: whether the file holds a conversational record. Until then nothing is written that isn't
            accompanied by one.
        lines: written to the file.
        bytes: written to the file.
        writes: that succeeded, at least in part.
        write_errors: that failed.
        short_writes: that were cut back and tried again.
        side_files: that were written.
        erased: what became of lines that were taken back.
        error: the device's standing error.
        forced: entries up to this number go at once, whatever they are.
        hastened: entries up to this number don't wait for a time.
        busy: whether a write is in flight or the device failed; else it isn't full.
    """

    def __init__(
        self,
        journal: Journal,
        file: TranscriptFile,
        budget: Budget,
        *,
        high_water: int,
        low_water: int,
        patience: float | None,
    ) -> None:
        self._journal = journal
        self._queue = journal.queue
        self._file = file
        self._budget = budget
        self.begun = False
        self._high = high_water
        self._low = low_water
        self._patience = patience
        self._failing_since = 0.0
        self._gave_up = False
        self._worker = Worker()
        self._job: _Job | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._roomless: list[asyncio.Future[None]] = []
        self._was_full = False
        self._retry_at = 0.0
        self._retry_in = _FIRST_RETRY
        self._closed = False
        self.lines = 0
        self.bytes = 0
        self.writes = 0
        self.write_errors = 0
        self.short_writes = 0
        self.side_files = 0
        self.erased = Erased()
        self.error: OSError | None = None
        self.forced = 0
        self.hastened = 0
        self.busy = False

    def now(self) -> float:
        """The running loop's time, or the time that loops have by default."""
        loop = asyncio._get_running_loop()
        return loop.time() if loop is not None else time.monotonic()

    @property
    def in_flight(self) -> int:
        """Bytes that the worker has."""
        job = self._job
        if job is None:
            return 0
        return len(job.data) + sum(len(file.data) for file in job.side_files)

    # -- writing -----------------------------------------------------------------------------------------

    def nudge(self, loop: asyncio.AbstractEventLoop | None, now: float) -> None:
        """Like :meth:`kick`, for what streams by: returns at once if nothing can have ripened.

        Args:
            loop: the running one.
            now: its time.
        """
        if loop is self._loop and (
            self._job is not None or (now < self._queue.quiet_until and self._queue.weight <= self._low)
        ):
            return
        self.kick()

    def kick(self, *, retry: bool = False) -> None:
        """Start a write if something may go and none is in flight.

        Args:
            retry: also if the device just failed.
        """
        loop = asyncio._get_running_loop()
        if loop is None or self._closed:
            return
        if loop is not self._loop:
            self._adopt(loop)
        if self._job is not None or self._waits(loop):
            return
        if self.error is not None and not self._queue:
            self._recovered()  # what couldn't be written was taken back
        if self.error is None or retry:
            job = self._next_job(loop)
            if job is not None:
                self._job = job
                self.busy = True
                self._worker.run(loop, lambda: self._write(job)).add_done_callback(lambda _: self._on_written(job))
                return
        self._settle()
        if self.error is not None:
            self._arm(loop, self._retry_at)
        else:
            due = self._queue.due(member=not self.begun)
            if due is not None:
                self._arm(loop, due)

    def _waits(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether plainly nothing may go yet: the usual case while an answer streams, told at little cost."""
        head = self._queue.head()
        if head is None or head.settled or head.seq <= self.forced or head.seq <= self.hastened:
            return False
        if self.error is not None or self._queue.weight > self._low:
            return False
        due = head.ripe_at()
        if due is None:
            return True
        if due <= loop.time():
            return False
        self._arm(loop, due)
        self._queue.watch(due)
        return True

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Another loop runs now (the owner called asyncio.run again): what the last one left is taken over."""
        self._loop = loop
        self._timer = None
        self._waiters = []
        self._roomless = []
        job = self._job
        if job is not None:
            self._worker.run(loop, lambda: None).add_done_callback(lambda _: self._on_written(job))

    def _next_job(self, loop: asyncio.AbstractEventLoop) -> _Job | None:
        queue = self._queue
        if not self.begun and not queue.members:
            return None
        head = queue.head()
        if head is not None and head.erases:
            erasures = queue.take_erasures()
            return _Job(loop, erasures, bytearray(), [], (), *self._journal.erasures(erasures))
        now = loop.time()
        # Over the low water mark nothing waits for a time: memory is dearer than a fresher usage.
        hastened = queue.last if queue.weight > self._low else self.hastened
        journal = self._journal
        render = journal.render
        largest, group = self._budget.largest(), self._budget.group(_GROUP)
        entries: list[Entry] = []
        # Not a list of lines: short-lived ones reuse the same memory.
        data = bytearray()
        sizes: list[int] = []
        for entry in queue.ready(now, self.forced, hastened):
            line = render(entry)
            if line is not None:
                if len(line) > largest:
                    line = journal.guarded(entry, line)
                entries.append(entry)
                data += line
                sizes.append(len(line))
                if len(data) >= group or journal.side_files:
                    break
            elif entry.erases:
                queue.put_back([entry])
                break
        if not entries:
            return None
        if not self.begun and all(entry.message is None for entry in entries):
            # A file without a conversational record is no session.
            queue.put_back(entries)
            return None
        return _Job(loop, entries, data, sizes, journal.take_side_files())

    def _write(self, job: _Job) -> None:
        # In the worker thread.
        try:
            if job.uuids:
                job.erased = self._file.erase(job.uuids, job.bridges)
                job.written = Written(0, job.erased.error, 0)
            else:
                job.written = self._file.write(job.data, job.entries, job.sizes, job.side_files)
        except Exception as error:  # noqa: BLE001 - e.g. no memory: the lines are kept like any others
            job.written = Written(0, OSError(errno.EIO, repr(error)), 0)

    def _on_written(self, job: _Job) -> None:
        written = job.written
        if self._job is not job or written is None:
            return
        self._job = None
        kept = len(job.entries)
        if job.uuids:
            kept = 0 if written.error is not None else kept
        elif written.error is not None:
            done = written.done
            for at, size in enumerate(job.sizes):
                if size > done:
                    kept = at  # the first one that isn't whole
                    break
                done -= size
        if job.erased is not None:
            self.erased = self.erased.plus(job.erased)
        else:
            self.lines += kept
            self.writes += kept > 0
        self.bytes += written.done
        self._budget.used += written.done
        self.short_writes += written.short
        if job.side_files and written.error is None:
            self.side_files += len(job.side_files)
            self._budget.used += sum(len(file.data) for file in job.side_files)
        self.begun = self.begun or any(entry.message is not None for entry in job.entries[:kept])
        if written.error is not None:
            self._queue.put_back(filter(self._journal.still_wanted, job.entries[kept:]))
            self._on_device_error(written.error, len(job.entries) - kept)
        elif self.error is not None:
            self._recovered()
        self._settle()
        self.kick()
        self._rest()
        self._wake()

    def _rest(self) -> None:
        """See whether it is still busy; after a rest it is full above the high water mark again."""
        self.busy = self._job is not None or self.error is not None
        if not self.busy:
            self._was_full = False

    # -- failing -----------------------------------------------------------------------------------------

    def _on_device_error(self, error: OSError, kept: int) -> None:
        self.write_errors += 1
        now = self.now()
        if self.error is None:
            self._failing_since = now
            _log.warning("the transcript can't be written, %d lines are kept: %s: %s", kept, self._file.path, error)
        self.error = error
        self._gave_up = self._patience is not None and now - self._failing_since >= self._patience
        self._retry_at = now + self._retry_in
        self._retry_in = min(2 * self._retry_in, _LAST_RETRY)
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(self.failure())

    def _recovered(self) -> None:
        _log.info("the transcript is written again: %s", self._file.path)
        self.error = None
        self._gave_up = False
        self._retry_in = _FIRST_RETRY
        self._rest()
        self._wake()

    def failure(self) -> TranscriptError:
        """The standing error as one of ours; ``kept`` has the messages that aren't in the file."""
        pending = self.pending()
        assert self.error is not None
        failure = TranscriptError(
            f"{len(self._queue)} lines can't be written: {self.error.strerror or self.error}",
            file=str(self._file.path),
            kept=pending,
            hint="they are kept and written with the next drain",
        )
        failure.__cause__ = self.error
        return failure

    def pending(self) -> Sequence[object]:
        """The messages that aren't in the file yet."""
        return tuple(
            # Of what is rendered already only the line is left.
            decode_line(self._journal.render(entry) or b"") if entry.plain else entry.message
            for entry in self._waiting()
        )

    def _waiting(self) -> list[Entry]:
        in_flight = self._job.entries if self._job is not None else ()
        return [entry for entry in (*in_flight, *self._queue) if entry.message is not None]

    # -- waiting -----------------------------------------------------------------------------------------

    async def written(self, number: int) -> None:
        """Force all entries up to ``number`` and return when they are in the file.

        Raises:
            TranscriptError: the device failed; the lines are kept.
        """
        self.forced = max(self.forced, number)
        self.kick(retry=True)
        if self._lowest() > number:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((number, waiter))
        await waiter

    def _lowest(self) -> float:
        """The number of the first entry that is outstanding."""
        if self._job is not None:
            return self._job.entries[0].seq
        head = self._queue.head()
        if head is None or (not self.begun and not self._queue.members):
            return _NEVER
        return head.seq

    def _settle(self) -> None:
        if not self._waiters:
            return
        lowest = self._lowest()
        waiting = self._waiters
        self._waiters = []
        for number, waiter in waiting:
            if waiter.done():
                continue
            if number < lowest:
                waiter.set_result(None)
            else:
                self._waiters.append((number, waiter))

    def full(self) -> bool:
        """Whether the source should wait: too much is in flight or ready to go, or the device failed.

        Lines that wait for the end of an open answer never make it full: the end comes from the source.
        """
        if self._closed:
            return False
        if self.error is not None:
            return True
        job = self._job
        if job is None:
            self._was_full = False
            return False
        # Asked for each chunk while something is in flight.
        full = len(job.data) + self._queue.weight > (self._low if self._was_full else self._high)
        self._was_full = full
        return full

    async def room(self) -> None:
        """Return once it isn't full.

        Raises:
            TranscriptError: the device has failed for longer than ``patience``.
        """
        while self.full():
            if self._gave_up:
                raise self.failure()
            waiter = asyncio.get_running_loop().create_future()
            self._roomless.append(waiter)
            await waiter

    def _wake(self) -> None:
        if self._roomless and (self._gave_up or not self.full()):
            waiters, self._roomless = self._roomless, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # -- time --------------------------------------------------------------------------------------------

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        timer = self._timer
        if timer is not None:
            if timer.when() <= when:
                return  # it finds out then
            timer.cancel()
        self._timer = loop.call_at(when, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.kick(retry=self.error is not None)

    def statistics(self) -> dict[str, Any]:
        """What is written, what waits, what failed."""
        return {
            "lines": self.lines,
            "bytes": self.bytes,
            "writes": self.writes,
            "pending_lines": len(self._waiting()),
            "pending_bytes": self.in_flight + self._queue.weight,
            "write_errors": self.write_errors,
            "short_writes": self.short_writes,
            "side_files": self.side_files,
            "lines_cut": self.erased.cut,
            "lines_overwritten": self.erased.overwritten,
            "lines_bridged": self.erased.bridged,
            "lines_to_erase_missing": self.erased.missing,
            "device_error": None if self.error is None else str(self.error),
        }

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the timer, close the file behind what is in flight, end the thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None and self._loop is not None and not self._loop.is_closed():
            self._timer.cancel()
        self._timer = None
        # Something is in flight only if the owner was cancelled: then the thread ends by itself.
        self._worker.shutdown(self._file.close, join=self._job is None)
        self._wake()
