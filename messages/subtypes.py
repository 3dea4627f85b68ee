"""The system subtypes, each with its own fields, and makers of them (WIRE.md §2, second table).

Fields are given by their Python names, typed, and written in the wire's spelling; a field that isn't given
isn't written. What may be absent when read (``compactMetadata`` and all in it) may be left out here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from turnstream.messages import texts
from turnstream.messages.ids import Clock, IdSource, format_timestamp, random_ids, system_clock
from turnstream.messages.names import METADATA_NAMES, to_wire_name
from turnstream.messages.types import SystemMessage

__all__ = ["SUBTYPE_FIELDS", "SYSTEM_SUBTYPES", "SystemFactory"]

SUBTYPE_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "informational": (),
    "api_error": ("error", "retryInMs", "retryAttempt", "maxRetries"),
    "compact_boundary": ("compactMetadata",),
    "microcompact_boundary": ("microcompactMetadata",),
    "local_command": (),
    "permission_retry": ("commands",),
    "bridge_status": ("url",),
    "memory_saved": ("writtenPaths",),
    "stop_hook_summary": (
        "hookCount",
        "hookInfos",
        "hookErrors",
        "preventedContinuation",
        "stopReason",
        "hasOutput",
        "toolUseID",
    ),
    "turn_duration": ("durationMs", "messageCount"),
    "api_metrics": ("ttftMs", "tokensPerS", "inputTokens", "outputTokens", "messageCount"),
    "away_summary": (),
    "agents_killed": (),
    "scheduled_task_fire": (),
}
"""Subtype → its fields on the wire, beyond content, level and isMeta. Other subtypes and fields are kept as well.

``logicalParentUuid`` of a compact_boundary isn't here: like ``parentUuid`` it stands in the envelope (``extra``)."""

SYSTEM_SUBTYPES: Final = tuple(SUBTYPE_FIELDS)
"""The fourteen subtypes of WIRE.md §2."""


