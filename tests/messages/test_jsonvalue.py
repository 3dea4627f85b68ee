"""Untyped JSON: nothing lost when read, everything that was read can be written (WIRE.md §1, tool input)."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages.jsonvalue import (
    MAX_DEPTH,
    MAX_RECORD_DEPTH,
    JSONValueError,
    UnheldValueError,
    depth_exceeds,
    dumps,
    has_surrogates,
    loads,
    scrub,
    scrub_text,
)

TEXT = st.text(st.characters(exclude_categories=()))  # with lone surrogates
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
CLEAN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int, inner: Any = 0) -> Any:
    value = inner
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def nested_text(depth: int) -> str:
    return "[" * depth + "]" * depth


@given(CLEAN)
def test_reads_what_the_standard_library_writes(value: Any) -> None:
    assert loads(json.dumps(value)) == value
    assert loads(json.dumps(value, ensure_ascii=False).encode()) == value


@given(CLEAN)
def test_the_standard_library_reads_what_is_written(value: Any) -> None:
    assert json.loads(dumps(value)) == value


@given(VALUES)
def test_whatever_is_read_can_be_written(value: Any) -> None:
    read = loads(json.dumps(value), keep_surrogates=True)
    assert loads(dumps(read)) == loads(json.dumps(value))


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64, -(2**64) - 1, 12345678901234567890123, 10**300])
def test_integers_keep_every_digit(number: int) -> None:
    read = loads(f'{{"n":{number}}}')
    assert read == {"n": number}
    assert type(read["n"]) is int
    assert dumps(read) == f'{{"n":{number}}}'.encode()


def test_an_integer_of_4300_digits_is_read_and_written() -> None:
    digits = "7" * 4300
    assert dumps(loads(digits)) == digits.encode()


def test_an_integer_over_4300_digits_is_unheld() -> None:
    with pytest.raises(UnheldValueError):
        loads("7" * 4301)


@pytest.mark.parametrize("text", ["1e400", "-1e400", '{"a":[1e999]}', "1E+400"])
def test_numbers_beyond_a_double_are_unheld_not_infinite(text: str) -> None:
    with pytest.raises(UnheldValueError):
        loads(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '{"a":NaN}'])
def test_nan_and_infinity_are_no_json(text: str) -> None:
    with pytest.raises(JSONValueError) as caught:
        loads(text)
    assert not isinstance(caught.value, UnheldValueError)


@pytest.mark.parametrize("text", ["", " ", "{", '{"a":1}{"b":2}', "[1,]", "{'a':1}", '"abc', "01", "\ufeff1", '"a\nb"'])
def test_broken_json_is_refused(text: str) -> None:
    with pytest.raises(JSONValueError) as caught:
        loads(text)
    assert not isinstance(caught.value, UnheldValueError)
    with pytest.raises(JSONValueError):
        loads(text.encode())


def test_a_small_float_keeps_its_value() -> None:
    assert loads("1e-07") == 1e-07
    assert json.loads(dumps(loads("1e-07"))) == 1e-07


# -- surrogates --------------------------------------------------------------------------------------


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert loads(rb'{"a":"x\ud83dy"}') == {"a": "x\ufffdy"}
    assert loads(rb'{"k\udc00":[["\ud800"]]}') == {"k\ufffd": [["\ufffd"]]}


def test_a_lone_surrogate_is_kept_on_request() -> None:
    assert loads(rb'{"a":"x\ud83d"}', keep_surrogates=True) == {"a": "x\ud83d"}


def test_pairs_are_joined_also_beside_a_lone_one() -> None:
    assert loads(rb'["\ud83d\ude00","\ud83d"]') == ["\U0001f600", "\ufffd"]


def test_invalid_utf8_becomes_replacement_characters() -> None:
    assert loads(b'{"a":"x\xff\xfey"}') == {"a": "x\ufffd\ufffdy"}
    assert loads(b'{"\xe2\x82":1}') == {"\ufffd": 1}


@given(TEXT)
def test_scrub_text_leaves_no_surrogate_and_the_rest_alone(text: str) -> None:
    # The UTF-16 codec pairs halves and replaces what stays alone: an oracle outside of our code.
    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert scrub_text(text) == expected
    assert not has_surrogates(scrub_text(text))
    assert has_surrogates(text) == any("\ud800" <= c <= "\udfff" for c in text)


@given(VALUES)
def test_scrub_changes_only_what_it_must(value: Any) -> None:
    before = json.dumps(value)
    clean = scrub(value)
    clean_text = json.dumps(clean, ensure_ascii=False)
    clean_text.encode()
    assert json.dumps(value) == before, "the argument was changed"
    if not has_surrogates(json.dumps(value, ensure_ascii=False)):
        assert clean is value


def test_scrub_gives_back_the_same_object_where_there_is_nothing_to_do() -> None:
    value = {"a": [1, {"b": "text"}], "c": (1, 2)}
    assert scrub(value) is value
    dirty = {"a": [1, "x"], "b": "\ud800"}
    assert scrub(dirty)["a"] is dirty["a"]


def test_keys_with_surrogates_are_written() -> None:
    assert dumps({"a\ud800": 1}) == '{"a\ufffd":1}'.encode()


def test_non_ascii_is_written_as_it_is_and_compact() -> None:
    assert dumps({"a": ["ä", "😀"], "b": None}) == '{"a":["ä","😀"],"b":null}'.encode()
    # also by the fallbacks: a big integer, a lone surrogate
    assert dumps({"a": "ä", "n": 2**70}) == f'{{"a":"ä","n":{2**70}}}'.encode()
    assert dumps({"a": "ä", "n": 2**70, "s": "\udfff"}) == f'{{"a":"ä","n":{2**70},"s":"\ufffd"}}'.encode()


def test_control_characters_survive_the_slow_way() -> None:
    value = {"a": '\x00\x1f\n"\\\u2028', "s": "\ud800"}
    assert json.loads(dumps(value)) == {"a": '\x00\x1f\n"\\\u2028', "s": "\ufffd"}


@pytest.mark.parametrize("more", [{}, {"n": 2**70}, {"s": "\ud800"}])
def test_non_finite_numbers_are_written_as_null_by_every_encoder(more: dict[str, Any]) -> None:
    assert json.loads(dumps({"a": math.nan, "b": [math.inf, -math.inf], **more}))["b"] == [None, None]


@pytest.mark.parametrize("value", [object(), {"a": [object()]}, ["\ud800", object()], {"s": "\ud800", "x": object()}])
def test_what_is_no_json_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps(value)


# -- depth -------------------------------------------------------------------------------------------


def test_the_depth_limit_is_200_levels() -> None:
    assert MAX_DEPTH == 200
    assert loads(nested_text(200)) == json.loads(nested_text(200))
    with pytest.raises(UnheldValueError):
        loads(nested_text(201))
    with pytest.raises(UnheldValueError):
        loads(nested_text(201).encode())


def test_a_record_may_nest_deeper_than_the_values_in_it() -> None:
    assert MAX_RECORD_DEPTH > MAX_DEPTH + 10
    assert MAX_RECORD_DEPTH <= 254, "orjson writes no more"
    loads(nested_text(MAX_RECORD_DEPTH), max_depth=MAX_RECORD_DEPTH)
    with pytest.raises(UnheldValueError):
        loads(nested_text(MAX_RECORD_DEPTH + 1), max_depth=MAX_RECORD_DEPTH)


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_what_would_take_the_stack_is_refused_at_once(depth: int) -> None:
    with pytest.raises(UnheldValueError):
        loads(nested_text(depth))


def test_brackets_in_strings_do_not_nest() -> None:
    text = json.dumps({"a": "[" * 500 + '\\"{' * 500, "b": [1]})
    assert loads(text) == json.loads(text)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    text = "[" + ",".join(["[{}]"] * 1_000) + "]"
    assert loads(text) == json.loads(text)


def test_brackets_in_a_string_that_never_ends_are_broken_not_deep() -> None:
    with pytest.raises(JSONValueError) as caught:
        loads('{"a":"' + "[" * 500)
    assert not isinstance(caught.value, UnheldValueError)


def test_the_depth_check_of_a_long_string_needs_no_memory_to_speak_of() -> None:
    # A repeat that can backtrack keeps a state per character: hundreds of megabytes here.
    text = b'{"a":"' + b"x\\n" * 500_000 + b'","b":[' + b",".join([b"[]"] * 300) + b"]}"
    loads(text)
    tracemalloc.start()
    try:
        loads(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(text)


@pytest.mark.parametrize("depth", [254, 255, 400, 5_000])
def test_any_depth_can_be_written(depth: int) -> None:
    text = "0"
    for level in range(depth):
        text = f"[{text}]" if level % 2 else f'{{"k":{text}}}'
    assert dumps(nested(depth)) == text.encode()


@pytest.mark.parametrize(
    ("value", "depth"), [(1, 0), ([], 1), ({}, 1), ([[]], 2), ({"a": [{}]}, 3), ([1, (2, [3])], 3)]
)
def test_depth_counts_containers(value: Any, depth: int) -> None:
    assert not depth_exceeds(value, depth)
    if depth:
        assert depth_exceeds(value, depth - 1)


def test_depth_is_counted_without_recursion() -> None:
    assert depth_exceeds(nested(50_000), 49_999)
    assert not depth_exceeds(nested(50_000), 50_000)
