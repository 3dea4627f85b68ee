"""A session's file read once, for the list: bounded by its answers and uuids, not by its size (WIRE.md §3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec

from turnstream.messages.codec import from_wire
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, dumps, loads
from turnstream.messages.kinds import purpose_of
from turnstream.messages.texts import SYNTHETIC_MODEL
from turnstream.messages.types import UserMessage
from turnstream.sinks.transcript.fillers import is_filler
from turnstream.sinks.transcript.layout import project_slug
from turnstream.sinks.transcript.lines import CHAIN_TYPES, UNKNOWN_MODEL
from turnstream.sinks.transcript.reading.records import BOM, MAX_LINE, records_of
from turnstream.sinks.transcript.sessions.info import Digest, Problem, moment
from turnstream.sinks.transcript.sessions.titles import Titles

__all__ = ["digest"]

_SHOWN: Final = 3
"""Of a file's problems; all are counted."""
# What most writers make of a time: these compare as texts.
_USUAL: Final = len("2025-06-01T10:00:00.000Z")


class _Line(msgspec.Struct):
    """The keys of a record that matter here; everything else is skipped at the decoder's speed."""

    type: Any = None
    uuid: Any = None
    sidechain: Any = msgspec.field(default=None, name="isSidechain")
    timestamp: Any = None
    cwd: Any = None
    branch: Any = msgspec.field(default=None, name="gitBranch")
    custom_title: Any = msgspec.field(default=None, name="customTitle")
    generated_title: Any = msgspec.field(default=None, name="aiTitle")
    summary: Any = None
    leaf: Any = msgspec.field(default=None, name="leafUuid")
    target: Any = msgspec.field(default=None, name="targetUuid")
    title: Any = None
    message: msgspec.Raw = msgspec.Raw(b"")
    attachment: msgspec.Raw = msgspec.Raw(b"")


class _Answer(msgspec.Struct):
    id: Any = None
    model: Any = None
    usage: Any = None


class _Block(msgspec.Struct):
    type: Any = None


class _Blocks(msgspec.Struct):
    content: list[_Block]


_line: Final = msgspec.json.Decoder(_Line).decode
_answer: Final = msgspec.json.Decoder(_Answer).decode
_blocks: Final = msgspec.json.Decoder(_Blocks).decode
_BROKEN: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


def digest(file: BinaryIO, *, project: str | None = None) -> Digest | None:
    """Read the lines once, in order; what can't be read is counted and skipped.

    Args:
        file: a session's file, open for binary reading at its start.
        project: the name of the project's folder: of several working folders in the file the one that fits it
            is the session's.

    Returns:
        What it holds; None if it isn't a session: it has no record of a conversation, or only a sub-agent's.

    Raises:
        OSError: it can't be read.
    """
    reader = _Reader(project)
    offset = 0
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            reader.bad(number, offset, f"longer than {MAX_LINE // 1024 // 1024} MiB")
            offset += len(line)
            while rest := file.readline(1 << 20):
                offset += len(rest)
                if rest.endswith(b"\n"):
                    break
            continue
        reader.line(line, number, offset)
        offset += len(line)
    return reader.result()


