"""Text for terminals: nothing in it can steer one, and every encoding can take it."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Protocol

__all__ = ["Glyphs", "Style", "TextStream", "encodable", "safe", "shorten"]

# C0 but TAB and LF, DEL, C1; surrogates can't be encoded.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_WHITE: Final = re.compile(r"\s+")


class TextStream(Protocol):
    """The part of a text file that a renderer needs (``sys.stdout``, ``io.StringIO``)."""

    def write(self, text: str, /) -> object:
        """Write text."""
        ...

    def flush(self) -> None:
        """Hand it on."""
        ...


def safe(text: str) -> str:
    r"""Text in which no character can steer a terminal.

    CRLF becomes LF; every other control character but LF and TAB is written out (``\x1b``), so that a
    reader sees that something was there; surrogates become U+FFFD.
    """
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(_write_out, text.replace("\r\n", "\n"))


def _write_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    return "\ufffd" if code >= 0xD800 else f"\\x{code:02x}"


def encodable(text: str, encoding: str | None) -> str:
    """What of ``text`` the encoding can write; the rest as ``?`` (``LANG=C`` must not end a run)."""
    if encoding is None or text.isascii():
        return text
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, "replace").decode(encoding)
    return text


def shorten(text: str, width: int, ellipsis: str) -> str:
    """One line of at most ``width`` columns: white space runs become one space, what is cut an ellipsis."""
    # No more than that can fit; a large tool input isn't walked through.
    line = _WHITE.sub(" ", text[: width * 4 + 4]).strip()
    if len(line) * 2 <= width and len(text) <= width:
        return line
    room = max(width - len(ellipsis), 1)
    used = 0
    cut = 0
    for at, character in enumerate(line):
        used += _columns(character)
        if used <= room:
            cut = at + 1
        if used > width:
            return line[:cut].rstrip() + ellipsis
    return line if len(text) <= width * 4 + 4 else line[:cut].rstrip() + ellipsis


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Glyphs:
    """The marks of the plain display, in ASCII where the encoding has no others."""

    def __init__(self, encoding: str | None) -> None:
        fancy = encodable("●✗⎿…─", encoding) == "●✗⎿…─"
        self.tool = "●" if fancy else "*"
        self.error = "✗" if fancy else "x"
        self.result = "⎿" if fancy else "|_"
        self.ellipsis = "…" if fancy else "..."
        self.line = "─" if fancy else "-"


class Style:
    """SGR sequences around whole pieces of text, so that they are always balanced; none without colour.

    Line ends at a piece's end stay outside of them.
    """

    def __init__(self, color: bool) -> None:
        self._color = color

    def _sgr(self, code: int, text: str) -> str:
        body = text.rstrip("\n")
        if not self._color or not body:
            return text
        return f"\x1b[{code}m{body}\x1b[0m{text[len(body) :]}"

    def dim(self, text: str) -> str:
        """Of lesser weight: thinking, notes."""
        return self._sgr(2, text)

    def red(self, text: str) -> str:
        """Errors."""
        return self._sgr(31, text)

    def bold(self, text: str) -> str:
        """Names of tools, the user's words."""
        return self._sgr(1, text)
