"""``resume``: the conversation that a transcript holds, ready to be gone on with (WIRE.md §3)."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from turnstream.messages.codec import from_wire, to_wire
from turnstream.messages.errors import TranscriptError
from turnstream.messages.types import Message, OpaqueRecord, UserMessage
from turnstream.sinks.transcript.reading.branches import Fork, find_forks
from turnstream.sinks.transcript.reading.content import Content, Lines, answered_ids, message_of
from turnstream.sinks.transcript.reading.heads import USER, Member
from turnstream.sinks.transcript.reading.index import Index, build_index
from turnstream.sinks.transcript.reading.leaf import Ways
from turnstream.sinks.transcript.reading.links import Links
from turnstream.sinks.transcript.reading.mending import complete_calls, drop_repeats, drop_thinking
from turnstream.sinks.transcript.reading.report import ResumeReport
from turnstream.sinks.transcript.reading.siblings import Siblings
from turnstream.sinks.transcript.sidefiles import SIDE_FILES, with_side_files

__all__ = ["Resumed", "forks", "resume"]


class Resumed(msgspec.Struct, kw_only=True):
    """A conversation read from a transcript.

    Attributes:
        messages: oldest first, mended. What was read unchanged has its line in ``raw``; what was mended or made
            hasn't.
        leaf: uuid of the record that the chain ends with, on which the next one hangs; None if it has none.
        forks: the branches that were not taken, the newest first; each can be resumed by its leaf.
        report: what was bridged, mended and skipped, and what the file holds.
        session_id: of the chain's last record that names one.
        cwd: working folder of the chain's last record that names one.
        title: the session's custom title, else another that the file gives.
        path: of the file.
    """

    messages: list[Message]
    leaf: str | None
    forks: list[Fork]
    report: ResumeReport
    session_id: str | None
    cwd: str | None
    title: str | None
    path: Path

    @property
    def is_session(self) -> bool:
        """Whether the file holds a conversation at all; ``report.holds()`` says what it does hold."""
        return bool(self.messages)


def resume(
    path: str | os.PathLike[str],
    *,
    leaf: str | None = None,
    strict: bool = False,
    history: bool = False,
    mend: bool = True,
    side_files: bool = True,
) -> Resumed:
    """Read the conversation that goes on from the newest leaf of a transcript.

    One pass over the file finds the chain; the lines of the chain are read again and decoded. Memory: the chain, and
    some hundred bytes a record.

    The chain begins at the newest compact boundary, as the context of the next request does. A file without a
    conversational record is no session: ``messages`` is empty, and the report says what the file holds.

    Args:
        path: of a transcript.
        leaf: uuid of the record to go back from, instead of the newest leaf (see :func:`forks`).
        strict: refuse a file with damage instead of bridging and skipping it.
        history: go on before compact boundaries, to the first message.
        mend: drop thinking that can't be sent, answer open tool calls with errors, attach once after a compaction.
        side_files: load large results back from their side files.

    Raises:
        TranscriptError: the file can't be read; ``leaf`` isn't in it; with ``strict`` what is broken, or that the
            file holds no conversation.
    """
    with _open(path) as file, _without_gc():
        try:
            return _Resume(file, Path(path), history=history, mend=mend, side_files=side_files).run(leaf, strict)
        except OSError as error:
            raise _cannot_read(path, error) from error


def forks(path: str | os.PathLike[str]) -> list[Fork]:
    """The branches of a transcript, the newest first; each can be resumed by its leaf.

    A branch is a way in which the conversation went on: what parallel tool calls hang side by side is one.

    Raises:
        TranscriptError: the file can't be read.
    """
    with _open(path) as file:
        try:
            run = _Resume(file, Path(path), history=False, mend=False, side_files=False)
            return run.forks()
        except OSError as error:
            raise _cannot_read(path, error) from error


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """No looking for garbage meanwhile.

    All that is decoded is kept and holds no circles, but the collector would walk all of it again and again: half of
    the time at 200 MB, and more than linear. Two threads may do this at once: whoever found it running starts it again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _count_as_old()
            gc.enable()


