"""Which attachments say the same, so that a compaction attaches each once (WIRE.md §6, fault 53)."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from turnstream.messages import AttachmentMessage, MessageFactory, QueryItem, replace

__all__ = ["Identify", "attachment_identity", "attachments_again", "without_repeats"]

Identify = Callable[[Mapping[str, Any]], Hashable | None]
"""An attachment's payload → its identity; None if it is part of the conversation itself."""

# What an attachment is about, the first that it has.
_NAMES: Final = (
    "path",
    "filename",
    "filePath",
    "file_path",
    "planFilePath",
    "uri",
    "url",
    "name",
    "uuid",
    "id",
    "taskId",
)

# They say how things stand now: the newest replaces all before, whatever it holds.
_STATES: Final = frozenset({"date_change", "task_reminder", "todo_reminder", "todo", "output_style", "diagnostics"})

# Hooks that run when a session starts give context; all others are about one call, prompt or stop.
_STANDING_EVENTS: Final = frozenset({"SessionStart", "Setup"})


def attachment_identity(attachment: Mapping[str, Any]) -> Hashable | None:
    """The default identity: type and path, name or id; the type alone for a state; else type and content.

    None (part of the conversation: summarized with it, never attached again) for a queued command, whose
    repetition would be a new order, and for the output of hooks other than those of a session's start.
    """
    kind = attachment.get("type")
    if not isinstance(kind, str):
        kind = ""
    if kind == "queued_command":
        return None
    if kind.startswith("hook_"):
        if str(attachment.get("hookEvent")) not in _STANDING_EVENTS:
            return None
        return (kind, *(_canonical(attachment.get(key)) for key in ("hookEvent", "hookName", "content", "stdout")))
    if kind in _STATES:
        return (kind,)
    for key in _NAMES:
        value = attachment.get(key)
        if isinstance(value, str) and value:
            return (kind, key, value)
    return (kind, _canonical(attachment))


def _canonical(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def without_repeats(kept: Sequence[QueryItem], identify: Identify = attachment_identity) -> list[QueryItem]:
    """``kept`` with the last attachment of every identity only; everything else stays."""
    seen: set[Hashable] = set()
    out: list[QueryItem] = []
    for item in reversed(kept):
        if isinstance(item, AttachmentMessage):
            identity = identify(item.attachment)
            if identity is not None:
                if identity in seen:
                    continue
                seen.add(identity)
        out.append(item)
    out.reverse()
    return out


def attachments_again(
    summarized: Sequence[QueryItem],
    kept: Sequence[QueryItem],
    *,
    factory: MessageFactory,
    identify: Identify = attachment_identity,
) -> list[AttachmentMessage]:
    """What must be attached again because it is in ``summarized`` and not in ``kept``.

    The newest of each identity, in the order of these. The copies are new messages (own uuid and time):
    a transcript writes a uuid once, and these must come behind the boundary.
    """
    seen = {identify(item.attachment) for item in kept if isinstance(item, AttachmentMessage)}
    again: list[AttachmentMessage] = []
    for item in reversed(summarized):
        if not isinstance(item, AttachmentMessage):
            continue
        identity = identify(item.attachment)
        if identity is not None and identity not in seen:
            seen.add(identity)
            again.append(item)
    again.reverse()
    return [_copy(item, factory) for item in again]


def _copy(item: AttachmentMessage, factory: MessageFactory) -> AttachmentMessage:
    fresh = factory.attachment(item.attachment)
    copy = replace(item, uuid=fresh.uuid, timestamp=fresh.timestamp)
    # It hangs somewhere else now, and isn't the line that it was read from.
    copy.__dict__.pop("template", None)  # pyright: ignore[reportAttributeAccessIssue]
    copy.extra = {key: value for key, value in (item.extra or {}).items() if key not in _PLACE} or None
    return copy


_PLACE: Final = frozenset({"parentUuid", "logicalParentUuid"})
