"""What a conversation needs before it can be gone on with (WIRE.md §2, §3; FAULTS.md 57, 60, 68)."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from turnstream.messages.codec import replace
from turnstream.messages.factories import MessageFactory
from turnstream.messages.ids import NAMESPACE
from turnstream.messages.texts import MISSING_RESULT
from turnstream.messages.types import AssistantMessage, AttachmentMessage, Message, SystemMessage, UserMessage
from turnstream.operators.compaction.attachments import without_repeats
from turnstream.operators.compaction.boundary import is_compact_boundary
from turnstream.operators.normalize.thinking import THINKING, why_not_sent
from turnstream.sinks.transcript.reading.content import answered_ids, asked_ids

__all__ = ["Say", "complete_calls", "drop_repeats", "drop_thinking", "is_whole_signature"]

Say = Callable[[str, Message, str], None]
"""Is told a finding's kind, the message, and why."""

# Fewer characters can't be a signature; the shortest known one has 244 (FAULTS.md 57 knows broken ones of 24).
_SHORTEST: Final = 32
# The API's signatures are base64 of a field that begins with this byte and says its own length.
_TAG: Final = 0x12
# … and with this letter, so most others needn't be decoded.
_LETTER: Final = "E"


def is_whole_signature(signature: Any) -> bool:
    """Whether a thinking block's signature may be whole; of those that aren't the API's only the length is known."""
    if not isinstance(signature, str) or len(signature) < _SHORTEST:
        return False
    if signature[0] != _LETTER:
        return True
    try:
        head = base64.b64decode(signature[:16], validate=True)
    except (binascii.Error, ValueError):
        return True
    if head[0] != _TAG:
        return True
    length = shift = 0
    for at in range(1, len(head)):
        length |= (head[at] & 0x7F) << shift
        shift += 7
        if not head[at] & 0x80:
            return len(signature.rstrip("=")) * 3 // 4 >= length + at + 1
    return True


def drop_thinking(messages: list[Message], say: Say, among: Iterable[Message] | None = None) -> list[Message]:
    """Without thinking that is unsigned or unfinished; the API refuses a conversation that holds any.

    A message of which nothing is left goes, too.

    Args:
        messages: a conversation.
        say: is told what was dropped.
        among: those of them that hold any thinking, if that is known.
    """
    if among is None:
        among = (message for message in messages if message.__class__ is AssistantMessage)
    found = {id(message) for message in among if _has_bad(message)}
    if not found:
        return messages
    bad = [at for at, message in enumerate(messages) if id(message) in found]
    out: list[Message] = []
    done = 0
    for at in bad:
        message: Any = messages[at]
        kept = []
        for block in message.message["content"]:
            why = _why_dropped(block)
            if why is None:
                kept.append(block)
            else:
                say("thinking_dropped", message, why)
        out += messages[done:at]
        done = at + 1
        if kept:
            out.append(replace(message, message={**message.message, "content": kept}))
        else:
            say("message_dropped", message, "it held nothing but thinking that can't be sent")
    out += messages[done:]
    return out


def _has_bad(message: Any) -> bool:
    content = message.message.get("content")
    if content.__class__ is list:
        for block in content:
            if block.__class__ is dict and block.get("type") in THINKING and _why_dropped(block) is not None:
                return True
    return False


def _why_dropped(block: Any) -> str | None:
    if not isinstance(block, dict) or block.get("type") not in THINKING:
        return None
    why = why_not_sent(block)
    if why is None and block["type"] == "thinking" and not is_whole_signature(block["signature"]):
        return "its signature is cut off"
    return why


def complete_calls(
    messages: list[Message],
    say: Say,
    asked: Mapping[int, Sequence[str]] | None = None,
    answered: Container[str] | None = None,
) -> list[Message]:
    """With an error result for each tool call that has none, behind its answer and the results that are there.

    The ids of what is made depend only on the call, so that another resume makes the same.

    Args:
        messages: a conversation.
        say: is told what was made.
        asked: position → ids of the calls there, in order, if that is known.
        answered: ids that have a result, if that is known.
    """
    if asked is None:
        asked = {at: asked_ids(message) for at, message in enumerate(messages)}
    if answered is None:
        answered = {ident for message in messages for ident in answered_ids(message)}
    calls: dict[str, int] = {}
    for at, idents in asked.items():
        for ident in idents:
            calls.setdefault(ident, at)
    missing: dict[int, list[UserMessage]] = {}
    first = end = place = 0
    for ident, at in calls.items():
        if ident in answered:
            continue
        asker: Any = messages[at]
        say("result_made", asker, f"the tool call {ident} has no result")
        if not first <= at < end:
            first, end = _blocks_around(messages, at)
            place = _behind_results(messages, first, end)
        missing.setdefault(place, []).append(_missing(ident, asker))
    if not missing:
        return messages
    out: list[Message] = []
    done = 0
    for place in sorted(missing):
        out += messages[done:place]
        out += missing[place]
        done = place
    out += messages[done:]
    return out


def _blocks_around(messages: list[Message], at: int) -> tuple[int, int]:
    """From where to where the blocks of one answer stand together, of which one is at ``at``."""
    asker: Any = messages[at]
    answer = asker.message.get("id")

    def is_own(place: int) -> bool:
        message: Any = messages[place]
        return message.__class__ is AssistantMessage and answer is not None and message.message.get("id") == answer

    first, end = at, at + 1
    while first > 0 and is_own(first - 1):
        first -= 1
    while end < len(messages) and is_own(end):
        end += 1
    return first, end


def _behind_results(messages: list[Message], first: int, end: int) -> int:
    """Behind the results that follow these blocks and answer them."""
    asked = {ident for message in messages[first:end] for ident in asked_ids(message)}
    while end < len(messages) and (ids := answered_ids(messages[end])) and asked.issuperset(ids):
        end += 1
    return end


def _missing(ident: str, asker: AssistantMessage) -> UserMessage:
    factory = MessageFactory()
    made = factory.tool_result(
        ident,
        MISSING_RESULT,
        is_error=True,
        tool_use_result=MISSING_RESULT,
        source=asker,
        uuid=str(uuid.uuid5(NAMESPACE, f"{asker.uuid}/{ident}/missing-result")),
    )
    # It belongs to the time of its call, and nobody holds it yet.
    made.timestamp = asker.timestamp or made.timestamp
    return made


def drop_repeats(messages: list[Message], say: Say) -> list[Message]:
    """After a compaction: each standing attachment once, as what was kept may hold what was attached again (fault 53)."""
    notices = [at for at, message in enumerate(messages) if message.__class__ is SystemMessage]
    start = next((at for at in reversed(notices) if is_compact_boundary(messages[at])), None)
    if start is None:
        return messages
    context: list[Any] = messages[start:]
    kept = without_repeats(context)
    if len(kept) == len(context):
        return messages
    left = {id(message) for message in kept}
    for message in context:
        if isinstance(message, AttachmentMessage) and id(message) not in left:
            say("repeated_attachment", message, f"a later attachment says the same ({message.attachment.get('type')})")
    return messages[:start] + kept  # type: ignore[operator]
