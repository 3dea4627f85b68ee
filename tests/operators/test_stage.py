"""Stages, chains and operators: what is lifted, fused, delivered before a fault (DESIGN.md §3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import reactivex
from reactivex import operators as ops
from reactivex.subject import Subject

from turnstream.messages import EventError, TurnstreamError
from turnstream.operators import Batch, Fault, Operator, StreamKey, each, lift, run_batches, run_stages
from turnstream.testing import record_observable


class Step:
    """A stage that marks what passes, and can hold, fault, crash at a chosen item or end."""

    def __init__(
        self,
        mark: str,
        *,
        hold: bool = False,
        fault_on: Any = None,
        crash_on: Any = None,
        at_flush: str = "",
        at_fail: str = "",
        log: list[str] | None = None,
    ) -> None:
        self.mark = mark
        self.hold = hold
        self.fault_on = fault_on
        self.crash_on = crash_on
        self.at_flush = at_flush
        self.at_fail = at_fail
        self.held: list[Any] = []
        self.log = log if log is not None else []
        self.over = False

    def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
        assert not self.over, f"{self.mark} was fed after its end"
        out: list[Any] = []
        for item in batch:
            if self.crash_on is not None and self.crash_on in str(item):
                self.over = True
                raise RuntimeError(f"{self.mark} crashed")
            if self.fault_on is not None and self.fault_on in str(item):
                self.over = True
                return [*out, Fault(EventError(f"{self.mark} faulted"))]
            (self.held if self.hold else out).append(f"{item}{self.mark}")
        return out

    def flush(self) -> Sequence[Any]:
        return self._end("flush", self.at_flush)

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return self._end("fail", self.at_fail)

    def _end(self, what: str, how: str) -> Sequence[Any]:
        assert not self.over, f"{self.mark} ended twice"
        self.over = True
        self.log.append(f"{self.mark}.{what}")
        held = [f"{item}!" for item in self.held]
        if how == "crash":
            raise RuntimeError(f"{self.mark} crashed in {what}")
        if how == "fault":
            return [*held, Fault(EventError(f"{self.mark} faulted in {what}"))]
        return held


def step(mark: str, **options: Any) -> Operator[Any, Any]:
    return lift(lambda: Step(mark, **options), mark)


def joined(*operators: Operator[Any, Any]) -> Operator[Any, Any]:
    whole = operators[0]
    for operator in operators[1:]:
        whole = whole | operator
    return whole


def piped(*operators: Operator[Any, Any]) -> Callable[[Any], Any]:
    """The same stages, an Rx hop each."""
    return lambda source: source.pipe(*operators)


Outcome = tuple[list[Any], str | None]


def by_batches(batches: list[Any], error: Exception | None, *operators: Operator[Any, Any]) -> Outcome:
    out: list[Any] = []
    try:
        for batch in run_batches(batches, joined(*operators), error=error):
            out.extend(batch)
    except Exception as raised:  # noqa: BLE001 - that is what is compared
        return out, str(raised)
    return out, str(error) if error is not None else None


def by_rx(batches: list[Any], error: Exception | None, function: Callable[[Any], Any]) -> Outcome:
    source = reactivex.from_iterable(batches)
    if error is not None:
        source = reactivex.concat(source, reactivex.throw(error))
    seen = record_observable(function(source))
    assert seen.completed is (seen.error is None)
    return seen.items, None if seen.error is None else str(seen.error)


BROKE = TurnstreamError("the source broke")
CASES: dict[str, tuple[list[Operator[Any, Any]], Exception | None, Outcome]] = {
    "plain": ([step("a"), step("b")], None, (["1ab", "2ab", "3ab", "4ab"], None)),
    "held to the flush": ([step("a", hold=True), step("b")], None, (["1a!b", "2a!b", "3a!b", "4a!b"], None)),
    "each flush goes through the later stages": (
        [step("a", hold=True), step("b", hold=True), step("c")],
        None,
        (["1a!b!c", "2a!b!c", "3a!b!c", "4a!b!c"], None),
    ),
    "the source breaks": (
        [step("a", hold=True), step("b")],
        BROKE,
        (["1a!b", "2a!b", "3a!b", "4a!b"], "the source broke"),
    ),
    "fault in the first": ([step("a", fault_on="3"), step("b")], None, (["1ab", "2ab"], "a faulted")),
    "fault in the last": ([step("a"), step("b", fault_on="2")], None, (["1ab"], "b faulted")),
    "fault: later stages give out what they hold": (
        [step("a", fault_on="3"), step("b", hold=True), step("c")],
        None,
        (["1ab!c", "2ab!c"], "a faulted"),
    ),
    "fault: earlier stages keep what they hold": (
        [step("a", hold=True), step("b"), step("c", fault_on="1")],
        None,
        ([], "c faulted"),
    ),
    "two faults: the first one counts": (
        [step("a", fault_on="2"), step("b", hold=True, at_fail="fault")],
        None,
        (["1ab!"], "a faulted"),
    ),
    "fault, then a fault of the next stage in what came before it": (
        [step("a", fault_on="3"), step("b", fault_on="2"), step("c")],
        None,
        (["1abc"], "b faulted"),
    ),
    "crash in feed": (
        [step("a"), step("b", crash_on="3"), step("c", hold=True)],
        None,
        (["1abc!", "2abc!"], "b crashed"),
    ),
    "crash in flush": (
        [step("a", hold=True), step("b", at_flush="crash"), step("c", hold=True)],
        None,
        (["1a!bc!", "2a!bc!", "3a!bc!", "4a!bc!"], "b crashed in flush"),
    ),
    "fault in flush": (
        [step("a", hold=True, at_flush="fault"), step("b", hold=True)],
        None,
        (["1a!b!", "2a!b!", "3a!b!", "4a!b!"], "a faulted in flush"),
    ),
    "the source breaks, and what was held makes the next stage fault": (
        [step("a", hold=True), step("b", fault_on="2a!"), step("c")],
        BROKE,
        (["1a!bc"], "b faulted"),
    ),
    "the source breaks, and stages fault in their fail": (
        [step("a", hold=True, at_fail="fault"), step("b", hold=True, at_fail="fault")],
        BROKE,
        (["1a!b!", "2a!b!", "3a!b!", "4a!b!"], "the source broke"),
    ),
    "a stage that crashes on what is flushed into it": (
        [step("a", hold=True), step("b", crash_on="1a!"), step("c", hold=True)],
        None,
        ([], "b crashed"),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", ["batches", "fused", "hops"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_same_comes_out_fused_unfused_and_without_rx(name: str, how: str, size: int) -> None:
    operators, error, expected = CASES[name]
    items = ["1", "2", "3", "4"]
    batches = [Batch(items[at : at + size]) for at in range(0, 4, size)]
    if name.startswith("crash in feed") and size != 1:
        expected = ([], expected[1]) if size == 4 else expected  # a crash takes its whole batch along
    if how == "batches":
        got = by_batches(batches, error, *operators)
    elif how == "fused":
        got = by_rx(batches, error, joined(*operators))
    else:
        got = by_rx(batches, error, piped(*operators))
    assert got == expected


def test_a_crash_in_fail_does_not_hide_the_sources_error() -> None:
    operators = [step("a", hold=True), step("b", at_fail="crash"), step("c", hold=True)]
    for function in (joined(*operators), piped(*operators)):
        items, error = by_rx([["1"]], BROKE, function)
        assert items == ["1a!bc!"]
        assert error == "the source broke"


def test_ends_go_from_the_first_stage_to_the_last_once() -> None:
    log: list[str] = []
    operator = joined(*(step(mark, log=log) for mark in "abc"))
    list(run_batches([["1"]], operator))
    list(run_batches([["1"]], operator, error=BROKE))
    assert log == ["a.flush", "b.flush", "c.flush", "a.fail", "b.fail", "c.fail"]


def test_after_a_fault_nothing_more() -> None:
    source: Subject[Any] = Subject()
    seen = record_observable(step("a", fault_on="2")(source))
    source.on_next(Batch(["1", "2", "3"]))
    source.on_next(Batch(["4"]))
    source.on_completed()
    assert seen.items == ["1a"]
    assert str(seen.error) == "a faulted"
    assert not seen.completed
    assert not source.observers, "the source is still subscribed"


def test_the_exception_is_delivered_as_the_object_it_is() -> None:
    error = EventError("this one")

    class Stage:
        def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
            return [Fault(error)]

        def flush(self) -> Sequence[Any]:
            return ()

        def fail(self, error: Exception, /) -> Sequence[Any]:
            return ()

    assert record_observable(lift(Stage)(reactivex.of(Batch([1])))).error is error
    assert record_observable(lift(Stage)(reactivex.throw(BROKE))).error is BROKE


def test_base_exceptions_are_not_swallowed() -> None:
    class Stop(BaseException):
        pass

    class Stage(Step):
        def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
            raise Stop

    with pytest.raises(Stop):
        list(run_batches([[1]], lift(lambda: Stage("a"))))


# -- batches -----------------------------------------------------------------------------------------

KEY = StreamKey("session", "toolu")


def test_a_batch_keeps_its_time_key_and_weight() -> None:
    seen = record_observable(step("a")(reactivex.of(Batch(["1", "2"], 1.5, KEY, 20), Batch(["3"], 2.5, KEY, 7))))
    assert seen.batches == [Batch(["1a", "2a"], 1.5, KEY, 20), Batch(["3a"], 2.5, KEY, 7)]


def test_plain_lists_become_batches_without_a_time() -> None:
    seen = record_observable(step("a")(reactivex.of(["1"], ("2",))))
    assert seen.batches == [Batch(["1a"]), Batch(["2a"])]


class Pairs:
    """Emits an item for every second one."""

    def __init__(self) -> None:
        self.first: Any = None

    def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
        out = []
        for item in batch:
            if self.first is None:
                self.first = item
            else:
                out.append(self.first + item)
                self.first = None
        return out

    def flush(self) -> Sequence[Any]:
        return [self.first] if self.first is not None else ()

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return ()


def test_a_batch_that_causes_nothing_is_not_passed_on_but_its_bytes_count() -> None:
    source = reactivex.of(*(Batch([n], float(n), KEY, 10 * n) for n in (1, 2, 3)))
    seen = record_observable(lift(Pairs)(source))
    assert seen.batches == [Batch([3], 2.0, KEY, 30), Batch([3], None, KEY, 30)]


def test_bytes_that_never_caused_anything_leave_with_an_empty_batch() -> None:
    seen = record_observable(lift(lambda: Step("a", fault_on="x", hold=False))(reactivex.of(Batch([], 1.0, KEY, 5))))
    assert seen.batches == [Batch((), None, KEY, 5)] or seen.batches == [Batch([], None, KEY, 5)]
    assert seen.completed


def test_the_flush_has_the_last_batchs_key_even_if_nothing_left_before() -> None:
    seen = record_observable(step("a", hold=True)(reactivex.of(Batch(["1"], 1.0, KEY, 4))))
    assert seen.batches == [Batch(["1a!"], None, KEY, 4)]
    source = reactivex.concat(reactivex.of(Batch(["1"], 1.0, KEY, 4)), reactivex.throw(BROKE))
    assert record_observable(step("a", hold=True)(source)).batches == [Batch(["1a!"], None, KEY, 4)]


def test_the_weights_sum_up_whatever_the_chunking() -> None:
    for sizes in ([1] * 6, [2, 2, 2], [6], [5, 1]):
        batches, at = [], 0
        for size in sizes:
            batches.append(Batch(list(range(at, at + size)), None, None, size))
            at += size
        seen = record_observable(lift(Pairs)(reactivex.from_iterable(batches)))
        assert sum(batch.weight for batch in seen.batches) == 6


def test_a_batch_is_an_immutable_sequence() -> None:
    batch = Batch([1, 2, 3], 1.0, KEY, 9)
    assert isinstance(batch, Sequence)
    assert list(batch) == [1, 2, 3]
    assert (len(batch), batch[0], batch[-1], batch[1:]) == (3, 1, 3, [2, 3])
    assert 2 in batch
    assert list(reversed(batch)) == [3, 2, 1]
    assert (batch.index(2), batch.index(3, 1), batch.count(1)) == (1, 2, 1)
    assert not Batch(())
    assert Batch([1]) == Batch([1], None, None, 0)
    assert Batch([1]) != Batch([1], 1.0)
    assert Batch[int] is Batch
    with pytest.raises(AttributeError):
        batch.items = []  # type: ignore[misc]
    match batch:
        case [first, *rest]:
            assert (first, rest) == (1, [2, 3])
        case _:
            raise AssertionError("a batch doesn't match as a sequence")


# -- operators ---------------------------------------------------------------------------------------


def test_neighbours_made_of_stages_fuse() -> None:
    a, b = step("a"), step("b")
    assert (a | b).fused
    assert repr(a | b) == "<Operator a | b>"
    assert not (a | each(ops.map(str))).fused


def counting(function: Callable[[Any], Any]) -> tuple[list[Any], int]:
    """What comes out, and how many subscriptions (Rx hops) it took."""
    hops = 0
    inner = reactivex.Observable.subscribe

    def subscribe(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal hops
        hops += 1
        return inner(self, *args, **kwargs)

    observable = function(reactivex.of(Batch(["1", "2"])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reactivex.Observable, "subscribe", subscribe)
        seen = record_observable(observable)
    return seen.items, hops


def test_fusion_saves_hops_however_the_pipe_is_bracketed() -> None:
    def same() -> Operator[Any, Any]:
        return each(ops.map(lambda item: item))

    a, b, c, d = (step(mark) for mark in "abcd")
    left = (((a | b) | same()) | c) | d
    right = a | (b | (same() | (c | d)))
    middle = (a | b) | (same() | c) | d
    counts = set()
    for operator in (left, right, middle):
        items, hops = counting(operator)
        assert items == ["1abcd", "2abcd"]
        counts.add(hops)
    assert len(counts) == 1
    # two fused chains instead of four operators
    assert counting(piped(a, b, same(), c, d))[1] == counts.pop() + 2


def test_an_operator_works_in_pipe_and_beside_rx_operators() -> None:
    seen = record_observable(reactivex.of(["1"]).pipe(step("a"), ops.map(list), step("b") | step("c")))
    assert seen.items == ["1abc"]


def test_an_operator_that_is_not_made_of_stages_cannot_run_without_rx() -> None:
    with pytest.raises(TypeError, match="subscribe"):
        each(ops.map(str)).chain()
    with pytest.raises(TypeError):
        (step("a") | each(ops.map(str))).chain()


def test_every_subscription_has_stages_of_its_own() -> None:
    observable = lift(Pairs)(reactivex.of([1], [2], [3]))
    assert record_observable(observable).items == [3, 3]
    assert record_observable(observable).items == [3, 3]
    one: Subject[Any] = Subject()
    two: Subject[Any] = Subject()
    operator = lift(Pairs)
    first, second = record_observable(operator(one)), record_observable(operator(two))
    one.on_next([1])
    two.on_next([10])
    one.on_next([2])
    two.on_next([20])
    assert (first.items, second.items) == ([3], [30])


def test_nothing_is_made_or_subscribed_before_a_subscription() -> None:
    made: list[int] = []

    def make() -> Step:
        made.append(1)
        return Step("a")

    observable = lift(make)(reactivex.of(["1"]))
    assert made == []
    record_observable(observable)
    assert made == [1]


def test_disposing_disposes_the_source_and_delivers_nothing_more() -> None:
    source: Subject[Any] = Subject()
    seen = record_observable((step("a") | step("b", hold=True))(source))
    source.on_next(["1"])
    seen.subscription.dispose()
    source.on_next(["2"])
    source.on_completed()
    assert seen.items == []
    assert not seen.completed
    assert not source.observers


def test_the_scheduler_is_handed_on_to_the_source() -> None:
    given: list[Any] = []

    def subscribe(observer: Any, scheduler: Any = None) -> Any:
        given.append(scheduler)

    marker: Any = object()
    (step("a") | each(ops.map(str)) | step("b"))(reactivex.Observable(subscribe)).subscribe(scheduler=marker)
    assert given == [marker]


def test_lift_names_the_operator() -> None:
    assert lift(Pairs).name == "Pairs"
    assert lift(Pairs, "pairs").name == "pairs"
    assert isinstance(lift(lambda: Step("a")).name, str)


# -- run_stages --------------------------------------------------------------------------------------


def test_run_stages_is_one_batch_and_the_flush() -> None:
    assert run_stages(iter(["1", "2"]), step("a"), step("b", hold=True)) == ["1ab!", "2ab!"]
    assert run_stages([], step("a")) == []


def test_run_stages_raises_the_fault_with_what_came_before_it() -> None:
    with pytest.raises(EventError, match="a faulted") as caught:
        run_stages(["1", "2", "3"], step("a", fault_on="3"), step("b"))
    assert caught.value.kept == ["1ab", "2ab"]


def test_run_stages_raises_a_crash_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="a crashed"):
        run_stages(["1"], step("a", crash_on="1"))


def test_run_batches_is_lazy() -> None:
    pulled: list[int] = []

    def batches() -> Any:
        for number in range(3):
            pulled.append(number)
            yield [str(number)]

    running = run_batches(batches(), step("a"))
    assert pulled == []
    assert next(running) == ["0a"]
    assert pulled == [0]
    assert [list(batch) for batch in running] == [["1a"], ["2a"]]


def test_run_batches_yields_what_came_before_the_fault_first() -> None:
    running = run_batches([["1", "2"]], step("a", fault_on="2"))
    assert next(running) == ["1a"]
    with pytest.raises(EventError):
        next(running)


def test_the_given_error_is_not_raised_but_a_fault_in_what_was_held_is() -> None:
    assert list(run_batches([["1"]], step("a", hold=True), error=BROKE)) == [["1a!"]]
    assert list(run_batches([["1"]], step("a", hold=True, at_fail="fault"), error=BROKE)) == [["1a!"]]
    with pytest.raises(EventError, match="b faulted"):
        list(run_batches([["1"]], step("a", hold=True) | step("b", fault_on="1a!"), error=BROKE))
