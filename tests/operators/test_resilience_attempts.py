"""The attempts of one request, without I/O (WIRE.md §1, §7; FAULTS.md 16, 89-95, 97-99)."""

from __future__ import annotations

from typing import Any

import accumulating as acc
import pytest
from frames import STOP, args, calls, closes, fails, opens_thinking, opens_tool, says, signs, start, text, thinks, turn
from frames import opens_text as opens

from turnstream.messages import (
    AbortedError,
    APIError,
    AssistantMessage,
    ErrorEvent,
    IncompleteStreamError,
    MessageStart,
    MessageStop,
    RequestStart,
    ResponseFailed,
    StreamNote,
    SystemMessage,
    Tombstone,
    TransportError,
    UserMessage,
    seeded_clock,
    seeded_ids,
)
from turnstream.operators import as_exception
from turnstream.operators.resilience import Attempts, Decision, RetryBudget, RetryPolicy, Switch

GOOD = [start("good"), *says("hi"), turn(), STOP]
SIGNED = [opens_thinking(0), thinks(0, "hm"), signs(0, "sig"), closes(0)]
UNSIGNED = [opens_thinking(1), thinks(1, "er"), closes(1)]


def made(**options: Any) -> Attempts:
    return Attempts(**{"ids": seeded_ids(3), "clock": seeded_clock(), "chance": lambda: 0.5, **options})


def attempt(attempts: Attempts, *parts: Any, error: Exception | None = None, now: float = 0.0, **more: Any) -> Any:
    """One attempt: what passed, and the decision."""
    began = attempts.begin()
    if more.pop("committed", False):
        began.committed = True
    passed: list[Any] = []
    for item in acc.run(*parts, error=error):
        # an item a batch: the meaning doesn't hang on batches
        passed += attempts.feed([item])
    return passed, attempts.ended(now, error=error, **more)


def whole(attempts: Attempts, *parts: Any, error: Exception | None = None) -> Any:
    attempts.begin()
    passed = list(attempts.feed(acc.run(*parts, error=error)))
    return passed, attempts.ended(0.0, error=error)


def taken_back(decision: Decision) -> list[Any]:
    return [item.message for item in decision.items if isinstance(item, Tombstone)]


def shown(items: Any) -> list[AssistantMessage]:
    return acc.of(items, AssistantMessage)


def test_a_good_answer_passes_as_it_is() -> None:
    items = acc.run(*GOOD)
    attempts = made()
    began = attempts.begin()
    assert began == RequestStart(attempt=1)
    assert attempts.feed(items) is items
    assert attempts.ended(0.0) == Decision("done")


def test_fault_89_a_connection_that_breaks_after_text_is_tried_again() -> None:
    attempts = made()
    error = TransportError("reset")
    passed, decision = attempt(attempts, start(), says("one"), opens(1), text(1, "tw"), error=error)
    assert (decision.action, decision.delay) == ("retry", 0.5)
    (message,) = shown(passed)
    assert taken_back(decision) == [message]
    waiting = decision.items[-1]
    assert isinstance(waiting, SystemMessage)
    assert (
        waiting.subtype,
        waiting.fields["retryInMs"],
        waiting.fields["retryAttempt"],
        waiting.fields["maxRetries"],
    ) == (
        "api_error",
        500.0,
        1,
        9,
    )
    assert waiting.fields["error"]["type"] == "transport_error"
    # neither the unfinished text nor the failure of a superseded attempt is told
    assert not acc.of([*passed, *decision.items], ResponseFailed)
    assert not any(m.is_aborted_mid_stream for m in shown([*passed, *decision.items]))
    assert attempts.begin() == RequestStart(attempt=2)


@pytest.mark.parametrize("run", [attempt, whole])
def test_what_is_not_tried_again_stays_as_accumulate_made_it(run: Any) -> None:
    parts = (start(), says("one"), opens(1), text(1, "tw"))
    passed, decision = run(made(retry=RetryPolicy(tries=1)), *parts)
    assert decision.action == "give_up"
    assert [*passed, *decision.items] == acc.run(*parts)
    assert decision.failed is not None
    assert decision.failed.outcome == "incomplete(1)"


