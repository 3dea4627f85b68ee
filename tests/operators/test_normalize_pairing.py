"""Calls and results: one each, in the right place, with ids that the API takes (WIRE.md §4, FAULTS.md 60-63)."""

from __future__ import annotations

from typing import Any

import pytest
from normalizing import answered, call, result, said, text, user
from request_rules import check_messages
from requesting import blocks, explained, image, roles, sent, texts

from turnstream.messages.texts import MISSING_RESULT
from turnstream.operators.normalize import CONTINUE, normalize_for_api


def results(message: dict[str, Any]) -> list[str]:
    """The ids that a message's results answer, in order; it holds nothing before or between them."""
    found = [block for block in message["content"] if block["type"] == "tool_result"]
    assert message["content"][: len(found)] == found
    return [block["tool_use_id"] for block in found]


def test_fault_60_an_unanswered_call_gets_an_error_result() -> None:
    """Three tools, a result for one, then the session broke off."""
    history = [user("u1", "go"), said("a1", "m1", call("t1"), call("t2"), call("t3")), result("u2", "t2")]
    out = sent(history)
    assert roles(out) == "user assistant user"
    assert results(out[2]) == ["t1", "t2", "t3"]
    assert out[2]["content"][1] == answered("t2")
    assert out[2]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": MISSING_RESULT,
        "is_error": True,
    }
    assert sum("error result" in repair.what for repair in explained(history)) == 2


def test_fault_60_at_the_end_and_before_words() -> None:
    history = [user("u1", "go"), said("a1", "m1", call("t1"))]
    out = sent(history)
    assert (roles(out), results(out[2])) == ("user assistant user", ["t1"])
    out = sent([*history, user("u2", "never mind")])
    assert (results(out[2]), texts(out)[-1]) == (["t1"], "never mind")


def test_what_is_made_for_a_missing_result_is_always_the_same() -> None:
    history = [user("u1", "go"), said("a1", "m1", call("t1"))]
    first, second = normalize_for_api(history), normalize_for_api(history)
    assert first == second
    assert first[2].uuid not in ("u1", "a1")
    assert first[2].timestamp == "time of a1"


def test_fault_61_results_without_a_call_go() -> None:
    """A slice of history begins with a result, and another answers a call that a rewind took away."""
    history = [
        result("u0", "gone"),
        user("u1", "go"),
        said("a1", "m1", text("no")),
        result("u2", "lost"),
        user("u3", "ok"),
    ]
    out = sent(history)
    assert not blocks(out, "tool_result")
    assert texts(out) == ["go", "no", "ok"]
    assert roles(out) == "user assistant user"


def test_fault_61_a_message_of_orphans_alone_goes_too() -> None:
    history = [user("u1", "go"), said("a1", "m1", text("no")), result("u2", "lost"), said("a2", "m2", text("more"))]
    assert roles(sent(history)) == "user assistant assistant user"  # the API merges the two
    only = sent([result("u0", "gone")])
    assert (roles(only), len(only[0]["content"]), only[0]["content"][0]["type"]) == ("user", 1, "text")


def test_fault_62_results_come_first() -> None:
    words = [text("wait"), answered("t1"), text("and"), answered("t2")]
    out = sent([user("u1", "go"), said("a1", "m1", call("t1"), call("t2")), user("u2", words)])
    assert results(out[2]) == ["t1", "t2"]
    assert texts(out[2:]) == ["wait", "and"]


def test_fault_62_a_result_that_came_after_an_exchange_moves_up() -> None:
    history = [
        user("u1", "go"),
        said("a1", "m1", call("t1")),
        user("u2", "wait"),
        said("a2", "m2", text("waiting")),
        result("u3", "t1"),
    ]
    out = sent(history)
    assert out[2]["content"] == [answered("t1"), text("wait")]
    assert (roles(out), texts(out)[-1]) == ("user assistant user assistant user", CONTINUE)


def test_fault_63_results_in_the_order_of_the_calls() -> None:
    history = [user("u1", "go"), said("a1", "m1", call("t1"), call("t2"), call("t3")), result("u2", "t3", "t2", "t1")]
    assert results(sent(history)[2]) == ["t1", "t2", "t3"]


