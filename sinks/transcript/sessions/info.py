"""What is known of a session without opening it again."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Digest", "Problem", "SessionInfo", "moment"]


class Problem(msgspec.Struct, frozen=True):
    """A piece of a file that is no record.

    Attributes:
        line: from 1; 0 for the whole file.
        offset: of its first byte.
        problem: why, in words.
    """

    line: int
    offset: int
    problem: str


class Digest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the lines of a session's file say, in short; :class:`SessionInfo` describes the fields."""

    cwd: str | None = None
    git_branch: str | None = None
    title: str | None = None
    first_activity: str | None = None
    last_activity: str | None = None
    messages: int = 0
    turns: int = 0
    answers: int = 0
    tokens: dict[str, int | float] = {}
    models: list[str] = []
    filler_bytes: int = 0
    bad_lines: int = 0
    problems: list[Problem] = []


class SessionInfo(msgspec.Struct, kw_only=True, frozen=True):
    """One session in a list.

    Attributes:
        session_id: its uuid, the file's name.
        path: of its file.
        project: the name of its project's folder. Folders of different working folders may share it: ``cwd`` decides.
        cwd: the working folder that its lines name (the first that fits the project's folder); None if they name none.
        git_branch: the last one named.
        title: the title given by the user, else the generated one, else the summary, else the first prompt, shortened
            to one line; None if there is nothing of that.
        first_activity: the earliest timestamp of a line, as the file spells it.
        last_activity: the latest one.
        messages: lines of user and model in the main conversation; a uuid counts once, what was taken back not at all.
        turns: prompts of a human among them.
        answers: distinct answers of the model (by ``message.id``), also of sub-agents whose lines are in this file.
        tokens: what these answers used, by the keys of ``usage`` (nested ones as ``outer.inner``): of each answer the
            last numbers, once.
        models: the models that answered, in order of appearance.
        subagents: files of sub-agents beside it.
        size: of the file, bytes.
        modified: of the file, seconds since 1970.
        filler_bytes: bytes of it that are fillers of taken-back lines; ``prune`` removes them.
        bad_lines: lines, or pieces of them, that are no record.
        problems: the first of these; also, with line 0, why the file can't be read.
    """

    session_id: str
    path: Path
    project: str
    cwd: str | None = None
    git_branch: str | None = None
    title: str | None = None
    first_activity: str | None = None
    last_activity: str | None = None
    messages: int = 0
    turns: int = 0
    answers: int = 0
    tokens: dict[str, int | float] = {}
    models: list[str] = []
    subagents: int = 0
    size: int = 0
    modified: float = 0.0
    filler_bytes: int = 0
    bad_lines: int = 0
    problems: list[Problem] = []

    @property
    def active_at(self) -> float:
        """Seconds since 1970 of the last activity; of the file's last change where no line has a time."""
        at = moment(self.last_activity) if self.last_activity is not None else None
        return self.modified if at is None else at

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        out: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return out


def moment(text: str) -> float | None:
    """Seconds since 1970 of an ISO 8601 time (UTC if it names no zone); None if it is none."""
    try:
        at = datetime.datetime.fromisoformat(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=datetime.UTC)
        return at.timestamp()
    except (ValueError, OverflowError):
        return None
