"""What a session is called: its title, else its summary, else its first prompt."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any, Final

__all__ = ["Titles", "one_line"]

LONGEST: Final = 200
"""Characters of a title."""

_WHITE: Final = re.compile(r"\s+")
# What an editor or the system puts beside the human's words, as a block of its own.
_ATTACHED: Final = re.compile(r"\s*<(ide_opened_file|ide_selection|system-reminder)>.*</\1>\s*", re.DOTALL)
_COMMAND: Final = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_ARGUMENTS: Final = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_SHELL: Final = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)


class Titles:
    """Collects what could be the title; of each kind the last one counts, of prompts the first."""

    def __init__(self) -> None:
        self._custom: str | None = None
        self._generated: str | None = None
        self._summaries: list[tuple[str, str | None]] = []
        self._prompt: str | None = None
        self._command: str | None = None

    def custom(self, text: Any) -> None:
        """A title given by the user."""
        self._custom = one_line(text) or self._custom

    def generated(self, text: Any) -> None:
        """A title that a model made."""
        self._generated = one_line(text) or self._generated

    def summary(self, text: Any, leaf: Any) -> None:
        """A summary of the conversation that ends in ``leaf``, which older files have of other sessions, too."""
        if line := one_line(text):
            self._summaries.append((line, leaf if isinstance(leaf, str) else None))

    def prompt(self, content: Any) -> None:
        """A prompt's content."""
        if self._prompt is None:
            self._prompt = next(
                (line for text in _texts(content) if not _ATTACHED.fullmatch(text) and (line := one_line(text))), None
            )

    def command(self, content: Any) -> None:
        """A local command's content."""
        if self._command is None:
            text = "\n".join(_texts(content))
            if found := _COMMAND.search(text):
                more = _ARGUMENTS.search(text)
                self._command = one_line(f"{found[1]} {more[1] if more else ''}") or None
            elif found := _SHELL.search(text):
                self._command = one_line(f"! {found[1]}") or None

    def best(self, uuids: Container[str]) -> str | None:
        """The title of a file that holds records of these ``uuids``."""
        own = None
        for text, leaf in self._summaries:
            if leaf is None or leaf in uuids:
                own = text
        other = self._summaries[-1][0] if self._summaries else None
        return self._custom or self._generated or own or self._prompt or self._command or other


def one_line(text: Any) -> str:
    """``text`` on one line of at most ``LONGEST`` characters; empty if it is no text."""
    if not isinstance(text, str):
        return ""
    # What is cut off needn't be walked through.
    line = _WHITE.sub(" ", text.lstrip()[: LONGEST * 4]).strip()
    return line if len(line) <= LONGEST else line[: LONGEST - 1].rstrip() + "…"


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [
        block["text"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]