class _Reader:
    def __init__(self, project: str | None) -> None:
        self._project = project
        self._out = Digest(tokens={}, models=[], problems=[])
        self._titles = Titles()
        self._conversation = False
        self._fits = False  # whether the working folder is the project's
        self._nameless = 0
        self._nameless_turns = 0
        # A uuid's last record says what it is; True for a human's prompt.
        self._messages: dict[str, bool] = {}
        self._uuids: set[str] = set()
        self._gone: set[str] = set()
        self._answers: dict[str, tuple[Any, Any]] = {}
        self._first = self._last = ""

    def bad(self, line: int, offset: int, problem: str) -> None:
        """Count a piece that is no record."""
        self._out.bad_lines += 1
        if len(self._out.problems) < _SHOWN:
            self._out.problems.append(Problem(line, offset, problem))

    def line(self, raw: bytes, number: int, offset: int) -> None:
        """Take one line, with its line end."""
        if is_filler(raw):
            self._out.filler_bytes += len(raw)
            return
        try:
            head = _line(raw)
        except _BROKEN:
            self._slowly(raw, number, offset)
            return
        self._take(head, raw)

    def _slowly(self, raw: bytes, number: int, offset: int) -> None:
        """A line that isn't one record: empty, torn, two on a line, lone surrogates."""
        if number == 1 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
            offset += len(BOM)
        ended = raw.endswith(b"\n")
        for record in records_of(raw[:-1] if ended else raw, line=number, offset=offset, ended=ended):
            if record.value is not None:
                plain = dumps(record.value)
                try:
                    self._take(_line(plain), plain)
                except _BROKEN as error:
                    self.bad(number, record.offset, str(error))
            elif record.problem is not None:
                self.bad(number, record.offset, record.problem)

    def _take(self, head: _Line, raw: bytes) -> None:
        if head.timestamp is not None:
            self._time(head.timestamp)
        kind = head.type
        if not isinstance(kind, str) or kind not in CHAIN_TYPES or not _is_whole(kind, head):
            self._other(kind, head)
            return
        uuid = head.uuid if isinstance(head.uuid, str) and head.uuid else None
        if head.sidechain is not True:
            self._conversation = True
            self._of_session(head)
            if kind == "user":
                self._count(uuid, self._is_prompt(raw, head.message))
            elif kind == "assistant":
                self._count(uuid, False)
        if uuid is not None:
            self._uuids.add(uuid)
        if kind == "assistant":
            self._usage(head.message, uuid)

    def _other(self, kind: Any, head: _Line) -> None:
        if kind == "custom-title":
            self._titles.custom(_first_text(head.custom_title, head.title))
        elif kind == "ai-title":
            self._titles.generated(_first_text(head.generated_title, head.title))
        elif kind == "summary":
            self._titles.summary(head.summary, head.leaf)
        elif kind == "tombstone":
            if isinstance(head.target, str):
                self._gone.add(head.target)

    def _of_session(self, head: _Line) -> None:
        out = self._out
        if isinstance(head.branch, str) and head.branch:
            out.git_branch = head.branch
        if not self._fits and isinstance(head.cwd, str) and head.cwd and head.cwd != out.cwd:
            self._fits = self._project is not None and project_slug(head.cwd) == self._project
            if self._fits or out.cwd is None:
                out.cwd = head.cwd

    def _count(self, uuid: str | None, prompt: bool) -> None:
        if uuid is not None:
            self._messages[uuid] = prompt
        else:
            self._nameless += 1
            self._nameless_turns += prompt

    def _is_prompt(self, raw: bytes, message: msgspec.Raw) -> bool:
        """Whether a user's record is a human's prompt; takes the title from it."""
        # The cheap question first: most records of users are results, and those are large.
        content = bytes(message)
        if b"tool_result" in content and _holds_result(content):
            return False
        try:
            user = from_wire(loads(raw, max_depth=MAX_RECORD_DEPTH))
        except JSONValueError:
            return False
        if not isinstance(user, UserMessage):
            return False
        kind = purpose_of(user)
        if kind == "command":
            self._titles.command(user.message.get("content"))
        if kind != "prompt" or user.is_visible_in_transcript_only or user.is_virtual:
            return False
        self._titles.prompt(user.message.get("content"))
        return True

    def _usage(self, raw: msgspec.Raw, uuid: str | None) -> None:
        try:
            answer = _answer(raw)
        except _BROKEN:
            return
        if answer.model == SYNTHETIC_MODEL:
            return
        # Several lines of one answer repeat its usage, the last one has the final numbers (FAULTS 28). The id alone
        # tells them: gateways leave the request's id out (FAULTS 29).
        ident = answer.id if isinstance(answer.id, str) and answer.id else f"uuid {uuid or len(self._answers)}"
        before = self._answers.get(ident, (None, None))
        usage = answer.usage if isinstance(answer.usage, dict) else before[1]
        self._answers[ident] = (answer.model if isinstance(answer.model, str) else before[0], usage)

    def _time(self, text: Any) -> None:
        if not isinstance(text, str):
            return
        usual = len(text) == _USUAL and text.endswith("Z")
        if usual and self._first <= text <= self._last and len(self._first) == len(self._last) == _USUAL:
            return
        at = moment(text)
        if at is None:
            return
        if not self._first or at < (moment(self._first) or 0.0):
            self._first = text
        if not self._last or at > (moment(self._last) or 0.0):
            self._last = text

    def result(self) -> Digest | None:
        """What was read so far."""
        if not self._conversation:
            return None
        out = self._out
        kept = [prompt for uuid, prompt in self._messages.items() if uuid not in self._gone]
        out.messages = len(kept) + self._nameless
        out.turns = sum(kept) + self._nameless_turns
        out.answers = len(self._answers)
        for model, usage in self._answers.values():
            if model is not None and model != UNKNOWN_MODEL and model not in out.models:
                out.models.append(model)
            for key, value in _numbers(usage or {}):
                out.tokens[key] = out.tokens.get(key, 0) + value
        out.title = self._titles.best(self._uuids)
        out.first_activity = self._first or None
        out.last_activity = self._last or None
        return out


def _is_whole(kind: str, head: _Line) -> bool:
    """Whether a conversational type has its payload; without it, it isn't part of a conversation."""
    if kind == "system":
        return True
    return bytes(head.attachment if kind == "attachment" else head.message).startswith(b"{")


def _first_text(*values: Any) -> Any:
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


def _holds_result(message: bytes) -> bool:
    try:
        return any(block.type == "tool_result" for block in _blocks(message).content)
    except _BROKEN:
        return False


def _numbers(usage: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int | float]]:
    """The numbers of a usage by key, nested ones as ``outer.inner``; lists (``iterations``) repeat them."""
    for key, value in usage.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield prefix + key, value
