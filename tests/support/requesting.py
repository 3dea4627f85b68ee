"""Short words for tests that look at the messages of a request, and the files of known requests."""

from __future__ import annotations

import base64
import importlib.util
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import recordings

from turnstream.messages import AssistantMessage, UserMessage
from turnstream.operators.normalize import Repair, normalize_for_api, request_messages

VARIABLE = "TURNSTREAM_REQUESTS"
TIME = "2026-01-02T03:04:05.678Z"


def folder() -> Path | None:
    """Where the known requests are, None if they aren't there."""
    beside = recordings.folder()
    default = (beside.parent if beside else recordings.ROOT.parent / "shared") / "requests"
    path = Path(os.environ.get(VARIABLE) or default)
    return path if (path / "generate.py").is_file() else None


def names(kind: str) -> list[Any]:
    """The files of ``bad`` or ``good``, to parametrize with; without them one skipped case."""
    found = folder()
    if found is None:
        return [pytest.param("none", marks=pytest.mark.skip(reason=f"no requests: set {VARIABLE}"))]
    return sorted(path.name for path in (found / kind).glob("*.json"))


def load(kind: str, name: str) -> dict[str, Any]:
    """A known request's body, its large media made."""
    found = folder()
    assert found is not None
    return dict(_generator(found).load(str(found / kind / name))["request"])


def _generator(found: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("known_requests", found / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_history(messages: Iterable[Any], model: str) -> list[UserMessage | AssistantMessage]:
    """A request's messages as a history that holds them: whatever isn't an answer is a user message."""
    out: list[UserMessage | AssistantMessage] = []
    for number, message in enumerate(messages):
        uuid = f"00000000-0000-4000-8000-{number:012d}"
        inner = dict(message) if isinstance(message, dict) else {"role": "user", "content": message}
        if inner.get("role") == "assistant":
            envelope = {"id": f"msg_{number}", "type": "message", "model": model}
            out.append(AssistantMessage(message={**envelope, **inner}, uuid=uuid, timestamp=TIME))
        else:
            out.append(UserMessage(message=inner, uuid=uuid, timestamp=TIME))
    return out


def sent(history: Iterable[Any], **options: Any) -> list[dict[str, Any]]:
    """The request's messages of a history."""
    return request_messages(normalize_for_api(history, **options))


def roles(messages: Iterable[dict[str, Any]]) -> str:
    """``user assistant user`` …"""
    return " ".join(message["role"] for message in messages)


def blocks(messages: Iterable[dict[str, Any]], kind: str | None = None) -> list[dict[str, Any]]:
    """All blocks, or those of a type, those inside tool results too."""
    out: list[dict[str, Any]] = []
    for message in messages:
        for block in message["content"]:
            inner = block.get("content") if block["type"] == "tool_result" else None
            out += [block, *(inner if isinstance(inner, list) else [])]
    return [block for block in out if kind is None or block["type"] == kind]


def texts(messages: Iterable[dict[str, Any]]) -> list[str]:
    """All texts in order."""
    return [block["text"] for block in blocks(messages, "text")]


def explained(history: Iterable[Any], **options: Any) -> list[Repair]:
    """What normalization says it did."""
    log: list[Repair] = []
    normalize_for_api(history, explain=log.append, **options)
    return log


def png(width: int, height: int, noise: bytes = b"") -> str:
    """A whole PNG in base64, small however large its picture; ``noise`` makes it as large as one likes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(((width + 7) // 8 + 1) * height), 9))
    extra = chunk(b"tEXt", b"n\0" + noise) if noise else b""
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + head + extra + pixels + chunk(b"IEND", b"")).decode()


def image(width: int = 1, height: int = 1, **source: Any) -> dict[str, Any]:
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": png(width, height), **source},
    }


def pdf(pages: int = 1, padding: int = 0) -> str:
    """A whole PDF of blank pages in base64."""
    kids = " ".join(f"{3 + page} 0 R" for page in range(pages))
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {pages}>>".encode()]
    objects += [b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 72 72]>>"] * pages
    if padding:
        objects.append(b"<</Length %d>>stream\n" % padding + b"\0" * padding + b"\nendstream")
    out = b"%PDF-1.4\n"
    places = []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj" % number + each + b"endobj\n"
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return base64.b64encode(out).decode()


def document(data: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": data},
        **more,
    }
