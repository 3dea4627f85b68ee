"""Forks (WIRE.md §3): a conversation up to a record, in a session of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from turnstream.messages.errors import TranscriptError
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, dumps, loads
from turnstream.messages.types import raw_of
from turnstream.sinks.transcript.fillers import sync_folder, temporary_of
from turnstream.sinks.transcript.layout import is_session_id
from turnstream.sinks.transcript.reading.records import Record, read_records
from turnstream.sinks.transcript.reading.resume import Resumed, resume
from turnstream.sinks.transcript.sessions.digest import digest
from turnstream.sinks.transcript.sessions.listing import open_transcript
from turnstream.sinks.transcript.sidefiles import SIDE_FILES, SideFile, side_folder, write_side_file

__all__ = ["fork_session"]

FORKED_FROM: Final = "forkedFrom"
"""The record's key that says where it was copied from: ``{"sessionId", "messageUuid"}``."""

# The findings that say on what a record hangs instead of its parent.
_BRIDGED: Final = (
    *("dangling_parent", "lost_root", "no_parent", "loop"),
    *("progress_bridged", "other_bridged", "sidechain_bridged", "tombstone_bridged"),
)
_MEMBERS: Final = ("user", "assistant", "system", "attachment")
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def fork_session(
    path: str | os.PathLike[str],
    *,
    at: str | None = None,
    title: str | None = None,
    session_id: str | None = None,
) -> Path:
    """Copy a session's conversation into a new session beside it; the old one isn't touched, and may be open.

    What is copied is the chain that ``resume(path, leaf=at)`` finds, with what was before its compactions, in the order
    of the file. Records keep their uuids (so what an answer cost is counted once over both files); their ``sessionId``
    is the new one, ``forkedFrom`` says whence they come, a parent that isn't in the file becomes the record that resume
    bridges to. Tool results in side files are copied, too; sub-agents' files aren't. The last record names the new
    session. It appears at once and whole, or not at all.

    Args:
        path: of the session's transcript.
        at: uuid of the record with which the copy ends; None is the newest leaf.
        title: of the new session; None is the old one's with ``(fork)``.
        session_id: of the new session; None makes one.

    Returns:
        The new transcript's path.

    Raises:
        TranscriptError: it can't be read, holds no conversation, or has no such record; the new one can't be written,
            or there is one already.
    """
    source = Path(path)
    ident = session_id if session_id is not None else str(uuid4())
    if not is_session_id(ident):
        raise TranscriptError(f"session id {ident!r} is no uuid, so it can't name a file")
    target = source.with_name(f"{ident}.jsonl")
    name = title if title is not None else _title(source)
    found = resume(source, leaf=at, history=True, mend=False, side_files=False)
    if os.path.lexists(target) or os.path.lexists(target.with_suffix("")):
        raise TranscriptError("the new session exists already", file=str(target))
    try:
        with _undone(target):
            _write(target, _lines(source, target, found, ident, name))
    except OSError as error:
        raise TranscriptError(f"the fork can't be written: {error.strerror or error}", file=str(target)) from error
    return target


def _title(source: Path) -> str:
    try:
        with open_transcript(source) as file:
            found = digest(file)
    except OSError as error:
        raise TranscriptError(f"it can't be read: {error.strerror or error}", file=str(source)) from error
    if found is None:
        raise TranscriptError("it holds no conversation, so there is nothing to fork", file=str(source))
    return f"{found.title} (fork)" if found.title else "Fork"


def _lines(source: Path, target: Path, found: Resumed, ident: str, title: str) -> Iterator[bytes]:
    """The new file's lines, in the order of the old one; side files are copied on the way."""
    by_uuid: dict[str, bytes] = {}
    nameless: set[bytes] = set()
    for message in found.messages:
        raw = raw_of(message)
        uuid = getattr(message, "uuid", "")
        if raw is not None and uuid:
            by_uuid[uuid] = raw
        elif raw is not None:
            nameless.add(raw)
    parents = _parents(found)
    for record in read_records(source):
        if record.uuid is not None:
            # Of a uuid that is there twice, what resume took stands in the place of the first. Other types' ids are
            # names of other things.
            raw = by_uuid.pop(record.uuid, None) if record.type in _MEMBERS else None
        else:
            raw = record.raw if record.raw in nameless else None
            nameless.discard(record.raw)
        if raw is None:
            continue
        value = loads(raw, max_depth=MAX_RECORD_DEPTH)
        if raw != record.raw:
            _stand_at(value, record)
        old = value.get("sessionId")
        value["sessionId"] = ident
        if record.uuid in parents:
            value["parentUuid"] = parents[record.uuid]
        origin = {"sessionId": old if isinstance(old, str) else source.stem, "messageUuid": value.get("uuid")}
        value[FORKED_FROM] = {key: item for key, item in origin.items() if item is not None}
        if isinstance(value.get(SIDE_FILES), list):
            value[SIDE_FILES] = [_side_file(reference, source, target) for reference in value[SIDE_FILES]]
        yield dumps(value) + b"\n"
    yield dumps({"type": "custom-title", "customTitle": title, "sessionId": ident}) + b"\n"


def _stand_at(value: dict[str, Any], first: Record) -> None:
    """Give a later copy the place of the first one in the chain, too, as resume does."""
    assert first.value is not None
    for key in ("parentUuid", "isSidechain"):
        if key in first.value:
            value[key] = first.value[key]
        else:
            value.pop(key, None)


def _parents(found: Resumed) -> dict[str, str | None]:
    """What records hang on whose line doesn't say so, or names one that isn't copied; None opens a circle."""
    if not found.report.of("flat_file"):
        return {f.uuid: f.target for f in found.report.of(*_BRIDGED) if f.uuid and (f.target or f.kind == "loop")}
    uuids = [uuid for message in found.messages if (uuid := getattr(message, "uuid", ""))]
    return dict(zip(uuids[1:], uuids, strict=False))


def _side_file(reference: Any, source: Path, target: Path) -> Any:
    """Copy what a reference stands for, and say where it is now; one that can't be read stays as it is."""
    name = reference.get("path") if isinstance(reference, dict) else None
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 3 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        return reference
    new = side_folder(target)
    for first in dict.fromkeys((parts[0], side_folder(source).parent.name)):
        folder = source.parent / first / parts[1]
        try:
            if folder.is_symlink() or folder.parent.is_symlink():
                continue
            with open(os.open(folder / parts[2], _READ), "rb") as file:
                data = file.read()
        except OSError:
            continue
        write_side_file(SideFile(new / parts[2], data), durable=True)
        return {**reference, "path": f"{new.parent.name}/{new.name}/{parts[2]}"}
    return reference


def _write(target: Path, lines: Iterator[bytes]) -> None:
    temporary = temporary_of(target)
    with open(os.open(temporary, _WRITE, 0o600), "wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, target)
    sync_folder(target.parent)


@contextlib.contextmanager
def _undone(target: Path) -> Iterator[None]:
    """Whatever ends it early, nothing is left of the new session."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            temporary_of(target).unlink()
        shutil.rmtree(target.with_suffix(""), ignore_errors=True)
        raise
