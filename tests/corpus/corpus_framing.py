"""Lines and events: how bytes become payloads (WIRE.md §1, the WHATWG's event stream format)."""

from __future__ import annotations

from entry import Answer, Entry, notes
from frames import DONE, PING, STOP, frame, opens_text, says, sse, start, text, text_block, turn

HELLO = [start(), *says("Hello"), turn(), STOP]
PLAIN = sse(HELLO)
HELLO_ANSWER = Answer(content=[text_block("Hello")], usage={"input_tokens": 7, "output_tokens": 5})
# The same answer with spaces after each object's last value and after it, as three of four real frames carry them.
PADDED = b"".join(frame(part, end="\n").replace(b"}\n\n", b" }      \n\n") for part in HELLO)


def hello(name: str, data: bytes, rule: str, *covers: str, **more: object) -> Entry:
    """An entry whose stream says Hello, whatever its framing."""
    return Entry(name=name, data=data, answers=(HELLO_ANSWER,), rule=rule, covers=covers, events=6, **more)  # type: ignore[arg-type]


def says_only(words: str) -> Answer:
    return Answer(content=[text_block(words)])


UNTERMINATED = PLAIN.removesuffix(b"\n\n")

ENTRIES = (
    hello("plain", PLAIN, "§1 order", "no-ping"),
    hello("crlf", sse(HELLO, end="\r\n"), "§1: lines end at CR, LF or CRLF only"),
    hello("cr-only", sse(HELLO, end="\r"), "§1: lines end at CR, LF or CRLF only"),
    hello(
        "mixed-line-ends",
        b"".join(frame(part, end=("\n", "\r", "\r\n")[n % 3]) for n, part in enumerate(HELLO)),
        "§1: any terminator followed by any terminator ends an event",
    ),
    hello(
        "terminators-of-two-kinds",
        PLAIN.replace(b"\n\n", b"\r\n\r").replace(b"\nd", b"\rd"),
        "§1: any terminator followed by any terminator ends an event",
    ),
    hello("bom", b"\xef\xbb\xbf" + PLAIN, "§1: one BOM at the very start is dropped"),
    Entry(
        name="two-boms",
        data=b"\xef\xbb\xbf\xef\xbb\xbf" + frame(HELLO[0]) + sse(HELLO),
        answers=(HELLO_ANSWER,),
        rule="§1: ONE BOM is dropped; a second makes the first line an unknown field, so that event has no name "
        "but its data still counts (the JSON's type decides): the same start twice before a block is one answer",
        covers=("duplicate-message_start",),
        events=7,
        notes=notes("duplicate_message_start"),
    ),
    hello(
        "comments",
        b": hello\n\n:\n" + PLAIN.replace(b"event: content", b": keep-alive\nevent: content"),
        "§1: `:` lines are comments",
        "sse-comment",
    ),
    hello("blank-lines", b"\n\n\n" + PLAIN.replace(b"\n\n", b"\n\n\n\n"), "§1: an event without data isn't dispatched"),
    hello(
        "no-space-after-colon",
        PLAIN.replace(b"event: ", b"event:").replace(b"data: ", b"data:"),
        "§1: one space after the colon is dropped (FAULTS 5: it is optional)",
        "no-space-after-colon",
    ),
    hello(
        "two-spaces-after-colon",
        PLAIN.replace(b"data: ", b"data:  "),
        "§1: ONE space after the colon is dropped; JSON doesn't mind the second",
    ),
    hello("no-event-line", sse(HELLO, names=False), "§1: the JSON's type decides", "no-event-line"),
    hello(
        "wrong-event-names",
        b"".join(frame(part, name="ping") for part in HELLO),
        "§1: the JSON's type decides, the `event:` name is a fallback",
    ),
    hello(
        "event-name-is-the-fallback",
        b"".join(frame({k: v for k, v in part.items() if k != "type"}, name=part["type"]) for part in HELLO),
        "§1: the JSON's type decides, the `event:` name is a fallback",
    ),
    hello(
        "names-apart-from-data",
        b"".join(b"event: " + part["type"].encode() + b"\n\n" + frame(part, name=None) for part in HELLO),
        "§1: an event without data isn't dispatched",
        "event-without-data",
    ),
    hello(
        "id-and-retry",
        b"id: 1\nretry: 3000\n\nid: a\x00b\nretry: soon\n" + PLAIN.replace(b"event: ", b"id: 42\nevent: "),
        "§1: `id` with NUL is ignored, `retry` counts only if all digits",
        "field:id",
    ),
    hello("unknown-fields", PLAIN.replace(b"data: ", b"datum: x\ndata : y\ndata: "), "§1: WHATWG, unknown field"),
    Entry(
        name="field-without-colon",
        data=sse(start(), says("Hello"), turn())
        + b"event: message_stop\ndata\ndata: "
        + b'{"type":"message_stop"}\n\n',
        answers=(HELLO_ANSWER,),
        rule="§1: `data` lines join with LF (WHATWG: a line without colon is a field with an empty value)",
        events=6,
    ),
    hello(
        "data-in-many-lines",
        PLAIN.replace(b',"', b',\ndata: "').replace(b"data: {", b"data: {\ndata:"),
        "§1: `data` lines join with LF",
    ),
    hello(
        "data-in-many-lines-crlf",
        PLAIN.replace(b',"', b',\ndata: "').replace(b"data: {", b"data: {\ndata:").replace(b"\n", b"\r\n"),
        "§1: a CR at the end of a chunk may be half of a CRLF (FAULTS 3: multi-line event delivered as several)",
    ),
    hello(
        "fallback-names-crlf",
        b"".join(
            frame({k: v for k, v in part.items() if k != "type"}, name=part["type"], end="\r\n") for part in HELLO
        ),
        "§1: a CR at the end of a chunk may be half of a CRLF (FAULTS 3: a phantom blank line would lose the name)",
    ),
    hello("padded-json", PADDED, "§1: payloads carry random spaces", "padded-json"),
    hello(
        "type-last",
        b"".join(frame({**{k: v for k, v in part.items() if k != "type"}, "type": part["type"]}) for part in HELLO),
        "§1: the JSON's type decides, wherever it stands",
        "type-not-first-key",
    ),
    hello("done-frame", PLAIN + DONE, "§1: `data: [DONE]` is ignored", "[DONE]"),
    hello("done-frame-first", b"data:[DONE]\n\n" + PLAIN, "§1: `data: [DONE]` is ignored (FAULTS 5)", "[DONE]"),
    hello(
        "last-event-unterminated",
        UNTERMINATED,
        '§1: final="if_json": it counts if its JSON parses',
        "last-frame-unterminated",
    ),
    hello("last-event-one-newline", UNTERMINATED + b"\n", '§1: final="if_json"', "last-frame-unterminated"),
    Entry(
        name="last-event-cut",
        data=PLAIN.removesuffix(b'stop"}\n\n'),
        answers=(HELLO_ANSWER,),
        rule='§1: final="if_json": the cut message_stop doesn\'t count; all blocks stopped and a stop_reason there '
        "counts as complete, noted no_message_stop",
        covers=("no-message_stop",),
        events=5,
        bad_events=1,
        notes=notes("no_message_stop"),
    ),
    Entry(
        name="only-an-empty-data-line",
        data=b": keep-alive\nid: 7\nevent: message_delta\ndata: ",
        answers=(Answer(outcome="empty", stop_reason=None),),
        rule="§1 decided cases: `empty` is a file without any event",
        covers=(
            "sse-comment",
            "field:id",
            "no-message_start",
            "no-message_stop",
            "unparsable-data",
            "last-frame-unterminated",
        ),
        events=0,
    ),
    Entry(
        name="separators-that-are-text",
        data=sse(start(), says("a\u2028b\u2029c\u0085d\ve\ff\x1cg\x1dh\x1ei"), turn(), STOP),
        answers=(says_only("a\u2028b\u2029c\u0085d\ve\ff\x1cg\x1dh\x1ei"),),
        rule="§1: lines end at CR, LF or CRLF only, at byte level (FAULTS 1)",
    ),
    Entry(
        name="many-scripts",
        data=sse(
            start(),
            opens_text(),
            text(0, "Grüße "),
            text(0, "✅ 日本"),
            text(0, "👩‍🚀"),
            {"type": "content_block_stop", "index": 0},
            turn(),
            STOP,
        ),
        answers=(says_only("Grüße ✅ 日本👩‍🚀"),),
        rule="§1: UTF-8 whatever the headers say (FAULTS 2, 4)",
    ),
    Entry(
        name="invalid-utf8",
        data=sse(start(), says("a?b"), turn(), STOP).replace(b"a?b", b"a\xffb"),
        answers=(says_only("a\ufffdb"),),
        rule="§1: invalid bytes become U+FFFD, counted",
    ),
    Entry(
        name="bom-in-the-text",
        data=sse(start(), says("a\ufeffb"), turn(), STOP),
        answers=(says_only("a\ufeffb"),),
        rule="§1: one BOM at the very START is dropped; elsewhere it is text",
    ),
    Entry(
        name="comment-flood-and-pings",
        data=b": keepalive\n\n" * 50 + sse(HELLO[0], PING, PING, HELLO[1:-1], PING, STOP),
        answers=(HELLO_ANSWER,),
        rule="§1 order: ping anywhere; `:` lines are comments (FAULTS 10)",
        events=9,
    ),
)
