"""``split_blocks`` (WIRE.md §5) and the ids of parts (WIRE.md §2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from displaying import (
    answers,
    assistant,
    boundary,
    calls,
    other,
    part,
    progress,
    say,
    system,
    text,
    thinks,
    uid,
    user,
)

from turnstream.messages import (
    OpaqueRecord,
    ResponseFailed,
    Tombstone,
    decode_line,
    encode,
    raw_of,
)
from turnstream.messages.jsonvalue import loads
from turnstream.operators.display import split_blocks

A, B, C = uid("a"), uid("b"), uid("c")


def ids(items: Sequence[Any]) -> list[str]:
    return [item.uuid for item in items]


def blocks(items: Sequence[Any]) -> list[Any]:
    return [item.message["content"] for item in items]


def sequential(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012x}"


# -- blocks ------------------------------------------------------------------------------------------------


def test_one_block_per_message_with_derived_ids() -> None:
    out = split_blocks([assistant(thinks("hm"), text("yes"), calls("t"), ident=A)])
    assert blocks(out) == [[thinks("hm")], [text("yes")], [calls("t")]]
    assert ids(out) == [part(A, 0), part(A, 1), part(A, 2)]
    assert ids(out)[2] == "aaaaaaaa-aaaa-4aaa-8aaa-000000000002"


def test_a_string_becomes_a_text_block_and_its_id_stays() -> None:
    out = split_blocks([user("hello", A)])
    assert blocks(out) == [[text("hello")]]
    assert ids(out) == [A]


def test_one_block_passes_as_the_same_object() -> None:
    message = assistant(text("hello"), ident=A)
    assert split_blocks([message])[0] is message


def test_ids_stay_until_the_first_message_with_several_blocks() -> None:
    out = split_blocks(
        [user("one", A), say("two", ident=B), user([text("x"), text("y")], C), say("three", ident=A), user("four", B)]
    )
    assert ids(out) == [A, B, part(C, 0), part(C, 1), part(A, 0), part(B, 0)]


def test_other_types_keep_their_uuid_and_stay_the_same_objects() -> None:
    others = [
        system(ident="s-1"),
        progress("t", "bash_progress"),
        boundary("b-1"),
        OpaqueRecord(type="x", data={"uuid": A}),
    ]
    out = split_blocks([assistant(text("x"), text("y"), ident=A), *others])
    assert all(item is before for item, before in zip(out[2:], others, strict=True))


def test_a_message_without_blocks_isnt_lost() -> None:
    out = split_blocks([assistant(ident=A), assistant(text("x"), text("y"), ident=B), assistant(ident=C)])
    assert blocks(out) == [[], [text("x")], [text("y")], []]
    assert ids(out) == [A, part(B, 0), part(B, 1), part(C, 0)]


def test_content_that_is_no_content_passes() -> None:
    message = user(None, A)
    assert split_blocks([message])[0] is message


def test_parts_share_what_isnt_a_blocks_own() -> None:
    message = assistant(text("x"), calls("t"), ident=A, request_id="req")
    first, second = split_blocks([message])
    assert first.message["usage"] is second.message["usage"] is message.message["usage"]
    assert first.request_id == second.request_id == "req"
    assert first.message["id"] == second.message["id"] == "msg_1"


def test_the_input_isnt_changed() -> None:
    message = assistant(text("x"), text("y"), ident=A)
    before = encode(message)
    split_blocks([message, user("z", B)])
    assert encode(message) == before


def test_what_a_tool_gave_goes_with_its_result() -> None:
    message = user([text("look"), answers("t")], A, tool_use_result={"rows": 3})
    first, second = split_blocks([message])
    assert second.tool_use_result == {"rows": 3}
    assert "toolUseResult" not in loads(encode(first))
    assert split_blocks([user([text("x"), text("y")], A, tool_use_result=1)])[0].tool_use_result == 1


def test_each_image_keeps_its_paste_id() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    message = user([text("see"), image, image], A, image_paste_ids=[7, 9])
    assert [item.image_paste_ids for item in split_blocks([message])] == [None, [7], [9]]


def test_what_was_left_over_of_an_answer_comes_once() -> None:
    unfinished = [{"index": 2, "id": "t", "name": "Bash", "raw": '{"a'}]
    message = assistant(text("x"), text("y"), ident=A, unfinished_tool_inputs=unfinished, is_aborted_mid_stream=True)
    out = split_blocks([message])
    assert [item.unfinished_tool_inputs for item in out] == [None, unfinished]
    assert [item.is_aborted_mid_stream for item in out] == [True, True]


def test_a_part_of_a_line_isnt_written_as_the_line() -> None:
    line = (
        b'{"parentUuid":null,"new":1,"type":"user","message":{"role":"user","content":"hi"},"uuid":"%b"}' % A.encode()
    )
    (out,) = split_blocks([decode_line(line)])
    assert raw_of(out) is None
    assert loads(encode(out)) == {
        "parentUuid": None,
        "new": 1,
        "type": "user",
        "message": {"role": "user", "content": [text("hi")]},
        "uuid": A,
    }


# -- ids ---------------------------------------------------------------------------------------------------


def test_splitting_a_split_list_changes_nothing() -> None:
    once = split_blocks([user("q", A), assistant(text("x"), text("y"), ident=B), say("z", ident=C), system()])
    again = split_blocks(once)
    assert all(item is before for item, before in zip(again, once, strict=True))


def test_nothing_is_derived_from_an_id_that_a_siblings_parent_gave() -> None:
    """A list that was split before, behind a message with several blocks: its ids stay what they are."""
    split = split_blocks([assistant(text("x"), text("y"), text("z"), ident=A)])
    out = split_blocks([user([text("1"), text("2")], B), *split])
    assert ids(out) == [part(B, 0), part(B, 1), part(A, 0), part(A, 1), part(A, 2)]


def test_a_split_list_and_what_it_was_split_from() -> None:
    message = assistant(text("x"), text("y"), ident=A)
    out = ids(split_blocks([message, *split_blocks([message]), message]))
    assert out[:2] == [part(A, 0), part(A, 1)]
    assert len(set(out)) == 6


def test_a_part_that_came_before_ids_were_derived_and_comes_again() -> None:
    parts = split_blocks([assistant(text("x"), text("y"), ident=A)])
    out = ids(split_blocks([*parts, user([text("1"), text("2")], B), *parts]))
    assert out[:4] == [part(A, 0), part(A, 1), part(B, 0), part(B, 1)]
    assert len(set(out)) == 6


def test_sequential_ids_collide_and_become_uuid5() -> None:
    """…0001 and …0002 have the same first 24 characters: only the first can have the derived id."""
    first = user([text("x"), text("y")], sequential(1))
    out = split_blocks([first, user("z", sequential(2)), say("w", ident=sequential(3))])
    assert ids(out)[:2] == [sequential(0), sequential(1)]
    assert ids(out)[3] == other(f"{sequential(3)}/0")
    assert len(set(ids(out))) == 4


def test_a_part_never_takes_the_id_of_another_message() -> None:
    out = split_blocks([say("x", ident=sequential(1)), user([text("y"), text("z")], sequential(2))])
    assert ids(out) == [sequential(1), sequential(0), other(f"{sequential(2)}/1")]


def test_a_part_doesnt_take_the_id_of_a_message_that_comes_later() -> None:
    later = [system(ident=sequential(1)), system(ident=sequential(2))]
    out = split_blocks([user([text("x"), text("y"), text("z")], sequential(0)), *later])
    assert ids(out)[0] == sequential(0)
    assert ids(out)[3:] == [sequential(1), sequential(2)]
    assert len(set(ids(out))) == 5


def test_ids_that_are_no_uuids() -> None:
    out = split_blocks([user([text("x"), text("y")], "msg-1"), say("z", ident="msg-2")])
    assert ids(out) == [other("msg-1/0"), other("msg-1/1"), other("msg-2/0")]


def test_the_same_message_twice_gets_ids_of_its_own() -> None:
    message = user([text("x"), text("y")], "msg-1")
    out = ids(split_blocks([message, message, message]))
    assert out[:2] == [other("msg-1/0"), other("msg-1/1")]
    assert len(set(out)) == 6
    assert ids(split_blocks([message, message, message])) == out


def test_messages_without_ids() -> None:
    out = ids(split_blocks([user("x", ""), user([text("x"), text("y")], ""), user("z", ""), system(ident="")]))
    assert out[0] == out[4] == ""
    assert len({*out[1:4]}) == 3


@pytest.mark.parametrize("odd", ["\ud800", "ü\udfff", "a/0"])
def test_odd_ids_break_nothing(odd: str) -> None:
    out = ids(split_blocks([user([text("x"), text("y")], odd), user("z", odd)]))
    assert len(set(out)) == 3


def test_the_same_split_always_gives_the_same_ids() -> None:
    messages = [user([text("x"), text("y")], A), say("z", ident=B)]
    assert ids(split_blocks(messages)) == ids(split_blocks(messages))


def test_more_blocks_dont_change_the_ids_before_them() -> None:
    """A message that grew keeps the ids of its first parts: a display knows them again."""
    short = split_blocks([assistant(text("x"), text("y"), ident=A)])
    long = split_blocks([assistant(text("x"), text("y"), text("z"), ident=A)])
    assert ids(long)[:2] == ids(short)


# -- tombstones and failures -------------------------------------------------------------------------------


def test_a_tombstone_takes_back_every_part() -> None:
    message = assistant(text("x"), text("y"), ident=A)
    out = split_blocks([message, Tombstone(message=message)])
    assert [item.message.uuid for item in out[2:]] == [part(A, 0), part(A, 1)]


def test_a_tombstone_by_uuid_only() -> None:
    out = split_blocks([assistant(text("x"), text("y"), ident=A), Tombstone(message={"uuid": A})])
    assert [item.message["uuid"] for item in out[2:]] == [part(A, 0), part(A, 1)]


def test_a_tombstone_of_a_message_that_kept_its_id_passes() -> None:
    message = say("x", ident=A)
    tombstone = Tombstone(message=message)
    assert split_blocks([message, tombstone])[1] is tombstone


def test_failures_pass() -> None:
    failed = ResponseFailed(error={"type": "x"})
    assert split_blocks([assistant(text("x"), text("y")), failed])[2] is failed


# -- faults ------------------------------------------------------------------------------------------------


def test_fault_25_blocks_whose_texts_overlap_stay_apart() -> None:
    """Identity is the place, never the text: `**` at one block's end and the next one's start, and twins."""
    contents = [thinks("A **"), thinks("** B"), text("B C"), text("B C")]
    assert blocks(split_blocks([assistant(*contents, ident=A)])) == [[block] for block in contents]