def test_fault_90_thinking_alone_does_not_block_a_retry() -> None:
    passed, decision = attempt(made(), start(), SIGNED, fails("api_error"))
    assert decision.action == "retry"
    assert taken_back(decision) == shown(passed)
    assert len(shown(passed)) == 1


def test_fault_91_dying_inside_a_tool_input_is_bounded_and_never_blind() -> None:
    attempts = made(retry=RetryPolicy(tries=2))
    parts = (start(), opens_tool(0), args(0, '{"path": "a'))
    _, first = attempt(attempts, *parts)
    passed, second = attempt(attempts, *parts)
    assert (first.action, second.action) == ("retry", "give_up")
    # no half tool is ever emitted as one
    assert not any(
        block["type"] == "tool_use" for m in shown([*passed, *second.items]) for block in m.message["content"]
    )
    (partial,) = shown(second.items)
    assert partial.unfinished_tool_inputs == [{"index": 0, "id": "toolu_a", "name": "look", "raw": '{"path": "a'}]


def test_fault_91_a_tool_that_started_forbids_the_retry() -> None:
    calling = calls(2, '{"a":1}')
    passed, decision = attempt(
        made(), start(), SIGNED, UNSIGNED, calling, opens(3), text(3, "half"), error=TransportError("x"), committed=True
    )
    assert decision.action == "close"
    messages = shown(passed)
    assert len(messages) == 3
    # closed at its last finished block, without the thinking that nobody can send back
    assert taken_back(decision) == [messages[1]]
    assert not shown(decision.items)
    failed = decision.items[-1]
    assert isinstance(failed, ResponseFailed)
    assert [block["type"] for block in failed.kept] == ["thinking", "tool_use"]
    assert failed.outcome == "incomplete(3)"


def test_fault_91_a_tool_that_did_not_start_is_taken_back_and_asked_for_again() -> None:
    attempts = made()
    # what was started belongs to its attempt
    assert attempt(attempts, start(), calls(0, "{}"))[1].action == "retry"
    passed, decision = attempt(attempts, start(), calls(0, "{}"), opens(1), text(1, "half"))
    assert decision.action == "retry"
    assert taken_back(decision) == shown(passed)
    assert attempt(attempts, start(), calls(0, "{}"), committed=True)[1].action == "close"


def test_fault_92_a_committed_attempt_does_not_fall_back() -> None:
    attempts = made(retry=RetryPolicy(tries=1), switches=[Switch(name="another model")])
    _, decision = attempt(attempts, start(), calls(0, "{}"), committed=True)
    assert decision.action == "close"


def test_fault_92_what_was_shown_is_taken_back_before_the_fallback() -> None:
    attempts = made(retry=RetryPolicy(tries=1), switches=[Switch(name="a request that doesn't stream")])
    passed, decision = attempt(attempts, start(), calls(0, "{}"))
    assert (decision.action, decision.switch, decision.delay) == ("fall_back", 0, 0.0)
    assert taken_back(decision) == shown(passed)
    told = decision.items[-1]
    assert isinstance(told, SystemMessage)
    assert (told.subtype, told.fields["fallback"]) == ("informational", "a request that doesn't stream")
    assert "a request that doesn't stream" in told.content
    # each switch once; its own failure stays
    assert attempts.begin() == RequestStart(attempt=2)
    assert attempt(attempts, start(), says("x"))[1].action == "give_up"


@pytest.mark.parametrize("before", [[], [start(), says("one"), says("two", 1)]])
def test_fault_93_overloaded_in_a_stream_is_tried_again(before: list[Any]) -> None:
    passed, decision = attempt(made(), before, fails("overloaded_error"))
    assert decision.action == "retry"
    assert decision.failed is not None
    assert decision.failed.outcome == "api_error(overloaded_error)"
    # the event itself passes: it came
    assert len(acc.of(passed, ErrorEvent)) == 1
    assert taken_back(decision) == shown(passed)


