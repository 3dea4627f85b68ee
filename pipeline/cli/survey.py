"""What a file of messages holds, counted in one pass: memory grows with answers and calls, not with their size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from turnstream.cli.calls import Calls
from turnstream.cli.forks import Forks
from turnstream.cli.reading import BadLine, Record, is_sidechain
from turnstream.messages.codec import to_wire
from turnstream.messages.kinds import purpose_of
from turnstream.messages.texts import SYNTHETIC_MODEL
from turnstream.messages.types import (
    RESULT_TYPES,
    AssistantMessage,
    AttachmentMessage,
    OpaqueRecord,
    ProgressMessage,
    SystemMessage,
    UserMessage,
)

__all__ = ["Survey"]

_BOUNDARIES: Final = ("compact_boundary", "microcompact_boundary")
_NAMELESS: Final = "(none)"
_MOST: Final = 1 << 53
"""Tokens: a larger number in a usage is none; sums of such can't be written, or no longer as JSON."""


@dataclass
class _Times:
    first: tuple[datetime, str] | None = None
    last: tuple[datetime, str] | None = None

    def add(self, text: Any) -> None:
        """Take in a timestamp; what is none is passed over."""
        if not isinstance(text, str) or not text:
            return
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        if self.first is None or at < self.first[0]:
            self.first = (at, text)
        if self.last is None or at > self.last[0]:
            self.last = (at, text)


@dataclass
class _Answer:
    model: str | None
    usage: dict[str, Any] = field(default_factory=dict)


class Survey:
    """Counts record by record; :meth:`report` says what was found so far."""

    def __init__(self) -> None:
        self._lines = 0
        self._line = 0
        self._types: Counter[str] = Counter()
        self._subtypes: dict[str, Counter[str]] = {}
        self._unknown: Counter[str] = Counter()
        self._conversation = 0
        self._sidechain = 0
        self._repeated = 0
        self._errors = 0
        self._aborted = 0
        self._uuids: set[str] = set()
        self._answers: dict[str, _Answer] = {}
        self._calls = Calls()
        self._forks = Forks()
        self._compactions: list[dict[str, Any]] = []
        self._times = _Times()
        self._bad: list[dict[str, Any]] = []

    @property
    def found_conversation(self) -> bool:
        """Whether any record belongs to a conversation."""
        return self._conversation > 0

    def add(self, record: Record | BadLine) -> None:
        """Count one line."""
        if record.line != self._line:
            self._line = record.line
            self._lines += 1
        if isinstance(record, BadLine):
            self._bad.append({"line": record.line, "offset": record.offset, "problem": record.problem})
            return
        message = record.message
        if isinstance(message, OpaqueRecord):
            self._unknown[message.type if message.type is not None else _NAMELESS] += 1
            self._times.add(message.data.get("timestamp") if isinstance(message.data, dict) else None)
            return
        kind = _wire_type(message)
        self._types[kind] += 1
        if (subtype := _subtype(message)) is not None:
            self._subtypes.setdefault(kind, Counter())[subtype] += 1
        self._times.add(getattr(message, "timestamp", None))
        if not isinstance(message, RESULT_TYPES):
            return
        self._conversation += 1
        self._sidechain += is_sidechain(message)
        if message.uuid:
            if message.uuid in self._uuids:
                self._repeated += 1
            self._uuids.add(message.uuid)
        self._forks.add(message, record.line)
        if isinstance(message, AssistantMessage):
            self._assistant(message, record.line)
        elif isinstance(message, UserMessage):
            self._calls.user(message)
        elif isinstance(message, SystemMessage) and message.subtype in _BOUNDARIES:
            self._compactions.append(_compaction(message, record.line))

    def _assistant(self, message: AssistantMessage, line: int) -> None:
        self._errors += message.is_api_error_message is True
        self._aborted += message.is_aborted_mid_stream is True
        self._calls.assistant(message, line)
        body = message.message
        model = body.get("model")
        if model == SYNTHETIC_MODEL:
            return
        # Several lines of one answer repeat its usage; the last one has the final numbers.
        ident = body.get("id")
        key = ident if isinstance(ident, str) and ident else f"uuid {message.uuid or f'line {line}'}"
        answer = self._answers.setdefault(key, _Answer(None))
        answer.model = model if isinstance(model, str) else answer.model
        usage = body.get("usage")
        answer.usage = usage if isinstance(usage, dict) else answer.usage

    def report(self) -> dict[str, Any]:
        """All counts as JSON values."""
        tokens: Counter[str] = Counter()
        models: Counter[str] = Counter()
        for answer in self._answers.values():
            tokens.update(dict(_numbers(answer.usage)))
            models[answer.model if answer.model is not None else _NAMELESS] += 1
        times = self._times
        return {
            "lines": self._lines,
            "types": dict(self._types.most_common()),
            "subtypes": {kind: dict(counts.most_common()) for kind, counts in self._subtypes.items()},
            "unknown_types": dict(self._unknown.most_common()),
            "sidechain_records": self._sidechain,
            "repeated_uuids": self._repeated,
            "answers": len(self._answers),
            "models": dict(models.most_common()),
            "tokens": dict(tokens),
            "api_errors": self._errors,
            "aborted": self._aborted,
            **self._calls.report(),
            "compactions": self._compactions,
            "forks": self._forks.report(),
            "first": times.first[1] if times.first else None,
            "last": times.last[1] if times.last else None,
            "bad_lines": self._bad,
        }


def _numbers(usage: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int | float]]:
    """The numbers of a usage by key, nested ones as ``outer.inner``; lists (``iterations``) repeat them."""
    for key, value in usage.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and -_MOST <= value <= _MOST:
            yield prefix + key, value


def _wire_type(message: Any) -> str:
    """The ``type`` that the message has on the wire."""
    return str(_TYPES.get(type(message)) or to_wire(message)["type"])


_TYPES: Final[dict[type, str]] = {
    UserMessage: "user",
    AssistantMessage: "assistant",
    SystemMessage: "system",
    AttachmentMessage: "attachment",
    ProgressMessage: "progress",
}


def _subtype(message: Any) -> str | None:
    value: Any = None
    if isinstance(message, UserMessage):
        value = purpose_of(message)
    elif isinstance(message, SystemMessage):
        value = message.subtype
    elif isinstance(message, AttachmentMessage):
        value = message.attachment.get("type")
    elif isinstance(message, ProgressMessage):
        value = message.data.get("type") if isinstance(message.data, dict) else None
    else:
        return None
    return value if isinstance(value, str) else _NAMELESS


def _compaction(message: SystemMessage, line: int) -> dict[str, Any]:
    """Where it was, and what is known of it: every field of the metadata is optional (WIRE.md §6)."""
    metadata = message.fields.get("compactMetadata", message.fields.get("microcompactMetadata"))
    if not isinstance(metadata, dict):
        metadata = {}
    return {
        "line": line,
        "subtype": message.subtype,
        "trigger": metadata.get("trigger"),
        "pre_tokens": metadata.get("preTokens"),
    }
