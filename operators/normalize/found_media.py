"""Where a request's images and documents are, and how to put a text in their place (WIRE.md §4, strip)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from turnstream.operators.normalize.media import probe_image, probe_pdf
from turnstream.operators.normalize.refusal import DOCUMENT, IMAGE
from turnstream.operators.normalize.turns import USER, Turn

__all__ = ["REFUSED", "Found", "find_media", "put_blocks", "source_key"]

Block = dict[str, Any]
Path = tuple[int | str, ...]

REFUSED: Final = "the API refused it"
"""Why, in the texts that stand in for media that a request was refused for."""


class Found:
    """One image or document of the request, or a text that stands in for one that was refused.

    Attributes:
        number: of the turn in the list.
        path: where it is in the turn's content: ``(2,)``, ``(0, "content", 1)`` inside a tool result.
        kind: ``image`` or ``document``.
        block: the block itself.
        gone: whether it is a stand-in already.
        why: the reason to take it out, None as long as it stays.
    """

    __slots__ = ("block", "gone", "kind", "number", "path", "why")

    def __init__(self, number: int, path: Path, kind: str, block: Block, *, gone: bool = False) -> None:
        self.number = number
        self.path = path
        self.kind = kind
        self.block = block
        self.gone = gone
        self.why: str | None = None

    @property
    def data(self) -> str:
        """Its base64, empty if its bytes are elsewhere."""
        source = self.block.get("source")
        data = source.get("data") if isinstance(source, dict) and source.get("type") == "base64" else None
        return data if isinstance(data, str) else ""

    @property
    def pixels(self) -> int:
        """An image's longer side, 0 if it isn't known."""
        image = probe_image(self.data) if self.kind == IMAGE and self.data else None
        return max(image.width, image.height) if image is not None else 0

    @property
    def pages(self) -> int:
        """A PDF's pages, 0 if they aren't known."""
        pdf = probe_pdf(self.data) if self.kind == DOCUMENT and self.data else None
        return pdf.pages if pdf is not None else 0


def find_media(turns: Sequence[Turn]) -> list[Found]:
    """All media of a request in order, and the stand-ins of refused ones."""
    found: list[Found] = []
    for number, turn in enumerate(turns):
        if turn.role == USER:
            found.extend(_in_content(number, turn.blocks, ()))
    return found


def _in_content(number: int, content: list[Any], at: Path) -> Iterator[Found]:
    for place, block in enumerate(content):
        kind = block.get("type")
        if kind == "text":
            if not at or at[-1] == "content":
                text = block["text"]
                if text.endswith("]") and text.startswith("[") and text.endswith(f": {REFUSED}]"):
                    what = DOCUMENT if text.startswith("[document") else IMAGE
                    yield Found(number, (*at, place), what, block, gone=True)
        elif kind == "tool_result":
            inner = block.get("content")
            if isinstance(inner, list):
                yield from _in_content(number, inner, (*at, place, "content"))
        elif kind in (IMAGE, DOCUMENT):
            yield Found(number, (*at, place), kind, block)
            source = block.get("source")
            inner = source.get("content") if kind == DOCUMENT and isinstance(source, dict) else None
            if isinstance(inner, list):
                yield from _in_content(number, inner, (*at, place, "source", "content"))


def source_key(block: Block) -> Any:
    """What tells one image or document from another whatever happened to its block: its data, URL or file."""
    source = block.get("source")
    if not isinstance(source, dict):
        return None
    for key in ("data", "url", "file_id"):
        value = source.get(key)
        if isinstance(value, str):
            return "".join(value.partition(",")[2].split()) if value.startswith("data:") else value
    return None


def put_blocks(turns: Sequence[Turn], changes: Iterable[tuple[Found, Block]]) -> None:
    """Put other blocks in the place of some; the structure around them stays, and what doesn't change is shared."""
    by_turn: dict[int, list[tuple[Path, Block]]] = {}
    for item, block in changes:
        by_turn.setdefault(item.number, []).append((item.path, block))
    for number, inside in by_turn.items():
        turns[number].put(_rebuilt(turns[number].blocks, inside))


def _rebuilt(value: Any, changes: list[tuple[Path, Block]]) -> Any:
    """A copy of ``value`` with the changes, sharing what has none; a change of the whole wins over those inside."""
    for path, new in changes:
        if not path:
            return new
    inside: dict[int | str, list[tuple[Path, Block]]] = {}
    for path, new in changes:
        inside.setdefault(path[0], []).append((path[1:], new))
    copy: Any = value.copy()  # a list or a dict
    for key, below in inside.items():
        copy[key] = _rebuilt(value[key], below)
    return copy
