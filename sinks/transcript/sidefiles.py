"""Side files: large tool results beside the transcript (WIRE.md §3, fault 48).

A result over :attr:`Limits.tool_result` goes to ``<session>/tool-results/<tool_use_id>.txt`` (text) or
``.json``. The line keeps a preview that can be sent and shown as it is, and one reference for each part
in ``sideFiles``::

    {"path": "<session>/tool-results/toolu_1.txt", "field": "content", "block": 0,
     "toolUseId": "toolu_1", "bytes": 20971520, "sha256": "…"}

``path`` begins at the transcript's folder. ``field`` says what is there: ``content`` of the ``block``-th
block of ``message.content``, or the record's ``toolUseResult`` (then there is no ``block``).
:func:`load_side_file` reads one, :func:`with_side_files` puts all of a record back. A missing one is no
reason to lose the record: the preview stays.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from turnstream.messages.codec import replace
from turnstream.messages.errors import TranscriptError
from turnstream.messages.jsonvalue import JSONValueError, loads, scrub_text
from turnstream.messages.types import UserMessage
from turnstream.sinks.transcript.fillers import sync_folder
from turnstream.sinks.transcript.guards import clipped

__all__ = ["SIDE_FILES", "SideFile", "Spiller", "load_side_file", "side_folder", "with_side_files", "write_side_file"]

SIDE_FILES: Final = "sideFiles"
"""The record's key that holds the references."""

_FOLDER: Final = "tool-results"
# Of a text in the line, characters; of a structured result's texts.
_PREVIEW: Final = 2000
_SHORT: Final = 300
_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")
_PART: Final = re.compile(r"[^\x00/\\]+")
_SAFE: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

# The one place where bytes leave; tests put a faulty device here.
_write = os.write
_fsync = os.fsync


class SideFile(NamedTuple):
    """A file that must be there before the line that refers to it.

    Attributes:
        path: where.
        data: its bytes.
    """

    path: Path
    data: bytes


def side_folder(transcript: Path) -> Path:
    """The folder of a transcript's side files: ``<session>/tool-results`` beside ``<session>.jsonl``."""
    name = transcript.stem if transcript.suffix == ".jsonl" else f"{transcript.name}.files"
    return transcript.with_name(name) / _FOLDER


class Spiller:
    """Takes large tool results out of messages. No I/O but a look whether a name is taken.

    Args:
        transcript: the transcript's path.
        limit: bytes of a result that stay in the line.
        encode: makes JSON of any value.
    """

    def __init__(self, transcript: Path, limit: int, encode: Callable[[Any], bytes]) -> None:
        self._folder = side_folder(transcript)
        self.limit = limit
        self._encode = encode
        self._names: dict[str, str] = {}

    def spill(self, message: UserMessage) -> tuple[UserMessage, list[SideFile]]:
        """A copy of the message without its large results, and the files for them; itself and none if it has none."""
        limit = self.limit
        content = message.message.get("content")
        if not isinstance(content, list):
            return message, []
        files: list[SideFile] = []
        references: list[dict[str, Any]] = []
        blocks = list(content)
        tool = ""
        for at, block in enumerate(content):
            if not isinstance(block, dict) or block.get("type") != "tool_result":
                continue
            result, tool = block.get("content"), str(block.get("tool_use_id") or "")
            data = self._large(result, limit)
            if data is not None:
                reference = self._put(files, data, tool, ".txt" if isinstance(result, str) else ".json")
                blocks[at] = {**block, "content": _preview(result, reference["path"])}
                references.append({**reference, "field": "content", "block": at})
        output = message.tool_use_result
        changes: dict[str, Any] = {}
        if output is not UNSET and tool:
            data = self._large(output, limit)
            if data is not None:
                text = isinstance(output, str)
                reference = self._put(files, data, tool, ".txt" if text else ".json", "" if text else ".result")
                changes["tool_use_result"] = _outline(output, reference["path"], limit)
                references.append({**reference, "field": "toolUseResult"})
        if not references:
            return message, []
        return replace(
            message,
            message={**message.message, "content": blocks},
            extra={**(message.extra or {}), SIDE_FILES: references},
            **changes,
        ), files

    def _large(self, value: Any, limit: int) -> bytes | None:
        """The value's bytes if they are too many."""
        if isinstance(value, str):
            # Never more than four bytes a character, never less than one.
            if 4 * len(value) <= limit:
                return None
            data = scrub_text(value).encode()
        elif isinstance(value, (list, dict)):
            data = self._encode(value)
        else:
            return None
        return data if len(data) > limit else None

    def _put(self, files: list[SideFile], data: bytes, tool: str, suffix: str, part: str = "") -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        # An id that must not become part of a path is hashed.
        stem = tool if _ID.fullmatch(tool) else f"h-{hashlib.sha256(tool.encode('utf-8', 'replace')).hexdigest()[:32]}"
        name = f"{stem}{part}{suffix}"
        if self._names.get(name, digest) != digest or (name not in self._names and _exists(self._folder / name)):
            name = f"{stem}{part}.{digest[:16]}{suffix}"
        self._names[name] = digest
        path = self._folder / name
        if all(file.path != path for file in files):
            files.append(SideFile(path, data))
        return {
            "path": f"{self._folder.parent.name}/{_FOLDER}/{name}",
            "toolUseId": tool,
            "bytes": len(data),
            "sha256": digest,
        }


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _where(path: str) -> str:
    return f"are in {path}"


