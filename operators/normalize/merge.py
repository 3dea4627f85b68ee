"""Stage 4: one message a turn and answer (WIRE.md §4.4, FAULTS.md 62, 63, 64)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET

from turnstream.messages import AssistantMessage, UserMessage, replace
from turnstream.operators.normalize.answers import merge_answer
from turnstream.operators.normalize.contents import blocks_of, lost_items
from turnstream.operators.normalize.log import Explain, Repair
from turnstream.operators.stage import Operator, lift

__all__ = ["MergeTurns", "Said", "merge_turns"]

_STAGE: Final = "merge"
Said = UserMessage | AssistantMessage
"""What a request is made of."""


class MergeTurns:
    """Joins consecutive user messages, and the messages of one answer.

    Users: strings become text blocks, blocks stay apart, tool_results go first, in the order of the
    tool_uses they answer; uuid and time are those of the first part that isn't meta, and the message is meta
    only if all parts are. A message without content is left out.

    Answers: assistant messages with the same API message id are one answer, across its own tool results and
    what is meta beside them. Words of a human end it, unless the request id (or the usage object that an
    answer's messages share in memory) says that the answer went on; two request ids are two answers.
    Blocks are sorted by index, identical repeated ones collapse (see :func:`merge_answer`).

    What comes out has content that is a non-empty list of blocks. A message that needs no change comes out
    as it is. It holds the open answer and the user messages since.

    Args:
        explain: takes a :class:`Repair` for each block or message left out.
    """

    __slots__ = ("_api_id", "_explain", "_order", "_parts", "_request_id", "_spoke", "_users")

    def __init__(self, explain: Explain | None = None) -> None:
        self._explain = explain
        self._parts: list[AssistantMessage] = []  # of the open answer
        self._users: list[UserMessage] = []  # since it began
        self._spoke = False  # whether a human is among them
        self._api_id: Any = None
        self._request_id: str | None = None
        self._order: dict[Any, int] = {}  # tool_use id → position, of the answers since the last user turn

    def feed(self, batch: Sequence[Said], /) -> Sequence[Said]:
        """Take messages, return those of the turns that are over."""
        out: list[Said] = []
        for item in batch:
            content = item.message.get("content")
            if content.__class__ is not list or not content or content[0].__class__ is not dict:
                if not blocks_of(content):
                    self._left_out(item, f"dropped the {type(item).__name__}", "it has no content")
                    continue
            if isinstance(item, UserMessage):
                self._users.append(item)
                if not self._spoke and not item.is_meta:
                    self._spoke = _speaks(content)
            else:
                self._assistant(item, out)
        return out

    def flush(self) -> Sequence[Said]:
        """The source completed: the last answer and turn."""
        out: list[Said] = []
        self._close(out)
        return out

    def fail(self, error: Exception, /) -> Sequence[Said]:
        """The source broke: the last answer and turn, as far as they came."""
        return self.flush()

    def _assistant(self, item: AssistantMessage, out: list[Said]) -> None:
        if self._parts and self._goes_on(item):
            self._parts.append(item)
            self._request_id = self._request_id or item.request_id
            return
        self._close(out)
        self._parts.append(item)
        self._api_id = item.message.get("id")
        self._request_id = item.request_id

    def _goes_on(self, item: AssistantMessage) -> bool:
        if not self._api_id or item.message.get("id") != self._api_id:
            return False
        if item.request_id and self._request_id:
            return item.request_id == self._request_id
        if not self._spoke:
            return True
        usage = item.message.get("usage")
        return usage is not None and usage is self._parts[-1].message.get("usage")

    def _close(self, out: list[Said]) -> None:
        """The answer is over, and so is the user turn after it."""
        if self._parts:
            answer = merge_answer(self._parts, self._request_id, self._explain)
            self._parts.clear()
            out.append(answer)
            for block in answer.message["content"]:
                if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                    self._order.setdefault(block["id"], len(self._order))
        if self._users:
            out.append(self._merge_users())
            self._users.clear()
            self._order.clear()
            self._spoke = False

    def _merge_users(self) -> UserMessage:
        users = self._users
        results: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        for user in users:
            content = user.message.get("content")
            if self._explain is not None and (lost := lost_items(content)):
                self._left_out(user, f"dropped {lost} item(s) of its content", "not a content block")
            for block in blocks_of(content):
                (results if block.get("type") == "tool_result" else others).append(block)
        if len(results) > 1:
            order = self._order
            last = len(order)
            results.sort(key=lambda block: order.get(_name(block.get("tool_use_id")), last))
        blocks = results + others
        first = next((user for user in users if not user.is_meta), users[0])
        if len(users) == 1:
            content = first.message.get("content")
            same = isinstance(content, list) and len(content) == len(blocks) and all(map(_is, content, blocks))
            if same and first.tool_use_result is UNSET:
                return first
            return replace(first, message={**first.message, "content": blocks}, tool_use_result=UNSET)
        return replace(
            first,
            message={**first.message, "content": blocks},
            tool_use_result=UNSET,
            mcp_meta=UNSET,
            is_visible_in_transcript_only=_of_all(u.is_visible_in_transcript_only for u in users),
            is_compact_summary=_of_all(u.is_compact_summary for u in users),
        )

    def _left_out(self, item: Said, what: str, why: str) -> None:
        if self._explain is not None:
            self._explain(Repair(_STAGE, item.uuid or None, what, why))


def merge_turns(explain: Explain | None = None) -> Operator[Said, Said]:
    """Join consecutive users and the messages of one answer (WIRE.md §4.4); see :class:`MergeTurns`."""
    return lift(lambda: MergeTurns(explain), "merge_turns")


def _speaks(content: Any) -> bool:
    """Whether a message that isn't meta says more than tool results."""
    if content.__class__ is not list:
        return True
    return any(block.get("type") != "tool_result" for block in blocks_of(content))


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _is(left: Any, right: Any) -> bool:
    return left is right


def _of_all(flags: Any) -> bool | None:
    return all(flags) or None
