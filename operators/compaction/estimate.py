"""How many tokens a context takes, roughly and without a model call (WIRE.md §6).

The usage of the last answer is exact for everything up to that answer; only what came since is guessed
from characters. An estimator is any function from messages to tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from turnstream.messages import (
    SYNTHETIC_MODEL,
    AssistantMessage,
    AttachmentMessage,
    QueryItem,
    SystemMessage,
    UserMessage,
)
from turnstream.messages.kinds import holds_result
from turnstream.operators.compaction.boundary import (
    after_boundary,
    is_compact_boundary,
    is_microcompact_boundary,
    without_tombstoned,
)
from turnstream.operators.compaction.metadata import compact_metadata, microcompact_metadata

__all__ = [
    "CHARACTERS_PER_TOKEN",
    "Estimate",
    "characters",
    "characters_of",
    "estimate_tokens",
    "is_answer",
    "rough_tokens",
    "usage_tokens",
]

Estimate = Callable[[Sequence[QueryItem]], int]
"""Messages → tokens of the context they make."""

CHARACTERS_PER_TOKEN: Final = 4

# Media weigh by what they show, not by their base64. An image at the size that the API scales down to
# (1,568 px) is about 1,600 tokens (width · height / 750, the API's vision guide); a PDF page is text
# and an image, 3,000 together at the upper end of the guide's range; 100 kB of base64 pass for a page.
_IMAGE: Final = 1_600 * CHARACTERS_PER_TOKEN
_PAGE: Final = 3_000 * CHARACTERS_PER_TOKEN
_PAGE_BASE64: Final = 100_000
_SCALAR: Final = 4
# A usage says no more tokens than this; the sum of greater numbers may have more digits than can be written.
_MOST: Final = 1 << 53

# Not the model's to read, or not counted as input.
_WEIGHTLESS: Final = frozenset({"type", "id", "tool_use_id", "signature", "cache_control", "media_type"})

_USAGE_KEYS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def characters(value: Any) -> int:
    """The characters of a content (string, block, list of blocks, any JSON), media by what they cost."""
    if value.__class__ is str:
        return len(value)
    total = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            kind = item.get("type")
            if kind == "image":
                total += _IMAGE
            elif kind == "document" and _is_file(item.get("source")):
                total += _PAGE * max(1, len(str(item["source"].get("data") or "")) // _PAGE_BASE64)
            elif kind != "redacted_thinking":
                for key, inner in item.items():
                    if key not in _WEIGHTLESS:
                        stack.append(inner)
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif item is not None:
            total += _SCALAR
    return total


def _is_file(source: Any) -> bool:
    return isinstance(source, dict) and source.get("type") in ("base64", "url", "file")


def characters_of(item: Any) -> int:
    """The characters that a message brings to a request; 0 of what is never sent."""
    if isinstance(item, UserMessage):
        return 0 if item.is_virtual else characters(item.message.get("content"))
    if isinstance(item, AssistantMessage):
        return characters(item.message.get("content")) if is_answer(item) else 0
    if isinstance(item, AttachmentMessage):
        return characters(item.attachment)
    if isinstance(item, SystemMessage) and item.subtype == "local_command":
        return characters(item.content) if isinstance(item.content, str) else 0
    return 0


def rough_tokens(messages: Sequence[Any]) -> int:
    """Tokens by characters alone, rounded up."""
    return _tokens(sum(map(characters_of, messages)))


def _tokens(count: int) -> int:
    return -(-count // CHARACTERS_PER_TOKEN)


def is_answer(item: Any) -> bool:
    """True of an assistant message that a model made: neither synthetic, nor an API error, nor virtual."""
    return (
        isinstance(item, AssistantMessage)
        and not item.is_virtual
        and not item.is_api_error_message
        and item.message.get("model") != SYNTHETIC_MODEL
    )


def usage_tokens(message: AssistantMessage) -> int:
    """Tokens of the context right after an answer: input, both cache counts and output; 0 if unknown."""
    usage = message.message.get("usage")
    if not isinstance(usage, dict):
        return 0
    return sum(_count(usage.get(key)) for key in _USAGE_KEYS)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else 0


def estimate_tokens(messages: Sequence[QueryItem]) -> int:
    """Tokens of the context that ``messages`` make, from the last boundary on.

    The last answer's usage plus characters / 4 of what came since; characters / 4 of everything while no
    usage is known. Three things make a usage say too much, or too little, and are corrected: it is older
    than the compaction that kept its message (a preserved segment: not used, or every turn would compact
    again), a microcompaction came after it (``tokensSaved`` is taken off), or tools ran while the answer
    still streamed (their results stand between its blocks and aren't in it).
    """
    context = without_tombstoned(after_boundary(messages))
    found = _last_usage(context)
    if found is None:
        return rough_tokens(context)
    first, last = found
    answer = context[last]
    assert isinstance(answer, AssistantMessage)
    ident = answer.message.get("id")
    own = since = saved = 0
    for position in range(first, len(context)):
        item = context[position]
        if position == last or (is_answer(item) and ident and item.message.get("id") == ident):  # type: ignore[union-attr]
            own += characters_of(item)
        elif is_microcompact_boundary(item):
            saved += _saved_before(context, first, position)
        else:
            since += characters_of(item)
    known = usage_tokens(answer)
    if answer.message.get("stop_reason") is None:
        # Not ended (or a line written before its end): its output count is the one of its start.
        known += max(0, _tokens(own) - _count(answer.message["usage"].get("output_tokens")))
    return max(0, known - saved) + _tokens(since)


def _last_usage(context: Sequence[Any]) -> tuple[int, int] | None:
    """Where the last answer with a usage of this context begins and ends."""
    tail: str | None = None
    since = ""
    if context and is_compact_boundary(context[0]):
        segment = compact_metadata(context[0]).preserved_segment
        tail = segment.tail_uuid if segment is not None else None
        # A boundary that doesn't name what it kept: then the clock has to say what is older.
        since = context[0].timestamp if tail is None else ""
    for last in range(len(context) - 1, -1, -1):
        item = context[last]
        if tail is not None and getattr(item, "uuid", None) == tail:
            return None
        if since and isinstance(item, AssistantMessage) and "" < item.timestamp < since:
            return None
        if is_answer(item) and usage_tokens(item):
            return answer_start(context, last), last
    return None


def answer_start(context: Sequence[Any], last: int) -> int:
    """Where the answer whose block stands at ``last`` begins.

    Blocks of one answer share the message id; tools that ran meanwhile left results between them.
    """
    ident = context[last].message.get("id")
    first = last
    if not ident:
        return first
    for position in range(last - 1, -1, -1):
        item = context[position]
        if isinstance(item, AssistantMessage):
            if item.message.get("id") != ident:
                break
            first = position
        elif isinstance(item, UserMessage) and not has_results(item):
            break
    return first


def has_results(message: UserMessage) -> bool:
    """Whether a user message holds a ``tool_result``."""
    return holds_result(message.message.get("content"))


def _saved_before(context: Sequence[Any], first: int, position: int) -> int:
    """What the microcompaction at ``position`` saved of the part that the usage knows (before ``first``)."""
    metadata = microcompact_metadata(context[position])
    saved = int(metadata.tokens_saved or 0)
    ids = [ident for ident in metadata.compacted_tool_ids or () if isinstance(ident, str)]
    if not ids:
        return saved
    # Results behind the answer's start are short in the list already: their share isn't taken off again.
    after = {
        block.get("tool_use_id")
        for item in context[first:position]
        if isinstance(item, UserMessage) and isinstance(item.message.get("content"), list)
        for block in item.message["content"]
        if isinstance(block, dict) and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
    }
    return saved * sum(1 for ident in ids if ident not in after) // len(ids)
