"""What a replay server holds: recordings verbatim, cut where events end; and the words for faults."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import recordings
from serving import EXAMPLES, TEXT, TOOLS
from sse_reference import Dispatched
from sse_reference import decode as reference

from turnstream.cli.parser import build_parser
from turnstream.messages import SourceError
from turnstream.serve import FaultSpec, Recording, parse_faults, read_recordings

# -- recordings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recordings.names((".sse",)))
def test_the_pieces_of_each_recording_are_its_bytes_and_its_events(name: str) -> None:
    data = recordings.read(name)
    recording = Recording(data, name)
    if data.lstrip().startswith(b"{"):
        pytest.skip("one JSON message, not a stream")
    assert recording.raw == data
    assert b"".join(piece.raw for piece in recording.pieces) == data
    dispatched = [event.data for event in reference(data + b"\n\n") if isinstance(event, Dispatched)]
    assert [(event.data or b"").decode("utf-8", "replace") for event in recording.events] == dispatched


FRAMED = (
    b"data: 1\n\n: c\r\n\r\nevent: x\rdata: 2\rdata: 3\r\r\n\n\n: turnstream at=1.500000\n\n: d\n\ndata: 4\n\nid: 7\n\n"
)


def test_comments_and_blank_lines_go_with_the_next_event() -> None:
    pieces = Recording(FRAMED).pieces
    assert [piece.raw for piece in pieces] == [
        b"data: 1\n\n",
        b": c\r\n\r\nevent: x\rdata: 2\rdata: 3\r\r\n",
        b"\n\n: turnstream at=1.500000\n\n: d\n\ndata: 4\n\n",
        b"id: 7\n\n",
    ]
    assert [piece.data for piece in pieces] == [b"1", b"2\n3", b"4", None]
    assert [piece.due for piece in pieces] == [None, None, 1.5, None]
    assert [event.data for event in Recording(FRAMED).events] == [b"1", b"2\n3", b"4"]


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"", 0), (b"\n\n", 0), (b"data: 1", 1), (b"\xef\xbb\xbfdata: 1\n\ndata: 2\n", 2), (b": c\n\n", 0)],
)
def test_odd_streams(data: bytes, count: int) -> None:
    recording = Recording(data)
    assert b"".join(piece.raw for piece in recording.pieces) == data
    assert len(recording.events) == count


def test_what_has_no_frames_gets_those_of_the_api() -> None:
    bare = [line[6:] for line in TOOLS.splitlines() if line.startswith(b"data: ")]
    recording = Recording(b"\n".join(bare) + b"\n")
    assert [event.payload for event in recording.events] == [json.loads(line) for line in bare]
    blocks = recording.raw.split(b"\n\n")[:-1]
    assert [block.split(b"\n")[0] for block in blocks] == [
        b"event: " + json.loads(line)["type"].encode() for line in bare
    ]


def test_one_json_message_becomes_a_stream() -> None:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    kinds = [event.payload["type"] for event in Recording(json.dumps(message).encode()).events]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_gzip_is_taken_and_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    assert Recording(gzip.compress(TEXT)).raw == TEXT
    with pytest.raises(SourceError, match="gzip"):
        Recording(gzip.compress(TEXT)[:50])
    with pytest.raises(SourceError, match="AWS"):
        Recording(b"\0\0\0\x80")
    with pytest.raises(SourceError, match=r"can't read the recording: No such file .*none\.sse"):
        read_recordings([tmp_path / "none.sse"])
    with pytest.raises(SourceError, match="holds no recording"):
        read_recordings([tmp_path])
    with pytest.raises(ValueError, match="no recording"):
        read_recordings([])


def test_folders_files_bytes_and_recordings_are_sources(tmp_path: Path) -> None:
    (tmp_path / "b.sse").write_bytes(TEXT)
    (tmp_path / "a.ndjson.gz").write_bytes(gzip.compress(b"{}\n"))
    (tmp_path / "notes.txt").write_bytes(b"no")
    found = read_recordings([tmp_path, EXAMPLES / "1-text.sse", TEXT, Recording(TEXT, "mine")])
    assert [recording.name for recording in found] == [
        str(tmp_path / "a.ndjson.gz"),
        str(tmp_path / "b.sse"),
        str(EXAMPLES / "1-text.sse"),
        "recording-4",
        "mine",
    ]
    assert list(found[0].names) == [str(tmp_path / "a.ndjson.gz"), "a.ndjson.gz", "a.ndjson", "a"]


# -- faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("none", {}),
        ("stall", {"end": "stall", "at": 0}),
        ("stall-after=3", {"end": "stall", "at": 3}),
        ("cut-after=tool", {"end": "cut", "at": "tool"}),
        ("pings", {"end": "pings", "keepalive": 10.0}),
        ("pings-after=2,keepalive=1", {"end": "pings", "at": 2, "keepalive": 1.0}),
        ("half-utf8", {"end": "half-utf8"}),
        ("429", {"status": 429, "retry_after": 1.0}),
        ("429=0", {"status": 429, "retry_after": 0.0}),
        ("529", {"status": 529}),
        ("first-byte-stall", {"first_byte": math.inf}),
        ("first-byte-stall=2.5", {"first_byte": 2.5}),
        (" slow=1 , crlf,no-event-names", {"slow": 1.0, "crlf": True, "no_event_names": True}),
        ("json-body,times=2,only=stream", {"body": "json-body", "times": 2, "only": "stream"}),
        ("content-type", {"content_type": "text/plain"}),
        ("bad-json-after=1,eof-after=2", {"bad_json": 1, "end": "eof", "at": 2}),
    ],
)
def test_words_of_faults(text: str, fields: dict[str, Any]) -> None:
    assert parse_faults(text) == (FaultSpec(**fields, text=text.strip()),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "explode",
        "stall-after",
        "stall=3",
        "stall-after=-1",
        "stall-after=x",
        "stall-after=1.5",
        "slow",
        "slow=",
        "slow=-1",
        "slow=nan",
        "slow=inf",
        "keepalive=0",
        "times=0",
        "only=both",
        "crlf=1",
        "none=1",
        "200",
        "429=soon",
        "content-type=",
        "content-type=a\nb",
        "stall,cut",
        "cut-after=1,cut-after=2",
        "429,500",
        "429,cut",
        "empty,stall",
        "503,json-body",
        "keepalive=1,comments=1",
        "429;",
    ],
)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"fault|needed|header"):
        parse_faults(text)


def test_an_unknown_word_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="unknown fault 'x'") as refused:
        parse_faults("x")
    named = set(re.findall(r"[\w-]+", str(refused.value)))
    assert named >= {"stall", "cut", "garbage", "overloaded", "429", "slow", "pings", "half-utf8", "crlf"}
    assert named >= {"no-event-names", "json-body", "empty", "500", "503", "529", "first-byte-stall", "times"}


def test_faults_in_turn_are_parted_by_semicolons_or_come_as_a_list() -> None:
    assert parse_faults("429;none") == parse_faults(["429", "none"])
    assert parse_faults(()) == ()


def test_the_manual_has_every_word() -> None:
    with pytest.raises(ValueError, match="known are") as refused:
        parse_faults("x")
    words = {
        word.partition("[")[0].partition("=")[0] for word in str(refused.value).partition("known are ")[2].split(", ")
    }
    manual = (EXAMPLES.parent / "docs" / "serve.md").read_text(encoding="utf-8")
    assert [word for word in sorted(words) if f"`{word}" not in manual] == []
    assert [
        place for place in ("start", "thinking", "text", "tool", "blocks", "stop-reason") if f"`{place}`" not in manual
    ] == []
    serve = build_parser().parse_args(["serve", "x.sse"])
    assert (serve.host, serve.port, serve.chunk, serve.speed, serve.once) == ("127.0.0.1", 0, "event", None, False)