def test_fault_93_the_request_id_stays_with_the_error() -> None:
    error = APIError("busy", error_type="overloaded_error", status=529, request_id="req_7", retryable=True)
    _, decision = attempt(made(), error=error)
    assert decision.items[-1].fields["error"] == {
        "type": "overloaded_error",
        "message": "busy",
        "retryable": True,
        "status": 529,
        "requestId": "req_7",
    }


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        # documented for 429, 500, 504 and 529
        ("rate_limit_error", "retry"),
        ("api_error", "retry"),
        ("timeout_error", "retry"),
        ("overloaded_error", "retry"),
        # and for 400, 401, 402, 403, 404, 413
        ("invalid_request_error", "give_up"),
        ("authentication_error", "give_up"),
        ("billing_error", "give_up"),
        ("permission_error", "give_up"),
        ("not_found_error", "give_up"),
        ("request_too_large", "give_up"),
        ("who_knows", "give_up"),
    ],
)
def test_fault_93_the_type_says_what_it_is_and_whether_it_may_pass(kind: str, action: str) -> None:
    failing = {**fails(kind, "said"), "request_id": "req_8"}
    _, decision = attempt(made(), start(), says("one"), failing)
    assert decision.action == action
    assert decision.failed is not None
    assert decision.failed.error == {
        "type": kind,
        "message": "said",
        "retryable": action == "retry",
        "requestId": "req_8",
    }
    error = as_exception(decision.failed)
    assert isinstance(error, APIError)
    assert (error.error_type, error.request_id, error.retryable) == (kind, "req_8", action == "retry")


def busy() -> APIError:
    return APIError("busy", error_type="overloaded_error", status=529, retryable=True)


def test_fault_94_ten_tries_with_waits_that_double() -> None:
    attempts = made()
    now, waits = 0.0, []
    for _ in range(12):
        _, decision = attempt(attempts, error=busy(), now=now)
        if decision.action != "retry":
            break
        waits.append(decision.delay)
        now += decision.delay
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 32, 32]
    assert (attempts.number, decision.action) == (10, "give_up")


def test_fault_94_retry_after_and_a_budget_of_time() -> None:
    attempts = made(retry=RetryPolicy(total=200))
    now, waits = 1000.0, []
    while True:
        _, decision = attempt(attempts, error=busy(), now=now, retry_after=90)
        if decision.action != "retry":
            break
        waits.append(decision.delay)
        now += decision.delay
    # a third wait would end 270 s after the first failure
    assert waits == [90, 90]
    assert decision.action == "give_up"


@pytest.mark.parametrize(("chance", "waits"), [(0.0, [0.375, 0.75, 1.5]), (1.0, [0.625, 1.25, 2.5])])
def test_fault_94_the_waits_are_spread_by_a_quarter(chance: float, waits: list[float]) -> None:
    attempts = made(chance=lambda: chance)
    assert [attempt(attempts, error=busy())[1].delay for _ in waits] == waits


def test_a_long_answer_that_breaks_is_tried_again_all_the_same() -> None:
    # the time counts from the first failure, not from the request
    _, decision = attempt(made(), start(), says("x"), now=7200.0)
    assert decision.action == "retry"


def test_fault_95_a_refusal_is_told_at_once() -> None:
    attempts = made(switches=[Switch(name="another model")])
    error = APIError("no key", error_type="authentication_error", status=401, retryable=False)
    _, decision = attempt(attempts, error=error)
    assert decision.action == "give_up"
    (failed,) = decision.items
    assert failed.error["status"] == 401


def test_fault_97_a_clean_end_before_message_stop_is_a_failure() -> None:
    _, decision = attempt(made(), start(), says("all of it"))
    assert decision.action == "retry"
    assert decision.failed is not None
    assert decision.failed.outcome == "incomplete(1)"


def test_fault_98_an_abort_keeps_its_repairs_and_is_not_tried_again() -> None:
    attempts = made()
    parts = (start(), calls(0, "{}"), opens_tool(1, "toolu_b"), args(1, '{"a'))
    attempts.begin().committed = True
    passed = list(attempts.feed(acc.run(*parts, error=AbortedError("user"))))
    decision = attempts.ended(0.0, error=AbortedError("user"))
    assert decision.action == "give_up"
    assert [*passed, *decision.items] == acc.run(*parts, error=AbortedError("user"))
    assert len(acc.of(decision.items, UserMessage)) == 2


