"""Tagged texts of local commands: what was typed and what came out (WIRE.md §2, ``local_command``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["INPUT_TAGS", "OUTPUT_TAGS", "leading_tag", "output_of", "text_of"]

INPUT_TAGS: Final = frozenset({"command-name", "command-message", "command-args", "command-contents", "bash-input"})
"""A local command's input."""

OUTPUT_TAGS: Final = frozenset({"local-command-stdout", "local-command-stderr", "bash-stdout", "bash-stderr"})
"""A local command's output."""

# Outermost pairs only: what stands inside of an input is input, whatever it looks like.
_PAIR: Final = re.compile(rf"<({'|'.join(sorted(INPUT_TAGS | OUTPUT_TAGS))})>(.*?)</\1>", re.DOTALL)
_LEADING: Final = re.compile(r"\s*<([a-z][a-z0-9-]*)>").match


def leading_tag(text: str) -> str | None:
    """The name of the tag that a text begins with (``bash-input``), None if it begins otherwise."""
    found = _LEADING(text)
    return found[1] if found else None


def text_of(content: Any) -> str | None:
    """A content's text: the string, or its text blocks joined by LF; None if it has no text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part for part in map(_block_text, content) if part is not None]
        if parts:
            return "\n".join(parts)
    return None


def _block_text(block: Any) -> str | None:
    if isinstance(block, dict) and block.get("type") == "text":
        text = block.get("text")
        return text if isinstance(text, str) else None
    return None


def output_of(content: Any) -> str | None:
    """Only what a local command wrote to stdout and stderr, without its tags (WIRE.md §2, SDK mapping).

    Args:
        content: a ``local_command``'s content.

    Returns:
        The outputs joined by LF; None if there is no whole pair of output tags. What isn't in such a pair, or is
        inside of an input's pair, isn't returned.
    """
    text = text_of(content)
    if text is None:
        return None
    found = list(_outputs(text))
    return "\n".join(part for part in found if part) if found else None


def _outputs(text: str) -> Iterator[str]:
    for pair in _PAIR.finditer(text):
        if pair[1] in OUTPUT_TAGS:
            yield pair[2]
