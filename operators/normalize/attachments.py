"""Stage 2: attachments move up to what they belong to (WIRE.md §4.2, FAULTS.md 62)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from turnstream.messages import AssistantMessage, AttachmentMessage, UserMessage
from turnstream.operators.normalize.filter import Context
from turnstream.operators.normalize.log import Explain, Repair
from turnstream.operators.stage import Operator, lift

__all__ = ["ReorderAttachments", "reorder_attachments"]

_STAGE: Final = "reorder"


class ReorderAttachments:
    """Moves each attachment up, to just after the nearest earlier tool result or assistant message.

    Where that place is between a tool_use and a result that may still come, it waits for the result. No
    result can come any more once a user message and then another answer followed: results belong into the
    next user message. Attachments keep their order among themselves, and so does all else.

    It holds what came since the last tool result or assistant message. Only what passes
    :class:`~turnstream.operators.normalize.FilterForAPI` should be fed.

    Args:
        explain: takes a :class:`Repair` for each attachment that moved.
    """

    __slots__ = ("_api_id", "_asked", "_explain", "_heard", "_run", "_waiting")

    def __init__(self, explain: Explain | None = None) -> None:
        self._explain = explain
        self._asked: set[str] = set()  # tool_use ids whose result may still come
        self._waiting: list[AttachmentMessage] = []  # for a result
        self._run: list[Context] = []  # users since the last stop; attachments pass them
        self._api_id: Any = None
        self._heard = False  # whether anything but attachments followed the answer

    def feed(self, batch: Sequence[Context], /) -> Sequence[Context]:
        """Take messages, return those whose place is known."""
        out: list[Context] = []
        asked = self._asked
        for item in batch:
            cls = item.__class__
            if cls is AttachmentMessage:
                if asked:
                    self._waiting.append(item)  # type: ignore[arg-type]
                else:
                    if self._run:
                        self._moved(item)
                    out.append(item)
            elif cls is AssistantMessage:
                message = item.message  # type: ignore[union-attr]
                api_id = message.get("id")
                if not api_id or api_id != self._api_id:
                    if asked and self._heard:
                        out += self._waiting
                        self._waiting.clear()
                        asked.clear()
                    self._api_id = api_id
                    self._heard = False
                self._let_run(out)
                out.append(item)
                for block in _dicts(message.get("content")):
                    if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                        asked.add(block["id"])
            elif cls is UserMessage and (answers := _answers(item.message.get("content"))):  # type: ignore[union-attr]
                self._heard = True
                self._let_run(out)
                out.append(item)
                if asked:
                    asked.difference_update(answers)
                    if not asked:
                        for waited in self._waiting:
                            self._moved(waited)
                        out += self._waiting
                        self._waiting.clear()
            else:
                self._heard = True
                self._run.append(item)
        return out

    def flush(self) -> Sequence[Context]:
        """The source completed: what waits takes its place."""
        out: list[Context] = [*self._waiting]
        self._waiting.clear()
        self._asked.clear()
        self._let_run(out)
        return out

    def fail(self, error: Exception, /) -> Sequence[Context]:
        """The source broke: what waits takes its place."""
        return self.flush()

    def _let_run(self, out: list[Context]) -> None:
        if self._run:
            out += self._run
            self._run.clear()

    def _moved(self, item: Context) -> None:
        if self._explain is not None:
            why = "context follows the tool result or answer it belongs to"
            self._explain(Repair(_STAGE, item.uuid or None, "moved the attachment", why))


def reorder_attachments(explain: Explain | None = None) -> Operator[Context, Context]:
    """Move attachments up to what they belong to (WIRE.md §4.2); see :class:`ReorderAttachments`."""
    return lift(lambda: ReorderAttachments(explain), "reorder_attachments")


def _dicts(content: Any) -> list[dict[str, Any]]:
    return [block for block in content if block.__class__ is dict] if isinstance(content, list) else []


def _answers(content: Any) -> list[Any]:
    """The ids that the content's tool_results answer; empty where there is none."""
    if content.__class__ is not list:
        return []
    return [
        _hashable(block.get("tool_use_id"))
        for block in content
        if block.__class__ is dict and block.get("type") == "tool_result"
    ]


def _hashable(value: Any) -> str | None:
    return value if isinstance(value, str) else None
