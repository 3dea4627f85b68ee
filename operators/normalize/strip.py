"""Media that the request can't hold, or was refused for, are replaced by texts (WIRE.md §4, strip; FAULTS.md 70-72).

What is wrong with an image or a document alone is found while blocks are cleaned
(:mod:`turnstream.operators.normalize.sources`). Here are the rules over all of a request: how many images, how large
where there are many, pages, the size of the whole, oldest first; and what an error text named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from turnstream.messages import AssistantMessage
from turnstream.messages.jsonvalue import dumps
from turnstream.operators.normalize.found_media import REFUSED, Found, find_media, put_blocks, source_key
from turnstream.operators.normalize.limits import MediaLimits
from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.refusal import DOCUMENT, IMAGE, Refusal, parse_refusal
from turnstream.operators.normalize.texts import stand_in, text_block
from turnstream.operators.normalize.turns import Turn

__all__ = ["PastRefusals", "past_refusals", "strip_media"]

_STAGE: Final = "strip"
_MESSAGE_OVERHEAD: Final = 40
"""Bytes of ``{"role":"assistant","content":…},``, rounded up."""


class PastRefusals:
    """The media errors in a history, and where its media stand.

    Attributes:
        refusals: position in the list, and what the error there says.
        places: source of an image or document → positions of the items that hold it, in order.
    """

    __slots__ = ("places", "refusals")

    def __init__(self) -> None:
        self.refusals: list[tuple[int, Refusal]] = []
        self.places: dict[Any, list[int]] = {}


def past_refusals(items: Sequence[Any], errors: Iterable[int], refused: str | None = None) -> PastRefusals | None:
    """What requests were refused for: by the history's error messages, and just now.

    An API error stays in the history though it is never sent; so what it was about is stripped before every later
    request, and a session that once held a bad image works again (FAULTS.md 70).

    Args:
        items: the history, with its error messages.
        errors: their places in it.
        refused: the error text of the last request, if it isn't in the history.
    """
    found = PastRefusals()
    texts = [(at, _error_text(items[at])) for at in errors]
    if refused is not None:
        texts.append((len(items), refused))
    for at, text in texts:
        refusal = parse_refusal(text)
        if refusal is not None:
            found.refusals.append((at, refusal))
    if not found.refusals:
        return None
    for at, item in enumerate(items):
        held = item.message if hasattr(item, "message") else getattr(item, "attachment", None)
        if isinstance(held, dict):
            for key in _sources(held):
                found.places.setdefault(key, []).append(at)
    return found


def _error_text(item: AssistantMessage) -> str:
    content = item.message.get("content")
    texts = [block.get("text") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    parts = [item.error_details, content if isinstance(content, str) else None, *texts]
    return "\n".join(part for part in parts if isinstance(part, str))


def _sources(value: Any) -> Iterable[Any]:
    """The sources of all images and documents in a JSON value (iterative: attachments may hold anything)."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if item.get("type") in (IMAGE, DOCUMENT) and (key := source_key(item)) is not None:
                yield key
            todo.extend(reversed(item.values()))
        elif isinstance(item, list):
            todo.extend(reversed(item))


def strip_media(turns: list[Turn], options: Options, past: PastRefusals | None = None) -> None:
    """Replace by texts what the request can't hold and what was refused; nothing else changes, so numbers stay.

    Args:
        turns: the request, repaired: an error's ``messages.N.content.M`` counts in it.
        options: the request's.
        past: from :func:`past_refusals`.
    """
    found = find_media(turns)
    if not found:
        return
    if past is not None:
        _strip_refused(found, past)
    _strip_images([item for item in found if _stays(item, IMAGE)], options.limits)
    _strip_documents([item for item in found if _stays(item, DOCUMENT)], options.limits)
    _strip_to_size(turns, found, options)
    if options.explain is not None:
        for item in found:
            if item.why is not None and not item.gone:
                uuid = turns[item.number].message.uuid
                options.say(_STAGE, uuid, f"replaced the {item.kind} by a text", item.why)
    put_blocks(
        turns,
        [
            (item, text_block(stand_in(item.kind, item.why, item.block.get("title"))))
            for item in found
            if item.why is not None and not item.gone
        ],
    )
    _even_citations(turns, options)


def _stays(item: Found, kind: str) -> bool:
    return item.kind == kind and item.why is None and not item.gone