def test_fault_99_nothing_with_a_null_stop_reason_is_an_error_of_the_fallback() -> None:
    attempts = made(retry=RetryPolicy(tries=1), switches=[Switch(name="a request that doesn't stream")])
    attempt(attempts, error=busy())
    passed, decision = attempt(attempts, start("empty", content=[], stop_reason=None), STOP)
    assert decision.action == "give_up"
    assert decision.failed is not None
    assert decision.failed.outcome == "incomplete(0)"
    assert [type(item) for item in [*passed, *decision.items]] == [MessageStart, MessageStop, ResponseFailed]


def test_fault_16_an_attempt_inside_the_stream_is_taken_back_once() -> None:
    passed, decision = attempt(made(), start("a"), says("lost"), start("b"), says("kept"), fails())
    lost, kept = shown(passed)
    assert [item.message for item in acc.of(passed, Tombstone)] == [lost]
    assert taken_back(decision) == [kept]


def test_a_message_stop_that_ends_badly_is_held_with_its_failure() -> None:
    passed, decision = whole(made(), start(), says("x"), turn("tool_use"), STOP)
    assert decision.action == "retry"
    assert decision.failed is not None
    assert decision.failed.outcome == "protocol_error(tool_use_without_block)"
    assert not acc.of(passed, MessageStop)
    assert taken_back(decision) == shown(passed)


def test_what_breaks_after_the_end_is_no_failure() -> None:
    _, decision = attempt(made(), GOOD, error=TransportError("reset"))
    assert decision.action == "done"
    (note,) = decision.items
    assert isinstance(note, StreamNote)
    assert note.kind == "broke_after_end"
    _, decision = attempt(made(), GOOD[:-1], error=TransportError("reset"))
    assert decision.action == "done"


def test_a_further_answer_of_the_same_response_stands_for_itself() -> None:
    passed, decision = attempt(made(), GOOD, start("more"), says("x"))
    assert decision.action == "done"
    (failed,) = acc.of(passed, ResponseFailed)
    assert failed.outcome == "incomplete(1)"


def test_after_a_failure_nothing_more_passes() -> None:
    attempts = made()
    attempts.begin()
    attempts.feed(acc.run(start(), says("x"), fails()))
    assert attempts.over
    assert attempts.feed(acc.run(*GOOD)) == ()


def test_an_error_without_a_failure_item_counts_as_one() -> None:
    # strict stages end the stream instead of telling a failure
    attempts = made()
    attempts.begin()
    message = acc.messages(acc.run(*GOOD))[0]
    attempts.feed([message])
    decision = attempts.ended(0.0, error=IncompleteStreamError("cut"))
    assert decision.action == "retry"
    assert taken_back(decision) == [message]
    assert decision.failed is not None
    assert decision.failed.outcome == "incomplete(1)"


def test_the_hosts_budget_ends_the_tries() -> None:
    budget = RetryBudget(1, per_answer=1, per_second=0)
    first, second = made(budget=budget), made(budget=budget)
    assert attempt(first, error=busy())[1].action == "retry"
    assert attempt(second, error=busy())[1].action == "give_up"
    # a complete answer gives one back
    assert attempt(first, GOOD)[1].action == "done"
    assert attempt(made(budget=budget), error=busy())[1].action == "retry"


def test_a_switch_has_tries_of_its_own_and_those_that_do_not_suit_are_passed_over() -> None:
    never = Switch(name="never", suits=lambda failed: False)
    model = Switch(name="model b", retry=RetryPolicy(tries=2))
    attempts = made(retry=RetryPolicy(tries=2), switches=[never, model])
    actions = [attempt(attempts, error=busy())[1] for _ in range(4)]
    assert [decision.action for decision in actions] == ["retry", "fall_back", "retry", "give_up"]
    assert actions[1].switch == 1
    assert "failed 2 times" in actions[1].items[-1].content
    assert actions[2].items[-1].fields["retryAttempt"] == 1
    assert attempts.number == 4
