"""What the Messages API accepts: an oracle for requests, independent of the library's normalizer.

Written from public documentation, the parameter types of the public SDK, public error reports and a set of
recorded requests (requests/README.md beside the recordings); nothing of ``turnstream.operators.normalize`` was
read for it. ``check_request`` judges a whole body, ``check_messages`` only its messages (a normalizer's output).

It is as strict as the evidence allows: a rule somebody reported holds unless a recorded HTTP 200 breaks it, see
``request_rules.rules`` for each rule's grounds. What needs state a body doesn't hold (is this signature ours,
was this thinking changed, does this URL exist) is not judged.

    >>> from request_rules import check_messages
    >>> check_messages([{"role": "user", "content": "hi"}])
    []
"""

from __future__ import annotations

from request_rules.check import check_messages, check_request
from request_rules.limits import Limits, limits_for
from request_rules.memo import Memo
from request_rules.models import Model, parse_model
from request_rules.rules import RULES, Rule, Violation

__all__ = [
    "RULES",
    "Limits",
    "Memo",
    "Model",
    "Rule",
    "Violation",
    "check_messages",
    "check_request",
    "limits_for",
    "parse_model",
]
