"""What the normalizer puts out against an independent validator of requests (support/request_rules).

No output may be refused: of any recorded transcript cut at any message, of any known request, of any conversation,
in both dialects, with prefill or without, with thinking on and off.

Every prefix of every transcript is tried (under a minute; models take turns). ``TURNSTREAM_FEW_PREFIXES=1`` tries of
long ones only one in so many and the last few (seconds).
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import conversations as conv
import pytest
import recordings
from hypothesis import HealthCheck, given, settings
from request_rules import Memo, check_messages
from requesting import as_history, load, names

from turnstream.messages import decode_line, split_lines
from turnstream.operators.normalize import can_think, normalize_for_api, request_messages

FEW_PREFIXES = bool(os.environ.get("TURNSTREAM_FEW_PREFIXES"))
SHORT = 60
"""Messages of a transcript all of whose prefixes are tried even then."""
SOME = 40
"""Prefixes of longer ones that are."""

WAYS = [
    {"dialect": dialect, "prefill": prefill, "thinking": thinking}
    for dialect, prefill, thinking in itertools.product(("anthropic", "bedrock"), ("refuse", "allow"), (False, True))
]
MODELS = (None, "claude-sonnet-4-5", "claude-opus-4-6")

# A text of 33 MB: cutting it would lose what the user said, so it is compaction's (WIRE.md §6). The log says so.
NOT_REPAIRED = {"078-request-too-large.json"}


def _transcripts() -> list[Any]:
    folder = recordings.folder()
    if folder is None:
        reason = f"no recordings: set {recordings.VARIABLE} (default ../shared/recordings)"
        return [pytest.param("no recordings", marks=pytest.mark.skip(reason=reason))]
    found = sorted((folder / "transcripts").rglob("*.jsonl"))
    return [str(path.relative_to(folder / "transcripts")) for path in found]


def _read(name: str) -> list[Any]:
    folder = recordings.folder()
    assert folder is not None
    data = Path(folder / "transcripts" / name).read_bytes()
    return [decode_line(line) for line in split_lines(data) if line.strip()]


def refused(history: list[Any], options: dict[str, Any], memo: Memo | None = None) -> list[Any]:
    """What the validator has against the request, and whether it comes out of the normalizer again as it is."""
    out = normalize_for_api(history, **options)
    if not out:
        return []  # nothing to send, so no request
    wanted = options.get("thinking") and can_think(out, options.get("model"))
    checked = {**options, "thinking": bool(wanted)}
    found: list[Any] = list(check_messages(request_messages(out), **checked, memo=memo))
    if normalize_for_api(out, **options) != out:
        found.append("not idempotent")
    return found


def _cuts(size: int) -> list[int]:
    if not FEW_PREFIXES or size <= SHORT:
        return list(range(1, size + 1))
    step = max(1, size // SOME)
    return sorted({*range(1, size + 1, step), *range(size - 4, size + 1)})


@pytest.mark.parametrize("name", _transcripts())
def test_no_prefix_of_a_transcript_is_refused(name: str) -> None:
    messages = _read(name)
    memo = Memo()
    for number, cut in enumerate(_cuts(len(messages))):
        # Models by turns: a prefix meets one of them, the whole file all.
        models = MODELS if cut == len(messages) else (MODELS[number % len(MODELS)],)
        for way, model in itertools.product(WAYS, models):
            options = {**way, "model": model}
            assert refused(messages[:cut], options, memo) == [], (cut, options)


@pytest.mark.parametrize("name", names("bad"))
def test_no_refused_request_is_refused_again(name: str) -> None:
    body = load("bad", name)
    history = as_history(body.get("messages") or [], body["model"])
    for way, model in itertools.product(WAYS, (None, body["model"], "claude-sonnet-4-5", "claude-opus-4-8")):
        options = {**way, "model": model, "tools": body.get("tools", [])}
        found = refused(history, options)
        if name in NOT_REPAIRED:
            assert {violation.rule for violation in found} == {"request-too-large"}
            return
        assert found == [], (name, options)


@pytest.mark.parametrize("name", names("good"))
def test_no_accepted_request_is_refused(name: str) -> None:
    body = load("good", name)
    history = as_history(body["messages"], body["model"])
    for way, model in itertools.product(WAYS, (None, body["model"])):
        options = {**way, "model": model, "tools": body.get("tools", [])}
        assert refused(history, options) == [], (name, options)


@pytest.mark.parametrize("name", names("good"))
def test_accepted_requests_keep_their_words(name: str) -> None:
    """What the API took as it was loses no text; most come out as they went in."""
    body = load("good", name)
    history = as_history(body["messages"], body["model"])
    out = request_messages(normalize_for_api(history, model=body["model"], tools=body.get("tools"), prefill="allow"))

    def words(messages: list[Any]) -> list[str]:
        found = []
        for message in messages:
            content = message["content"]
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if block["type"] == "text" and block["text"].strip():
                    found.append(block["text"].strip())
        return found

    kept = words(out)
    assert [word for word in words(body["messages"]) if not any(word in other for other in kept)] == []


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(conv.conversations(), conv.options())
def test_no_conversation_is_refused(items: list[Any], options: dict[str, Any]) -> None:
    assert refused(items, options) == []
