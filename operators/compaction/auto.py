"""``compact`` and ``auto_compact``: a summary takes the place of what came before (WIRE.md §6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from turnstream.messages import MessageFactory, QueryItem
from turnstream.operators.compaction.attachments import (
    Identify,
    attachment_identity,
    attachments_again,
    without_repeats,
)
from turnstream.operators.compaction.boundary import (
    after_boundary,
    chain_uuid,
    last_chain_uuid,
    make_boundary,
    without_tombstoned,
)
from turnstream.operators.compaction.errors import NOTHING_TO_SUMMARIZE, CompactionError
from turnstream.operators.compaction.estimate import Estimate, estimate_tokens
from turnstream.operators.compaction.metadata import (
    COMPACT_KEY,
    CompactMetadata,
    MicrocompactMetadata,
    PreservedSegment,
)
from turnstream.operators.compaction.microcompact import (
    KEEP_RESULTS,
    LARGER_THAN,
    apply_microcompact,
    microcompact,
)
from turnstream.operators.compaction.segments import choose_cut
from turnstream.operators.compaction.summarizing import Normalize, Summarize, ask, normalize_default

__all__ = ["KEEP_MESSAGES", "AutoCompact", "Compacted", "auto_compact", "compact"]

KEEP_MESSAGES: Final = 4
"""How many of the newest user and assistant messages are kept as they are by default."""


class Compacted(NamedTuple):
    """What became of a conversation.

    Attributes:
        kind: ``none`` (it was short enough, or nothing could be shortened), ``micro`` (old tool results
            were cleared) or ``full`` (it was summarized).
        messages: the conversation to go on with: the given one (``none``), the same with placeholders
            and a microcompact boundary at its end (``micro``), or what follows the new boundary,
            itself included (``full``). What is before a boundary stays the caller's: it is history.
        metadata: what the new boundary says, None for ``none``.
        pre_tokens: the estimate before.
        post_tokens: the estimate after.
    """

    kind: Literal["none", "micro", "full"]
    messages: Sequence[QueryItem]
    metadata: CompactMetadata | MicrocompactMetadata | None
    pre_tokens: int
    post_tokens: int


async def compact(
    messages: Sequence[QueryItem],
    summarize: Summarize,
    *,
    keep_recent: int = KEEP_MESSAGES,
    keep_tokens: float = float("inf"),
    trigger: str = "manual",
    user_context: str | None = None,
    estimate: Estimate = estimate_tokens,
    factory: MessageFactory | None = None,
    normalize: Normalize = normalize_default,
    identify: Identify = attachment_identity,
) -> Compacted:
    """Summarize a conversation now: on the user's order, or because a prompt was too long.

    The result is ``[boundary, summary, kept messages, attachments]``: the newest messages stay as they
    are (the preserved segment; never cut inside a tool group or an answer), each standing attachment
    is in it once. The given messages aren't changed, and nothing is made before the summary is there:
    a failure or a cancellation leaves everything as it was. What the caller gets while this waits
    (``messages[n:]`` of a list that had n) belongs behind the result.

    A transcript must write boundary and summary before compaction counts as done (fault 50):
    ``await transcript.record(result.messages)``.

    Args:
        messages: the conversation; what is before its last boundary isn't looked at, but for its end.
        summarize: gets the normalized messages to summarize and returns the summary.
        keep_recent: how many of the newest user and assistant messages stay, at least.
        keep_tokens: fewer stay if they'd have more tokens than this (by characters).
        trigger: ``manual`` or ``auto``.
        user_context: what the user asked the summary to heed, for the record.
        estimate: tokens of a conversation.
        factory: makes boundary, summary and attachments.
        normalize: makes the summarizer's messages; default ``normalize_for_api``.
        identify: an attachment's identity; None: part of the conversation.

    Raises:
        CompactionError: nothing to summarize, or the summarizer failed or returned no text.
        asyncio.CancelledError: the caller was cancelled; the summarizer's own clean-up has run.
    """
    return await _compact(
        list(messages),
        summarize,
        cleared=None,
        keep_recent=keep_recent,
        keep_tokens=keep_tokens,
        trigger=trigger,
        user_context=user_context,
        estimate=estimate,
        factory=factory if factory is not None else MessageFactory(),
        normalize=normalize,
        identify=identify,
    )


async def _compact(
    given: list[QueryItem],
    summarize: Summarize,
    *,
    cleared: Any,
    keep_recent: int,
    keep_tokens: float,
    trigger: str,
    user_context: str | None,
    estimate: Estimate,
    factory: MessageFactory,
    normalize: Normalize,
    identify: Identify,
) -> Compacted:
    context = without_tombstoned(after_boundary(given))
    cut = choose_cut(context, keep_recent, keep_tokens)
    if cut is None:
        raise CompactionError("there is nothing to summarize", kind=NOTHING_TO_SUMMARIZE)
    head, kept = context[:cut], without_repeats(context[cut:], identify)
    before = estimate(given)
    # What a microcompaction would have cleared needn't be summarized in full either.
    shown = head if cleared is None else apply_microcompact([*head, cleared])[:-1]
    text, count = await ask(summarize, shown, normalize=normalize, identify=identify)

    metadata = CompactMetadata(trigger=trigger, pre_tokens=before, user_context=user_context, messages_summarized=count)
    boundary = make_boundary(metadata, without_tombstoned(given), factory=factory)
    summary = factory.compact_summary(text)
    first, last = next(filter(None, map(chain_uuid, kept)), None), last_chain_uuid(kept)
    if first is not None:
        segment = PreservedSegment(head_uuid=first, anchor_uuid=summary.uuid, tail_uuid=last)
        metadata = msgspec.structs.replace(metadata, preserved_segment=segment)
        # The segment needs the summary's id, and the boundary is made first; nobody holds it yet.
        boundary.fields[COMPACT_KEY] = metadata.to_wire()
    again = attachments_again(head, kept, factory=factory, identify=identify)
    result: list[QueryItem] = [boundary, summary, *kept, *again]
    return Compacted("full", result, metadata, before, estimate(result))


class AutoCompact(msgspec.Struct, frozen=True, kw_only=True):
    """``await compactor(messages)``; made by :func:`auto_compact`. Holds no state between calls."""

    threshold: int
    summarize: Summarize
    keep_recent: int = KEEP_MESSAGES
    keep_tokens: float | None = None
    keep_results: int = KEEP_RESULTS
    larger_than: int = LARGER_THAN
    estimate: Estimate = estimate_tokens
    factory: MessageFactory = msgspec.field(default_factory=MessageFactory)
    normalize: Normalize = normalize_default
    identify: Identify = attachment_identity

    async def __call__(self, messages: Sequence[QueryItem]) -> Compacted:
        """Compact ``messages`` if they have come to the threshold; see :func:`compact` for the promises.

        Raises:
            CompactionError: the summarizer failed or returned no text; nothing is changed. (Nothing to
                summarize is no error here: the result's kind says that little could be done.)
            asyncio.CancelledError: the caller was cancelled.
        """
        given = list(messages)
        before = self.estimate(given)
        if before < self.threshold:
            return Compacted("none", given, None, before, before)
        micro = microcompact(
            given,
            keep_recent=self.keep_results,
            larger_than=self.larger_than,
            estimate=self.estimate,
            factory=self.factory,
            identify=self.identify,
        )
        after = before if micro.boundary is None else self.estimate(micro.messages)
        if micro.boundary is None or after >= self.threshold:
            try:
                return await self.compact(given, cleared=micro.boundary)
            except CompactionError as error:
                if error.kind != NOTHING_TO_SUMMARIZE:
                    raise
        kind: Literal["none", "micro"] = "none" if micro.boundary is None else "micro"
        return Compacted(kind, micro.messages, micro.metadata, before, after)

    async def compact(self, given: list[QueryItem], *, cleared: Any = None) -> Compacted:
        """Summarize without asking whether it is time (trigger ``auto``): after a prompt_too_long.

        Args:
            given: the conversation.
            cleared: a microcompact boundary whose results the summarizer needn't see.
        """
        return await _compact(
            given,
            self.summarize,
            cleared=cleared,
            keep_recent=self.keep_recent,
            keep_tokens=self.threshold / 2 if self.keep_tokens is None else self.keep_tokens,
            trigger="auto",
            user_context=None,
            estimate=self.estimate,
            factory=self.factory,
            normalize=self.normalize,
            identify=self.identify,
        )


def auto_compact(
    threshold: int,
    summarize: Summarize,
    *,
    keep_recent: int = KEEP_MESSAGES,
    keep_tokens: float | None = None,
    keep_results: int = KEEP_RESULTS,
    larger_than: int = LARGER_THAN,
    estimate: Estimate = estimate_tokens,
    factory: MessageFactory | None = None,
    normalize: Normalize = normalize_default,
    identify: Identify = attachment_identity,
) -> AutoCompact:
    """A compactor that acts when a conversation comes to ``threshold`` tokens.

    First ``microcompact``; if that is enough no model is asked. Else the conversation is summarized.

        compactor = auto_compact(160_000, summarize)
        result = await compactor(messages)

    Args:
        threshold: tokens from which on it acts; the model's window minus room for an answer and a summary.
        summarize: gets the normalized messages to summarize and returns the summary.
        keep_recent: how many of the newest user and assistant messages stay as they are, at least.
        keep_tokens: fewer stay if they'd have more tokens than this; default half the threshold.
        keep_results: how many of the newest tool results ``microcompact`` leaves.
        larger_than: tokens from which on a tool result is oversized.
        estimate: tokens of a conversation.
        factory: makes the messages.
        normalize: makes the summarizer's messages; default ``normalize_for_api``.
        identify: an attachment's identity; None: part of the conversation.

    Raises:
        ValueError: ``threshold`` isn't positive.
    """
    if threshold <= 0:
        raise ValueError(f"threshold must be positive, not {threshold}")
    return AutoCompact(
        threshold=threshold,
        summarize=summarize,
        keep_recent=keep_recent,
        keep_tokens=keep_tokens,
        keep_results=keep_results,
        larger_than=larger_than,
        estimate=estimate,
        factory=factory if factory is not None else MessageFactory(),
        normalize=normalize,
        identify=identify,
    )