def _preview(content: Any, path: str) -> Any:
    """What stays of a result: it may be shown and sent."""
    if isinstance(content, str):
        return clipped(scrub_text(content), _PREVIEW, _where(path))
    room = _PREVIEW
    blocks: list[Any] = []
    for at, block in enumerate(content):
        text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        if isinstance(text, str) and room > 0:
            blocks.append({"type": "text", "text": clipped(scrub_text(text), room, _where(path))})
            room -= len(text)
        else:
            rest = len(content) - at
            blocks.append({"type": "text", "text": f"[{rest:,} more {'block' if rest == 1 else 'blocks'} in {path}]"})
            break
    return blocks


def _outline(output: Any, path: str, limit: int) -> Any:
    """A structured result in its shape, with shortened texts and lists; a text where that is still large."""
    if isinstance(output, str):
        return clipped(scrub_text(output), _PREVIEW, _where(path))
    budget = [1000]
    outline = _shortened(output, path, budget, 8)
    return outline if budget[0] > 0 and limit > 0 else f"[the result is in {path}]"


def _shortened(value: Any, path: str, budget: list[int], depth: int) -> Any:
    budget[0] -= 1
    if isinstance(value, str):
        return clipped(scrub_text(value), _SHORT, _where(path))
    if budget[0] <= 0 or (depth == 0 and isinstance(value, (dict, list))):
        return None
    if isinstance(value, dict):
        return {key: _shortened(item, path, budget, depth - 1) for key, item in value.items() if budget[0] > 0}
    if isinstance(value, list):
        return [_shortened(item, path, budget, depth - 1) for item in value[:100]]
    return value


# -- on disk ---------------------------------------------------------------------------------------------


