"""A contender: one way from bytes to content, and what it must have found there."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from turnstream.bench.workloads import Workload

__all__ = ["Contender", "Found", "Given", "Timed", "finish", "given"]


class Given(msgspec.Struct, frozen=True):
    """What every contender of one measurement gets.

    Attributes:
        chunks: all bytes, as they would arrive. Where answers go through fresh chains (workload C), no
            chunk holds bytes of two answers, for nobody.
        answers: the chunks of each answer on their own, for those who make a request per answer.
        fresh: each answer goes through a fresh chain of stages.
    """

    chunks: list[bytes]
    answers: list[list[bytes]]
    fresh: bool = False


class Found(msgspec.Struct, frozen=True):
    """What a contender found in the bytes; -1: it can't tell.

    Attributes:
        text_characters: of text and thinking.
        blocks: finished content blocks.
        tool_characters: of tool input, as compact as it came.
        events: events that reached the end.
    """

    text_characters: int = -1
    blocks: int = -1
    tool_characters: int = -1
    events: int = -1


class Timed(msgspec.Struct, frozen=True):
    """A result whose seconds were measured where it ran (another process)."""

    seconds: float
    found: Found


def _as_it_is(thing: Any) -> Any:
    return thing


class Contender(msgspec.Struct, frozen=True):
    """One way from bytes to content. Only ``run`` is timed.

    Attributes:
        name: what the table calls it.
        run: takes what ``prepare`` made; may be a coroutine function (then the event loop's start and
            end are timed with it); may return a :class:`Timed`.
        prepare: takes what is :class:`Given`, once per measurement.
        found: turns a result into :class:`Found`, after each run; not asked for a :class:`Timed`.
        slow: measured on a tenth of the workload, with the floor on the same (A in large chunks: on all of it).
    """

    name: str
    run: Callable[[Any], Any]
    prepare: Callable[[Given], Any] = _as_it_is
    found: Callable[[Any], Found] = _as_it_is
    slow: bool = False


def given(workload: Workload, size: int) -> Given:
    """The chunks of a workload for all contenders.

    Args:
        workload: what is measured.
        size: bytes a chunk; 0: one event a chunk.
    """
    answers = workload.answer_chunks(size)
    whole = [chunk for answer in answers for chunk in answer] if workload.fresh else workload.chunks(size)
    return Given(whole, answers, workload.fresh)


def finish(contender: Contender, prepared: Any) -> Any:
    """Run a contender to its end, whether it is a coroutine function or not."""
    result = contender.run(prepared)
    return asyncio.run(result) if inspect.iscoroutine(result) else result