def test_one_result_a_call() -> None:
    twice = [answered("t1", "first"), answered("t1", "second")]
    out = sent([user("u1", "go"), said("a1", "m1", call("t1")), user("u2", twice)])
    assert out[2]["content"] == [answered("t1", "first")]


def test_a_run_of_answers_is_one_turn() -> None:
    """The API merges consecutive assistant messages; the results come after them."""
    history = [user("u1", "go"), said("a1", "m1", call("t1")), said("a2", "m2", call("t2")), result("u2", "t2", "t1")]
    out = sent(history)
    assert (roles(out), results(out[3])) == ("user assistant assistant user", ["t1", "t2"])


def test_a_result_in_an_answer_moves_to_the_user() -> None:
    out = sent([user("u1", "go"), said("a1", "m1", call("t1"), answered("t1"), text("so")), user("u2", "on")])
    assert [block["type"] for block in out[1]["content"]] == ["tool_use", "text"]
    assert out[2]["content"] == [answered("t1"), text("on")]


def test_an_answer_that_held_a_result_alone_goes() -> None:
    history = [user("u1", "go"), said("a1", "m1", call("t1")), said("a2", "m2", answered("t1")), user("u2", "on")]
    out = sent(history)
    assert (roles(out), out[2]["content"]) == ("user assistant user", [answered("t1"), text("on")])


def test_a_call_of_the_users_goes() -> None:
    assert sent([user("u1", [text("x"), call("t1")])])[0]["content"] == [text("x")]


# -- ids --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["functions.ping:0", "", "a b", "t\ud83d", "ü"])
def test_an_id_that_the_api_refuses_changes_on_both_sides(name: str) -> None:
    out = sent([user("u1", "go"), said("a1", "m1", call(name)), result("u2", name)])
    (new,) = [block["id"] for block in blocks(out, "tool_use")]
    assert new.isascii()
    assert new.replace("_", "").replace("-", "").isalnum()
    assert out[2]["content"] == [answered(new)]


@pytest.mark.parametrize("name", [None, 7, ["t"]])
def test_an_id_that_is_no_string(name: Any) -> None:
    out = sent([user("u1", "go"), said("a1", "m1", {**call(""), "id": name}), result("u2", name)])
    assert results(out[2]) == [block["id"] for block in blocks(out, "tool_use")]


def test_a_call_without_an_id_and_a_result_without_one() -> None:
    bare = {"type": "tool_use", "name": "Look", "input": {}}
    out = sent([user("u1", "go"), said("a1", "m1", bare), user("u2", [{"type": "tool_result", "content": "ok"}])])
    assert results(out[2]) == [blocks(out, "tool_use")[0]["id"]]
    assert out[2]["content"][0]["content"] == MISSING_RESULT


def test_colliding_ids_change_on_both_sides() -> None:
    """In one answer and in a later turn; each call keeps its own result."""
    history = [
        user("u1", "go"),
        said("a1", "m1", call("t1", n=1), call("t1", n=2)),
        user("u2", [answered("t1", "one"), answered("t1", "two")]),
        said("a2", "m2", call("t1", n=3)),
        user("u3", [answered("t1", "three")]),
    ]
    out = sent(history)
    calls = blocks(out, "tool_use")
    given = {block["tool_use_id"]: block["content"] for block in blocks(out, "tool_result")}
    assert len({block["id"] for block in calls}) == 3
    assert calls[0]["id"] == "t1"
    assert [given[block["id"]] for block in calls] == ["one", "two", "three"]


def test_of_calls_with_one_id_the_newest_unanswered_gets_the_result() -> None:
    history = [
        user("u1", "go"),
        said("a1", "m1", call("t1")),
        user("u2", "again"),
        said("a2", "m2", call("t1")),
        user("u3", [answered("t1", "late"), answered("t1", "later")]),
    ]
    contents = [block["content"] for block in blocks(sent(history), "tool_result")]
    assert contents == ["later", "late"]


