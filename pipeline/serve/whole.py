"""A recording as the message that a request without ``stream`` gets."""

from __future__ import annotations

from typing import Any

from turnstream.messages.types import AssistantMessage, ResponseFailed, Tombstone
from turnstream.operators import accumulate, decode, parse_events, run_stages
from turnstream.serve.recordings import Recording

__all__ = ["whole_message"]


def whole_message(recording: Recording) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The last answer of a recording: its message, or the API's error that ended it.

    The message has all blocks in the order of their index, and the final usage and stop_reason. Of an answer that
    was cut off it has what was kept; its stop_reason is null then.

    Returns:
        The message, None if there is none; the failure's error object (``{"type", "message", …}``) if an ``error``
        event ended the answer, else None.
    """
    blocks: dict[str, list[AssistantMessage]] = {}
    retracted: set[str] = set()
    failed: ResponseFailed | None = None
    for item in run_stages([recording.raw], decode(), parse_events(), accumulate()):
        if isinstance(item, AssistantMessage):
            blocks.setdefault(item.message["id"], []).append(item)
            failed = None
        elif isinstance(item, Tombstone):
            retracted.add(item.message.uuid)
        elif isinstance(item, ResponseFailed):
            failed = item
    if failed is not None and failed.outcome.startswith("api_error"):
        return None, failed.error
    answers = [[part for part in parts if part.uuid not in retracted] for parts in blocks.values()]
    answers = [parts for parts in answers if parts]
    if not answers:
        return None, None
    parts = sorted(answers[-1], key=lambda part: part.index or 0)
    return {**parts[-1].message, "content": [block for part in parts for block in part.message["content"]]}, None
