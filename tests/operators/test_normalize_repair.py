"""Blocks one by one, cache marks, the edges, entries of other roles (WIRE.md §4, FAULTS.md 18-21, 65-67, 73-77)."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from normalizing import MODEL, answered, call, result, said, text, user
from requesting import blocks, document, explained, image, pdf, roles, sent, texts

from turnstream.operators.normalize import BLOCKS, CONTINUE, BlockShape, normalize_for_api

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def asked(*content: Any) -> list[dict[str, Any]]:
    """What a user message with this content becomes."""
    return sent([user("u1", list(content))])[0]["content"]


def told(*content: Any, **options: Any) -> list[dict[str, Any]]:
    """What an answer with this content becomes, in the middle of a conversation."""
    history = [user("u1", "go"), said("a1", "m1", *content), user("u2", "on"), said("a2", "m2", text("x"))]
    return sent(history, **options)[1]["content"]


def held(content: Any, **more: Any) -> Any:
    """What a tool result with this content becomes."""
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content, **more}
    return sent([user("u1", "go"), said("a1", "m1", call("t1")), user("u2", [block])])[2]["content"]


# -- texts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", ["", " ", "\n\n", "\u2003\t"])
def test_fault_65_blank_text_is_dropped(blank: str) -> None:
    assert asked(text(blank), image()) == [image()]
    assert told(text(blank), call("t1"))[:1] == [call("t1")]
    assert explained([user("u1", [text(blank), image()])])


def test_fault_66_an_answer_of_blank_text_alone_goes() -> None:
    cut = said("a1", "m1", text("\n\n"), is_aborted_mid_stream=True)
    out = sent([user("u1", "go"), cut, user("u2", "again")])
    assert out == [{"role": "user", "content": [text("go"), text("again")]}]


def test_fault_66_a_placeholder_only_where_nothing_else_is_left() -> None:
    for content in ("", " ", [], [text("")], None, [{"type": "video"}]):
        out = sent([user("u1", content)])
        assert (roles(out), len(texts(out))) == ("user", 1)
    assert sent([]) == []
    assert sent([user("u1", "hi", is_virtual=True)]) == []


def test_text_that_is_no_string() -> None:
    assert asked({"type": "text"}, {"type": "text", "text": None}, {"type": "text", "text": 7}, text("x")) == [
        text("x")
    ]


@pytest.mark.parametrize("bad", ["x\ud83d y", "\udc8f", "cut\ud83d"])
def test_fault_20_76_lone_surrogates_become_u_fffd(bad: str) -> None:
    clean = bad.replace("\ud83d", "\ufffd").replace("\udc8f", "\ufffd")
    assert asked(text(bad)) == [text(clean)]
    assert sent([user("u1", bad)])[0]["content"] == [text(clean)]
    assert told({**call("t1"), "input": {"p": [bad], bad: 1}})[0]["input"] == {"p": [clean], clean: 1}
    assert held(bad)[0]["content"] == clean


def test_fault_76_a_pair_of_surrogates_is_one_character() -> None:
    assert asked(text("\ud83d\ude00")) == [text("😀")]


def test_fault_21_whatever_is_in_a_request_can_be_written() -> None:
    odd = {**call("t1"), "name": "\ud800", "input": {"n": 1 << 70, "\udfff": "\ud800"}}
    history = [user("u\ud800", "\udfff"), said("a1", "m1", odd), user("u2", [answered("t1", [text("\ud99c")])])]
    json.dumps(sent(history), ensure_ascii=False).encode()


def test_a_value_nested_too_deep_for_a_walk() -> None:
    deep: Any = "\ud800"
    for _ in range(5000):
        deep = [deep]
    out = sent([user("u1", "go"), said("a1", "m1", {**call("t1"), "input": {"x": deep}}), user("u2", "on")])
    assert "\ud800" not in str(out[1]["content"])


# -- blocks -----------------------------------------------------------------------------------------------


def test_stray_fields_go() -> None:
    assert told({**call("t1"), "text": "", "partial_json": "{"})[0] == call("t1")
    assert asked({**text("x"), "index": 3}) == [text("x")]
    (repair,) = [each for each in explained([user("u1", [{**text("x"), "index": 3}])]) if each.stage == "repair"]
    assert repair.uuid == "u1"
    assert "index" in repair.what


def test_every_known_block_passes_unchanged() -> None:
    known = [
        {"type": "compaction", "content": "Summary.", "encrypted_content": "ZQ=="},
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {},
            "caller": {"type": "direct"},
        },
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [], "caller": {"type": "direct"}},
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
        {**text("cited"), "citations": None},
        {**call("t1"), "caller": {"type": "direct"}},
    ]
    history = [user("u1", "go"), said("a1", "m1", *known), result("u2", "t1")]
    assert normalize_for_api(history)[1] is history[1]
    upload = {"type": "container_upload", "file_id": "file_1"}
    assert asked(upload, text("x")) == [upload, text("x")]
    assert asked({"type": "container_upload"}, text("x")) == [text("x")]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "compaction", "content": None},
        {"type": "compaction", "content": None, "encrypted_content": "ZQ=="},
        {"type": "compaction"},
    ],
)
def test_fault_77_a_compaction_block_with_null_goes_back_as_it_is(block: dict[str, Any]) -> None:
    assert told(block, text("so")) == [block, text("so")]
    assert told({**block, "content": ""}, text("so")) == [text("so")]


def test_an_unknown_block_leaves_its_text() -> None:
    assert asked({"text": "a"}, {"type": "note", "text": "b"}, {"type": "video", "source": {}}) == [
        text("a"),
        text("b"),
    ]
    assert asked({"type": "resource", "resource": {"uri": "x", "text": "c"}}) == [text("c")]
    assert told({"type": "novel", "content": [text("said")]}, text("so")) == [text("said"), text("so")]
    assert len(explained([user("u1", [{"type": "video"}, text("x")])])) == 1


def test_the_table_of_blocks_is_replaceable() -> None:
    video = {"type": "video", "source": {"type": "url", "url": "https://example.com/v"}}
    more = {**BLOCKS, "video": BlockShape(frozenset({"type", "source"}), frozenset({"user"}))}
    assert sent([user("u1", [{**video, "index": 1}])], blocks=more)[0]["content"] == [video]


def test_another_apis_image_becomes_a_text() -> None:
    (block,) = asked({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}})
    assert block["type"] == "text"
    assert "https://example.com/a.png" in block["text"]
    (block,) = asked({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})
    assert "AAAA" not in block["text"]


def test_blocks_that_a_role_cant_hold() -> None:
    out = told(image(), {"type": "document", "source": {}, "title": "T"}, text("so"))
    assert [block["type"] for block in out] == ["text"] * 3
    thinking = {"type": "thinking", "thinking": "x", "signature": "c2ln"}
    assert asked(thinking, {"type": "compaction", "content": "Summary."}, text("x")) == [text("Summary."), text("x")]


def test_items_that_are_no_blocks() -> None:
    assert asked("bare", None, 5, text("x")) == [text("bare"), text("x")]


def test_citations() -> None:
    cite = {
        "type": "char_location",
        "cited_text": "x",
        "document_index": 0,
        "document_title": None,
        "start_char_index": 0,
        "end_char_index": 1,
    }
    assert told({**text("a"), "citations": [cite]}) == [{**text("a"), "citations": [cite]}]
    answer = {**text("a"), "citations": [{**cite, "file_id": None}, {"type": "novel"}]}
    assert told(answer) == [{**text("a"), "citations": [cite]}]
    assert told({**text("a"), "citations": [{"type": "novel"}]}) == [text("a")]
    assert told({**text("a"), "citations": "x"}) == [text("a")]


# -- calls ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ['{"a": 1', "", [1], 3, True])
def test_fault_18_an_input_that_is_no_object_is_wrapped_not_repaired(given: Any) -> None:
    block = told({**call("t1"), "input": given})[0]
    assert list(block["input"].values()) == [given]


def test_an_input_that_is_missing_is_empty() -> None:
    bare = {"type": "tool_use", "id": "t1", "name": "Look"}
    assert told(bare)[0] == told({**bare, "input": None})[0] == call("t1")


def test_fault_19_a_call_that_never_ended_isnt_sent() -> None:
    cut = said("a1", "m1", text("I will"), is_aborted_mid_stream=True)
    cut.unfinished_tool_inputs = [{"index": 1, "id": "t1", "name": "Write", "raw": ""}]
    out = sent([user("u1", "go"), cut, user("u2", "on")])
    assert not blocks(out, "tool_use")
    assert texts(out) == ["go", "I will", "on"]


@pytest.mark.parametrize(
    ("name", "new"), [("a.b", "a_b"), ("", "unnamed_tool"), (None, "unnamed_tool"), ("x" * 129, "x" * 128)]
)
def test_names_that_the_api_refuses(name: Any, new: str) -> None:
    assert told({**call("t1"), "name": name})[0]["name"] == new


def test_a_caller_needs_a_type() -> None:
    assert told({**call("t1"), "caller": None})[0] == call("t1")


# -- tool results -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", " \n", [], [text("")], [text(" "), None], [{"type": "text"}]])
def test_an_empty_result_says_so(content: Any) -> None:
    (block,) = held(content)
    said_ = block["content"] if isinstance(block["content"], str) else block["content"][0]["text"]
    assert said_.strip()


def test_results_without_content_are_legal() -> None:
    bare = {"type": "tool_result", "tool_use_id": "t1"}
    assert held(None) == [bare]
    assert sent([user("u1", "go"), said("a1", "m1", call("t1")), user("u2", [bare])])[2]["content"] == [bare]


def test_content_of_other_shapes_becomes_text() -> None:
    (block,) = held({"a": 1})
    assert json.loads(block["content"][0]["text"]) == {"a": 1}
    assert held(7)[0]["content"] == [text("7")]
    assert held(text("x"))[0]["content"] == [text("x")]
    assert held([{"a": [1]}, "bare", 5])[0]["content"] == [text('{"a":[1]}'), text("bare"), text("5")]


def test_blocks_that_a_result_cant_hold() -> None:
    inner = [
        {"type": "tool_use", "id": "t2", "name": "x", "input": {}},
        {"type": "note", "text": "n"},
        answered("t9", "in"),
    ]
    (block,) = held(inner)
    assert [item["type"] for item in block["content"]] == ["text"] * 3
    assert [item["text"] for item in block["content"][1:]] == ["n", "in"]


def test_an_error_holds_text_only_and_its_image_goes_below() -> None:
    out = held([text("bad"), image()], is_error=True)
    assert [block["type"] for block in out] == ["tool_result", "image"]
    assert [item["type"] for item in out[0]["content"]] == ["text", "text"]
    out = held([document(pdf())], is_error=True)
    assert [block["type"] for block in out] == ["tool_result", "document"]
    assert held([image()], is_error="yes") == [answered("t1", [image()])]


def test_inner_fields() -> None:
    inner = [{**text("a"), "citations": None, "annotations": {}}, {**image(), "id": 1}]
    assert held(inner)[0]["content"] == [text("a"), image()]


def test_a_mark_inside_a_result_moves_to_it() -> None:
    (block,) = held([{**text("a"), "cache_control": MARK}, {**text("b"), "cache_control": HOUR}])
    assert block == {**answered("t1", [text("a"), text("b")]), "cache_control": MARK}
    (block,) = held([{**text("a"), "cache_control": {"type": "ephemeral", "ttl": "2h"}}])
    assert block["cache_control"] == MARK


def test_references_to_tools_that_arent_declared_go() -> None:
    refer = {"type": "tool_reference", "tool_name": "ghost"}
    known = {"type": "tool_reference", "tool_name": "Look"}
    found = {"type": "tool_search_tool_search_result", "tool_references": [refer, known]}
    history = [
        user("u1", "go"),
        said(
            "a1",
            "m1",
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_regex", "input": {}},
            {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found},
            call("t1"),
        ),
        user("u2", [answered("t1", [refer, known]), text("x")]),
        said("a2", "m2", call("t2")),
        user("u3", [answered("t2", [refer])]),
    ]
    out = sent(history, tools=[{"name": "Look"}])
    assert out[1]["content"][1]["content"]["tool_references"] == [known]
    assert out[2]["content"][0]["content"] == [known]
    assert out[4]["content"][0]["content"][0]["type"] == "text"
    for tools in (None, [{"name": "Look"}, {"type": "mcp_toolset", "mcp_server_name": "m"}]):
        assert sent(history, tools=tools)[2]["content"][0]["content"] == [refer, known]


def test_history_of_vanished_tools_stays() -> None:
    history = [user("u1", "go"), said("a1", "m1", call("t1")), result("u2", "t1")]
    assert blocks(sent(history, tools=[{"name": "Other"}]), "tool_use") == [call("t1")]


# -- cache marks ------------------------------------------------------------------------------------------


def marks(messages: list[dict[str, Any]]) -> list[str]:
    return [block["text"] for block in blocks(messages, "text") if "cache_control" in block]


@pytest.mark.parametrize(("reserved", "kept"), [(0, "2345"), (1, "345"), (3, "5"), (4, ""), (9, "")])
def test_fault_73_the_newest_marks_are_kept(reserved: int, kept: str) -> None:
    history = [user("u1", [{**text(words), "cache_control": MARK} for words in "123"]), said("a1", "m1", text("x"))]
    history += [user("u2", [{**text(words), "cache_control": MARK} for words in "45"])]
    assert "".join(marks(sent(history, reserved_cache_marks=reserved))) == kept


def test_fault_65_no_mark_on_empty_text() -> None:
    assert asked(image(), {**text(""), "cache_control": MARK}) == [image()]


@pytest.mark.parametrize(
    ("mark", "kept"),
    [
        (None, None),
        ({"type": "persistent"}, None),
        ("x", None),
        ({"type": "ephemeral", "ttl": "2h"}, MARK),
        ({"type": "ephemeral", "ttl": "1h", "scope": "global"}, HOUR),
        (HOUR, HOUR),
    ],
)
def test_marks_of_another_shape(mark: Any, kept: Any) -> None:
    (block,) = asked({**text("x"), "cache_control": mark})
    assert block.get("cache_control") == kept


def test_no_long_mark_after_a_short_one() -> None:
    content = [{**text(words), "cache_control": mark} for words, mark in zip("abc", (HOUR, MARK, HOUR), strict=True)]
    assert [block["cache_control"] for block in asked(*content)] == [HOUR, MARK, MARK]


# -- edges ------------------------------------------------------------------------------------------------


def test_a_conversation_starts_with_the_user() -> None:
    history = [said("a1", "m1", text("hello")), user("u1", "hi")]
    out = sent(history)
    assert (roles(out), texts(out)[1:]) == ("user assistant user", ["hello", "hi"])


def test_it_ends_with_the_user_and_no_answer_is_deleted() -> None:
    history = [user("u1", "Title?"), said("a1", "m1", text("title: "))]
    out = sent(history)
    assert texts(out) == ["Title?", "title: ", CONTINUE]
    assert any("after it" in repair.what for repair in explained(history))


def test_fault_67_a_final_text_is_trimmed_for_prefill() -> None:
    history = [user("u1", "Title?"), said("a1", "m1", text("a "), text("foo \n"))]
    assert texts(sent(history, prefill="allow", model=MODEL)) == ["Title?", "a ", "foo"]


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-sonnet-5", "us.anthropic.claude-fable-5"])
def test_models_without_prefill_get_a_stand_in(model: str) -> None:
    history = [user("u1", "Title?"), said("a1", "m1", text("title: "))]
    assert texts(sent(history, prefill="allow", model=model))[-1] == CONTINUE


def test_stand_ins_are_meta_with_ids_of_their_own() -> None:
    out = normalize_for_api([said("a1", "m1", text("hello"))])
    assert [message.is_meta for message in (out[0], out[2])] == [True, True]  # type: ignore[union-attr]
    assert len({message.uuid for message in out}) == 3


# -- other roles ------------------------------------------------------------------------------------------


def entry(uuid: str, *content: Any) -> Any:
    message = user(uuid, list(content))
    message.message["role"] = "system"
    return message


def test_a_system_entry_is_a_reminder_on_models_that_dont_take_it() -> None:
    history = [entry("s1", text("Be brief.")), user("u1", "Hi"), said("a1", "m1", text("x")), user("u2", "on")]
    for options in ({"model": "claude-sonnet-4-20250514"}, {}, {"model": "claude-opus-4-8", "dialect": "bedrock"}):
        out = sent(history, **options)
        assert roles(out) == "user assistant user"
        assert texts(out)[0] == "<system-reminder>\nBe brief.\n</system-reminder>"


def test_a_system_entry_is_a_reminder_though_its_place_would_do() -> None:
    history = [user("u1", "a"), entry("s1", text("Be brief.")), said("a1", "m1", text("x")), user("u2", "b")]
    for options in ({"model": MODEL}, {}, {"model": "claude-opus-4-8", "dialect": "bedrock"}):
        assert roles(sent(history, **options)) == "user assistant user"


def test_a_system_entry_stays_where_the_model_takes_it() -> None:
    history = [user("u1", "a"), entry("s1", text("Be brief.")), said("a1", "m1", text("x")), user("u2", "b")]
    history += [entry("s2", text("one")), entry("s3", text("two"))]
    out = sent(history, model="claude-opus-4-8")
    assert roles(out) == "user system assistant user system system"
    assert normalize_for_api(history, model="claude-opus-4-8")[1].uuid == "s1"


@pytest.mark.parametrize("after", ["user", "assistant", "nothing"])
def test_a_system_entry_in_another_place_is_a_reminder(after: str) -> None:
    history: dict[str, list[Any]] = {
        "user": [user("u1", "a"), entry("s1", text("Be brief.")), user("u2", "b")],
        "assistant": [user("u1", "a"), said("a1", "m1", text("x")), entry("s1", text("Be brief."))],
        "nothing": [entry("s1", text("Be brief.")), said("a1", "m1", text("x")), user("u1", "a")],
    }
    out = sent(history[after], model="claude-opus-4-8")
    assert "system" not in roles(out)
    assert any("Be brief." in words for words in texts(out))


def test_a_system_entry_whose_answer_goes_is_looked_at_again() -> None:
    history = [user("u1", "a"), entry("s1", text("Be brief.")), said("a1", "m1", text(" ")), user("u2", "b")]
    assert roles(sent(history, model="claude-opus-4-8")) == "user"


def test_results_come_before_a_system_entry() -> None:
    history = [user("u1", "a"), said("a1", "m1", call("t1")), entry("s1", text("Be brief."))]
    assert roles(sent(history, model="claude-opus-4-8")) == "user assistant user system"


def test_changes_of_tools_in_a_system_entry() -> None:
    change = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Look"}}
    ghost = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "ghost"}}
    history = [user("u1", "a"), entry("s1", change, ghost, image())]
    out = sent(history, model="claude-fable-5", tools=[{"name": "Look"}])
    assert out[1] == {"role": "system", "content": [change]}
    assert roles(sent([user("u1", "a"), entry("s1", ghost)], model="claude-fable-5", tools=[])) == "user"


def test_a_role_that_doesnt_exist_is_the_users() -> None:
    odd = user("u2", "b")
    odd.message["role"] = "tool"
    assert sent([user("u1", "a"), odd]) == [{"role": "user", "content": [text("a"), text("b")]}]


def test_limits_in_force_are_those_given() -> None:
    from turnstream.operators.normalize import MediaLimits

    small = dataclasses.replace(MediaLimits(), image_pixels=10)
    assert not blocks(sent([user("u1", [image(11)])], limits=small), "image")