def test_new_ids_dont_depend_on_what_comes_later() -> None:
    history = [user("u1", "go"), said("a1", "m1", call("a b")), result("u2", "a b"), said("a2", "m2", call("a b"))]
    whole = blocks(sent(history), "tool_use")
    assert blocks(sent(history[:3]), "tool_use") == whole[:1]
    assert whole[0]["id"] != whole[1]["id"]


def test_long_ids_on_converse() -> None:
    long = "x" * 65
    history = [user("u1", "go"), said("a1", "m1", call(long)), result("u2", long)]
    assert blocks(sent(history), "tool_use")[0]["id"] == long
    out = sent(history, dialect="bedrock")
    assert len(blocks(out, "tool_use")[0]["id"]) <= 64
    assert results(out[2]) == [blocks(out, "tool_use")[0]["id"]]


# -- Converse ---------------------------------------------------------------------------------------------


def test_fault_64_roles_alternate_on_converse() -> None:
    history = [
        user("u1", "go"),
        said("a1", "m1", text("one")),
        said("a2", "m2", call("t1")),
        said("a3", "m3", text("three")),
        result("u2", "t1"),
        user("u3", "so?"),
    ]
    assert roles(sent(history)) == "user assistant assistant assistant user"
    out = sent(history, dialect="bedrock")
    assert roles(out) == "user assistant user assistant user assistant user"
    assert results(out[4]) == ["t1"]
    assert [words for words in texts(out) if words in ("go", "one", "three", "so?")] == ["go", "one", "three", "so?"]


def test_a_user_left_empty_still_parts_answers_on_converse() -> None:
    history = [
        user("u1", "go"),
        said("a1", "m1", call("t1")),
        said("a2", "m2", text("two")),
        result("u2", "t1"),
        said("a3", "m3", text("three")),
    ]
    out = sent(history, dialect="bedrock")
    assert roles(out) == "user assistant user assistant user assistant user"


def test_on_converse_each_answer_is_a_turn_of_its_own() -> None:
    """Of two answers with a call of one id, the one right before the result gets it."""
    history = [user("u1", "go"), said("a1", "m1", call("t1")), said("a2", "m2", call("t1")), result("u2", "t1")]
    contents = [block["content"] for block in blocks(sent(history, dialect="bedrock"), "tool_result")]
    assert contents == [MISSING_RESULT, "found"]
    assert [block["content"] for block in blocks(sent(history), "tool_result")] == ["found", MISSING_RESULT]


def test_tool_blocks_are_texts_on_converse_without_tools() -> None:
    history = [
        user("u1", "go"),
        said("a1", "m1", call("t1", path="/x")),
        user("u2", [{**answered("t1", [text("found"), image()]), "is_error": False}]),
        said("a2", "m2", call("t2")),
        user("u3", [{**answered("t2", "broke"), "is_error": True}]),
    ]
    out = sent(history, dialect="bedrock", tools=[])
    assert not blocks(out, "tool_use")
    assert not blocks(out, "tool_result")
    assert '"/x"' in texts(out)[1]
    assert "found" in texts(out)
    assert blocks(out, "image")
    assert "broke" in texts(out)[-1]
    assert "failed" in texts(out)[-1]
    for options in ({"tools": None}, {"tools": [{"name": "Other"}]}, {"tools": [], "dialect": "anthropic"}):
        assert blocks(sent(history, **{"dialect": "bedrock", **options}), "tool_use")


# -- the server's tools -----------------------------------------------------------------------------------


def search(name: str = "srvtoolu_1", tool: str = "web_search") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": name, "name": tool, "input": {"query": "x"}}


def found(name: str = "srvtoolu_1", kind: str = "web_search_tool_result") -> dict[str, Any]:
    content: Any = [] if kind == "web_search_tool_result" else {"type": kind.replace("_tool_result", "_result")}
    return {"type": kind, "tool_use_id": name, "content": content}


def said_by(*content: Any, **envelope: Any) -> list[Any]:
    message = said("a1", "m1", *content)
    message.message.update(envelope)
    return [user("u1", "go"), message]


