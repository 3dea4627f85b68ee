"""Ids and time: parameters, reproducible where asked for (WIRE.md §2)."""

from __future__ import annotations

import re
import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import (
    derive_uuid,
    format_timestamp,
    random_ids,
    seeded_clock,
    seeded_ids,
    stable_ids,
    system_clock,
)
from turnstream.messages.ids import NAMESPACE

PARENT = "01234567-89ab-4cde-8f01-23456789abcd"
PARTS = st.lists(st.text(max_size=4) | st.integers(0, 30), max_size=4)


def test_the_namespace_is_fixed() -> None:
    assert uuid.uuid5(uuid.NAMESPACE_DNS, "turnstream") == NAMESPACE


def test_random_ids_are_version_4_and_do_not_repeat() -> None:
    make = random_ids()
    made = [make("scope", number) for number in range(2_000)]
    assert len(set(made)) == 2_000
    for text in made:
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.version == 4
        assert parsed.variant == uuid.RFC_4122


def test_random_ids_use_all_their_bits() -> None:
    # 122 random bits: over 2,000 ids each of them is sometimes set and sometimes not.
    make = random_ids()
    numbers = [uuid.UUID(make()).int for _ in range(2_000)]
    ones = zeros = 0
    for number in numbers:
        ones |= number
        zeros |= ~number & ((1 << 128) - 1)
    assert (ones & zeros).bit_count() == 122


def test_two_sources_of_random_ids_differ() -> None:
    assert random_ids()() != random_ids()()


def test_seeded_ids_repeat_with_their_seed_and_ignore_the_scope() -> None:
    first, second, other = seeded_ids(7), seeded_ids(7), seeded_ids(8)
    made = [first("a"), first("b"), first()]
    assert made == [second(), second("x", 1), second("a")]
    assert made[0] != other()
    assert all(uuid.UUID(text).version == 4 for text in made)


def test_stable_ids_depend_on_base_and_scope_only() -> None:
    first, second = stable_ids("file.sse", 1), stable_ids("file.sse", 1)
    assert first("assistant", "msg", 0) == second("assistant", "msg", 0)
    second("something", "else")
    assert first("assistant", "msg", 1) == second("assistant", "msg", 1)
    assert stable_ids("other.sse", 1)("assistant", "msg", 0) != stable_ids("file.sse", 1)("assistant", "msg", 0)


def test_stable_ids_of_a_file_name_that_is_no_unicode() -> None:
    odd, other = stable_ids("a\udcff.sse"), stable_ids("a\udcfe.sse")
    assert odd("x") == stable_ids("a\udcff.sse")("x") != other("x")


def test_stable_ids_of_the_same_scope_do_not_repeat() -> None:
    make = stable_ids("f")
    made = [make("a") for _ in range(5)] + [make("a", n) for n in range(5)] + [make("a", n, 1) for n in range(5)]
    assert len(set(made)) == len(made)


@given(PARTS, PARTS, PARTS)
def test_different_scopes_never_share_a_stable_id(base: list[object], one: list[object], two: list[object]) -> None:
    make = stable_ids(*base)
    made = [make(*one), make(*one), make(*two), make(*two)]
    assert len(set(made)) == 4


def test_a_slash_in_a_scope_is_no_border() -> None:
    assert stable_ids()("a/b", "c") != stable_ids()("a", "b/c")
    assert stable_ids("a")("b") != stable_ids()("a", "b", "")


def test_the_seeded_clock_starts_and_steps() -> None:
    read = seeded_clock(100.0, 0.5)
    assert [read(), read(), read()] == [100.0, 100.5, 101.0]
    assert format_timestamp(seeded_clock()()) == "2025-06-15T15:06:40.000Z"


def test_the_system_clock_is_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 12.5)
    assert system_clock() == 12.5


@given(st.integers(0, 4_102_444_800_000))
def test_timestamps_have_exact_milliseconds(milliseconds: int) -> None:
    text = format_timestamp(milliseconds / 1000)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert datetime.fromisoformat(text) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (0.0004, "1970-01-01T00:00:00.000Z"),
        (0.9996, "1970-01-01T00:00:01.000Z"),
        (1_735_689_599.9999, "2025-01-01T00:00:00.000Z"),
        (1_709_164_800, "2024-02-29T00:00:00.000Z"),
    ],
)
def test_timestamps_round_over_every_border(seconds: float, text: str) -> None:
    assert format_timestamp(seconds) == text


def test_the_seeded_clock_gives_distinct_timestamps_in_order() -> None:
    read = seeded_clock()
    texts = [format_timestamp(read()) for _ in range(2_000)]
    assert texts == sorted(set(texts))


def test_derived_ids_keep_24_characters_and_write_the_index_in_hex() -> None:
    assert derive_uuid(PARENT, 0) == "01234567-89ab-4cde-8f01-000000000000"
    assert derive_uuid(PARENT, 255) == "01234567-89ab-4cde-8f01-0000000000ff"
    assert derive_uuid(PARENT, (1 << 48) - 1) == "01234567-89ab-4cde-8f01-ffffffffffff"


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "msg_01",
        "x" * 36,
        "zzzzzzzz-89ab-4cde-8f01-23456789abcd",
        PARENT + "0",
        f"{{{PARENT[1:-1]}}}",
        PARENT + "\n",
    ],
)
def test_a_parent_that_is_no_uuid_gives_a_uuid_all_the_same(parent: str) -> None:
    derived = derive_uuid(parent, 3)
    assert derived == str(uuid.uuid5(NAMESPACE, f"{parent}/3"))
    assert derived != derive_uuid(parent, 4)


def test_an_index_beyond_twelve_hex_digits_gives_a_uuid_all_the_same() -> None:
    assert derive_uuid(PARENT, 1 << 48) == str(uuid.uuid5(NAMESPACE, f"{PARENT}/{1 << 48}"))
    assert derive_uuid(PARENT, -1) == str(uuid.uuid5(NAMESPACE, f"{PARENT}/-1"))


def test_a_parent_with_a_lone_surrogate_derives_too() -> None:
    """An id read from a damaged file is a text like any other: the same split, the same id."""
    assert derive_uuid("\ud800", 1) == derive_uuid("\ud800", 1) != derive_uuid("\ud801", 1)