class SystemFactory:
    """Makes system messages with one source of ids and one clock; one method a subtype.

    Args:
        ids: makes uuids; default random.
        clock: wall-clock seconds since the epoch; default the system's.
    """

    def __init__(self, ids: IdSource | None = None, clock: Clock = system_clock) -> None:
        self.ids: IdSource = ids if ids is not None else random_ids()
        self.clock = clock

    def timestamp(self) -> str:
        """Now, as it is written in messages."""
        return format_timestamp(self.clock())

    def system(
        self,
        subtype: str,
        content: Any = msgspec.UNSET,
        *,
        level: str | None = "info",
        is_meta: bool | None = False,
        uuid: str | None = None,
        timestamp: str | None = None,
        **fields: Any,
    ) -> SystemMessage:
        """A system message of any subtype; ``fields`` are the subtype's own, in the wire's spelling."""
        return SystemMessage(
            subtype=subtype,
            content=content,
            level=level,
            is_meta=is_meta,
            uuid=uuid or self.ids("system", subtype),
            timestamp=timestamp or self.timestamp(),
            fields=fields,
        )

    def informational(self, content: str, *, level: str = "info") -> SystemMessage:
        """A notice, such as a switch to another model."""
        return self.system("informational", content, level=level)

    def api_retry(
        self,
        error: Any,
        *,
        retry_in_ms: float,
        retry_attempt: int,
        max_retries: int,
        content: Any = msgspec.UNSET,
        level: str = "error",
    ) -> SystemMessage:
        """Subtype ``api_error``: waiting to try again (WIRE.md §7). The assistant's kind is ``api_error``.

        Args:
            error: what the API or the transport said.
            retry_in_ms: milliseconds until the next try.
            retry_attempt: its number, from 1.
            max_retries: how many there are.
            content: a text for a human, if any.
            level: ``error`` unless given.
        """
        return self.system(
            "api_error",
            content,
            level=level,
            error=error,
            retryInMs=float(retry_in_ms),
            retryAttempt=retry_attempt,
            maxRetries=max_retries,
        )

    def compact_boundary(
        self,
        *,
        trigger: str = "auto",
        pre_tokens: int | None = None,
        user_context: str | None = None,
        messages_summarized: int | None = None,
        preserved_segment: Mapping[str, str] | None = None,
        logical_parent_uuid: str | None = None,
    ) -> SystemMessage:
        """Everything before is summarized (WIRE.md §6).

        Args:
            trigger: ``auto`` or ``manual``.
            pre_tokens: tokens of the context before.
            user_context: what the user asked the summary to look at.
            messages_summarized: how many messages the summary stands for.
            preserved_segment: ``head_uuid``, ``anchor_uuid``, ``tail_uuid`` of what was kept word for word.
            logical_parent_uuid: the last message before, if there was one.
        """
        metadata = _present(
            trigger=trigger,
            pre_tokens=pre_tokens,
            user_context=user_context,
            messages_summarized=messages_summarized,
            preserved_segment=preserved_segment,
        )
        message = self.system("compact_boundary", texts.COMPACT_BOUNDARY, **_present(compact_metadata=metadata))
        message.extra = _present(logical_parent_uuid=logical_parent_uuid) or None
        return message

    def microcompact_boundary(
        self,
        *,
        trigger: str = "auto",
        pre_tokens: int | None = None,
        tokens_saved: int | None = None,
        compacted_tool_ids: Sequence[str] = (),
        cleared_attachment_uuids: Sequence[str] = (),
    ) -> SystemMessage:
        """Old tool results were cleared (WIRE.md §6): which, and what that saved."""
        metadata = _present(
            trigger=trigger,
            pre_tokens=pre_tokens,
            tokens_saved=tokens_saved,
            compacted_tool_ids=list(compacted_tool_ids),
            cleared_attachment_uuids=list(cleared_attachment_uuids),
        )
        return self.system(
            "microcompact_boundary", texts.MICROCOMPACT_BOUNDARY, **_present(microcompact_metadata=metadata)
        )

    def local_command(self, content: str, *, level: str = "info") -> SystemMessage:
        """A local command's input or output; ``content`` is tagged as in :mod:`turnstream.messages.commands`."""
        return self.system("local_command", content, level=level)

    def permission_retry(self, commands: Sequence[str], content: Any = msgspec.UNSET) -> SystemMessage:
        """A permission was granted for ``commands``, trying again."""
        return self.system("permission_retry", content, commands=list(commands))

    def bridge_status(self, content: str, *, url: str | None = None) -> SystemMessage:
        """Remote control changed; ``url`` is where it is."""
        return self.system("bridge_status", content, level=None, **_present(url=url))

    def memory_saved(self, written_paths: Sequence[str], content: Any = msgspec.UNSET) -> SystemMessage:
        """Memory files were written."""
        return self.system("memory_saved", content, writtenPaths=list(written_paths))

    def stop_hook_summary(
        self,
        hook_infos: Sequence[Mapping[str, Any]],
        *,
        hook_count: int | None = None,
        hook_errors: Sequence[str] = (),
        prevented_continuation: bool = False,
        stop_reason: str = "",
        has_output: bool = False,
        tool_use_id: str | None = None,
    ) -> SystemMessage:
        """Hooks that ran at stop.

        Args:
            hook_infos: ``{"command", "duration_ms"}`` of each (milliseconds).
            hook_count: how many ran; default as many as there are infos.
            hook_errors: what the failed ones said.
            prevented_continuation: whether one of them stopped the turn.
            stop_reason: its reason.
            has_output: whether any of them wrote something.
            tool_use_id: the id under which their progress ran.
        """
        fields = _present(
            hook_count=len(hook_infos) if hook_count is None else hook_count,
            hook_infos=[dict(info) for info in hook_infos],
            hook_errors=list(hook_errors),
            prevented_continuation=prevented_continuation,
            stop_reason=stop_reason,
            has_output=has_output,
            tool_use_id=tool_use_id,
        )
        return self.system("stop_hook_summary", level="suggestion", is_meta=None, **fields)

    def turn_duration(self, duration_ms: float, message_count: int | None = None) -> SystemMessage:
        """The end of a turn: milliseconds and messages; recorded, never sent (WIRE.md §8)."""
        fields = _present(duration_ms=duration_ms, message_count=message_count)
        return self.system("turn_duration", level=None, **fields)

    def api_metrics(
        self,
        *,
        ttft_ms: float | None = None,
        tokens_per_s: float | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        message_count: int | None = None,
    ) -> SystemMessage:
        """The end of a turn in numbers; what isn't known is left out, never guessed (WIRE.md §9)."""
        fields = _present(
            ttft_ms=ttft_ms,
            tokens_per_s=tokens_per_s,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            message_count=message_count,
        )
        return self.system("api_metrics", level=None, **fields)

    def away_summary(self, content: str) -> SystemMessage:
        """What happened while the user was away."""
        return self.system("away_summary", content, level=None)

    def agents_killed(self, content: Any = msgspec.UNSET) -> SystemMessage:
        """Sub-agents were ended."""
        return self.system("agents_killed", content)

    def scheduled_task_fire(self, content: str) -> SystemMessage:
        """A timer fired."""
        return self.system("scheduled_task_fire", content)


def _present(**fields: Any) -> dict[str, Any]:
    """The fields that have a value, in the wire's spelling; inside metadata objects too."""
    out: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in METADATA_NAMES:
            value = _spelled(value)
        out[to_wire_name(name)] = value
    return out


def _spelled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {to_wire_name(key): _spelled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_spelled(inner) for inner in value]
    return value
