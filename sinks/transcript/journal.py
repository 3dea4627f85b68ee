"""What the transcript takes, in which order and hanging on what, until each line is made (WIRE.md §3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from turnstream.messages.errors import TranscriptError
from turnstream.messages.identity import uuid_of
from turnstream.messages.ids import IdSource
from turnstream.messages.jsonvalue import dumps
from turnstream.messages.types import (
    RESULT_TYPES,
    AssistantMessage,
    AttachmentMessage,
    Message,
    OpaqueRecord,
    Tombstone,
    UserMessage,
    raw_of,
)
from turnstream.operators.whole import WholeAnswer
from turnstream.sinks.transcript.chain import Bridge, Chain
from turnstream.sinks.transcript.compacting import is_boundary
from turnstream.sinks.transcript.guards import Budget, TranscriptLimitError, stand_in
from turnstream.sinks.transcript.lazy import RENDERED, Entry, LazyQueue, OpenAnswer
from turnstream.sinks.transcript.lines import Envelope, logical_parent_of
from turnstream.sinks.transcript.scan import Existing
from turnstream.sinks.transcript.sidefiles import SideFile, Spiller
from turnstream.sinks.transcript.tombstones import Tombstones

__all__ = ["Journal", "Redact", "is_foreign", "is_member", "session_of"]

# Bytes: an answer's line up to this is made when it comes, larger ones when they are written.
_SMALL: Final = 64 * 1024

Redact = Callable[[Message], Message | None]
"""Takes a message that is about to be written, returns what to write instead, None for nothing.