def _count_as_old() -> None:
    """Spare the collector its first walk over what was just made: it is put where all comes that stays.

    Only the next full collection looks at it then. What a program froze itself must stay frozen, so not there.
    """
    if hasattr(gc, "freeze") and gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()


def _open(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return open(path, "rb", buffering=1 << 18)
    except OSError as error:
        raise _cannot_read(path, error) from error


def _cannot_read(path: str | os.PathLike[str], error: OSError) -> TranscriptError:
    return TranscriptError(f"the transcript can't be read: {error.strerror or error}", file=os.fspath(path))


class _Resume:
    """One reading of one file."""

    def __init__(self, file: BinaryIO, path: Path, *, history: bool, mend: bool, side_files: bool) -> None:
        self.path = path
        self.history = history
        self.mend = mend
        self.side_files = side_files
        self.report = ResumeReport()
        self.lines = Lines(file)
        self._results: dict[int, bool] = {}
        self.index: Index = build_index(file, self.report)
        self.links = Links(self.index, self.is_result)
        self.ways = Ways(self.index, self.links, self.lines)

    def run(self, leaf: str | None, strict: bool) -> Resumed:
        links, report = self.links, self.report
        if leaf is None:
            at = self.ways.newest_leaf()
            self._report_passed(at)
        else:
            at = links.find(leaf)
            if at < 0:
                raise self._no_such_leaf(leaf)
            self.ways.relink(at)
        order = self.ways.chain(at, self.history)
        self._report_links(order)
        messages = self._messages(order)
        if strict:
            self._refuse(messages)
        session_id, cwd = _of_session(messages)
        titles = self.index.titles
        return Resumed(
            messages=messages,
            leaf=links.members[at].uuid or None if at >= 0 else None,
            forks=self._forks(at),
            report=report,
            session_id=session_id,
            cwd=cwd,
            title=next((titles[kind] for kind in ("custom-title", "ai-title", "summary") if kind in titles), None),
            path=self.path,
        )

    def forks(self) -> list[Fork]:
        """All branches, the one that resume takes first."""
        return self._forks(self.ways.newest_leaf(), with_taken=True)

    def _forks(self, leaf: int, *, with_taken: bool = False) -> list[Fork]:
        way = self.ways.chain(leaf, history=True)
        return find_forks(self.links, self.lines, way, self.is_result, with_taken=with_taken)

    def _no_such_leaf(self, leaf: str) -> TranscriptError:
        gone = self.index.by_uuid.get(leaf)
        why = "was taken back" if gone is not None and gone.gone else "isn't in the file"
        hint = "forks(path) lists the branches that can be resumed"
        return TranscriptError(f"the record {leaf} {why}", file=str(self.path), hint=hint)

    def _report_passed(self, leaf: int) -> None:
        if self.ways.passed >= 0:
            member, taken = self.links.members[self.ways.passed], self.links.members[leaf]
            self.report.add(
                "boundary_first",
                "it hangs on what was before the newest compaction",
                line=member.line,
                offset=member.offset,
                uuid=member.uuid or None,
                target=taken.uuid or None,
            )

    def _report_links(self, order: list[int]) -> None:
        links, report = self.links, self.report
        if links.flat_until:
            part = "the file" if links.flat_until == len(links.members) else "its beginning"
            report.add("flat_file", f"no line of {part} has its parent in the file: their order is the chain")
        for at in order:
            bridge = links.bridges.get(at)
            if bridge is None:
                continue
            member = links.members[at]
            target = links.members[member.up].uuid or None if member.up >= 0 else None
            done = f"bridged to {target or 'the record before it'}" if member.up >= 0 else "nothing stands before it"
            report.add(
                bridge.kind,
                f"{bridge.why}; {done}",
                line=member.line,
                offset=member.offset,
                uuid=member.uuid or None,
                target=target,
            )
        there = set(order) if self.ways.segments.done else set()
        for segment in self.ways.segments.done:
            if segment.boundary not in there:
                continue
            member = links.members[segment.boundary]
            where: dict[str, Any] = {"line": member.line, "offset": member.offset, "uuid": member.uuid or None}
            if segment.problem is None:
                head, tail = links.members[segment.head].uuid, links.members[segment.tail].uuid
                report.add("segment_relinked", f"{head} … {tail} stand behind the summary", **where)
            else:
                report.add("segment_left", segment.problem, **where)

    # -- content ---------------------------------------------------------------------------------------------

    def is_result(self, member: Member) -> bool:
        """Whether a user member holds a tool's result."""
        if member.kind != USER:
            return False
        if member.source is not None:
            return True
        known = self._results.get(member.index)
        if known is None:
            line = self.lines.one(member)
            known = b"tool_result" in line and bool(answered_ids(message_of(line)))
            self._results[member.index] = known
        return known

    def _messages(self, order: list[int]) -> list[Message]:
        """The chain's messages and what belongs to them."""
        siblings = Siblings(self.links, order, self.is_result)
        members = self.links.members
        content = Content()
        wanted = sorted([*order, *siblings.wanted])
        content.read(self.lines, map(members.__getitem__, wanted), self._report_unread)
        found = content.messages
        order = siblings.compose(content, self.report)
        if len(found) < len(wanted):
            order = [at for at in order if at in found]
        messages = [found[at] for at in order]
        if self.side_files:
            spilled = {at for at in content.answered if SIDE_FILES in (found[at].extra or ())}  # type: ignore[union-attr]
            for place, at in enumerate(order) if spilled else ():
                if at in spilled:
                    messages[place] = self._with_side_files(messages[place])
        if self.mend:
            asked = {place: content.asked[at] for place, at in enumerate(order) if at in content.asked}
            here = content.answered.keys() if len(order) == len(found) else content.answered.keys() & order
            answered = {ident for at in here for ident in content.answered[at]}
            messages = complete_calls(messages, self._say, asked, answered)
            thinking = (found[at] for at in content.thinking)
            messages = drop_repeats(drop_thinking(messages, self._say, thinking), self._say)
        return messages

    def _report_unread(self, member: Member, message: Message) -> None:
        where: dict[str, Any] = {"line": member.line, "offset": member.offset, "uuid": member.uuid or None}
        if isinstance(message, OpaqueRecord) and message.problem is not None:
            self.report.add("bad_line", message.problem, **where)
        else:
            self.report.add("changed", "the line isn't what it was when the file was indexed", **where)

    def _with_side_files(self, message: Message) -> Message:
        record, problems = with_side_files(to_wire(message), self.path)
        for problem in problems:
            self._say("side_file_missing", message, problem.message)
        loaded = from_wire(record)
        if not isinstance(loaded, UserMessage) or loaded.extra == message.extra:  # type: ignore[union-attr]
            return message
        self._say("side_file_loaded", message, "a large result was loaded from its side file")
        # It isn't its line any more; what the line has beside it stays known.
        loaded.__dict__["template"] = message.__dict__["raw"]  # pyright: ignore[reportIndexIssue]
        return loaded

    def _say(self, kind: str, message: Message, why: str) -> None:
        uuid = getattr(message, "uuid", None) or None
        member = self.index.by_uuid.get(uuid) if uuid else None
        if member is None:
            self.report.add(kind, why, uuid=uuid)
        else:
            self.report.add(kind, why, line=member.line, offset=member.offset, uuid=uuid)

    def _refuse(self, messages: list[Message]) -> None:
        """Raise if the file is damaged or holds no conversation."""
        damage = self.report.damage
        if damage:
            first = damage[0]
            raise TranscriptError(
                f"line {first.line}: {first.why}" if first.line else first.why,
                file=str(self.path),
                byte_offset=first.offset if first.line else None,
                kept=messages,
                hint=f"{len(damage)} findings; resume without strict bridges and skips them",
            )
        if not messages:
            raise TranscriptError(f"the file holds no conversation: {self.report.holds()}", file=str(self.path))


def _of_session(messages: list[Message]) -> tuple[str | None, str | None]:
    session_id: str | None = None
    cwd: str | None = None
    for message in reversed(messages):
        extra = getattr(message, "extra", None) or {}
        if session_id is None and isinstance(extra.get("sessionId"), str):
            session_id = extra["sessionId"]
        if cwd is None and isinstance(extra.get("cwd"), str):
            cwd = extra["cwd"]
        if session_id is not None and cwd is not None:
            break
    return session_id, cwd
