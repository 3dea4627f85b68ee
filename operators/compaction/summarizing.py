"""Asking the summarizer: what it gets, and what becomes of its failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from turnstream.messages import AssistantMessage, AttachmentMessage, QueryItem, UserMessage, replace
from turnstream.operators.compaction.attachments import Identify
from turnstream.operators.compaction.errors import (
    EMPTY_SUMMARY,
    NOT_A_TEXT,
    NOTHING_TO_SUMMARIZE,
    SUMMARIZER_FAILED,
    CompactionError,
    is_prompt_too_long,
)
from turnstream.operators.compaction.microcompact import clear_all_results
from turnstream.operators.compaction.segments import borders, is_talk

__all__ = ["Normalize", "Summarize", "ask"]

Summarize = Callable[[list[UserMessage | AssistantMessage]], Awaitable[str]]
"""The normalized messages to summarize → the summary's text.

It adds its own order to summarize, as a user message. They were normalized for unknown tools: a request
that declares others, or none, normalizes them once more (``normalize_for_api(messages, tools=[])``).
"""

Normalize = Callable[[Sequence[QueryItem]], Sequence[UserMessage | AssistantMessage]]
"""Makes a conversation ready for the API."""

_TRIES: Final = 4  # the first, then without oversized results, then two halvings
_STANDS_FOR: Final = {"image": "[image]", "document": "[document]"}


def normalize_default(messages: Sequence[QueryItem]) -> Sequence[UserMessage | AssistantMessage]:
    """``normalize_for_api``; what ends with an answer stays so, for the summarizer adds a user message."""
    # Late: that package imports this one for its slice.
    from turnstream.operators.normalize.api import normalize_for_api

    return normalize_for_api(messages, prefill="allow")


async def ask(
    summarize: Summarize, head: Sequence[QueryItem], *, normalize: Normalize, identify: Identify
) -> tuple[str, int]:
    """The summary of ``head`` and how many user and assistant messages it stands for.

    Standing attachments are left out before (they are attached again after), media are named by a
    word. If the prompt is too long for the summarizer, it is asked again without oversized tool
    results, then with the older half left out, twice; an earlier summary always stays.

    Raises:
        CompactionError: the summarizer failed, returned no text or nothing, or got nothing to summarize.
    """
    talk: list[QueryItem] = [
        item for item in head if not (isinstance(item, AttachmentMessage) and identify(item.attachment) is not None)
    ]
    for number in range(1, _TRIES + 1):
        request = [_without_media(message) for message in normalize(talk)]
        count = sum(map(is_talk, talk))
        if not request or not count:
            raise CompactionError("there is nothing to summarize", kind=NOTHING_TO_SUMMARIZE)
        try:
            text = await summarize(request)
        except Exception as error:
            shorter = _shorter(talk, number) if number < _TRIES and is_prompt_too_long(error) else None
            if shorter is None:
                raise CompactionError(
                    f"the summarizer failed: {error or type(error).__name__}",
                    kind=SUMMARIZER_FAILED,
                    retryable=bool(getattr(error, "retryable", False)),
                    hint="the conversation is unchanged",
                ) from error
            talk = shorter
            continue
        if not isinstance(text, str):
            raise CompactionError(f"the summarizer returned {type(text).__name__}, not a text", kind=NOT_A_TEXT)
        if not text.strip():
            raise CompactionError("the summarizer returned an empty text", kind=EMPTY_SUMMARY, retryable=True)
        return text, count
    raise AssertionError("the last try returns or raises")


def _shorter(talk: list[QueryItem], number: int) -> list[QueryItem] | None:
    """``talk`` for the next try, None if it can't be made shorter."""
    if number == 1:
        return clear_all_results(talk)
    kept = [item for item in talk if isinstance(item, UserMessage) and item.is_compact_summary]
    rest = [item for item in talk if not (isinstance(item, UserMessage) and item.is_compact_summary)]
    allowed = borders(rest)
    half = next((position for position in range((len(rest) + 1) // 2, len(rest)) if allowed[position]), None)
    return None if not half else [*kept, *rest[half:]]


def _without_media(message: UserMessage | AssistantMessage) -> UserMessage | AssistantMessage:
    """A summary needs no pixels, and a picture that the API refuses must not stop the compaction too."""
    content = message.message.get("content")
    if isinstance(message, AssistantMessage) or not isinstance(content, list):
        return message
    blocks = _named(content)
    return message if blocks is content else replace(message, message={**message.message, "content": blocks})


def _named(content: list[Any]) -> list[Any]:
    out: list[Any] = []
    changed = False
    for block in content:
        new = block
        if isinstance(block, dict):
            kind = block.get("type")
            if isinstance(kind, str) and kind in _STANDS_FOR:
                new = {"type": "text", "text": _STANDS_FOR[kind]}
            elif kind == "tool_result" and isinstance(block.get("content"), list):
                inner = _named(block["content"])
                if inner is not block["content"]:
                    new = {**block, "content": inner}
        changed = changed or new is not block
        out.append(new)
    return out if changed else content
