"""Stage 1: what is never sent goes (WIRE.md §4.1, FAULTS.md 74 and 75).

It holds the last answer and what came after it, because a tombstone comes after its message and a delta
that doesn't apply may still come to a block that was emitted (WIRE.md §1).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

from msgspec import UNSET

from turnstream.messages import (
    SYNTHETIC_MODEL,
    AssistantMessage,
    AttachmentMessage,
    CollapsedReadSearch,
    GroupedToolUse,
    OpaqueRecord,
    ProgressMessage,
    QueryItem,
    SystemMessage,
    Tombstone,
    ToolUseSummary,
    UserMessage,
    replace,
)
from turnstream.messages.identity import uuid_of
from turnstream.operators.normalize.contents import blocks_of, only_synthetic
from turnstream.operators.normalize.log import Explain, Repair
from turnstream.operators.stage import Operator, lift

__all__ = ["Context", "FilterForAPI", "filter_for_api"]

Context = UserMessage | AssistantMessage | SystemMessage | AttachmentMessage
"""What passes: messages, local_command notices and attachments."""

_STAGE: Final = "filter"
# Records that somebody might look for in the request; stream events and notes go without a word.
_NAMED: Final[dict[type, str]] = {
    ProgressMessage: "progress is shown only",
    ToolUseSummary: "a summary of tool uses is shown only",
    GroupedToolUse: "a group of tool uses is shown only",
    CollapsedReadSearch: "collapsed tool uses are shown only",
    OpaqueRecord: "a record of a type that isn't part of the conversation",
}
_THINKING: Final = ("thinking", "redacted_thinking")


class FilterForAPI:
    """Drops what never goes to the API, in memory of one answer and what follows it.

    Dropped: progress, virtual messages, synthetic ones (fixed texts, API errors, answers without a
    model), what a tombstone takes back, process and display items, opaque records, system messages other
    than local_command, blocks with deltas that couldn't be applied, and unfinished thinking of an answer
    that broke off. A tool's own output (``tool_use_result``) is taken off the message.

    A tombstone takes back a message of the turn held: the messages from the last answer on. An answer
    begins with an assistant message of another API id, or of any id after words of a human.

    Args:
        explain: takes a :class:`Repair` for each message dropped or changed.
        tombstoned: uuids known to be taken back, besides those whose tombstone comes in time
            (:func:`~turnstream.operators.normalize.tombstoned_uuids` finds a whole list's).
    """

    __slots__ = ("_api_id", "_explain", "_gone", "_held", "_known", "_spoke")

    def __init__(self, explain: Explain | None = None, tombstoned: Collection[str] = ()) -> None:
        self._explain = explain
        self._known = tombstoned
        self._held: list[Context] = []
        self._gone: set[Any] = set()  # uuids, or the id() of a message without one
        self._api_id: Any = None
        self._spoke = False  # whether a human spoke since the answer held

    def feed(self, batch: Sequence[QueryItem], /) -> Sequence[Context]:
        """Take items, return the messages of the turn that ended with them."""
        out: list[Context] = []
        held = self._held
        for item in batch:
            cls = item.__class__
            if cls is AssistantMessage:
                answer = cast("AssistantMessage", item)
                api_id = answer.message.get("id")
                why = _why_not_said(answer)
                if why is not None:
                    self._dropped(answer, why)
                    continue
                if api_id != self._api_id or self._spoke:
                    self._release(out)
                    self._api_id = api_id
                    self._spoke = False
                held.append(answer)
            elif cls is UserMessage:
                user = cast("UserMessage", item)
                content = user.message.get("content")
                if user.is_virtual:
                    self._dropped(user, "virtual: shown, never sent")
                    continue
                if only_synthetic(content):
                    self._dropped(user, "a text that stands in for speech")
                    continue
                if user.tool_use_result is not UNSET:
                    user = replace(user, tool_use_result=UNSET)
                if not self._spoke and not user.is_meta:
                    self._spoke = not _starts_with_result(content)
                held.append(user)
            elif cls is AttachmentMessage:
                held.append(cast("AttachmentMessage", item))
            elif cls is SystemMessage:
                system = cast("SystemMessage", item)
                if system.subtype == "local_command":
                    held.append(system)
                else:
                    self._dropped(system, f"a system message ({system.subtype}) is for the user")
            elif cls is Tombstone:
                message = cast("Tombstone", item).message
                self._gone.add(uuid_of(message) or id(message))
            elif self._explain is not None and cls in _NAMED:
                self._dropped(item, _NAMED[cls])
        return out

    def flush(self) -> Sequence[Context]:
        """The source completed: the last turn."""
        out: list[Context] = []
        self._release(out)
        return out

    def fail(self, error: Exception, /) -> Sequence[Context]:
        """The source broke: the last turn, as far as it came."""
        return self.flush()

    def _release(self, out: list[Context]) -> None:
        """Move what is held to ``out``, now that it is final."""
        gone = self._gone
        known = self._known
        for message in self._held:
            if (gone and (message.uuid or id(message)) in gone) or (known and message.uuid in known):
                self._dropped(message, "taken back by a tombstone")
            elif isinstance(message, AssistantMessage) and (message.unapplied_deltas or message.is_aborted_mid_stream):
                kept = self._damaged(message)
                if kept is not None:
                    out.append(kept)
            else:
                out.append(message)
        self._held.clear()
        gone.clear()

    def _damaged(self, message: AssistantMessage) -> AssistantMessage | None:
        if not message.is_aborted_mid_stream:
            # One finished block. What an answer that broke off left over belongs to no block it kept.
            self._dropped(message, "some of its deltas couldn't be applied")
            return None
        blocks = blocks_of(message.message.get("content"))
        finished = [block for block in blocks if block.get("type") not in _THINKING]
        if len(finished) == len(blocks):
            return message
        if self._explain is not None:
            self._explain(Repair(_STAGE, message.uuid or None, "dropped thinking", "it was cut off before its end"))
        if not finished:
            return None
        return replace(message, message={**message.message, "content": finished})

    def _dropped(self, item: Any, why: str) -> None:
        if self._explain is not None:
            kind = type(item).__name__ if not isinstance(item, OpaqueRecord) else f"record of type {item.type!r}"
            self._explain(Repair(_STAGE, getattr(item, "uuid", None) or None, f"dropped the {kind}", why))


def filter_for_api(explain: Explain | None = None, tombstoned: Collection[str] = ()) -> Operator[QueryItem, Context]:
    """Drop what never goes to the API (WIRE.md §4.1); see :class:`FilterForAPI`."""
    return lift(lambda: FilterForAPI(explain, tombstoned), "filter_for_api")


def _why_not_said(answer: AssistantMessage) -> str | None:
    """Why an assistant message isn't the model's words, None if it is."""
    if answer.is_virtual:
        return "virtual: shown, never sent"
    if answer.is_api_error_message:
        return "an API error isn't the model's words"
    model = answer.message.get("model")
    if not model or model == SYNTHETIC_MODEL:
        return "synthetic: no model said it"
    if only_synthetic(answer.message.get("content")):
        return "a text that stands in for speech"
    return None


def _starts_with_result(content: Any) -> bool:
    first = content[0] if content.__class__ is list and content else None
    return isinstance(first, dict) and first.get("type") == "tool_result"
