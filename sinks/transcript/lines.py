"""A message's line: envelope first, then the message, as real files have it (WIRE.md §3, *Line*)."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec
import orjson
from msgspec import UNSET

from turnstream.messages.codec import to_wire
from turnstream.messages.ids import Clock, format_timestamp
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, dumps, scrub_text
from turnstream.messages.names import to_wire_name
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    Message,
    OpaqueRecord,
    SystemMessage,
    UserMessage,
)

__all__ = ["CHAIN_TYPES", "Envelope", "logical_parent_of", "own_version"]

CHAIN_TYPES: Final = frozenset({"user", "assistant", "system", "attachment"})
"""The ``type`` of records that are members of the chain."""

# What comes next after the envelope; the message's own further keys follow in their order.
_FIRST: Final = ("type", "subtype", "message", "attachment", "requestId")
# Computed here, whatever the message holds.
_OURS: Final = frozenset({"parentUuid", "logicalParentUuid", "sessionId"})
# A notice with one of these among its own fields goes the general way.
_NOT_FIELDS: Final = frozenset(
    {
        *_FIRST,
        *_OURS,
        *("isSidechain", "userType", "cwd", "version", "gitBranch", "agentId"),
        *("uuid", "timestamp", "content", "level", "isMeta"),
    }
)
# Readers drop a line in which one of these is null; absent is fine.
_NEVER_NULL: Final = ("id", "model")
# An assistant message whose fields between request_id and index are these is plain: nothing optional is set.
_astuple: Final = msgspec.structs.astuple
_OPTIONAL: Final = slice(
    AssistantMessage.__struct_fields__.index("request_id") + 1, AssistantMessage.__struct_fields__.index("index")
)
_PLAIN: Final = _astuple(AssistantMessage(message={}, uuid="", timestamp=""))[_OPTIONAL]
# What a person or a tool said, and no more.
_USER_OPTIONAL: Final = slice(
    UserMessage.__struct_fields__.index("timestamp") + 1, UserMessage.__struct_fields__.index("extra")
)
_USER_KEYS: Final = tuple(map(to_wire_name, UserMessage.__struct_fields__[_USER_OPTIONAL]))
# What orjson gives keeps a buffer of 4 KB behind it, however short it is; the line end makes an exact copy.
_dumps: Final = orjson.dumps
UNKNOWN_MODEL: Final = "<unknown>"
"""The model of an answer that names none."""
# Over 4,300 digits (14,000 bits) an integer has no text.
_BITS: Final = 10_000


@cache
def own_version() -> str:
    """The version of turnstream as readers expect one: three numbers."""
    try:
        version = importlib.metadata.version("turnstream")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    found = re.match(r"\d+\.\d+\.\d+", version)
    return found.group() if found else "0.0.0"


class Envelope:
    """Makes lines of one session.

    Args:
        session_id: on every line.
        cwd: working folder.
        version: three numbers; None is ours.
        git_branch: None leaves the key out.
        user_type: who sits at the other end.
        is_sidechain: whether this is a sub-agent's file.
        agent_id: the sub-agent's id.
        clock: for messages without a timestamp.

    Attributes:
        session_id, is_sidechain, agent_id: may be set until the first line is made.
        coerced: how many lines held values that are no JSON and were written as text.
    """

    def __init__(
        self,
        *,
        session_id: str,
        cwd: str,
        version: str | None,
        git_branch: str | None,
        user_type: str,
        is_sidechain: bool,
        agent_id: str | None,
        clock: Clock,
    ) -> None:
        self.session_id = session_id
        self._cwd = cwd
        self._version = version
        self._git_branch = git_branch
        self._user_type = user_type
        self.is_sidechain = is_sidechain
        self.agent_id = agent_id
        self._clock = clock
        self._base: dict[str, Any] = {}
        self._fixed: dict[str, Any] = {}
        self._rest: dict[str, Any] = {}
        self.coerced = 0

    def _envelope(self) -> dict[str, Any]:
        """What all lines begin with; made for the first one, because the version's lookup takes time."""
        fields = {
            "parentUuid": None,
            "isSidechain": self.is_sidechain,
            "userType": self._user_type,
            "cwd": self._cwd,
            "sessionId": self.session_id,
            "version": self._version or own_version(),
            "gitBranch": self._git_branch,
            "agentId": self.agent_id,
        }
        return {key: value for key, value in fields.items() if value is not None or key == "parentUuid"}

    def line(self, message: Message, uuid: str, parent: str | None, logical: str | None = None) -> bytes:
        """The line of a chain member, with its line end.

        What the message itself says of ``cwd``, ``version``, ``gitBranch`` … (it was read from a file)
        beats the session's values; ids and parents are ours.
        """
        # What was made here, in short ways: the same lines at a quarter of the time.
        one: Any = message
        cls = message.__class__
        if cls is AssistantMessage:
            if (
                _astuple(one)[_OPTIONAL] == _PLAIN
                and one.timestamp
                and one.message.get("id") is not None
                and one.message.get("model") is not None
            ):
                return self.plain_line(one, uuid, parent)
        elif cls is OpaqueRecord or one.extra is not None or not one.timestamp:
            pass
        elif cls is UserMessage:
            return self._user_line(one, uuid, parent)
        elif cls is AttachmentMessage:
            if one.attachment is not None:
                return self._attachment_line(one, uuid, parent)
        elif cls is SystemMessage and logical is None and _NOT_FIELDS.isdisjoint(one.fields):
            return self._system_line(one, uuid, parent)
        return self._general(message, uuid, parent, logical)

    def _general(self, message: Message, uuid: str, parent: str | None, logical: str | None) -> bytes:
        # By getattr: a look into __dict__ makes one for each message, which stays.
        raw: bytes | None = getattr(message, "raw", None)
        if raw is not None and self._is_same(message, uuid, parent, logical) and b"\n" not in raw:
            return raw + b"\n"  # what was read and would say the same keeps its bytes
        own: dict[str, Any] = to_wire(message)
        if not self._base:
            self._base = self._envelope()
        out = self._base.copy()
        out["parentUuid"] = parent
        if logical is not None:
            out = {"parentUuid": parent, "logicalParentUuid": logical, **out}
        if not out.keys().isdisjoint(own):
            for key in out.keys() & own.keys():
                theirs = own.pop(key)
                if theirs is not None and key not in _OURS:
                    out[key] = theirs
        for key in _FIRST:
            if key in own:
                value = own.pop(key)
                if value is not None:
                    out[key] = value
        if message.__class__ is AssistantMessage:
            out["message"] = _without_nulls(out["message"])
        own.pop("uuid", None)
        out["uuid"] = uuid
        out["timestamp"] = own.pop("timestamp", None) or format_timestamp(self._clock())
        if own:
            out.update({key: value for key, value in own.items() if value is not None and key not in _OURS})
        return self._dump(out)

    def _is_same(self, message: Any, uuid: str, parent: str | None, logical: str | None) -> bool:
        extra = message.extra
        return (
            extra is not None
            and message.uuid == uuid
            and extra.get("sessionId") == self.session_id
            and "parentUuid" in extra
            and extra["parentUuid"] == parent
            and (logical is None or logical_parent_of(message) == logical)
        )

    def plain_line(self, message: AssistantMessage, uuid: str, parent: str | None) -> bytes:
        """:meth:`line` for a message of which it is known that nothing optional is set and id, model and time are named.

        The same keys each time: copied as they are, and written in one go.
        """
        out = (self._fixed or self._fix()).copy()
        out["parentUuid"] = parent
        out["message"] = message.message
        if message.request_id is not None:
            out["requestId"] = message.request_id
        out["uuid"] = uuid
        out["timestamp"] = message.timestamp
        try:
            return _dumps(out) + b"\n"
        except TypeError:  # a surrogate, a large integer
            return self._general(message, uuid, parent, None)

    def plain_rest(self, message: AssistantMessage, uuid: str) -> bytes | None:
        """What stands in :meth:`plain_line` behind the parent; None if it takes the general way."""
        out = self._rest
        if not out:
            out = self._rest = {key: value for key, value in self._fix().items() if key != "parentUuid"}
        out = out.copy()
        out["message"] = message.message
        if message.request_id is not None:
            out["requestId"] = message.request_id
        out["uuid"] = uuid
        out["timestamp"] = message.timestamp
        try:
            return _dumps(out) + b"\n"
        except TypeError:
            return None

    def joined(self, parent: str | None, rest: bytes) -> bytes:
        """The line whose end is ``rest``."""
        return b'{"parentUuid":%b,%b' % (_dumps(parent), rest[1:])

    def _user_line(self, message: UserMessage, uuid: str, parent: str | None) -> bytes:
        out = (self._fixed or self._fix()).copy()
        out["parentUuid"] = parent
        out["type"] = "user"
        out["message"] = message.message
        out["uuid"] = uuid
        out["timestamp"] = message.timestamp
        for key, value in zip(_USER_KEYS, _astuple(message)[_USER_OPTIONAL], strict=True):
            if value is not None and value is not UNSET:
                out[key] = value
        try:
            return _dumps(out) + b"\n"
        except TypeError:
            return self._general(message, uuid, parent, None)

    def _attachment_line(self, message: AttachmentMessage, uuid: str, parent: str | None) -> bytes:
        out = (self._fixed or self._fix()).copy()
        out["parentUuid"] = parent
        out["type"] = "attachment"
        out["attachment"] = message.attachment
        out["uuid"] = uuid
        out["timestamp"] = message.timestamp
        try:
            return _dumps(out) + b"\n"
        except TypeError:
            return self._general(message, uuid, parent, None)

    def _system_line(self, message: SystemMessage, uuid: str, parent: str | None) -> bytes:
        out = (self._fixed or self._fix()).copy()
        out["parentUuid"] = parent
        out["type"] = "system"
        if message.subtype is not None:
            out["subtype"] = message.subtype
        out["uuid"] = uuid
        out["timestamp"] = message.timestamp
        if message.content is not UNSET and message.content is not None:
            out["content"] = message.content
        if message.level is not None:
            out["level"] = message.level
        if message.is_meta is not None:
            out["isMeta"] = message.is_meta
        for key, value in message.fields.items():
            if value is not None:
                out[key] = value
        try:
            return _dumps(out) + b"\n"
        except TypeError:
            return self._general(message, uuid, parent, None)

    def _fix(self) -> dict[str, Any]:
        self._fixed = {**self._envelope(), "type": "assistant"}
        return self._fixed

    def title(self, text: str) -> bytes:
        """The record that names the session; readers list sessions by it."""
        return self._dump({"type": "custom-title", "customTitle": text, "sessionId": self.session_id})

    def tombstone(self, uuid: str) -> bytes:
        """The record that takes back a line which is in the file and stays there (the audit trail)."""
        return self._dump({"type": "tombstone", "targetUuid": uuid, "sessionId": self.session_id})

    def json(self, value: Any) -> bytes:
        """JSON of any value, whatever it holds."""
        return self._dump(value)[:-1]

    def _dump(self, value: Any) -> bytes:
        try:
            return _dumps(value) + b"\n"
        except TypeError:
            # Surrogates, large integers, and a tool's own output, which may be any object: nothing of that
            # may cost the record, or hang the loop.
            plain = _Plain()
            value = plain(value)
            self.coerced += plain.coerced
            return dumps(value) + b"\n"


