"""The transcript sink: what is said becomes lines of a file that readers open (WIRE.md §3)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from turnstream.messages.errors import TranscriptError
from turnstream.messages.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    MessageStart,
    MessageStop,
)
from turnstream.messages.ids import Clock, IdSource, random_ids, system_clock
from turnstream.messages.types import (
    RESULT_TYPES,
    AssistantMessage,
    Message,
    OpaqueRecord,
    RequestStart,
    ResponseFailed,
    StreamNote,
    Tombstone,
    UserMessage,
)
from turnstream.operators.batch import Batch
from turnstream.operators.whole import AnswerItems, WholeAnswer
from turnstream.sinks.base import Policy, SinkBase
from turnstream.sinks.transcript.answers import AnswerTracker
from turnstream.sinks.transcript.chain import Chain
from turnstream.sinks.transcript.compacting import is_boundary, is_compaction, kept_first
from turnstream.sinks.transcript.files import Durability, TranscriptFile
from turnstream.sinks.transcript.flush import Flusher
from turnstream.sinks.transcript.guards import Budget, Limits
from turnstream.sinks.transcript.journal import Journal, Redact, is_foreign, is_member, session_of
from turnstream.sinks.transcript.layout import is_session_id
from turnstream.sinks.transcript.lazy import OpenAnswer
from turnstream.sinks.transcript.lines import Envelope
from turnstream.sinks.transcript.sidefiles import Spiller
from turnstream.sinks.transcript.tombstones import Tombstones

__all__ = ["TranscriptSink"]

# Everything else passes at the cost of one lookup; what there is most of, at that of a comparison.
_INTERESTING: Final = frozenset(
    {*RESULT_TYPES, MessageStart, MessageStop, OpaqueRecord, RequestStart, ResponseFailed, StreamNote, Tombstone}
)


class TranscriptSink(SinkBase):
    """Writes result messages as JSONL, each once, in order, chained by ``parentUuid``.

    Members of the chain are user, assistant, system and attachment messages that aren't virtual.
    Progress, display and stream items are never written; records of types we don't know are written as
    they are, outside the chain. Assistant lines wait until their usage is final: until 100 ms after
    their answer's end, at most 5 s, but the newest line of an open answer waits for the end. What is
    queued behind a waiting line waits with it, until the next request starts. A line is *acknowledged* when
    ``record(…, wait=True)`` or ``drain()`` has returned.

    A tombstone takes its message back: out of the queue, or out of the file. A compaction's boundary and
    summary go at once, with all that was queued before. The results of tools that are large go to side
    files, records over a limit are replaced by stand-ins (:class:`Limits`).

    Nothing is made on disk before the first chain member comes, or :meth:`open` is called. One writer a
    session, by a lock on ``.<name>.lock`` beside the file. Use it on one event loop; it may be made
    outside of one.

    Args:
        path: the file; its folders are made (0700), it is made 0600. No symlink is followed.
        session_id: on every line. Default: with ``append`` the file's own, else the file name's if it is
            a uuid (readers want them equal), else a new one.
        cwd: working folder on the lines; default the process's.
        version: three numbers; default ours.
        git_branch: left out if None.
        title: names the session, so that readers list it; written with the first chain member.
        user_type: on every line.
        is_sidechain: whether this is a sub-agent's file; one that is gone on with, and holds nothing else, is.
        agent_id: the sub-agent's id; likewise, default the file's.
        append: go on with a file that holds something.
        durability: what counts as written: ``flush`` survives the process, ``fsync`` the machine.
        tombstones: ``erase`` takes lines out of the file, ``append`` adds a record that says so (an audit trail).
        limits: how large lines, the session and results in lines may get.
        redact: see :data:`Redact`. A message for which it raises is not written.
        ids: makes ids of the session and of messages that have none.
        clock: for messages without a timestamp.
        high_water: bytes that may be in flight or ready to go before the source waits.
        low_water: bytes at which it goes on.
        device_patience: seconds that a failing device (full, broken) holds the source before ``room``
            raises; None: as long as it fails.
        persist: False writes nothing: the messages are held in ``messages``.

    Raises:
        TranscriptError: the file isn't empty and ``append`` is False; it is a symlink or no regular file;
            with ``append`` also what :meth:`open` raises.
    """

    name = "transcript"
    policy: Policy = "block"
    wants_deltas = False  # lines are made of messages

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        session_id: str | None = None,
        cwd: str | None = None,
        version: str | None = None,
        git_branch: str | None = None,
        title: str | None = None,
        user_type: str = "external",
        is_sidechain: bool = False,
        agent_id: str | None = None,
        append: bool = False,
        durability: Durability = "flush",
        tombstones: Tombstones = "erase",
        limits: Limits | None = None,
        redact: Redact | None = None,
        ids: IdSource | None = None,
        clock: Clock = system_clock,
        high_water: int = 4 << 20,
        low_water: int = 1 << 20,
        device_patience: float | None = None,
        persist: bool = True,
    ) -> None:
        self.path = Path(os.path.abspath(path))
        self._given_session = session_id
        self._persist = persist
        self._opened = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        ids = ids if ids is not None else random_ids()
        stem = self.path.stem
        self._envelope = Envelope(
            session_id=session_id or (stem if is_session_id(stem) else ids("session")),
            cwd=cwd if cwd is not None else _working_folder(),
            version=version,
            git_branch=git_branch,
            user_type=user_type,
            is_sidechain=is_sidechain,
            agent_id=agent_id,
            clock=clock,
        )
        limits = limits if limits is not None else Limits()
        self._budget = Budget(limits)
        spills = limits.tool_result
        self._journal = Journal(
            self._envelope,
            ids=ids,
            redact=redact,
            title=title,
            # Readers look for a title in the first 64 KiB, but for isSidechain in the first line.
            title_first=not is_sidechain,
            keep=not persist,
            tombstones=tombstones,
            spiller=Spiller(self.path, spills, self._envelope.json) if spills is not None else None,
            budget=self._budget,
        )
        self._queue = self._journal.queue
        self._answers = AnswerTracker()
        self._file = TranscriptFile(self.path, append=append, durability=durability, sidechain=is_sidechain)
        self._flusher = Flusher(
            self._journal,
            self._file,
            self._budget,
            high_water=high_water,
            low_water=low_water,
            patience=device_patience,
        )
        if persist and self._file.check():
            self.open()

    @property
    def session_id(self) -> str:
        """The session's id, as it is on the lines."""
        return self._envelope.session_id

    @property
    def last_uuid(self) -> str | None:
        """The chain member that the next message hangs on."""
        return self._journal.chain.pointer

    @property
    def messages(self) -> list[Message]:
        """With ``persist=False`` the chain members so far, in order; else empty."""
        return self._journal.messages

    def open(self) -> None:
        """Make the folders, take the lock, read what the file holds. Idempotent; the first message does it too.

        Raises:
            TranscriptError: another writer has the file, it can't be read, or it holds another session.
        """
        if self._opened or not self._persist:
            return
        existing = self._file.open()
        if existing is not None:
            given = self._given_session
            if given is not None and existing.session_ids and given not in existing.session_ids:
                self._file.close()
                raise TranscriptError(
                    f"the transcript holds session {existing.session_id}, not {given}",
                    file=str(self.path),
                    hint="leave the session id out, or choose another file",
                )
            envelope = self._envelope
            envelope.session_id = given or existing.session_id or envelope.session_id
            if existing.sidechain:
                # A line of the main chain would be all that a reader sees of it.
                envelope.is_sidechain = True
                envelope.agent_id = envelope.agent_id or existing.agent_id
            self._journal.go_on_with(existing)
            self._budget.used = existing.size
            self._flusher.begun = len(existing.chain) > 0
        self._opened = True

    # -- taking ------------------------------------------------------------------------------------------

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Take one batch.

        A message of another session is not written, nor does it end the transcript: the next ``drain``
        reports it.

        Raises:
            TranscriptError: the sink is closed, or the file can't be opened.
        """
        carrier: Any = batch
        if carrier.__class__ is Batch:
            key, items = carrier.key, carrier.items
            if items.__class__ is AnswerItems and not self._answers.is_open(key):
                self._take_whole(items.whole)
                return
        else:
            key, items = None, carrier
        loop = now = None
        for item in items:
            cls = item.__class__
            if (
                cls is ContentBlockDelta
                or cls is ContentBlockStop
                or cls is ContentBlockStart
                or cls not in _INTERESTING
            ):
                continue
            if now is None:
                loop = asyncio._get_running_loop()
                now = loop.time() if loop is not None else time.monotonic()
            self._on_item(item, cls, key, now)
        if now is not None:
            self._flusher.nudge(loop, now)

    def _take_whole(self, whole: WholeAnswer) -> None:
        loop = asyncio._get_running_loop()
        now = loop.time() if loop is not None else time.monotonic()
        if self._closed or not self._opened:
            self._check_open()
        self._journal.add_whole(whole, now)
        self._flusher.nudge(loop, now)

    def _on_item(self, item: Any, cls: type[Any], key: Any, now: float) -> None:
        if cls is AssistantMessage:
            if item.extra is not None and is_foreign(item, self._envelope.session_id):
                self._refuse(item)
                return
            answer = self._answers.of_streamed(item, key, now)
            if item.is_virtual is not True:
                if self._closed or not self._opened:
                    self._check_open()
                self._journal.add_new(item, now, answer)
        elif cls is UserMessage:
            if item.extra is not None and is_foreign(item, self._envelope.session_id):
                self._refuse(item)
            elif item.is_virtual is not True:
                if self._closed or not self._opened:
                    self._check_open()
                self._journal.add_new(item, now, None)
                if item.is_compact_summary is True:
                    self._flusher.forced = self._queue.last
        elif cls is MessageStop or cls is ResponseFailed:
            self._answers.end(key, now)
        elif cls is RequestStart:
            self._answers.end(key, now)
            if item.attempt <= 1:
                # What the model is told is in the file (a further attempt tells it nothing new).
                self._flusher.hastened = self._queue.last
        elif cls is MessageStart:
            self._answers.start(item, key, now)
        elif cls is StreamNote:
            if item.kind == "no_message_stop":
                self._answers.end(key, now)
        elif is_foreign(item, self._envelope.session_id):
            self._refuse(item)
        else:
            self._take(item, now, None)

    def _refuse(self, item: Any) -> None:
        if self._holds(item):
            self._journal.counts["duplicates"] += 1
        else:
            self._journal.refuse("foreign_messages", f"a message of session {session_of(item)} was refused")

    def _holds(self, message: Any) -> bool:
        """Whether a message of another session is in the file all the same: that went on under this id."""
        return is_member(message) and bool(message.uuid) and self._journal.chain.seen(message.uuid)

    def _take(self, message: Any, now: float, answer: OpenAnswer | None) -> None:
        journal = self._journal
        if message.__class__ is Tombstone:
            journal.take_back(message, now)
        elif message.__class__ is OpaqueRecord:
            # Alone it opens nothing: without a conversation there is no session.
            self._check_not_closed()
            journal.add_opaque(message, now)
        elif is_member(message):
            self._add(message, now, answer)

    def _add(self, message: Any, now: float, answer: OpenAnswer | None) -> None:
        # Open first: only then it is known what is held.
        if self._closed or not self._opened:
            self._check_open()
        self._journal.add_new(message, now, answer)
        if is_compaction(message):
            self._flusher.forced = self._queue.last

    def on_error(self, error: Exception, /) -> None:
        """The run broke: nothing changes any more, so all that is queued goes."""
        self.on_completed()

    def on_completed(self) -> None:
        """The run is complete: all that is queued goes."""
        self._answers.end_all(self._flusher.now())
        self._flusher.forced = self._queue.last
        self._flusher.kick()

    def append(self, message: Message) -> None:
        """Queue one message behind the last one, if the file doesn't hold it. Returns at once.

        Progress and other process items are ignored; a tombstone takes its message back.

        Raises:
            TranscriptError: the message is another session's, the sink is closed, or the file can't be
                opened.
        """
        loop = asyncio._get_running_loop()
        now = loop.time() if loop is not None else time.monotonic()
        cls = message.__class__
        if cls is AssistantMessage or cls is UserMessage:
            one: Any = message
            if one.extra is not None:
                self._check_session(message)
            if one.is_virtual is not True:
                if self._closed or not self._opened:
                    self._check_open()
                self._journal.add_new(message, now, self._answers.of_given(one) if cls is AssistantMessage else None)
                if is_compaction(message):
                    self._flusher.forced = self._queue.last
        else:
            self._check_session(message)
            self._take(message, now, None)
        self._flusher.nudge(loop, now)

    async def record(self, messages: Iterable[Message], *, parent: str | None = None, wait: bool = True) -> str | None:
        """Write those of ``messages`` that the file doesn't hold.

        What is held already moves the pointer only where it stands before all new ones: the first new
        message hangs on it, else on ``parent``, else on the last chain member. Behind a boundary that is
        held, only what came after it does. What a new boundary preserves is written before it. A tool's
        result that came to stand between held messages (``resume`` makes those that are missing) hangs on
        its call, and what is behind it counts as if it had been there.

        Args:
            messages: the whole conversation, or its end.
            parent: what the first new message hangs on, unless held ones come before it.
            wait: return when they are in the file, with all that was queued before. False only starts
                the writing (and lets the newest line of an open answer wait for its end).

        Returns:
            The uuid of the last chain member among them, else the pointer's.

        Raises:
            TranscriptError: a message is another session's, ``parent`` isn't in the file or the queue
                (nothing is written then); the sink is closed; the device failed (the lines are kept).
        """
        messages = list(messages)
        compacts = False
        for message in messages:
            self._check_session(message)
            compacts = compacts or is_compaction(message)
        self._check_not_closed()
        if parent is not None or any(map(is_member, messages)):
            self.open()
        journal, chain = self._journal, self._journal.chain
        if compacts:
            messages = kept_first(messages, chain.seen)
        if parent is not None and not chain.seen(parent):
            raise TranscriptError(f"parent {parent} is neither in the transcript nor in its queue", file=str(self.path))
        pointer = chain.resolve(parent) if parent is not None else chain.pointer
        now = self._flusher.now()
        prefix = True
        since: set[str] | None = None
        # What a new boundary kept stands behind it in the list, and doesn't say that it was put in between.
        last_held = -1 if compacts and _compacts_anew(messages, chain) else _last_held(messages, chain)
        for at, message in enumerate(messages):
            if not is_member(message):
                self._take(message, now, None)
            elif journal.is_new(message):
                followed = chain.pointer
                if prefix:
                    chain.pointer = pointer
                    prefix = at < last_held and _answers(message, chain)
                journal.add(message, now, self._answer_of(message))
                if prefix:
                    chain.pointer = followed
                else:
                    pointer = chain.pointer
            elif prefix:
                uuid: str = message.uuid  # type: ignore[union-attr]
                if uuid in (chain if since is None else since):
                    pointer = uuid
                    if is_boundary(message):
                        # What was kept stands in the list behind the boundary, and in the file before it.
                        since = chain.behind(uuid)
        if self._persist:
            if wait:
                await self._flusher.written(self._queue.last)
            else:
                if compacts:
                    self._flusher.forced = self._queue.last
                self._flusher.hastened = self._queue.last
                self._flusher.kick()
        return chain.resolve(pointer)

    def _answer_of(self, message: Message) -> OpenAnswer | None:
        return self._answers.of_given(message) if isinstance(message, AssistantMessage) else None

    def _check_open(self) -> None:
        self._check_not_closed()
        self.open()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise TranscriptError("the transcript is closed", file=str(self.path))

    def _check_session(self, message: Message) -> None:
        if is_foreign(message, self._envelope.session_id) and not self._holds(message):
            self._journal.counts["foreign_messages"] += 1
            raise TranscriptError(
                f"a message of session {session_of(message)} can't be in the transcript of {self.session_id}",
                file=str(self.path),
                kept=(message,),
            )

    # -- backpressure and ends ---------------------------------------------------------------------------

    def full(self) -> bool:
        """Whether the source should wait; also while the device fails (WIRE.md §3, *Append*)."""
        flusher = self._flusher
        return flusher.busy and flusher.full()

    async def room(self) -> None:
        """Return once it is no longer full.

        Raises:
            TranscriptError: the device failed for longer than ``device_patience``.
        """
        await self._flusher.room()

    async def drain(self) -> None:
        """Write all that is queued, the newest line of an open answer too; return when it is in the file.

        Raises:
            TranscriptError: the device failed (the lines are kept and tried again; ``kept`` has the
                messages), or messages were refused since the last drain (said once).
        """
        if not self._closed:
            await self._flusher.written(self._queue.last)
            self._journal.report(str(self.path))

    async def aclose(self) -> None:
        """Drain, then close the file, release the lock, end the thread. Idempotent.

        A cancelled close releases everything too, but what is in flight ends by itself.

        Raises:
            TranscriptError: as :meth:`drain`, once; lines that couldn't be written are lost now, ``kept``
                has their messages.
        """
        if self._closing is not None:
            if not self._closing.done():
                await asyncio.wait([self._closing])
            return
        self._closing = asyncio.get_running_loop().create_task(self._close(), name="turnstream-transcript-close")
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            self._closing.cancel()
            self._release()
            raise

    async def _close(self) -> None:
        try:
            await self._flusher.written(self._queue.last)
        finally:
            self._release()
        self._journal.report(str(self.path))

    def _release(self) -> None:
        self._closed = True
        self._flusher.close()

    def statistics(self) -> Mapping[str, Any]:
        """Counters: what is in the file, what waits (bytes of waiting messages are estimates), what was odd."""
        return {
            "session_id": self.session_id,
            **self._flusher.statistics(),
            "coerced_lines": self._envelope.coerced,
            **self._journal.counts,
        }


def _compacts_anew(messages: Sequence[Any], chain: Chain) -> bool:
    """Whether one of them is a boundary that isn't in the transcript yet."""
    return any(is_boundary(message) and not chain.seen(message.uuid) for message in messages)


def _last_held(messages: Sequence[Message], chain: Chain) -> int:
    """Where the last of the messages stands that is a member already; -1 if none is."""
    for at in range(len(messages) - 1, -1, -1):
        if getattr(messages[at], "uuid", None) in chain:
            return at
    return -1


def _answers(message: Message, chain: Chain) -> bool:
    """Whether it is the result of a call that is in the transcript."""
    return isinstance(message, UserMessage) and message.source_tool_assistant_uuid in chain


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.environ.get("PWD") or "/"