It must not change the message it is given (others hold it): :func:`turnstream.messages.replace` makes a
changed copy.
"""

_log = logging.getLogger("turnstream.transcript")

_MEMBERS: Final = frozenset(RESULT_TYPES)


class Journal:
    """Chain, queue and envelope of one session. No I/O, no clock of its own.

    Args:
        envelope: makes the lines.
        ids: makes ids for members that have none.
        redact: see :data:`Redact`.
        title: the session's title, None for none.
        title_first: whether the title stands before the first member or behind it.
        keep: hold the members in ``messages`` instead of queueing them.
        tombstones: what becomes of lines that are in the file.
        spiller: takes large results out of messages; None: they stay.
        budget: what of the limits is left.

    Attributes:
        chain: the members.
        queue: what waits to be written.
        messages: the members, with ``keep``.
        side_files: what must be written before the lines that were rendered.
        counts: what happened to items that aren't plainly written.
    """

    def __init__(
        self,
        envelope: Envelope,
        *,
        ids: IdSource,
        redact: Redact | None,
        title: str | None,
        title_first: bool,
        keep: bool,
        tombstones: Tombstones = "erase",
        spiller: Spiller | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.envelope = envelope
        self.chain = Chain()
        self.queue = LazyQueue()
        self.messages: list[Message] = []
        self.side_files: list[SideFile] = []
        self.counts: dict[str, int] = dict.fromkeys(
            (
                "duplicates",
                "opaque_records",
                "tombstones_queued",
                "tombstones_on_disk",
                "foreign_messages",
                "redacted_messages",
                "redact_errors",
                "unwritable_messages",
                "records_over_limit",
                "records_over_session_limit",
                "loaded_records",
                "loaded_bad_lines",
            ),
            0,
        )
        self._ids = ids
        self._redact = redact
        self._title = title
        self._title_first = title_first
        self._keep = keep
        self._append_tombstones = tombstones == "append"
        self._spiller = spiller
        self._budget = budget
        self._spill_over: float = spiller.limit if spiller is not None else float("inf")
        self._refused: Callable[[str, str], TranscriptError] | None = None
        self._refusals = 0

    def go_on_with(self, existing: Existing) -> None:
        """Take over what the file holds."""
        self.chain = existing.chain
        self.counts["loaded_records"] = existing.records
        self.counts["loaded_bad_lines"] = existing.bad_lines
        if existing.title == self._title:
            self._title = None

    # -- refusing ----------------------------------------------------------------------------------------

    def refuse(self, count: str, why: str, **facts: Any) -> None:
        """Count something that isn't written (as it is) and remember it for :meth:`report`.

        Args:
            count: the counter's name.
            why: what happened.
            facts: what a :class:`TranscriptLimitError` says; none if no limit was exceeded.
        """
        self.counts[count] += 1
        self._refusals += 1
        if self._refused is None:
            error: Callable[..., TranscriptError] = partial(TranscriptLimitError, **facts) if facts else TranscriptError
            self._refused = lambda more, file: error(f"{why}{more}", file=file)
        if self.counts[count] == 1:
            _log.warning("session %s: %s", self.envelope.session_id, why)

    def report(self, file: str) -> None:
        """Say once what was refused.

        Raises:
            TranscriptError: something was, since the last report.
        """
        refused, refusals = self._refused, self._refusals
        self._refused, self._refusals = None, 0
        if refused is not None:
            raise refused(f" (and {refusals - 1} more)" if refusals > 1 else "", file)

    # -- queueing ----------------------------------------------------------------------------------------

    def is_new(self, message: Any) -> bool:
        """Whether the member ``message`` isn't held yet; one that is held is counted."""
        if message.uuid and self.chain.seen(message.uuid):
            self.counts["duplicates"] += 1
            return False
        return True

    def add_new(self, message: Any, now: float, answer: OpenAnswer | None) -> None:
        """:meth:`add` the member ``message`` unless it is held."""
        uuid = message.uuid
        if uuid and self.chain.seen(uuid):
            self.counts["duplicates"] += 1
        else:
            self.add(message, now, answer)

    def add(self, message: Any, now: float, answer: OpenAnswer | None) -> None:
        """Make a new member the last of the chain and queue its line."""
        uuid = message.uuid or self._ids("transcript")
        before = self.chain.append(uuid)
        if self._keep:
            self.messages.append(message)
            return
        entry = Entry(message, now, uuid, before, None, answer)
        if self._title is None:
            self.queue.add(entry)
        else:
            title = Entry(None, now, line=self.envelope.title(self._title))
            self._title = None
            for one in (title, entry) if self._title_first else (entry, title):
                self.queue.add(one)

    def add_whole(self, whole: WholeAnswer, now: float) -> None:
        """:meth:`add_new` the messages of an answer that came whole (:class:`AnswerItems`): it is over."""
        answer = OpenAnswer(whole.template["id"], ended_at=now)
        template = whole.template
        if self._keep or self._title is not None or self._redact is not None or template.get("model") is None:
            for message in whole.messages:
                self.add_new(message, now, answer)
            return
        chain, queue, rest_of = self.chain, self.queue, self.envelope.plain_rest
        for message, size in zip(whole.messages, whole.sizes, strict=True):
            uuid = message.uuid
            if chain.seen(uuid):
                self.counts["duplicates"] += 1
            elif uuid and message.timestamp and size < _SMALL and (rest := rest_of(message, uuid)) is not None:
                # All but the parent is final: the line itself waits, not what it is made of.
                queue.add_ended(Entry(RENDERED, now, uuid, chain.append(uuid), rest, answer, len(rest), plain=True))
            else:
                self.add(message, now, answer)

    def add_opaque(self, record: OpaqueRecord, now: float) -> None:
        """Queue a record that we don't model as it is, outside the chain."""
        line = raw_of(record)
        if line is None and isinstance(record.data, dict):
            line = dumps(record.data)
        if line and b"\n" not in line and not self._keep:
            self.counts["opaque_records"] += 1
            self.queue.add(Entry(None, now, line=line + b"\n"))

    def take_back(self, tombstone: Tombstone, now: float) -> None:
        """Drop a queued member; for one that is in the file queue that it be taken out. Unknown ones pass."""
        uuid = uuid_of(tombstone.message)
        if not uuid or not self.chain.remove(uuid):
            return
        if self._keep:
            self.messages = [message for message in self.messages if uuid_of(message) != uuid]
        elif self.queue.drop(uuid):
            self.counts["tombstones_queued"] += 1
        else:
            # Also for what is being written right now: nothing overtakes it.
            self.counts["tombstones_on_disk"] += 1
            if self._append_tombstones:
                self.queue.add(Entry(None, now, line=self.envelope.tombstone(uuid)))
            else:
                self.queue.add(Entry(None, now, uuid))

    def erasures(self, entries: Sequence[Entry]) -> tuple[list[str], list[Bridge]]:
        """What is to be taken out of the file, and what may hang on it there."""
        uuids = [entry.uuid for entry in entries]
        return uuids, self.chain.bridges(set(uuids))

    def still_wanted(self, entry: Entry) -> bool:
        """Whether an entry that couldn't be written is to be tried again: not if it was taken back meanwhile."""
        if entry.message is None or entry.uuid in self.chain:
            return True
        self.queue.cancel(entry.uuid)
        return False

    # -- serializing -------------------------------------------------------------------------------------

    def render(self, entry: Entry) -> bytes | None:
        """The entry's line, now that its turn has come. None if it is dropped; never raises."""
        message = entry.message
        if message is None:
            return entry.line
        if entry.plain:
            return self.envelope.joined(self.chain.resolve(entry.before), entry.line)  # type: ignore[arg-type]
        try:
            cls = message.__class__
            if (cls is AssistantMessage or cls is AttachmentMessage) and self._redact is None:
                return self.envelope.line(message, entry.uuid, self.chain.resolve(entry.before))
            return self._line(message, entry)
        except Exception as error:  # noqa: BLE001 - an object's own code; the other lines must go on
            self.chain.remove(entry.uuid)
            self.refuse("unwritable_messages", f"message {entry.uuid} can't be written: {error!r}")
            return None

    def guarded(self, entry: Entry, line: bytes) -> bytes:
        """What is written instead of a line that is larger than a limit."""
        assert self._budget is not None
        guard, limit = self._budget.exceeded(len(line))
        shorter = stand_in(line, limit=limit, guard=guard)
        if shorter is line:
            return line  # it can't be shorter
        record = f"record {entry.uuid}" if entry.uuid else "a record"
        of = "a record" if guard == "record" else "the session"
        self.refuse(
            "records_over_limit" if guard == "record" else "records_over_session_limit",
            f"{record} of {len(line):,} bytes was replaced by a stand-in: the limit of {of} is {limit:,} bytes",
            guard=guard,
            size=len(line),
            limit=limit,
            uuid=entry.uuid or None,
        )
        return shorter

    def take_side_files(self) -> list[SideFile]:
        """The side files of the lines that were rendered since."""
        files, self.side_files = self.side_files, []
        return files

    def _line(self, message: Message | None, entry: Entry) -> bytes | None:
        """The line of a member; parents are what is valid now (what hung on a dropped one is bridged)."""
        assert message is not None
        if self._redact is not None:
            message = self._redacted(message, entry.uuid)
            if message is None:
                return None
        before = self.chain.resolve(entry.before)
        parent = before
        if isinstance(message, UserMessage):
            source = message.source_tool_assistant_uuid
            if source is not None and source in self.chain and source != entry.uuid:
                parent = source  # a tool's result hangs on the message that asked
                if source != before:
                    self.chain.hang(entry.uuid, source)
            if entry.weight > self._spill_over:
                message = self._spilled(message)
        elif is_boundary(message):
            return self.envelope.line(message, entry.uuid, None, logical_parent_of(message) or before)
        return self.envelope.line(message, entry.uuid, parent)

    def _spilled(self, message: UserMessage) -> UserMessage:
        assert self._spiller is not None
        spilled, files = self._spiller.spill(message)
        if files and self._budget is not None and not self._budget.takes(sum(len(file.data) for file in files)):
            return message  # no room for it anywhere: the guard makes a stand-in
        self.side_files += files
        return spilled

    def _redacted(self, message: Message, uuid: str) -> Message | None:
        assert self._redact is not None
        try:
            redacted = self._redact(message)
            if redacted is not None and redacted.__class__ not in _MEMBERS:
                raise TypeError(f"it returned {type(redacted).__name__}")
        except Exception as error:  # noqa: BLE001 - the user's function
            # Better no line than one that should have been redacted.
            self.chain.remove(uuid)
            self.refuse("redact_errors", f"message {uuid} isn't written, redact failed: {error!r}")
            return None
        if redacted is None:
            self.chain.remove(uuid)
            self.counts["redacted_messages"] += 1
        return redacted


def is_member(message: Any) -> bool:
    """Whether it belongs into the chain: a result message that isn't virtual (shown, never sent)."""
    cls = message.__class__
    if cls is UserMessage or cls is AssistantMessage:
        return message.is_virtual is not True
    return cls in _MEMBERS


def session_of(message: Any) -> str | None:
    """The session that a message or record says it is of."""
    holder = message.data if message.__class__ is OpaqueRecord else message.extra
    theirs = holder.get("sessionId") if isinstance(holder, dict) else None
    return theirs if isinstance(theirs, str) and theirs else None


def is_foreign(message: Any, session_id: str) -> bool:
    """Whether it is of another session."""
    if message.__class__ in _MEMBERS:
        if message.extra is None:
            return False  # made here
    elif message.__class__ is not OpaqueRecord:
        return False
    theirs = session_of(message)
    return theirs is not None and theirs != session_id
