"""The second pass: the file as it should be, into a new one. What isn't mended keeps its bytes."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, BinaryIO, Final

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, dumps, loads
from turnstream.messages.texts import MISSING_RESULT
from turnstream.sinks.transcript.doctor.entries import good_thinking
from turnstream.sinks.transcript.doctor.oversized import Oversized
from turnstream.sinks.transcript.doctor.plan import Plan
from turnstream.sinks.transcript.doctor.splice import set_key, without_invalid_utf8, without_lone_surrogates
from turnstream.sinks.transcript.reading.records import Record, read_records
from turnstream.sinks.transcript.sidefiles import write_side_file

__all__ = ["Rejects", "rewrite"]

_CHUNK: Final = 3 << 20  # whole groups of base64
# What a made-up line has of the line that it belongs to.
_ENVELOPE: Final = (
    "isSidechain",
    "userType",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
    "agentId",
    "slug",
    "teamName",
)


class Rejects:
    """The file of what can't be read: NDJSON, each piece with its place in the original.

    ``{"line", "offset", "bytes", "problem", "encoding": "utf-8" | "base64", "data"}``; NUL bytes have no data.
    ``pass`` is there if the piece was found in the file as the pass before had mended it: places are of that one.

    Args:
        path: is made when the first piece comes, and must not exist.
        mode: the new file's permissions.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self.path = path
        self.made = False
        self.turn = 1
        self._mode = mode
        self._file: BinaryIO | None = None

    def add(self, record: Record, problem: str, source: Path) -> None:
        """Take one piece."""
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
            self._file = os.fdopen(os.open(self.path, flags, self._mode), "wb")
            self.made = True
        place: dict[str, Any] = {"line": record.line, "offset": record.offset, "bytes": record.size}
        if self.turn > 1:
            place["pass"] = self.turn
        place["problem"] = problem
        raw = record.raw
        if raw and not raw.strip(b"\0 \t\r"):
            self._file.write(dumps(place) + b"\n")
            return
        if raw:
            try:
                place |= {"encoding": "utf-8", "data": raw.decode()}
            except UnicodeDecodeError:
                place |= {"encoding": "base64", "data": base64.b64encode(raw).decode()}
            self._file.write(dumps(place) + b"\n")
            return
        # Longer than what may be held: copied in pieces.
        self._file.write(dumps({**place, "encoding": "base64"})[:-1] + b',"data":"')
        with open(source, "rb") as file:
            file.seek(record.offset)
            left = record.size
            while left > 0 and (piece := file.read(min(_CHUNK, left))):
                self._file.write(base64.b64encode(piece))
                left -= len(piece)
        self._file.write(b'"}\n')

    def close(self) -> None:
        """Make it durable."""
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()
                os.fsync(file.fileno())


def rewrite(source: Path, target: BinaryIO, plan: Plan, *, rejects: Rejects, transcript: Path) -> list[Path]:
    """Write the mended file.

    Args:
        source: what was surveyed.
        target: takes the new file.
        plan: what to do.
        rejects: takes what is no record.
        transcript: the path that the file will have.

    Returns:
        The side files that were made; they are durable.

    Raises:
        OSError: reading or writing failed.
    """
    return _Rewriter(source, target, plan, rejects, transcript).run()


class _Rewriter:
    def __init__(self, source: Path, target: BinaryIO, plan: Plan, rejects: Rejects, transcript: Path) -> None:
        self.source = source
        self.target = target
        self.plan = plan
        self.rejects = rejects
        self.oversized = Oversized(transcript)
        self.side_files: list[Path] = []
        self.results: dict[int, list[bytes]] = {}

    def run(self) -> list[Path]:
        plan, write = self.plan, self.target.write
        for ordinal, record in enumerate(read_records(self.source)):
            if ordinal in plan.drop:
                continue
            problem = plan.reject.get(ordinal)
            if problem is not None:
                self.rejects.add(record, problem, self.source)
                continue
            raw = plan.lines.get(ordinal)
            if raw is None:
                raw = record.raw
                if record.value is None:  # JSON that we can't hold
                    write(raw + b"\n")
                    continue
            write(self._mended(ordinal, raw) + b"\n")
            for asker in plan.behind.get(ordinal, ()):
                for line in self.results.pop(asker, ()):
                    write(line + b"\n")
        return self.side_files

    def _mended(self, ordinal: int, raw: bytes) -> bytes:
        plan = self.plan
        if raw.endswith(b"\r"):
            raw = raw.rstrip(b"\r")
        raw = without_lone_surrogates(without_invalid_utf8(raw))
        if ordinal in plan.uuids:
            raw = set_key(raw, "uuid", plan.uuids[ordinal])
        if ordinal in plan.stamps:
            raw = set_key(raw, "timestamp", plan.stamps[ordinal])
        if ordinal in plan.logicals:
            raw = set_key(raw, "logicalParentUuid", plan.logicals[ordinal])
        if ordinal in plan.parents:
            raw = set_key(raw, "parentUuid", plan.parents[ordinal])
        if ordinal in plan.segments:
            raw = _without_segment(raw)
        if b"thinking" in raw:
            raw = _without_bad_thinking(raw)
        if self.oversized.concerns(raw, "user"):
            raw = self._spill(raw)
        if ordinal in plan.results:
            self.results[ordinal] = _results(raw, plan.results[ordinal])
        return raw

    def _spill(self, raw: bytes) -> bytes:
        raw, files = self.oversized.spilled(raw)
        for file in files:
            write_side_file(file, durable=True)
            self.side_files.append(file.path)
        return raw


def _without_segment(raw: bytes) -> bytes:
    metadata = _object(raw).get("compactMetadata")
    if not isinstance(metadata, dict):
        return raw
    return set_key(raw, "compactMetadata", {key: v for key, v in metadata.items() if key != "preservedSegment"})


def _without_bad_thinking(raw: bytes) -> bytes:
    value = _object(raw)
    message = value.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if value.get("type") != "assistant" or not isinstance(content, list) or all(map(good_thinking, content)):
        return raw
    return set_key(raw, "message", {**message, "content": [block for block in content if good_thinking(block)]})  # type: ignore[dict-item]


def _results(raw: bytes, calls: list[tuple[str, str]]) -> list[bytes]:
    """Lines that say of each call that its result is missing; they hang on the one that asked."""
    asked = _object(raw)
    lines = []
    for call, uuid in calls:
        block = {"type": "tool_result", "tool_use_id": call, "content": MISSING_RESULT, "is_error": True}
        line: dict[str, Any] = {"parentUuid": asked.get("uuid")}
        line |= {key: asked[key] for key in _ENVELOPE if asked.get(key) is not None}
        line |= {
            "type": "user",
            "message": {"role": "user", "content": [block]},
            "uuid": uuid,
            "timestamp": asked.get("timestamp"),
            "toolUseResult": MISSING_RESULT,
            "sourceToolAssistantUUID": asked.get("uuid"),
        }
        lines.append(dumps(line))
    return lines


def _object(raw: bytes) -> dict[str, Any]:
    value = loads(raw, max_depth=MAX_RECORD_DEPTH)
    return value if isinstance(value, dict) else {}
