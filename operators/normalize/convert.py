"""Stage 3: notices of local commands and attachments become user messages (WIRE.md §4.3, FAULTS.md 75).

Before merging, on purpose: what they become joins the user's turn beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnstream.messages import AssistantMessage, AttachmentMessage, SystemMessage, UserMessage
from turnstream.operators.normalize.contents import blocks_of, only_synthetic
from turnstream.operators.normalize.filter import Context
from turnstream.operators.normalize.log import Explain, Repair
from turnstream.operators.normalize.renderers import RENDERERS, Renderer, Words, local_command, reminder
from turnstream.operators.stage import Operator, lift

__all__ = ["ConvertContext", "convert_context"]

_STAGE: Final = "convert"


class ConvertContext:
    """Turns local_command notices and attachments into user messages; holds nothing.

    What comes out has the uuid, time and ``extra`` of what it came from. It is meta (for the model, not the
    human's words), except for what the user queued.

    Args:
        renderers: attachment type → renderer, beside and before those of
            :data:`~turnstream.operators.normalize.RENDERERS`. One that raises drops its attachment.
        explain: takes a :class:`Repair` for each attachment or notice that says nothing to the model.
    """

    __slots__ = ("_explain", "_renderers")

    def __init__(self, renderers: Mapping[str, Renderer] | None = None, explain: Explain | None = None) -> None:
        self._renderers: Mapping[str, Renderer] = {**RENDERERS, **renderers} if renderers else RENDERERS
        self._explain = explain

    def feed(self, batch: Sequence[Context], /) -> Sequence[UserMessage | AssistantMessage]:
        """Take messages, return user and assistant messages."""
        out: list[UserMessage | AssistantMessage] = []
        for item in batch:
            cls = item.__class__
            if cls is UserMessage or cls is AssistantMessage:
                out.append(item)  # type: ignore[arg-type]
                continue
            made = self._attachment(item) if isinstance(item, AttachmentMessage) else self._notice(item)
            if made is not None:
                out.append(made)
        return out

    def flush(self) -> Sequence[UserMessage | AssistantMessage]:
        """Nothing is held."""
        return ()

    def fail(self, error: Exception, /) -> Sequence[UserMessage | AssistantMessage]:
        """Nothing is held."""
        return ()

    def _notice(self, item: Any) -> UserMessage | None:
        if item.__class__ is not SystemMessage or item.subtype != "local_command":
            self._drop(item, f"the {type(item).__name__}", "no part of the conversation")
            return None
        text = "\n".join(str(block.get("text") or "") for block in blocks_of(item.content))
        if not text.strip():
            self._drop(item, "the local_command", "it is empty")
            return None
        return _user(item, [{"type": "text", "text": local_command(text)}], meta=True)

    def _attachment(self, item: AttachmentMessage) -> UserMessage | None:
        kind = item.attachment.get("type")
        renderer = self._renderers.get(kind) if isinstance(kind, str) else None
        if renderer is None:
            self._drop(item, f"the attachment of type {kind!r}", "no renderer knows the type")
            return None
        try:
            said = renderer(item.attachment)
        except Exception as error:  # noqa: BLE001 - a user's renderer, or an odd attachment
            self._drop(item, f"the attachment of type {kind!r}", f"its renderer failed: {error!r}")
            return None
        if isinstance(said, Words):
            blocks = blocks_of(said.content)
            if blocks and not only_synthetic(blocks):
                return _user(item, blocks, meta=said.meta)
        elif isinstance(said, str) and said.strip():
            return _user(item, [{"type": "text", "text": reminder(said)}], meta=True)
        self._drop(item, f"the attachment of type {kind!r}", "it holds nothing for the model")
        return None

    def _drop(self, item: Any, what: str, why: str) -> None:
        if self._explain is not None:
            self._explain(Repair(_STAGE, getattr(item, "uuid", None) or None, f"dropped {what}", why))


def convert_context(
    renderers: Mapping[str, Renderer] | None = None, explain: Explain | None = None
) -> Operator[Context, UserMessage | AssistantMessage]:
    """Turn local_command notices and attachments into user messages (WIRE.md §4.3); see :class:`ConvertContext`."""
    return lift(lambda: ConvertContext(renderers, explain), "convert_context")


def _user(source: AttachmentMessage | SystemMessage, blocks: list[dict[str, Any]], *, meta: bool) -> UserMessage:
    return UserMessage(
        message={"role": "user", "content": blocks},
        uuid=source.uuid,
        timestamp=source.timestamp,
        is_meta=meta or None,
        extra=source.extra,
    )
