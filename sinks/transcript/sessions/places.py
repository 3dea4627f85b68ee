"""Where things are when nobody says otherwise: the root of our own sessions, and the cache of their list.

Our root is our own: other programs' folders are read only when they are named (WIRE.md §3). The cache lies in the
user's cache folder, so that listing a folder writes nothing there.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

__all__ = ["default_index", "default_root"]


def default_root() -> Path:
    """The folder that holds ``projects``: ``$TURNSTREAM_ROOT``, else ``turnstream`` in the user's data folder.

    That is ``$XDG_DATA_HOME`` or ``~/.local/share``; on macOS ``~/Library/Application Support``, on Windows
    ``%LOCALAPPDATA%``. It needn't exist.
    """
    chosen = os.environ.get("TURNSTREAM_ROOT")
    if chosen:
        return Path(chosen)
    return _folder("XDG_DATA_HOME", ".local/share", "Application Support") / "turnstream"


def default_index(root: str | os.PathLike[str]) -> Path:
    """The cache of the list of ``root``'s sessions, one file a root: ``turnstream/sessions-….jsonl`` in the user's
    cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``; on macOS ``~/Library/Caches``, on Windows ``%LOCALAPPDATA%``).
    """
    name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:24]
    return _folder("XDG_CACHE_HOME", ".cache", "Caches") / "turnstream" / f"sessions-{name}.jsonl"


def _folder(variable: str, unix: str, mac: str) -> Path:
    chosen = os.environ.get(variable)
    # The specification: a relative path isn't valid and is ignored.
    if chosen and os.path.isabs(chosen):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / mac
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    return Path.home() / unix