def _strip_images(images: list[Found], limits: MediaLimits) -> None:
    over = len(images) - limits.images
    for item in images[: max(0, over)]:
        item.why = f"a request takes {limits.images} images; the newest are kept"
    images = images[max(0, over) :]
    # The fewest that make the request legal: all that are too large for one with many images, or as many of these
    # as make it one with few.
    many = len(images) - limits.many_images
    if many > 0:
        large = [item for item in images if item.pixels > limits.many_image_pixels]
        for item in large[:many]:
            item.why = (
                f"it is wider or taller than {limits.many_image_pixels} pixels, "
                f"in a request with more than {limits.many_images} images"
            )


def _strip_documents(documents: list[Found], limits: MediaLimits) -> None:
    pages = 0
    for item in reversed(documents):
        own = item.pages
        if own > limits.pdf_pages or pages + own > limits.pdf_pages:
            item.why = f"a request takes {limits.pdf_pages} pages of PDF; the newest are kept"
        else:
            pages += own


def _strip_to_size(turns: list[Turn], found: list[Found], options: Options) -> None:
    movable = [item for item in found if item.why is None and item.data]
    most = options.limits.request_bytes - options.limits.reserved_bytes
    if not movable:
        return
    size = sum(len(dumps(turn.blocks)) + _MESSAGE_OVERHEAD for turn in turns)
    size -= sum(len(item.data) for item in found if item.why is not None)
    for item in movable:
        if size <= most:
            return
        item.why = "the request would be too large; the newest are kept"
        size -= len(item.data)
    if size > most:
        options.say(_STAGE, None, "left the request too large", f"{size} bytes without any media; compact it")


def _strip_refused(found: list[Found], past: PastRefusals) -> None:
    placed = _placed(found, past)
    named = {(item.number, item.path): item for item in found}
    # What an error may mean that names nothing: all before it that still stands, the nearest last. Errors come in
    # the order of the history, so each is pushed and popped once.
    stacks: dict[str, list[Found]] = {IMAGE: [], DOCUMENT: []}
    read = 0
    for at, refusal in past.refusals:
        while read < len(found) and placed[found[read]] < at:
            stacks[found[read].kind].append(found[read])
            read += 1
        hits = [item for target in refusal.targets if (item := _named(named, target, refusal)) is not None]
        hits = [item for item in hits if placed[item] < at]
        for item in hits or _nearest(stacks, placed, refusal):
            item.why = REFUSED


def _placed(found: list[Found], past: PastRefusals) -> dict[Found, int]:
    """Where in the history each stands: its source says, else it is where the one before it is."""
    used: dict[Any, int] = {}
    out: dict[Found, int] = {}
    before = -1
    for item in found:
        key = source_key(item.block)
        places = past.places.get(key) if key is not None else None
        if places:
            nth = used.get(key, 0)
            used[key] = nth + 1
            before = max(before, places[min(nth, len(places) - 1)])
        out[item] = before
    return out


def _named(named: dict[Any, Found], target: tuple[int, int, int | None], refusal: Refusal) -> Found | None:
    number, block, inner = target
    path = (block,) if inner is None else (block, "content", inner)
    item = named.get((number, path))
    return item if item is not None and item.kind in refusal.kinds else None


def _nearest(stacks: dict[str, list[Found]], placed: dict[Found, int], refusal: Refusal) -> list[Found]:
    """The media of the refused kinds in the nearest earlier message that still holds any, taken off the stacks."""
    tops: list[tuple[int, int]] = []
    for kind in refusal.kinds:
        stack = stacks[kind]
        while stack and stack[-1].why is not None:
            stack.pop()
        if stack:
            tops.append((placed[stack[-1]], stack[-1].number))
    if not tops:
        return []
    nearest = max(tops)
    hits: list[Found] = []
    for kind in refusal.kinds:
        stack = stacks[kind]
        while stack and (placed[stack[-1]], stack[-1].number) == nearest:
            hits.append(stack.pop())
    # A text that stands in for some already: this error was answered when the list was normalized before.
    return [] if any(item.gone for item in hits) else hits


def _even_citations(turns: list[Turn], options: Options) -> None:
    """Citations are on for all documents of a request or for none; where one has them on, the others get them."""
    documents = [item for item in find_media(turns) if item.kind == DOCUMENT and not item.gone]
    off = [item for item in documents if not (item.block.get("citations") or {}).get("enabled")]
    if not off or len(off) == len(documents):
        return
    for item in off:
        uuid = turns[item.number].message.uuid
        options.say("repair", uuid, "turned on a document's citations", "all must have them or none")
    put_blocks(turns, [(item, {**item.block, "citations": {"enabled": True}}) for item in off])
