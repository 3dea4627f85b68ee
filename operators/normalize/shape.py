"""One block at a time: what the API can't take of it is mended, replaced by a text, or dropped (WIRE.md §4, repair).

Here are the rules that look at a block alone: its type and whose it may be, its fields, blank texts, the input of a
tool call, a cache mark's shape, thinking without a signature, surrogates. A user's or model's text is never dropped,
in whatever block it came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from turnstream.operators.normalize.cache_marks import clean_mark
from turnstream.operators.normalize.calls import answered_as_text, called_as_text, clean_call
from turnstream.operators.normalize.fields import BLOCKS, CITATIONS, SERVER_TOOLS, BlockShape, only
from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.results import clean_result
from turnstream.operators.normalize.server_results import clean_server_result
from turnstream.operators.normalize.sources import clean_document, clean_image, clean_search_result
from turnstream.operators.normalize.texts import inner_text, is_blank, scrubbed, stand_in, text_block
from turnstream.operators.normalize.thinking import THINKING, why_not_sent
from turnstream.operators.normalize.turns import ASSISTANT, Turn

__all__ = ["BlockCleaner"]

Block = dict[str, Any]

_TEXT_FIELDS: Final = frozenset({"type", "text"})
_MEDIA: Final = frozenset({"image", "document"})
_RESULTS: Final = frozenset().union(*SERVER_TOOLS.values(), {"mcp_tool_result"})


class BlockCleaner:
    """Cleans the blocks of turn after turn, and notes what kinds there are, so that other passes can be spared.

    Args:
        options: the request's.
        blocks: what blocks the API takes; default :data:`~turnstream.operators.normalize.fields.BLOCKS`.

    Attributes:
        marks: whether any block has a cache mark.
        media: whether there is an image or a document, inside tool results too.
        server: whether there is a call or a result of the server's tools, or a call made by code that runs there.
        thinking: whether any thinking is left.
    """

    def __init__(self, options: Options, blocks: Mapping[str, BlockShape] | None = None) -> None:
        self.marks = self.media = self.server = self.thinking = False
        self._options = options
        self._blocks = BLOCKS if blocks is None else blocks
        self._names = options.names
        # Converse refuses tool blocks in a request without tools.
        self._without_tools = options.bedrock and options.names is not None and not options.names
        self._turn: Turn
        self._foreign = False
        self._own: dict[str, Callable[[Block], Block | list[Block] | None]] = {
            "image": self._image,
            "document": self._document,
            "search_result": lambda block: clean_search_result(block, self._strip),
            "tool_result": self._result,
            "thinking": self._thinking,
            "redacted_thinking": self._thinking,
            **dict.fromkeys(_RESULTS, self._server_result),
            "container_upload": self._upload,
            "compaction": self._compaction,
            "tool_use": self._call,
            "server_tool_use": self._call,
            "mcp_tool_use": self._call,
        }

    def clean(self, turn: Turn) -> None:
        """Clean a turn's blocks; it is marked as changed if any of them was."""
        self._turn = turn
        options = self._options
        self._foreign = turn.role == ASSISTANT and options.is_foreign(turn.message.message.get("model"))
        blocks = turn.blocks
        sound = scrubbed(blocks)
        if sound is not blocks:
            if not isinstance(sound, list):  # nested too deep for a walk: what it says as a text
                sound = [text_block(sound)]
            self._say("replaced surrogates by U+FFFD", "the request would be no valid JSON")
        out: list[Block] = []
        for at, block in enumerate(sound):
            clean = self._block(block)
            if isinstance(clean, list):
                out += clean
            elif clean is not None:
                if clean.get("type") in THINKING and block is not blocks[at]:
                    self._say("dropped thinking", "its signature isn't good for the text without surrogates")
                    continue
                out.append(clean)
        if len(out) != len(blocks) or any(a is not b for a, b in zip(out, blocks, strict=True)):
            turn.put(out)

    def _block(self, block: Any) -> Block | list[Block] | None:
        if block.__class__ is not dict:
            said = inner_text(block)
            self._say("made an item of the content a text" if said else "dropped an item of the content", "no block")
            return text_block(said) if said else None
        kind = block.get("type")
        if kind == "text" and block.keys() == _TEXT_FIELDS:  # nearly always
            text = block["text"]
            if text.__class__ is str and text and not text.isspace():
                return block
            self._no_text(text)
            return None
        known = self._blocks.get(kind) if isinstance(kind, str) else None
        if known is None or not isinstance(kind, str):
            return self._unknown(block, kind)
        if self._turn.role not in known.roles:
            return self._misplaced(block, kind)
        clean = only(block, known.fields)
        if clean is not block:
            names = ", ".join(sorted(str(key) for key in block.keys() - known.fields))
            self._say(f"dropped stray fields of a {kind} block: {names}", "the API refuses unknown fields")
        if "cache_control" in clean:
            self.marks = True
            clean = clean_mark(clean, self._say)
        if kind == "text":
            return self._text(clean)
        own = self._own.get(kind)
        return clean if own is None else own(clean)

    # ------------------------------------------------------------------ texts

    def _no_text(self, text: Any) -> None:
        self._say("dropped a text block", "it is blank" if isinstance(text, str) else "its text is no string")

    def _text(self, block: Block) -> Block | None:
        text = block.get("text")
        if not isinstance(text, str) or is_blank(text):
            self._no_text(text)
            return None
        if block.get("citations") is None:
            return block
        citations = block["citations"]
        kept = [clean for item in citations if (clean := _citation(item))] if isinstance(citations, list) else None
        if kept is not None and len(kept) == len(citations) and all(map(_is, kept, citations)):
            return block
        self._say("mended a text's citations", "the API refuses unknown citations and fields")
        return {**block, "citations": kept} if kept else {k: v for k, v in block.items() if k != "citations"}

    def _unknown(self, block: Block, kind: Any) -> Block | None:
        """A block of a type that the API doesn't know: its text is kept."""
        if kind == "image_url":
            self._strip("replaced an image_url block by a text", "it is another API's")
            image = block.get("image_url")
            where = image.get("url") if isinstance(image, dict) else image
            where = where if isinstance(where, str) and not where.startswith("data:") else None
            return text_block(stand_in("image", "it was given in another API's form", where))
        said = inner_text(block)
        self._say(
            f"{'made' if said else 'dropped'} a block of type {kind!r}{' a text' if said else ''}", "unknown type"
        )
        return text_block(said) if said else None

    def _misplaced(self, block: Block, kind: str) -> Block | list[Block] | None:
        """A block whose role can't hold it. A result in an answer is left for pairing to move."""
        if kind == "tool_result":
            return self._result(only(block, self._blocks[kind].fields))
        if kind in ("image", "document"):
            why = f"an {self._turn.role} message can't hold it"
            self._strip(f"replaced the {kind} by a text", why)
            return text_block(stand_in(kind, why, block.get("title")))
        said = "" if kind in THINKING else inner_text(block)
        what = f"{'made' if said else 'dropped'} a {kind} block{' a text' if said else ''}"
        self._say(what, f"{'an' if self._turn.role == ASSISTANT else 'a'} {self._turn.role} message can't hold it")
        return text_block(said) if said else None

    # ------------------------------------------------------------------ media

    def _image(self, block: Block) -> Block:
        self.media = True
        return clean_image(block, self._options.limits, self._strip)

    def _document(self, block: Block) -> Block:
        self.media = True
        return clean_document(block, self._options.limits, self._strip)

    def _upload(self, block: Block) -> Block | None:
        if isinstance(block.get("file_id"), str) and block["file_id"]:
            return block
        self._say("dropped a container_upload", "it names no file")
        return None

    # ------------------------------------------------------------------ tools

    def _call(self, block: Block) -> Block | None:
        if block["type"] != "tool_use" or "caller" in block:
            self.server = True
        if block["type"] == "server_tool_use" and not _is_server_tool(block.get("name")):
            self._say(f"dropped a call of {block.get('name')!r}", "no server tool is called so")
            return None
        if self._without_tools and block["type"] == "tool_use":
            self._say("made a tool call a text", "the request has no tools")
            return called_as_text(block)
        return clean_call(block, self._say, self._options.bedrock)

    def _result(self, block: Block) -> Block | list[Block]:
        clean, moved = clean_result(block, self._options.limits, self._names, self._say, self._strip)
        if clean is not block and "cache_control" in clean:
            self.marks = True
            clean = clean_mark(clean, self._say)  # it may have come from inside
        content = clean.get("content")
        if moved or (isinstance(content, list) and any(item["type"] in _MEDIA for item in content)):
            self.media = True
        if self._without_tools:
            self._say("made a tool result a text", "the request has no tools")
            return [*answered_as_text(clean), *moved]
        return [clean, *moved] if moved else clean

    def _server_result(self, block: Block) -> Block | None:
        self.server = True
        return clean_server_result(block, self._names, self._say)

    # ------------------------------------------------------------------ the model's own

    def _thinking(self, block: Block) -> Block | None:
        why = why_not_sent(block, foreign=self._foreign)
        if why is None:
            self.thinking = True
            return block
        self._say(f"dropped {block['type'].replace('_', ' ')}", why)
        return None

    def _compaction(self, block: Block) -> Block | None:
        content = block.get("content")
        if content is None or (isinstance(content, str) and content):
            return block  # verbatim, null too: it says that compaction failed (FAULTS.md 77)
        self._say("dropped a compaction block", "its content is neither null nor a text")
        return None

    # ------------------------------------------------------------------ the log

    def _say(self, what: str, why: str) -> None:
        if self._options.explain is not None:
            self._options.say("repair", self._turn.message.uuid, what, why)

    def _strip(self, what: str, why: str) -> None:
        if self._options.explain is not None:
            self._options.say("strip", self._turn.message.uuid, what, why)


def _citation(item: Any) -> Block | None:
    """A citation with its own fields alone, None if it is none that the API takes back."""
    kind = item.get("type") if isinstance(item, dict) else None
    fields = CITATIONS.get(kind) if isinstance(kind, str) else None
    if fields is None or not fields[0] <= item.keys():
        return None
    return only(item, fields[0] | fields[1])


def _is_server_tool(name: Any) -> bool:
    return isinstance(name, str) and name in SERVER_TOOLS


def _is(left: Any, right: Any) -> bool:
    return left is right