def logical_parent_of(message: Any) -> str | None:
    """The logical parent that a boundary itself names."""
    theirs = getattr(message, "fields", {}).get("logicalParentUuid") or (message.extra or {}).get("logicalParentUuid")
    return theirs if isinstance(theirs, str) else None


def _without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("id") is None or message.get("model") is None:
        # Readers drop a line without a model, too; a stream without message_start names none.
        told = {k: v for k, v in message.items() if v is not None or k not in _NEVER_NULL}
        told.setdefault("model", UNKNOWN_MODEL)
        return told
    return message


class _Plain:
    """Copies a value as JSON that can be written and read again: what JSON can't hold becomes text.

    Without recursion: the depth that is left of the stack is the caller's.

    Attributes:
        coerced: whether anything wasn't JSON.
    """

    def __init__(self) -> None:
        self.coerced = False

    def __call__(self, value: Any) -> Any:
        root: list[Any] = [None]
        above: set[int] = set()  # the containers around the current value
        todo: list[tuple[Any, Any, Any]] = [(value, root, 0)]
        while todo:
            value, target, key = todo.pop()
            if target is None:
                above.discard(key)  # that container is done
                continue
            pairs = self._pairs(value)
            if pairs is None:
                target[key] = self._leaf(value)
            elif len(above) >= MAX_RECORD_DEPTH or id(value) in above:
                target[key] = self._text("(nested too deep)")
            else:
                above.add(id(value))
                todo.append((None, None, id(value)))
                copy: Any = {} if pairs.__class__ is dict else [None] * len(pairs)
                target[key] = copy
                if pairs.__class__ is dict:
                    copy.update(dict.fromkeys(pairs))
                    todo.extend((item, copy, name) for name, item in pairs.items())
                else:
                    todo.extend((item, copy, at) for at, item in enumerate(pairs))
        return root[0]

    def _pairs(self, value: Any) -> Any:
        """What a container holds, as a dict or a sequence; None if it is none."""
        if isinstance(value, (list, tuple)):
            return value
        if isinstance(value, (set, frozenset)):
            self.coerced = True
            return list(value)
        if isinstance(value, msgspec.Struct):
            return {field: getattr(value, field) for field in value.__struct_fields__}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {scrub_text(k) if isinstance(k, str) else self._text(k): item for k, item in value.items()}
        return None

    def _leaf(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return scrub_text(str(value))
        if isinstance(value, int):
            # Longer ones can't even be made text.
            return int(value) if value.bit_length() < _BITS else self._text(hex(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        return self._text(value)

    def _text(self, value: Any) -> str:
        self.coerced = True
        try:
            return scrub_text(str(value))
        except Exception:  # noqa: BLE001 - an object's own code
            return f"({type(value).__name__})"
