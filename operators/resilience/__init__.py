"""What goes on when an answer fails: attempts, retries, fallbacks, watchdogs (WIRE.md §7).

The rules are in :class:`Attempts`, without I/O, clocks or Rx; ``turnstream.sources.resilient`` drives it by pulling,
:func:`retry_with_backoff` and :func:`fall_back` as Rx operators. docs/faults.md has the expected outcome of each fault.
"""

from turnstream.operators.resilience.abort import abort_on
from turnstream.operators.resilience.attempts import Attempts, Decision, Switch
from turnstream.operators.resilience.budget import RetryBudget, host_budget
from turnstream.operators.resilience.complete import require_complete
from turnstream.operators.resilience.fallback import fall_back
from turnstream.operators.resilience.policy import NO_RETRY, RetryPolicy, may_fall_back, may_pass
from turnstream.operators.resilience.retry import retry_with_backoff
from turnstream.operators.resilience.watchdog import PROGRESS_SECONDS, is_progress, watch_progress

__all__ = [
    "NO_RETRY",
    "PROGRESS_SECONDS",
    "Attempts",
    "Decision",
    "RetryBudget",
    "RetryPolicy",
    "Switch",
    "abort_on",
    "fall_back",
    "host_budget",
    "is_progress",
    "may_fall_back",
    "may_pass",
    "require_complete",
    "retry_with_backoff",
    "watch_progress",
]
