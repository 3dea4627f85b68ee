"""What is tried again, after which waits, and the budget of a host (WIRE.md §7)."""

from __future__ import annotations

from typing import Any

import pytest

from turnstream.messages import ResponseFailed
from turnstream.operators.resilience import RetryBudget, RetryPolicy, host_budget, may_fall_back, may_pass
from turnstream.operators.resilience import budget as budget_module


def failed(outcome: str = "incomplete(0)", **error: Any) -> ResponseFailed:
    return ResponseFailed(error={"type": "t", "message": "m", **error}, outcome=outcome)


def test_the_waits_double_from_half_a_second_to_32() -> None:
    policy = RetryPolicy()
    assert [policy.delay(n, 0.5) for n in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 32, 32, 32]
    assert policy.tries == 10
    assert policy.delay(10_000, 0.5) == 32


def test_fault_94_the_jitter_is_a_quarter_both_ways() -> None:
    policy = RetryPolicy()
    assert (policy.delay(4, 0.0), policy.delay(4, 1.0)) == (3.0, 5.0)
    assert RetryPolicy(jitter=0).delay(4, 0.9) == 4.0


def test_fault_94_retry_after_is_kept_to_up_to_the_cap_and_never_shortened() -> None:
    policy = RetryPolicy()
    assert policy.delay(1, 0.5, 90) == 90
    assert policy.delay(1, 0.0, 90) == 90
    assert policy.delay(1, 1.0, 90) == 112.5
    assert policy.delay(1, 0.5, 3600) == 120
    assert policy.delay(9, 0.5, 1) == 1
    # nonsense is none
    for value in (0.0, -3.0, float("nan"), float("inf")):
        assert policy.delay(1, 0.5, value) == 0.5


@pytest.mark.parametrize(
    "fields",
    [
        {"tries": 0},
        {"jitter": 1},
        {"jitter": -0.1},
        {"initial": -1},
        {"longest": float("inf")},
        {"total": float("nan")},
    ],
)
def test_numbers_that_make_no_sense(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|at least|share"):
        RetryPolicy(**fields)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_statuses_that_may_pass(status: int) -> None:
    assert may_pass(failed(status=status, retryable=False))
    assert may_fall_back(failed(status=status))


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_fault_95_what_is_refused_is_never_tried_again(status: int) -> None:
    # whatever the body says: a gateway may call a 400 overloaded
    refused = failed(f"api_error({status})", status=status, type="overloaded_error", retryable=True)
    assert not may_pass(refused)
    assert not may_fall_back(refused)


def test_without_a_status_the_error_says() -> None:
    assert may_pass(failed(retryable=True))
    # the error came in a stream, so the status is 200
    assert may_pass(failed("api_error(overloaded_error)", status=200, retryable=True))
    assert not may_pass(failed(status=200, retryable=False))
    assert not may_pass(failed(retryable="yes"))
    assert not may_pass(failed(status=True))


def test_what_may_fall_back_beside_what_may_pass() -> None:
    assert may_fall_back(failed("not_a_stream", retryable=False))
    assert may_fall_back(failed("protocol_error(x)", retryable=False))
    assert not may_fall_back(failed("api_error(invalid_request_error)", retryable=False))
    assert not may_fall_back(failed("incomplete(1)", type="transport_error", retryable=False))


def test_a_budget_is_spent_and_comes_back() -> None:
    budget = RetryBudget(2, per_answer=1, per_second=0.1)
    assert [budget.take(0.0) for _ in range(3)] == [True, True, False]
    assert budget.refused == 1
    assert budget.take(9.0) is False
    assert budget.take(10.0) is True
    budget.answered(10.0)
    assert budget.tokens == 1
    for _ in range(5):
        budget.answered(10.0)
    assert budget.tokens == 2


def test_a_clock_that_goes_back_gives_nothing() -> None:
    budget = RetryBudget(1, per_second=1)
    assert budget.take(1000.0)
    assert not budget.take(5.0)
    assert budget.take(6.0)


def test_a_host_has_one_budget_whatever_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "_budgets", type(budget_module._budgets)())
    first = host_budget("https://user:secret@API.example/v1")
    assert host_budget("https://api.example/v2/other") is first
    assert host_budget("https://api.example:8443") is not first
    assert "secret" not in str(list(budget_module._budgets))
    for number in range(1000):
        host_budget(f"http://host-{number}")
    assert len(budget_module._budgets) == 1000
    assert host_budget("https://api.example") is not first
