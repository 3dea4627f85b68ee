"""Where a session's file lies (WIRE.md §3): ``<root>/projects/<slug>/<session uuid>.jsonl``."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Final

from turnstream.messages.errors import TranscriptError

__all__ = ["is_session_id", "project_slug", "session_path"]

_SESSION: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_AGENT: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_OTHER: Final = re.compile(r"[^0-9A-Za-z]")
# File systems allow 255 bytes a name; readers look for this many characters and any suffix.
_LONGEST: Final = 200


def is_session_id(text: str) -> bool:
    """Whether ``text`` is a uuid in its usual spelling, as the readers ask of a session's file name."""
    return _SESSION.fullmatch(text) is not None


def project_slug(cwd: str | os.PathLike[str]) -> str:
    """The folder name of a working folder: each non-alphanumeric character as ``-``.

    Different folders may collide; ``cwd`` in the lines decides. A name over 200 characters is cut and
    gets a hash.
    """
    text = os.fspath(cwd)
    slug = _OTHER.sub("-", text)
    if len(slug) <= _LONGEST:
        return slug
    return f"{slug[:_LONGEST]}-{zlib.crc32(os.fsencode(text)):x}"


def session_path(
    root: str | os.PathLike[str], cwd: str | os.PathLike[str], session_id: str, *, agent_id: str | None = None
) -> Path:
    """The path of a session's file, or of one of its sub-agents'.

    Args:
        root: the folder that holds ``projects``.
        cwd: the session's working folder.
        session_id: the session's uuid.
        agent_id: a sub-agent's id: its file is ``<session>/subagents/agent-<id>.jsonl``.

    Raises:
        TranscriptError: an id that must not become part of a path.
    """
    if not is_session_id(session_id):
        raise TranscriptError(f"session id {session_id!r} is no uuid, so it can't name a file")
    folder = Path(root) / "projects" / project_slug(cwd)
    if agent_id is None:
        return folder / f"{session_id}.jsonl"
    if _AGENT.fullmatch(agent_id) is None:
        raise TranscriptError(f"agent id {agent_id!r} has characters that must not be in a file name")
    return folder / session_id / "subagents" / f"agent-{agent_id}.jsonl"
