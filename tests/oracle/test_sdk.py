"""The official SDK over the same bytes: same contents, stop_reason and usage wherever it can accumulate at all.

Where it can't, or differs, recordings/EXPECTED.md says why (its ``sdk`` column); those rows aren't tested here. It
doesn't notice a missing end, so it confirms contents and usage, never ``complete`` or ``incomplete``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import recordings
from corpus import CORPUS
from entry import Entry
from frames import frame
from harness import as_sse, container_of, run
from summaries import Row, summarize

anthropic = pytest.importorskip("anthropic", reason="the official SDK isn't installed")
httpx = pytest.importorskip("httpx2", reason="the official SDK's HTTP client isn't installed")

AS_IT_IS = "agrees"
REFRAMED = "agrees, payloads re-framed"
RAISES = "raises an API error: agrees"


def accumulated(body: bytes) -> Any:
    """The SDK's snapshot of the message at the end of ``body``; raises what the SDK raises."""

    def answer(request: Any) -> Any:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    with (
        httpx.Client(transport=httpx.MockTransport(answer)) as http,
        anthropic.Anthropic(api_key="none", http_client=http, max_retries=0) as client,
        client.beta.messages.stream(max_tokens=1, model="any", messages=[{"role": "user", "content": "x"}]) as stream,
    ):
        return stream.get_final_message()


def reframed(data: bytes) -> list[bytes]:
    """Our payloads in proper frames, one body an answer."""
    bodies: list[bytes] = []
    for line in re.split(rb"\r\n|\r|\n", data):
        if not line.startswith(b"data:"):
            continue
        try:
            payload = json.loads(line[5:])
        except ValueError:
            continue
        if not isinstance(payload, dict):
            continue
        if payload.get("type") == "message_start" and (not bodies or b"message_stop" in bodies[-1]):
            bodies.append(b"")
        bodies[-1] += frame(payload)
    return bodies


def dump(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)