def write_side_file(file: SideFile, *, durable: bool = False) -> None:
    """Write one (0600, in folders 0700), whole or not at all; writing it again does no harm.

    Raises:
        OSError: it can't be written; a symlink stands in its way.
    """
    folder = file.path.parent
    for one in (folder.parent, folder):
        try:
            os.mkdir(one, 0o700)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(one, follow_symlinks=False).st_mode):
                raise OSError(errno.ENOTDIR, f"{one} is no folder") from None
    temporary = file.path.with_name(f".{file.path.name}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
    try:
        done = 0
        while done < len(file.data):
            done += _write(fd, memoryview(file.data)[done:])
        if durable:
            _fsync(fd)
        os.close(fd)
        fd = -1
        os.replace(temporary, file.path)
    finally:
        if fd >= 0:
            os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    if durable:
        sync_folder(folder)
        sync_folder(folder.parent)


def load_side_file(reference: Mapping[str, Any], transcript: str | os.PathLike[str]) -> Any:
    """Read what a reference of ``sideFiles`` stands for.

    Args:
        reference: as it is on the line.
        transcript: the path of the transcript that holds the line.

    Returns:
        A text for ``.txt``, else the JSON value.

    Raises:
        TranscriptError: the reference leads out of the transcript's folder, or the file is missing, no
            regular file, or not what was written.
    """
    transcript = Path(transcript)
    name = reference.get("path")
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 3 or not all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
        raise TranscriptError(f"{name!r} is no path of a side file", file=str(transcript))
    # A transcript that was renamed together with its folder finds them too.
    own = side_folder(transcript).parent.name
    places = [transcript.parent / first / parts[1] / parts[2] for first in dict.fromkeys((parts[0], own))]
    path = next(filter(_exists, places), None)
    if path is None:
        raise TranscriptError(f"the side file {name} is missing", file=str(transcript), hint="its preview stays")
    try:
        data = _read(path)
    except OSError as error:
        raise TranscriptError(f"the side file can't be read: {error.strerror}", file=str(path)) from error
    digest = reference.get("sha256")
    if isinstance(digest, str) and hashlib.sha256(data).hexdigest() != digest:
        raise TranscriptError("the side file isn't what was written", file=str(path))
    if parts[2].endswith(".txt"):
        return data.decode("utf-8", "replace")
    try:
        return loads(data)
    except JSONValueError as error:
        raise TranscriptError(f"the side file is no JSON: {error}", file=str(path)) from error


def _read(path: Path) -> bytes:
    for folder in (path.parent.parent, path.parent):
        if stat.S_ISLNK(os.stat(folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, f"{folder} is a symlink")
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SAFE)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        return file.read()


def with_side_files(
    record: dict[str, Any], transcript: str | os.PathLike[str]
) -> tuple[dict[str, Any], list[TranscriptError]]:
    """A record's JSON object with its large results back in place.

    Args:
        record: the object of a line; it isn't changed.
        transcript: the path of the transcript that holds it.

    Returns:
        A changed copy (itself if it has no references), and what was wrong with those that couldn't be put
        back: their previews and references stay.
    """
    references = record.get(SIDE_FILES)
    if not isinstance(references, list):
        return record, []
    out = dict(record)
    left: list[Any] = []
    problems: list[TranscriptError] = []
    for reference in references:
        try:
            if not isinstance(reference, dict):
                raise TranscriptError("a reference to a side file is no object", file=str(transcript))
            _put_back(out, reference, load_side_file(reference, transcript))
        except TranscriptError as error:
            problems.append(error)
            left.append(reference)
    out.pop(SIDE_FILES)
    if left:
        out[SIDE_FILES] = left
    return out, problems


def _put_back(out: dict[str, Any], reference: Mapping[str, Any], value: Any) -> None:
    if reference.get("field") == "toolUseResult":
        out["toolUseResult"] = value
        return
    at, message = reference.get("block"), out.get("message")
    blocks = message.get("content") if isinstance(message, dict) else None
    if (
        reference.get("field") != "content"
        or not isinstance(at, int)
        or not isinstance(blocks, list)
        or not 0 <= at < len(blocks)
        or not isinstance(blocks[at], dict)
        or blocks[at].get("tool_use_id") != reference.get("toolUseId")
    ):
        raise TranscriptError("a reference to a side file doesn't fit its record")
    blocks = [*blocks[:at], {**blocks[at], "content": value}, *blocks[at + 1 :]]
    out["message"] = {**message, "content": blocks}  # type: ignore[dict-item]
