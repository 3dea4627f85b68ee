"""Taking back lines that are in the file (WIRE.md §3, *Tombstone*).

First what hangs on such a line is bridged in place: ``parentUuid`` names the member before it from then
on. Then the last line of the file is cut off; an earlier one is overwritten by a filler of the same
length. Each step is one system call that leaves a file which can be read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from turnstream.messages.jsonvalue import dumps
from turnstream.sinks.transcript.chain import Bridge
from turnstream.sinks.transcript.fillers import filler, is_filler
from turnstream.sinks.transcript.index import Line, LineIndex, is_record, read_line, search_back
from turnstream.sinks.transcript.scan import head_of

__all__ = ["Erased", "Tombstones", "erase"]

Tombstones = Literal["erase", "append"]
"""What becomes of a line that is taken back: it is taken out, or a record behind it says so (an audit trail)."""

_FLAGS: Final = (
    os.O_RDWR
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_PARENT: Final = (b'"parentUuid":', b'"parentUuid": ')


def _write_at(fd: int, data: bytes | memoryview, offset: int) -> int:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.write(fd, data)


# The one place where bytes are overwritten; tests put a faulty device here. Not on the descriptor that
# appends: there pwrite appends too (Linux).
_pwrite = getattr(os, "pwrite", _write_at)  # Windows has none
_ftruncate = os.ftruncate
_fsync = os.fsync


class Erased(NamedTuple):
    """What became of lines that were taken back.

    Attributes:
        cut: lines that stood at the end.
        overwritten: lines that became fillers.
        bridged: lines whose parent was changed.
        missing: records that aren't in the file.
        error: why it broke off; the whole may be tried again.
    """

    cut: int = 0
    overwritten: int = 0
    bridged: int = 0
    missing: int = 0
    error: OSError | None = None

    def plus(self, more: Erased) -> Erased:
        """The sums."""
        return Erased(
            self.cut + more.cut,
            self.overwritten + more.overwritten,
            self.bridged + more.bridged,
            self.missing + more.missing,
        )


def erase(
    path: Path, index: LineIndex, uuids: Sequence[str], bridges: Sequence[Bridge], *, durable: bool = False
) -> Erased:
    """Take lines out of a file that nobody else writes. Never raises an OSError.

    It reads and writes what it must: the lines themselves, found through ``index``.

    Args:
        path: the file.
        index: where lines are; lines that are cut off are forgotten.
        uuids: of the records to take out.
        bridges: lines that hang on them.
        durable: return when the device has it.
    """
    cut = overwritten = bridged = 0
    try:
        fd = os.open(path, _FLAGS)
    except FileNotFoundError:
        return Erased(missing=len(uuids))
    except OSError as error:
        return Erased(error=error)
    try:
        size = os.fstat(fd).st_size
        lines: dict[int, tuple[str, Line]] = {}
        missing = 0
        for uuid in uuids:
            found = _lines_of(fd, index, uuid, size)
            missing += not found
            lines.update((line.offset, (uuid, line)) for line in found if line.data)
        for bridge in bridges:
            bridged += _bridge(fd, index, bridge)
        # From the end, so that an answer which was the last is cut off as a whole.
        for offset in sorted(lines, reverse=True):
            uuid, line = lines[offset]
            if line.end == size:
                _ftruncate(fd, offset)
                size = offset
                index.cut(size)
                cut += 1
            else:
                _overwrite(fd, filler(uuid, len(line.data)), offset)
                overwritten += 1
        if durable:
            _fsync(fd)
        return Erased(cut, overwritten, bridged, missing)
    except OSError as error:
        return Erased(cut, overwritten, bridged, error=error)
    finally:
        os.close(fd)


def _lines_of(fd: int, index: LineIndex, uuid: str, size: int) -> list[Line]:
    """The lines that are the record; one without bytes stands for what is a filler already."""
    found: list[Line] = []
    offsets = index.find(uuid)
    for offset in offsets:
        line = read_line(fd, offset)
        if line is None:
            continue
        if is_record(line, uuid):
            found.append(line)
        elif is_filler(line.data) and dumps(uuid) in line.data:
            # A try before this one got so far; whole?
            found.append(Line(offset, b"") if head_of(line.data) is not None else line)
    if offsets and not found:
        # Somebody else changed the file.
        line = search_back(fd, uuid, size)
        if line is not None:
            found.append(line)
    return found


def _bridge(fd: int, index: LineIndex, bridge: Bridge) -> int:
    changed = 0
    new = dumps(bridge.new)
    for offset in index.find(bridge.uuid):
        line = read_line(fd, offset)
        if line is None or not is_record(line, bridge.uuid):
            continue
        head = head_of(line.data)
        old = head.parent if head is not None else None
        if old not in bridge.olds:
            continue
        at = _parent_at(line.data, dumps(old), new)
        if at is not None:
            _overwrite(fd, new.ljust(len(dumps(old))), offset + at)
            changed += 1
    return changed


def _parent_at(line: bytes, old: bytes, new: bytes) -> int | None:
    """Where the parent's name stands in a line; None if ``new`` doesn't fit there (readers bridge it)."""
    if len(new) > len(old):
        return None
    wanted = head_of(b'{"parentUuid":%b}' % new)
    for key in _PARENT:
        at = -1
        while (at := line.find(key + old, at + 1)) >= 0:
            start = at + len(key)
            changed = head_of(line[:start] + new.ljust(len(old)) + line[start + len(old) :])
            # A payload may hold the same words; only the line's own parent counts.
            if changed is not None and wanted is not None and changed.parent == wanted.parent:
                return start
    return None


def _overwrite(fd: int, data: bytes, offset: int) -> None:
    done = _pwrite(fd, data, offset)
    while done < len(data):
        done += _pwrite(fd, memoryview(data)[done:], offset + done)
