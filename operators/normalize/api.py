"""The whole chain: a history in, the messages of a request out (WIRE.md §4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from turnstream.messages import AssistantMessage, QueryItem, UserMessage
from turnstream.messages.identity import tombstoned_uuids
from turnstream.operators.normalize.attachments import reorder_attachments
from turnstream.operators.normalize.convert import convert_context
from turnstream.operators.normalize.fields import BlockShape
from turnstream.operators.normalize.filter import filter_for_api
from turnstream.operators.normalize.limits import Dialect, MediaLimits, limits_for
from turnstream.operators.normalize.log import Explain
from turnstream.operators.normalize.merge import merge_turns
from turnstream.operators.normalize.options import Options, Prefill, tool_names
from turnstream.operators.normalize.renderers import Renderer
from turnstream.operators.normalize.repair import finish, nothing_left, repair_turns
from turnstream.operators.normalize.scan import Scan, scan
from turnstream.operators.normalize.strip import past_refusals
from turnstream.operators.normalize.system_turns import part_at_system
from turnstream.operators.normalize.turns import to_messages
from turnstream.operators.stage import run_batches, run_stages

__all__ = ["normalize_for_api", "request_messages"]

Said = UserMessage | AssistantMessage

_PIECE: Final = 256
"""Messages that go through stages 1 to 4 together."""
_ROUNDS: Final = 8
"""Taking out a message may make its neighbours one, and so on; real histories need one round or two."""


def normalize_for_api(
    messages: Iterable[QueryItem],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    model: str | None = None,
    thinking: bool = False,
    dialect: Dialect = "anthropic",
    prefill: Prefill = "refuse",
    reserved_cache_marks: int = 0,
    refused: str | None = None,
    limits: MediaLimits | None = None,
    explain: Explain | None = None,
    blocks: Mapping[str, BlockShape] | None = None,
    renderers: Mapping[str, Renderer] | None = None,
) -> list[UserMessage | AssistantMessage]:
    """Make the messages of a request from a history, so that the API takes them and nothing that was said is lost.

    Pure (the history isn't changed, what needs no change is the same object), linear, and idempotent: what came out
    comes out again, with the same options.

    Args:
        messages: the history, from which the last compact boundary cuts off what is summarized.
        tools: the tools that the request declares; None if unknown, then nothing is dropped for want of one.
        model: the model that the request goes to; None if unknown, then the stricter rules hold and no thinking
            counts as another model's.
        thinking: whether the request is to have thinking on. Before models of 4.6 a tool loop may forbid it: ask
            :func:`~turnstream.operators.normalize.can_think` with what comes out.
        dialect: ``bedrock`` for Converse, which wants alternating roles.
        prefill: ``refuse``: the conversation ends with the user, and a stand-in is added where it doesn't; ``allow``:
            it may end with a text of the assistant, which is trimmed (models that take no prefill get a stand-in).
        reserved_cache_marks: how many cache marks ``tools`` and ``system`` use, of the four.
        refused: the text of the error that refused the last request, if it isn't in the history: what it says about
            images and documents is stripped.
        limits: what media the API takes; default the model's and the dialect's.
        explain: takes a :class:`~turnstream.operators.normalize.Repair` for everything that changed.
        blocks: what types of blocks the API takes, with their fields; default
            :data:`~turnstream.operators.normalize.fields.BLOCKS`.
        renderers: what attachments of some types say, beside and before ours.

    Returns:
        User and assistant messages whose content is a list of blocks; on models that take the role, also user
        messages whose payload has ``"role": "system"``. Empty if there is nothing to send: make no request then.
    """
    history = scan(messages)
    options = Options(
        model=model,
        dialect=dialect,
        names=tool_names(tools),
        thinking=thinking,
        prefill=prefill,
        reserved_cache_marks=reserved_cache_marks,
        limits=limits if limits is not None else limits_for(model, dialect),
        explain=explain,
    )
    past = past_refusals(history.items, history.errors, refused)
    repaired = repair_turns(_merged(history, options, renderers), options, blocks)
    for _ in range(_ROUNDS):
        if not repaired.again:
            break
        before = scan(to_messages(repaired.turns))
        repaired = repair_turns(_merged(before, options, renderers), options, blocks)
    turns = repaired.turns
    if not turns and (first := _first_said(history)) is not None:
        turns = nothing_left(first, options)
    return finish(turns, repaired.cleaner, options, past)


def _merged(history: Scan, options: Options, renderers: Mapping[str, Renderer] | None) -> Iterator[Said]:
    """Stages 1 to 4, a piece of the history at a time: what one stage puts out the next finds in the cache."""
    explain = options.explain
    gone = tombstoned_uuids(history.items) if history.tombstones else frozenset()
    context = filter_for_api(explain, gone) | reorder_attachments(explain)
    said = convert_context(renderers, explain) | merge_turns(explain)
    if not history.roles:
        for batch in run_batches(_pieces(history.items), context | said):
            yield from batch
        return
    # System entries that may stay are left between what they part.
    for number, part in enumerate(part_at_system(run_stages(history.items, context), options)):
        yield from part if number % 2 else run_stages(part, said)  # type: ignore[misc]


def _pieces(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(items), _PIECE):
        yield items[at : at + _PIECE]


def _first_said(history: Scan) -> Said | None:
    """The first message of somebody that isn't filtered out."""
    gone = tombstoned_uuids(history.items)
    context = run_stages(history.items, filter_for_api(None, gone))
    return next((item for item in context if isinstance(item, (UserMessage, AssistantMessage))), None)


def request_messages(messages: Iterable[UserMessage | AssistantMessage]) -> list[dict[str, Any]]:
    """The ``messages`` of a request body: ``{"role", "content"}`` of each, as the API takes them.

    Args:
        messages: what :func:`normalize_for_api` returned. Nothing else of them goes out; content is shared, not copied.
    """
    out: list[dict[str, Any]] = []
    for message in messages:
        role = message.message.get("role")
        if message.__class__ is AssistantMessage:
            role = "assistant"
        elif role != "system":
            role = "user"
        out.append({"role": role, "content": message.message["content"]})
    return out
