"""Thinking in a conversation: where it must stand, where it may not.

``mode`` is what the request says: "enabled" (manual), "adaptive" (also where newer models think unasked) or
"off". Recorded 200s free adaptive requests from the rules of order.
"""

from __future__ import annotations

from typing import Literal

from request_rules.rules import Violation
from request_rules.shapes import THINKING
from request_rules.turns import Turn

Mode = Literal["enabled", "adaptive", "off"]


def check_thinking(turns: list[Turn], mode: Mode, out: list[Violation]) -> None:
    """All rules of thinking that look beyond one block."""
    for turn in turns:
        if turn.role != "assistant" or not turn.blocks:
            continue
        entry, number, last = turn.blocks[-1]
        if last.type in THINKING:
            out.append(Violation("thinking-last", entry.path(number), "The final block cannot be `thinking`."))
        entry, number, first = turn.blocks[0]
        if (
            mode == "enabled"
            and first.type not in THINKING
            and any(facts.type in THINKING for _, _, facts in turn.blocks)
        ):
            out.append(Violation("thinking-not-first", entry.path(number), f"Found `{first.type}` first."))
    if mode == "enabled":
        _leads(turns, out)
    elif mode == "off":
        _none_at_the_end(turns, out)


def _leads(turns: list[Turn], out: list[Violation]) -> None:
    """The current tool loop, back to the last words of the user, begins with thinking; no prefill."""
    if not turns:
        return
    if turns[-1].role == "assistant" and turns[-1].blocks:
        entry, number, facts = turns[-1].blocks[0]
        if facts.type not in THINKING:
            out.append(Violation("thinking-prefill", entry.path(number), "thinking is incompatible with prefill"))
    start = None
    for at in range(len(turns) - 1, -1, -1):
        turn = turns[at]
        if turn.role == "user":
            if any(facts.type != "tool_result" for _, _, facts in turn.blocks) and at != len(turns) - 1:
                break
            if not any(facts.type == "tool_result" for _, _, facts in turn.blocks):
                break
        else:
            if start is None and not any(facts.type == "tool_use" for _, _, facts in turn.blocks):
                break
            start = at
    if start is not None and turns[start].blocks:
        entry, number, facts = turns[start].blocks[0]
        if facts.type not in THINKING:
            out.append(
                Violation(
                    "thinking-missing",
                    entry.path(number),
                    f"Expected `thinking` or `redacted_thinking`, but found `{facts.type}`.",
                )
            )


def _none_at_the_end(turns: list[Turn], out: list[Violation]) -> None:
    """Thinking off: the answer that goes on (the last message, or followed by its tools' results) holds none.

    Measured for the last message; before results it is the stricter reading. Earlier answers got 200.
    """
    final = turns[-1] if turns else None
    if final is not None and final.role == "user" and any(f.type == "tool_result" for _, _, f in final.blocks):
        final = turns[-2] if len(turns) > 1 else None
    if final is None or final.role != "assistant":
        return
    for entry, number, facts in final.blocks:
        if facts.type in THINKING:
            out.append(
                Violation(
                    "thinking-while-off",
                    entry.path(number),
                    "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`.",
                )
            )