def types(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def test_server_calls_with_results_stay() -> None:
    out = sent([*said_by(search(), found(), text("so")), user("u2", "ok")])
    assert types(out[1]) == ["server_tool_use", "web_search_tool_result", "text"]


def test_a_server_result_without_its_call_goes() -> None:
    for content in (
        [found(), text("so")],
        [found(), search(), text("so")],
        [search(), found(kind="web_fetch_tool_result"), text("so")],
        [search(), found("srvtoolu_2"), text("so")],
        [search(), found(), found(), text("so")],
    ):
        out = sent([*said_by(*content), user("u2", "ok")])
        kinds = types(out[1])
        assert kinds in (["text"], ["server_tool_use", "web_search_tool_result", "text"])
        assert (len(kinds) == 3) == (content.count(found()) == 2)


def test_a_server_call_without_result_is_legal_in_flight_only() -> None:
    paused = sent(said_by(text("let me"), search()))
    assert (roles(paused), types(paused[1])) == ("user assistant", ["text", "server_tool_use"])
    waiting = sent([*said_by(search(), call("t1")), result("u2", "t1")])
    assert types(waiting[1]) == ["server_tool_use", "tool_use"]
    over = sent([*said_by(text("let me"), search()), user("u2", "stop")])
    assert types(over[1]) == ["text"]
    beside = sent([*said_by(search(), call("t1")), user("u2", [answered("t1"), text("stop")])])
    assert types(beside[1]) == ["tool_use"]
    cut = sent(said_by(search(), text("half a")))
    assert (roles(cut), types(cut[1])) == ("user assistant user", ["text"])


def test_a_paused_turn_is_sent_back_as_it_is() -> None:
    for content in ([search(), found()], [text("let me"), search()]):
        out = sent(said_by(*content, stop_reason="pause_turn"), model="claude-opus-4-6")
        assert roles(out) == "user assistant"
        assert out[1]["content"] == content
    ended = sent(said_by(search(), found(), stop_reason="end_turn"))
    assert roles(ended) == "user assistant user"


def test_a_server_result_may_come_in_the_next_answer() -> None:
    """The call waited while the client's tool ran."""
    history = [*said_by(search(), call("t1")), result("u2", "t1"), said("a2", "m2", found(), text("so"))]
    out = sent(history)
    assert (types(out[1]), types(out[3])) == (["server_tool_use", "tool_use"], ["web_search_tool_result", "text"])
    other = [*said_by(search(), call("t1")), result("u2", "t1"), said("a2", "m2", text("so"))]
    assert types(sent(other)[1]) == ["tool_use"]


def test_the_next_answer_goes_on_after_a_pause() -> None:
    history = [*said_by(search()), said("a2", "m2", found(), text("so")), user("u2", "ok")]
    out = sent(history)
    assert (types(out[1]), types(out[2])) == (["server_tool_use"], ["web_search_tool_result", "text"])
    assert types(sent(history, dialect="bedrock")[1]) != ["server_tool_use"]  # parted there, so nothing answers it


def test_calls_that_code_makes() -> None:
    code = search("srvtoolu_9", "code_execution")
    made = {**call("t1"), "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_9"}}
    again = {**call("t2"), "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_9"}}
    history = [*said_by(code, made), result("u2", "t1"), said("a2", "m2", again), result("u3", "t2")]
    out = sent(history)
    assert types(out[1]) == ["server_tool_use", "tool_use"]
    assert out[3]["content"] == [again]
    orphan = sent([*said_by(made), result("u2", "t1")])
    assert orphan[1]["content"] == [call("t1")]


@pytest.mark.parametrize("name", ["toolu_1", "", None, "srvtoolu_a-b"])
def test_server_ids_of_another_form_change_on_both_sides(name: Any) -> None:
    made = {**call("t1"), "caller": {"type": "code_execution_20250825", "tool_id": name}}
    out = sent(
        [*said_by(search(name, "code_execution"), made, found(name, "code_execution_tool_result")), result("u2", "t1")]
    )
    use = out[1]["content"][0]
    assert use["id"].startswith("srvtoolu_")
    assert use["id"] != name
    if isinstance(name, str):
        assert out[1]["content"][2]["tool_use_id"] == use["id"]
        assert out[1]["content"][1]["caller"]["tool_id"] == use["id"]


