"""The request rules against requests whose fate is known: refused ones with their reason, accepted ones.

The files aren't part of the repository (``requests`` beside the recordings); those tests skip without them.
``CASES`` needs nothing: each rule broken once, by a request that is otherwise fine.
"""

from __future__ import annotations

import base64
import copy
import importlib.util
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import recordings
import request_rules
from request_rules import RULES, Limits, Memo, check_messages, check_request, parse_model

VARIABLE = "TURNSTREAM_REQUESTS"

# What each refused request breaks, read off its "why" (requests/README.md). Where two rules are broken, both.
REASONS = {
    "001": "tool-use-unanswered",
    "002": "tool-use-unanswered",
    "003": "tool-use-unanswered",
    "004": "tool-result-orphan",
    "005": "tool-result-orphan",
    "006": "tool-use-unanswered tool-result-orphan",
    "007": "block-role tool-use-unanswered",
    "008": "block-role",
    "009": "tool-result-not-first",
    "010": "tool-result-not-first",
    "011": "tool-use-id-duplicate",
    "012": "tool-result-duplicate",
    "013": "tool-id",
    "014": "tool-id",
    "015": "server-tool-id",
    "016": "tool-input",
    "017": "tool-input",
    "018": "tool-input",
    "019": "block-field-missing",
    "020": "text-empty",
    "021": "text-empty",
    "022": "text-whitespace",
    "023": "text-empty cache-on-empty-text",
    "024": "prefill-whitespace",
    "025": "prefill-unsupported",
    "026": "block-field-missing",
    "027": "block-field-type",
    "028": "messages-empty",
    "029": "field-missing",
    "030": "content-empty",
    "031": "content-empty",
    "032": "content-shape",
    "033": "content-shape",
    "034": "message-shape",
    "035": "role-unknown",
    "036": "role-system",
    "037": "system-placement",
    "038": "system-placement",
    "039": "bedrock-first",
    "040": "bedrock-alternate",
    "041": "bedrock-alternate",
    "042": "thinking-signature",
    "043": "thinking-signature",
    "044": "thinking-content",
    "045": "thinking-last",
    "046": "thinking-missing",
    "047": "thinking-not-first thinking-missing",
    "048": "thinking-while-off",
    "049": "block-field-missing",
    "050": "cache-on-thinking",
    "051": "thinking-budget",
    "052": "thinking-budget",
    "053": "thinking-forced-tool",
    "054": "thinking-config",
    "055": "thinking-sampling",
    "056": "thinking-sampling",
    "059": "cache-too-many",
    "060": "cache-too-many",
    "061": "cache-shape",
    "062": "cache-shape",
    "063": "cache-ttl-order",
    "064": "cache-deferred-tool",
    "065": "image-pixels",
    "066": "image-pixels-many",
    "067": "image-pixels-many",
    "068": "image-too-big",
    "069": "media-type-mismatch",
    "070": "media-type",
    "071": "media-base64",
    "072": "media-base64",
    "073": "media-base64",
    "074": "image-broken",
    "075": "block-role",
    "076": "pdf-broken",
    "077": "pdf-pages",
    "078": "request-too-large",
    "079": "request-too-large",
    "080": "lone-surrogate",
    "081": "lone-surrogate",
    "082": "block-unknown",
    "083": "block-unknown",
    "084": "block-shape",
    "085": "block-field-unknown",
    "086": "field-unknown",
    "087": "block-unknown",
    "088": "tool-result-content",
    "089": "text-empty",
    "090": "tool-result-error-content",
    "091": "tool-result-content",
    "092": "block-field-missing tool-use-unanswered",
    "093": "server-result-orphan",
    "094": "server-result-orphan server-tool-unanswered",
    "095": "server-tool-unanswered",
    "096": "tool-reference-unknown",
    "097": "source",
    "098": "source",
    "099": "media-type",
    "100": "citations-mixed",
    "101": "citations-with-output",
    "102": "tool-choice",
    "103": "tool-choice",
    "104": "tool-choice",
    "105": "tool-names-unique",
    "106": "tool-name",
    "107": "tool-schema",
    "108": "tool-schema",
    "109": "tool-schema",
    "110": "tool-type",
    "111": "tools-all-deferred",
    "112": "field-missing",
    "113": "max-tokens",
    "114": "max-tokens",
    "115": "stop-sequences",
    "116": "sampling-range",
    "117": "sampling-both",
    "118": "container",
    "119": "output-schema",
    "120": "strict-tools",
    "121": "effort",
    "122": "text-empty",
    "123": "bedrock-tools",
}
NOT_STATIC = {"057", "058"}
"""Was this thinking changed, is its signature ours: a body doesn't say."""


