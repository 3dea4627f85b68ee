"""``microcompact``: oversized old tool results become a placeholder, without a model call (WIRE.md §6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    MessageFactory,
    QueryItem,
    SystemMessage,
    UserMessage,
    replace,
)
from turnstream.operators.compaction.attachments import Identify, attachment_identity
from turnstream.operators.compaction.boundary import (
    is_compact_boundary,
    is_microcompact_boundary,
    make_microcompact_boundary,
)
from turnstream.operators.compaction.estimate import (
    CHARACTERS_PER_TOKEN,
    Estimate,
    answer_start,
    characters,
    estimate_tokens,
    is_answer,
)
from turnstream.operators.compaction.metadata import MicrocompactMetadata, microcompact_metadata
from turnstream.operators.stage import Fault, Operator, lift

__all__ = [
    "CLEARED_RESULT",
    "KEEP_RESULTS",
    "LARGER_THAN",
    "Microcompacted",
    "Microcompactor",
    "apply_microcompact",
    "clear_all_results",
    "clear_old_results",
    "microcompact",
]

CLEARED_RESULT: Final = "[Old tool result cleared to save context]"
"""What stands in for a cleared result."""

KEEP_RESULTS: Final = 3
"""How many of the newest results stay by default."""

LARGER_THAN: Final = 1_000
"""From how many tokens on a result is oversized by default."""

# A result with anything else in it does more than tell (a tool_reference loads a tool): it stays.
_CLEARABLE: Final = frozenset({"text", "image", "document", "search_result"})


class Microcompacted(NamedTuple):
    """What :func:`microcompact` returns.

    Attributes:
        messages: the new list; the given one if there was nothing to clear.
        metadata: the report, None if nothing was cleared.
        boundary: the message that ends ``messages`` and holds the report, None if nothing was cleared.
    """

    messages: Sequence[QueryItem]
    metadata: MicrocompactMetadata | None = None
    boundary: SystemMessage | None = None


def microcompact(
    messages: Sequence[QueryItem],
    *,
    keep_recent: int = KEEP_RESULTS,
    larger_than: int = LARGER_THAN,
    at_least: int = 0,
    placeholder: str = CLEARED_RESULT,
    tools: Collection[str] | None = None,
    trigger: str = "auto",
    estimate: Estimate = estimate_tokens,
    factory: MessageFactory | None = None,
    identify: Identify = attachment_identity,
) -> Microcompacted:
    """Clear oversized tool results that the model has seen, but the newest ones.

    Pure: the given messages aren't changed; a cleared one is a copy with the same uuid, its
    ``tool_use_result`` (for display) stays. Idempotent: a second run clears nothing. Only what is
    behind the last compact boundary and before the last answer is looked at: a result that no answer
    has followed yet was never seen. Oversized attachments that a later one of the same identity
    replaces are left out. The use and the result of a tool stay a pair.

    Args:
        messages: the conversation.
        keep_recent: how many of the newest results stay, whatever their size.
        larger_than: tokens (characters / 4) that a result may have; one whose placeholder would be
            longer is never cleared.
        at_least: tokens that must be saved, else nothing is done (clearing costs the prompt cache).
        placeholder: the text that stands in.
        tools: clear results of these tools only; None: of all.
        trigger: the report's ``trigger``.
        estimate: tokens of a conversation, for the report's ``preTokens``.
        factory: makes the boundary.
        identify: an attachment's identity.
    """
    plan = _plan(messages, keep_recent, max(larger_than * CHARACTERS_PER_TOKEN, len(placeholder)), tools, identify)
    if not plan.results and not plan.attachments:
        return Microcompacted(messages)
    cleared: list[QueryItem] = []
    ids: list[str] = []
    uuids: list[str] = []
    saved = 0
    for position, item in enumerate(messages):
        if position in plan.attachments:
            assert isinstance(item, AttachmentMessage)
            saved += characters(item.attachment)
            uuids.append(item.uuid)
            continue
        numbers = plan.results.get(position)
        if numbers is not None:
            assert isinstance(item, UserMessage)
            for number in numbers:
                block = item.message["content"][number]
                ids.append(block["tool_use_id"])
                saved += characters(block["content"]) - len(placeholder)
            item = _cleared(item, numbers, placeholder)
        cleared.append(item)
    tokens = saved // CHARACTERS_PER_TOKEN
    if tokens < at_least:
        return Microcompacted(messages)
    metadata = MicrocompactMetadata(
        trigger=trigger,
        pre_tokens=estimate(messages),
        tokens_saved=tokens,
        compacted_tool_ids=ids,
        cleared_attachment_uuids=uuids,
    )
    boundary = make_microcompact_boundary(metadata, factory=factory)
    cleared.append(boundary)
    return Microcompacted(cleared, metadata, boundary)


class _Plan(NamedTuple):
    results: dict[int, list[int]]
    """Position of a message → the numbers of its blocks to clear."""
    attachments: set[int]


def _plan(
    messages: Sequence[Any], keep_recent: int, limit: int, tools: Collection[str] | None, identify: Identify
) -> _Plan:
    """What to clear, found from the end: results and attachments over ``limit`` characters."""
    results: dict[int, list[int]] = {}
    attachments: set[int] = set()
    names = _tool_names(messages) if tools is not None else {}
    last = next((p for p in range(len(messages) - 1, -1, -1) if is_answer(messages[p])), None)
    if last is None:
        return _Plan(results, attachments)
    seen_before = answer_start(messages, last)
    kept = 0
    later: set[Any] = set()
    for position in range(len(messages) - 1, -1, -1):
        item = messages[position]
        if is_compact_boundary(item):
            break
        if isinstance(item, AttachmentMessage):
            identity = identify(item.attachment)
            if identity is not None:
                if identity in later and position < seen_before and item.uuid:
                    if characters(item.attachment) > limit:
                        attachments.add(position)
                later.add(identity)
            continue
        if not isinstance(item, UserMessage) or item.is_virtual:
            continue
        content = item.message.get("content")
        if not isinstance(content, list):
            continue
        for number in range(len(content) - 1, -1, -1):
            block = content[number]
            if not isinstance(block, dict) or block.get("type") != "tool_result":
                continue
            kept += 1
            if kept <= keep_recent or position >= seen_before:
                continue
            ident = block.get("tool_use_id")
            if not isinstance(ident, str) or (tools is not None and names.get(ident) not in tools):
                continue
            if _is_clearable(block.get("content")) and characters(block["content"]) > limit:
                results.setdefault(position, []).insert(0, number)
    return _Plan(results, attachments)


def _tool_names(messages: Sequence[Any]) -> dict[str, str]:
    names: dict[str, str] = {}
    for item in messages:
        content = item.message.get("content") if isinstance(item, AssistantMessage) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                names[block["id"]] = str(block.get("name"))
    return names


def _is_clearable(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(block, dict) and str(block.get("type")) in _CLEARABLE for block in content)
    return isinstance(content, str)


def _cleared(message: UserMessage, numbers: Collection[int], placeholder: str) -> UserMessage:
    content = [
        {**block, "content": placeholder} if number in numbers else block
        for number, block in enumerate(message.message["content"])
    ]
    return replace(message, message={**message.message, "content": content})


def apply_microcompact(messages: Sequence[QueryItem], *, placeholder: str = CLEARED_RESULT) -> list[QueryItem]:
    """Clear again what the microcompact boundaries in ``messages`` say was cleared.

    A file keeps what memory cleared, so a resumed conversation has the full results again. Every
    boundary counts for what is before it, since the compact boundary; its ids may be missing (fault
    51), and a result whose placeholder would be longer stays.
    """
    out: list[QueryItem] = []
    ids: set[Any] = set()
    uuids: set[Any] = set()
    for item in reversed(messages):
        if is_microcompact_boundary(item):
            metadata = microcompact_metadata(item)
            ids.update(value for value in metadata.compacted_tool_ids or () if isinstance(value, str))
            uuids.update(value for value in metadata.cleared_attachment_uuids or () if isinstance(value, str))
        elif is_compact_boundary(item):
            ids.clear()
            uuids.clear()
        elif isinstance(item, AttachmentMessage):
            if item.uuid in uuids:
                continue
        elif ids and isinstance(item, UserMessage):
            item = _clear_where(item, placeholder, len(placeholder), ids)
        out.append(item)
    out.reverse()
    return out


def clear_all_results(
    messages: Sequence[QueryItem], *, larger_than: int = LARGER_THAN, placeholder: str = CLEARED_RESULT
) -> list[QueryItem]:
    """A copy without any oversized result, seen or not: for a summarizer whose prompt was too long."""
    limit = max(larger_than * CHARACTERS_PER_TOKEN, len(placeholder))
    return [
        _clear_where(item, placeholder, limit, None) if isinstance(item, UserMessage) else item for item in messages
    ]


def _clear_where(message: UserMessage, placeholder: str, limit: int, ids: Collection[Any] | None) -> UserMessage:
    content = message.message.get("content")
    if not isinstance(content, list):
        return message
    numbers = [
        number
        for number, block in enumerate(content)
        if isinstance(block, dict)
        and block.get("type") == "tool_result"
        and (ids is None or (isinstance(block.get("tool_use_id"), str) and block["tool_use_id"] in ids))
        and _is_clearable(block.get("content"))
        and characters(block["content"]) > limit
    ]
    return _cleared(message, numbers, placeholder) if numbers else message


class Microcompactor:
    """The stage: holds the conversation and lets it go, microcompacted, at the end. Memory: all of it."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._held: list[QueryItem] = []

    def feed(self, batch: Sequence[QueryItem], /) -> Sequence[QueryItem | Fault]:
        """Take one batch; nothing comes out, for only the end says what is old."""
        self._held.extend(batch)
        return ()

    def flush(self) -> Sequence[QueryItem | Fault]:
        """The end: the conversation, with its boundary if anything was cleared."""
        held, self._held = self._held, []
        return microcompact(held, **self._options).messages

    def fail(self, error: Exception, /) -> Sequence[QueryItem | Fault]:
        """The source broke: what came, unchanged."""
        held, self._held = self._held, []
        return held


def clear_old_results(
    *,
    keep_recent: int = KEEP_RESULTS,
    larger_than: int = LARGER_THAN,
    at_least: int = 0,
    placeholder: str = CLEARED_RESULT,
    tools: Collection[str] | None = None,
    factory: MessageFactory | None = None,
) -> Operator[QueryItem, QueryItem]:
    """:func:`microcompact` as an operator, for finite sources: everything comes out at the source's end."""
    return lift(
        lambda: Microcompactor(
            keep_recent=keep_recent,
            larger_than=larger_than,
            at_least=at_least,
            placeholder=placeholder,
            tools=tools,
            factory=factory,
        ),
        "clear_old_results",
    )