def test_two_server_calls_of_one_id() -> None:
    out = sent([*said_by(search(), found(), search(), found(), text("so")), user("u2", "ok")])
    names = [block.get("id") or block.get("tool_use_id") for block in out[1]["content"][:4]]
    assert names[0] == names[1]
    assert names[2] == names[3]
    assert names[0] != names[2]
    open_twice = sent([*said_by(search(), search(), found(), text("so")), user("u2", "ok")])
    assert types(open_twice[1]) == ["server_tool_use", "web_search_tool_result", "text"]


def test_mcp_calls() -> None:
    use = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "wiki", "input": {}}
    answer = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": "yes"}
    assert sent([*said_by(use, answer, text("so")), user("u2", "ok")])[1]["content"] == [use, answer, text("so")]
    nameless = {key: value for key, value in use.items() if key != "server_name"}
    assert sent([*said_by(nameless, answer, text("so")), user("u2", "ok")])[1]["content"] == [text("so")]


WEB = {"type": "web_search_result", "title": "t", "url": "u", "encrypted_content": "e"}


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ([WEB, {"type": "web_search_result", "title": "t"}, None, "x"], [WEB]),
        ([{**WEB, "page_age": None, "rank": 1}], [{**WEB, "page_age": None}]),
        ([{**WEB, "title": 5}], []),
        ({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}, ...),
        ({}, None),
        ("words", None),
        (None, None),
    ],
)
def test_what_isnt_a_web_searchs_result_goes(content: Any, kept: Any) -> None:
    answer = {**found(), "content": content}
    out = sent([*said_by(search(), answer, text("so")), user("u2", "ok")])
    assert check_messages(out) == []
    if kept is None:  # nothing answers the call now
        assert out[1]["content"] == [text("so")]
    else:
        assert out[1]["content"][1] == {**answer, "content": content if kept is ... else kept}


@pytest.mark.parametrize("content", [[], "x", None, {"type": None}, 5])
def test_a_server_result_of_another_shape_goes_with_its_call(content: Any) -> None:
    answer = {**found(kind="code_execution_tool_result"), "content": content}
    out = sent([*said_by(search(tool="code_execution"), answer, text("so")), user("u2", "ok")])
    assert out[1]["content"] == [text("so")]


def test_what_an_mcp_tool_said_is_texts() -> None:
    use = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "wiki", "input": {}}
    odd = [text("a"), text(" "), {**text("b"), "cache_control": {"type": "ephemeral"}}, {"type": "x", "text": "c"}, 5]
    answer = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": None, "content": odd}
    out = sent([*said_by(use, answer, text("so")), user("u2", "ok")])
    assert check_messages(out) == []
    assert out[1]["content"][1] == {
        "type": "mcp_tool_result",
        "tool_use_id": "mcptoolu_1",
        "content": [text("a"), text("b"), text("c"), text("5")],
    }
    for content, kept in ((None, []), ({"text": "d"}, [text("d")])):
        out = sent([*said_by(use, {**answer, "content": content}, text("so")), user("u2", "ok")])
        assert out[1]["content"][1]["content"] == kept


def test_a_server_tool_that_doesnt_exist_goes_with_its_result() -> None:
    for name in ("time_travel", ["web_search"], None):
        call_of_none = {**search(), "name": name}
        out = sent([*said_by(call_of_none, found(), text("so")), user("u2", "ok")])
        assert types(out[1]) == ["text"]


def test_nothing_to_pair_is_the_same_object() -> None:
    history = [user("u1", [text("go")]), said("a1", "m1", call("t1")), result("u2", "t1")]
    out = normalize_for_api(history)
    assert all(before is after for before, after in zip(history, out, strict=True))
    assert not explained(history)