def _folder() -> Path | None:
    beside = recordings.folder()
    path = Path(
        os.environ.get(VARIABLE) or (beside.parent if beside else recordings.ROOT.parent / "shared") / "requests"
    )
    return path if (path / "generate.py").is_file() else None


def _names(kind: str) -> list[str]:
    folder = _folder()
    return sorted(path.name for path in (folder / kind).glob("*.json")) if folder else []


def _generator(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("requests_generate", folder / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _need() -> Path:
    folder = _folder()
    if folder is None:
        recordings.skipped.add("request rules against known requests")
        pytest.skip(f"no requests: set {VARIABLE} (default: requests beside the recordings)")
    return folder


def _rules(violations: list[request_rules.Violation]) -> set[str]:
    assert {violation.rule for violation in violations} <= RULES.keys()
    return {violation.rule for violation in violations}


def test_the_known_requests_are_there() -> None:
    _need()
    assert len(_names("bad")) == 123
    assert len(_names("good")) == 82
    assert {name[:3] for name in _names("bad")} == REASONS.keys() | NOT_STATIC


@pytest.mark.parametrize("name", _names("bad") or ["none"])
def test_refused_for_its_reason(name: str) -> None:
    """All static ones, inferred ones too: no recorded 200 contradicts any."""
    entry = _generator(_need()).load(str(_need() / "bad" / name))
    dialect = "bedrock" if entry["dialect"] == "bedrock" else "anthropic"
    found = _rules(check_request(entry["request"], dialect=dialect))
    if not entry["static"]:
        assert name[:3] in NOT_STATIC
        assert not found
        return
    assert found == set(REASONS[name[:3]].split())


@pytest.mark.parametrize("name", [name for name in _names("bad") if name[:3] in ("039", "040", "041", "123")] or ["-"])
def test_converse_rules_are_no_rules_of_the_direct_api(name: str) -> None:
    entry = json.loads((_need() / "bad" / name).read_text(encoding="utf-8"))
    assert check_request(entry["request"]) == []


@pytest.mark.parametrize("name", _names("good") or ["none"])
def test_accepted(name: str) -> None:
    entry = json.loads((_need() / "good" / name).read_text(encoding="utf-8"))
    betas = (entry["betas"] or "").split(",")
    memo = Memo()
    assert check_request(entry["request"], betas=betas, memo=memo) == []
    assert check_request(entry["request"], betas=betas, memo=memo) == []


def _broken(request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A good request broken in one way, each way it offers, and the rule it then breaks."""

    def changed(change: Callable[[list[Any]], None]) -> dict[str, Any]:
        other = copy.deepcopy(request)
        change(other["messages"])
        return other

    messages = request["messages"]
    for at, message in enumerate(messages):
        content = message["content"] if isinstance(message["content"], list) else []
        yield "message-shape", changed(lambda m, at=at: m[at].update(uuid="x"))
        yield "content-empty", changed(lambda m, at=at: m[at].update(content="") or m.append(_user("x")))
        for number, block in enumerate(content):

            def put(key: str, value: Any, at: int = at, number: int = number) -> dict[str, Any]:
                return changed(lambda m: m[at]["content"][number].update({key: value}))

            yield "block-field-unknown", put("index", 0)
            yield "block-unknown", put("type", "holo_deck")
            if block["type"] == "tool_use":
                yield "tool-input", put("input", "{}")
                yield "tool-id", put("id", "functions.f:0")
                yield "tool-use-id-duplicate", changed(lambda m, at=at, b=block: m[at]["content"].append(b))
                yield "tool-use-unanswered", changed(lambda m, at=at: m.__delitem__(slice(at + 1, None)))
            if block["type"] == "tool_result":
                yield "tool-result-duplicate", changed(lambda m, at=at, b=block: m[at]["content"].insert(0, b))
                yield "tool-result-orphan", put("tool_use_id", "toolu_nobody")
                yield "tool-result-orphan", changed(lambda m, at=at: m.__delitem__(slice(0, at)))
                yield "tool-result-not-first", changed(lambda m, at=at: m[at]["content"].insert(0, _text("x")))
                yield "block-field-type", put("is_error", None)
            if block["type"] == "text":
                yield "text-empty", put("text", "")
                yield "lone-surrogate", put("text", "a\udc8f")
            if block["type"] == "thinking":
                yield "thinking-signature", put("signature", "")
                yield "cache-on-thinking", put("cache_control", {"type": "ephemeral"})


@pytest.mark.parametrize("name", _names("good") or ["none"])
def test_accepted_ones_broken_in_one_way_are_refused(name: str) -> None:
    request = json.loads((_need() / "good" / name).read_text(encoding="utf-8"))["request"]
    tried = 0
    for rule, body in _broken(request):
        assert rule in _rules(check_request(body)), rule
        tried += 1
    assert tried


# ---- each rule once, without files


def _text(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def _user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def _assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content[0] if isinstance(content[0], str) else list(content)}


def _call(use_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": use_id, "name": "ping", "input": {}, **more}


def _result(name: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": "ok", **more}


def _search(name: str = "srvtoolu_1") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": name, "name": "web_search", "input": {}}


def _found(name: str = "srvtoolu_1") -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": name, "content": []}


def _thought(**more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "", "signature": "c2ln", **more}


def _png(width: int, height: int) -> str:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * ((width * 3 + 1) * height)))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b"")).decode()


def _image(width: int = 1, height: int = 1, **source: Any) -> dict[str, Any]:
    data = {"type": "base64", "media_type": "image/png", "data": _png(width, height)} | source
    return {"type": "image", "source": data}


def _mark(ttl: str | None = None) -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}


CASES: dict[str, list[Any]] = {
    "not-json": [_user("x"), _assistant(_call(input={"n": float("nan")})), _user(_result())],
    "lone-surrogate": [_user("x\ud83d")],
    "request-too-large": [_user("é" * 16_000_000)],
    "messages-empty": [],
    "message-shape": [{"role": "user", "content": "x", "cache_control": None}],
    "role-unknown": [{"role": "tool", "content": "x"}],
    "content-shape": [{"role": "user", "content": {"type": "text", "text": "x"}}],
    "content-empty": [_user("x"), {"role": "assistant", "content": []}, _user("y")],
    "prefill-whitespace": [_user("x"), _assistant(_text("foo \n"))],
    "block-shape": [_user({"text": "x"}, "a string")],
    "block-unknown": [_user({"type": "video"})],
    "block-role": [_user("x"), _assistant(_text("see"), _image()), _user("y")],
    "block-field-missing": [_user({"type": "text"})],
    "block-field-unknown": [_user(_text("x", index=0))],
    "block-field-type": [_user(_text(None))],  # type: ignore[arg-type]
    "text-empty": [_user(_text("x"), _text(""))],
    "text-whitespace": [_user("x"), _assistant("\n\n"), _user("y")],
    "citation-shape": [_user(_text("x", citations=[{"type": "char_location"}]))],
    "tool-id": [_user("x"), _assistant(_call("a.b")), _user(_result("a.b"))],
    "server-tool-id": [_user("x"), _assistant(_search("toolu_1"), _found("toolu_1"), _text("y"))],
    "tool-use-name": [_user("x"), _assistant(_call(name="")), _user(_result())],
    "tool-input": [_user("x"), _assistant(_call(input=None)), _user(_result())],
    "tool-use-unanswered": [_user("x"), _assistant(_call()), _user("y")],
    "tool-use-id-duplicate": [_user("x"), _assistant(_call()), _assistant(_call()), _user(_result())],
    "tool-result-orphan": [_user("x"), _assistant(_call()), _user(_result()), _assistant("y"), _user(_result())],
    "tool-result-duplicate": [_user("x"), _assistant(_call()), _user(_result()), _user(_result())],
    "tool-result-not-first": [_user("x"), _assistant(_call()), _user("y"), _user(_result())],
    "tool-result-content": [_user("x"), _assistant(_call()), _user(_result(content=None))],
    "tool-result-error-content": [_user("x"), _assistant(_call()), _user(_result(is_error=True, content=[_image()]))],
    "server-tool-unanswered": [_user("x"), _assistant(_search()), _user("y")],
    "server-result-orphan": [_user("x"), _assistant(_found(), _text("y"))],
    "thinking-signature": [_user("x"), _assistant({"type": "thinking", "thinking": "x"}, _text("y")), _user("z")],
    "thinking-content": [_user("x"), _assistant(_thought(thinking=None), _text("y")), _user("z")],
    "thinking-last": [_user("x"), _assistant(_text("y"), _thought()), _user("z")],
    "thinking-while-off": [_user("x"), _assistant(_thought(), _call()), _user(_result())],
    "cache-too-many": [_user(*(_text(f"{n}", **_mark()) for n in range(5)))],
    "cache-shape": [_user(_text("x", cache_control={"type": "ephemeral", "scope": "global"}))],
    "cache-ttl-order": [_user(_text("x", **_mark()), _text("y", **_mark("1h")))],
    "cache-on-thinking": [_user("x"), _assistant(_thought(**_mark()), _text("y")), _user("z")],
    "cache-on-empty-text": [_user(_text("", **_mark()))],
    "cache-nested": [_user("x"), _assistant(_call()), _user(_result(content=[_text("x", **_mark())]))],
    "source": [_user({"type": "image", "source": {"type": "base64", "media_type": "image/png"}})],
    "media-type": [_user(_image(media_type="image/bmp"))],
    "media-type-mismatch": [_user(_image(media_type="image/webp"))],
    "media-base64": [_user(_image(data="data:image/png;base64," + _png(1, 1)))],
    "image-broken": [_user(_image(data=base64.b64encode(b"no image at all").decode()))],
    "image-too-big": [_user(_image(data=base64.b64encode(base64.b64decode(_png(1, 1)) + bytes(4_000_000)).decode()))],
    "image-pixels": [_user(_image(1, 8001))],
    "image-pixels-many": [_user(*[_image()] * 20, _image(1, 2001))],
    "images-too-many": [_user(*[_image()] * 101)],
    "pdf-broken": [
        _user({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}})
    ],
    "citations-mixed": [
        _user(
            *(
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "x"},
                    "citations": {"enabled": on},
                }
                for on in (True, False)
            )
        )
    ],
}
"""Messages that break this rule and, but for what it entails, no other."""

ENTAILED = {"cache-on-empty-text": {"text-empty"}}

WITH: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "prefill-unsupported": ([_user("x"), _assistant("y")], {"model": "claude-opus-4-6"}),
    "prefill-refused": ([_user("x"), _assistant("y")], {"prefill": "refuse"}),
    "role-system": (
        [_user("x"), {"role": "system", "content": "y"}],
        {"model": "us.anthropic.claude-sonnet-4-5-20250929-v1:0"},
    ),
    "system-placement": ([{"role": "system", "content": "y"}, _user("x")], {"model": "claude-opus-4-8"}),
    "tool-reference-unknown": (
        [_user("x"), _assistant(_call()), _user(_result(content=[{"type": "tool_reference", "tool_name": "ghost"}]))],
        {"tools": [{"name": "ping", "input_schema": {"type": "object"}}]},
    ),
    "thinking-not-first": (
        [_user("x"), _assistant(_text("y"), _thought(), _text("z")), _user("a")],
        {"thinking": True},
    ),
    "thinking-missing": ([_user("x"), _assistant(_call()), _user(_result(), _text("y"))], {"thinking": True}),
    "thinking-prefill": ([_user("x"), _assistant("y")], {"thinking": True}),
    "pdf-pages": (
        [
            _user(
                {
                    "type": "document",
                    "source": {
                        "type": "base64",
                        "media_type": "application/pdf",
                        "data": base64.b64encode(b"%PDF-1.4\n/Type /Page /Type/Page\nstartxref\n9\n%%EOF\n").decode(),
                    },
                }
            )
        ],
        {"limits": Limits(pdf_pages=1)},
    ),
    "bedrock-first": ([_assistant("x"), _user("y")], {"dialect": "bedrock"}),
    "bedrock-alternate": ([_user("x"), _user("y")], {"dialect": "bedrock"}),
    "bedrock-tools": ([_user("x"), _assistant(_call()), _user(_result())], {"dialect": "bedrock", "tools": []}),
    "bedrock-id-length": (
        [_user("x"), _assistant(_call("a" * 65)), _user(_result("a" * 65))],
        {"dialect": "bedrock"},
    ),
}
"""The same, with what the caller says of the request."""

OF_THE_BODY = {
    "field-missing",
    "field-unknown",
    "max-tokens",
    "stop-sequences",
    "sampling-range",
    "sampling-both",
    "effort",
    "output-schema",
    "container",
    "system-prompt",
    "tool-name",
    "tool-names-unique",
    "tool-type",
    "tool-schema",
    "tools-all-deferred",
    "strict-tools",
    "tool-choice",
    "thinking-config",
    "thinking-budget",
    "thinking-sampling",
    "thinking-forced-tool",
    "cache-deferred-tool",
    "citations-with-output",
}
"""Rules of the body around the messages (the files above break each, ``system-prompt`` below)."""


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() | WITH.keys() | OF_THE_BODY == RULES.keys()


@pytest.mark.parametrize("rule", CASES)
def test_broken_alone(rule: str) -> None:
    assert _rules(check_messages(CASES[rule])) == {rule} | ENTAILED.get(rule, set())


@pytest.mark.parametrize("rule", WITH)
def test_broken_alone_in_such_a_request(rule: str) -> None:
    messages, said = WITH[rule]
    assert _rules(check_messages(messages, **said)) == {rule}


def test_system_prompt() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [_user("x")], "system": {"type": "text", "text": "x"}}
    assert _rules(check_request(body)) == {"system-prompt"}


FINE: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "runs of one role": ([_user("x"), _user("y"), _assistant("z"), _assistant(_call()), _user(_result())], {}),
    "starts with the assistant": ([_assistant("x"), _user("y")], {}),
    "results spread over a run": (
        [_user("x"), _assistant(_call(), _call("b")), _user(_result("b")), _user(_result(), _text("y"))],
        {},
    ),
    "an id again in a later turn": (
        [_user("x"), _assistant(_call()), _user(_result()), _assistant(_call()), _user(_result())],
        {},
    ),
    "no content in a result": (
        [_user("x"), _assistant(_call()), _user({"type": "tool_result", "tool_use_id": "toolu_1"})],
        {},
    ),
    "empty string in a result": ([_user("x"), _assistant(_call()), _user(_result(content=""))], {}),
    "whitespace beside a call": ([_user("x"), _assistant(_text(" "), _call()), _user(_result())], {}),
    "empty last assistant": ([_user("x"), {"role": "assistant", "content": []}], {}),
    "paused": ([_user("x"), _assistant(_text("y"), _search())], {"prefill": "refuse", "model": "claude-opus-4-6"}),
    "in flight": ([_user("x"), _assistant(_search(), _call()), _user(_result())], {}),
    "landed later": (
        [
            _user("x"),
            _assistant(_search(), _call(caller={"type": "code_execution_20260120", "tool_id": "srvtoolu_1"})),
            _user(_result()),
            _assistant(_found(), _text("y")),
            _user("z"),
        ],
        {},
    ),
    "thinking off, in an earlier answer": ([_user("x"), _assistant(_thought(), _text("y")), _user("z")], {}),
    "thinking on, none in an earlier turn": (
        [_user("x"), _assistant("y"), _user("z"), _assistant(_thought(), _call()), _user(_result())],
        {"thinking": True},
    ),
    "thinking on, only where the loop began": (
        [_user("x"), _assistant(_thought(), _call()), _user(_result()), _assistant(_call("b")), _user(_result("b"))],
        {"thinking": True},
    ),
    "adaptive, none in the loop": (
        [_user("x"), _assistant(_call()), _user(_result())],
        {"thinking": True, "model": "claude-opus-4-7"},
    ),
    "references when tools are unknown": (
        [_user("x"), _assistant(_call()), _user(_result(content=[{"type": "tool_reference", "tool_name": "ghost"}]))],
        {},
    ),
    "an hour, then five minutes": ([_user(_text("x", **_mark("1h")), _text("y", **_mark()))], {}),
    "20 images of which one is large": ([_user(*[_image()] * 19, _image(1, 2001))], {}),
    "tool blocks, tools unknown, Converse": (
        [_user("x"), _assistant(_call()), _user(_result())],
        {"dialect": "bedrock"},
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_fine(name: str) -> None:
    messages, said = FINE[name]
    assert check_messages(messages, **said) == []


def test_whitespace_beside_a_call_is_blank_to_converse() -> None:
    messages, _ = FINE["whitespace beside a call"]
    assert _rules(check_messages(messages, dialect="bedrock")) == {"text-whitespace"}


def test_reserved_marks_count() -> None:
    messages = [_user(*(_text(f"{n}", **_mark()) for n in range(3)))]
    assert check_messages(messages, reserved_cache_marks=1) == []
    assert _rules(check_messages(messages, reserved_cache_marks=2)) == {"cache-too-many"}


def test_paths_name_message_and_block() -> None:
    (found,) = check_messages([_user("x"), _assistant(_call()), _user(_result(content=[_text("a"), _text("")]))])
    assert found.path == "messages.2.content.0.content.1.text"
    (found,) = check_messages([_user("x"), _assistant(_call(input={"a": [{"b": "\udc00"}]})), _user(_result())])
    assert found.path == "messages.1.content.0.input.a.0.b"


@pytest.mark.parametrize("rule", [*CASES, *WITH])
def test_a_memo_changes_nothing(rule: str) -> None:
    """The same answers for every prefix, with facts kept from shorter ones and under other circumstances."""
    messages, said = WITH[rule] if rule in WITH else (CASES[rule], {})
    memo = Memo()
    for end in range(len(messages) + 1):
        for options in ({}, said, {"dialect": "bedrock"}):
            assert check_messages(messages[:end], memo=memo, **options) == check_messages(messages[:end], **options)


JUNK = [None, True, -1, 0.5, float("nan"), "", "x", "\udc00", [], {}, [[]], [{}], {"type": "text"}, {"type": []}]
BODY: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 9,
    "system": [_text("x", **_mark())],
    "tools": [{"name": "ping", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "ping"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    "stop_sequences": ["x"],
    "messages": [
        _user(_image(), {"type": "document", "source": {"type": "content", "content": [_text("x")]}}),
        _assistant(_thought(), _search(), _found(), _text("x", citations=[{}]), _call(caller={"type": "direct"})),
        {"role": "system", "content": [{"type": "tool_addition", "tool": {"name": "ping"}}]},
        _user(_result(content=[{"type": "tool_reference", "tool_name": "ping"}], is_error=False, **_mark("1h"))),
    ],
}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every key and index of a value."""
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(below)


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_anywhere_is_judged_not_stumbled_over(junk: Any) -> None:
    """Any value in any place: violations, never an exception."""
    for number in range(len(list(_places(BODY)))):
        body = copy.deepcopy(BODY)
        holder, key = list(_places(body))[number]
        holder[key] = junk
        _rules(check_request(body))
        _rules(check_request(body, dialect="bedrock", model="claude-opus-4-8"))


@pytest.mark.parametrize(
    ("name", "family", "version"),
    [
        ("claude-sonnet-4-5-20250929", "sonnet", (4, 5)),
        ("claude-opus-4-20250514", "opus", (4, 0)),
        ("claude-3-5-haiku-latest", "haiku", (3, 5)),
        ("claude-3-opus-20240229", "opus", (3, 0)),
        ("claude-fable-5", "fable", (5, 0)),
        ("anthropic/claude-opus-4.6", "opus", (4, 6)),
        ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", "haiku", (4, 5)),
        ("claude-opus-5-5", "opus", (5, 5)),
        ("<synthetic>", None, None),
        (None, None, None),
    ],
)
def test_model_names(name: str | None, family: str | None, version: tuple[int, int] | None) -> None:
    model = parse_model(name)
    assert (model.family, model.version) == (family, version)