def assert_same(theirs: Any, ours: Any, where: str) -> None:
    """Equal, but for keys that only one side has and that are null there (the SDK fills in defaults)."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            assert_same(theirs.get(key), ours.get(key), f"{where}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        assert len(theirs) == len(ours), where
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            assert_same(one, other, f"{where}[{number}]")
    else:
        assert theirs == ours, where


def assert_agrees(message: Any, row: Row) -> None:
    assert_same(dump(message).get("content", []), row.content, "content")
    assert message.stop_reason == row.stop_reason
    usage = row.usage
    for key, value in dump(message)["usage"].items():
        if value is not None:
            assert_same(value, usage.get(key), f"usage.{key}")


def files(*verdicts: str) -> list[Any]:
    names = recordings.names()
    table = recordings.expected()
    return [n for n in names if not isinstance(n, str) or any(row["sdk"] in verdicts for row in table[n])]


@pytest.mark.parametrize("name", files(AS_IT_IS))
def test_agrees_as_it_is(name: str) -> None:
    data = recordings.read(name)
    (row,) = summarize(run(data))
    if not data.endswith((b"\n\n", b"\r\n\r\n")):
        data += b"\n\n"  # the SDK drops a last event without its blank line; ours counts it
    assert_agrees(accumulated(data), row)


@pytest.mark.parametrize("name", files(REFRAMED))
def test_agrees_reframed(name: str) -> None:
    data = as_sse(recordings.read(name), container_of(name))
    rows = [row for row in summarize(run(recordings.read(name))) if not row.superseded]
    bodies = reframed(data)
    verdicts = [row["sdk"] for row in recordings.expected()[name]]
    if REFRAMED not in verdicts or len(verdicts) != len(rows):  # an attempt was superseded: its last start counts
        bodies = [body[body.rindex(b"event: message_start") :] for body in bodies]
    assert len(bodies) == len(rows)
    for body, row in zip(bodies, rows, strict=True):
        assert_agrees(accumulated(body), row)


@pytest.mark.parametrize("name", files(RAISES))
def test_raises_where_we_say_api_error(name: str) -> None:
    data = as_sse(recordings.read(name), container_of(name))
    (row,) = summarize(run(data))
    assert (row.outcome or "").startswith("api_error(")
    body = b"".join(reframed_any(data))
    with pytest.raises(anthropic.APIStatusError):
        accumulated(body)


def reframed_any(data: bytes) -> Iterator[bytes]:
    for line in data.split(b"\n"):
        if line.startswith(b"data:"):
            yield frame(json.loads(line[5:]))


# Complete corpus entries that the SDK can't accumulate, or sees otherwise, by the rule that decides for us.
DIFFERS = {
    "no message_start of its own, no usage, or no index": (
        "event-name-is-the-fallback",
        "fallback-names-crlf",
        "start-without-message",
        "start-without-usage",
        "delta-without-usage",
        "delta-with-null-usage",
        "indexes-missing",
        "gap-after-which-an-index-is-missing",
        "index-missing-means-the-last-opened",
        "delta-without-block-and-index",
        "delta-for-an-unopened-block",
        "thinking-then-text-without-block-and-index",
        "unopened-index-but-a-text-is-open",
        "fragments-for-an-unopened-block",
        "stop-for-an-unopened-block",
    ),
    "index is a name, not a position": (
        "index-gap",
        "only-index-three",
        "index-reused",
        "index-reused-by-tools",
        "block-restarted-while-open",
    ),
    "a second message_delta overwrites with null there": (
        "several-message-deltas",
        "sparse-second-delta",
        "context-management-survives",
        "usage-only-delta",
    ),
    "cache_creation of a message_delta isn't taken over there": ("nested-usage-is-replaced-whole",),
    "compaction_delta overwrites with null there": ("compaction-encrypted", "compaction-null"),
    "invalid tool input raises, or is repaired, there": (
        "tool-input-no-json",
        "tool-input-cut-but-stopped",
        "tool-input-with-a-comma-too-many",
        "two-objects-glued",
        "one-bad-tool-of-two",
        "max-tokens-with-a-stopped-cut-tool",
        "integer-of-4301-digits",
        "one-e-400",
        "minus-one-e-400",
        "nan",
        "infinity",
        "two-hundred-and-one-levels",
        "thousands-of-levels",
        "lone-surrogate-in-a-tool-input",
    ),
    "halves of surrogate pairs break it": (
        "pair-over-two-deltas",
        "pair-with-an-empty-delta-between",
        "pairs-in-a-row",
        "lone-high-at-the-end",
        "lone-high-inside",
        "lone-low",
        "high-then-other-text",
        "high-after-high",
        "low-first",
        "pair-with-a-ping-between",
        "pair-with-another-block-between",
        "pair-in-thinking",
        "pair-of-fragments",
    ),
    "late or mismatched deltas are applied or raise there": ("delta-after-the-stop", "max-tokens-with-an-open-tool"),
    "an empty unfinished block is shown like a whole one": ("finished-by-message-stop",),
    "a tool without input stays without one": ("no-input-key-and-no-delta",),
    "our frames of it are no proper lines for the SDK, or it reads U+FFFD otherwise": (
        "block-start-without-its-block",
        "invalid-utf8",
        "data-in-many-lines",
        "data-in-many-lines-crlf",
    ),
    "attempts and strays are merged": (
        "events-after-message-stop",
        "blocks-before-the-start",
    ),
}
NOT_COMPARED = {name for names in DIFFERS.values() for name in names}


def comparable(entry: Entry) -> bool:
    (answer, *more) = entry.answers
    return not more and answer.outcome == "complete" and not answer.superseded and entry.name not in NOT_COMPARED


@pytest.mark.parametrize("entry", [e for e in CORPUS if comparable(e)], ids=lambda e: e.name)
def test_corpus(entry: Entry) -> None:
    (row,) = summarize(run(entry.data))
    (body,) = reframed(as_sse(entry.data, entry.container))
    assert_agrees(accumulated(body), row)


def test_what_isnt_compared_is_in_the_corpus() -> None:
    assert {entry.name for entry in CORPUS} >= NOT_COMPARED
