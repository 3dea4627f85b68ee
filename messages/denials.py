"""What the model reads when a tool call wasn't allowed: four wordings (WIRE.md §2, denials)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from turnstream.messages import texts

if TYPE_CHECKING:
    from typing import assert_never

__all__ = ["DenialKind", "denial_text"]

DenialKind = Literal["cancelled", "refused", "subagent_refused", "classifier_refused"]
"""Cancelled for now; the user refused; a sub-agent was refused; an automatic classifier refused."""

_REFUSED_WHY = "The user declined this tool call, so it did not run, and says: "
_SUBAGENT = "This tool call of a sub-agent was not allowed, so it did not run. Try another way to the goal, or report"
_SUBAGENT += " what is missing and why it is needed."
_CLASSIFIER = "An automatic check did not allow this tool call, so it did not run."
_CLASSIFIER_NEXT = (
    "Go on with work that does not depend on it. Other tools that are a natural way to the goal are fine; "
    "getting the refused effect by a detour is not. If nothing else is left, stop and say what you needed it for."
)


def denial_text(kind: DenialKind, *, reason: str | None = None, hint: str | None = None) -> str:
    """The text of a denied tool call's result.

    Args:
        kind: who denied it.
        reason: why; a user's own words, or the classifier's. ``cancelled`` has none.
        hint: which rule a human could add so that it is allowed; only a classifier's denial names one.

    Returns:
        A text that names the reason wherever there is one.
    """
    reason = (reason or "").strip()
    hint = (hint or "").strip()
    if kind == "cancelled":
        return texts.CANCELLED
    if kind == "refused":
        return _REFUSED_WHY + reason if reason else texts.REJECTED
    if kind == "subagent_refused":
        return f"{_SUBAGENT} Reason: {reason}" if reason else _SUBAGENT
    if kind == "classifier_refused":
        why = f" Reason: {reason}" if reason else ""
        rule = f" Rule that would allow it: {hint}" if hint else ""
        return f"{_CLASSIFIER}{why}\n{_CLASSIFIER_NEXT}{rule}"
    if TYPE_CHECKING:
        assert_never(kind)
    raise ValueError(f"unknown kind of denial: {kind!r}")
