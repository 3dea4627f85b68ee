"""What compaction tests share: conversations, a plain normalizer, an oracle of tool pairing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    MessageFactory,
    UserMessage,
    seeded_clock,
    seeded_ids,
)

T = TypeVar("T")


def maker(seed: int = 7) -> MessageFactory:
    return MessageFactory(seeded_ids(seed), seeded_clock())


def run(waiting: Awaitable[T]) -> T:
    async def main() -> T:
        return await waiting

    return asyncio.run(main())


class Talk:
    """A conversation, message by message."""

    def __init__(self, seed: int = 7) -> None:
        self.make = maker(seed)
        self.messages: list[Any] = []
        self.tools = 0
        self.answers = 0

    def prompt(self, text: str = "go on", **fields: Any) -> UserMessage:
        return self._add(self.make.user(text, **fields))

    def answer(self, *blocks: dict[str, Any], usage: dict[str, Any] | None = None) -> list[AssistantMessage]:
        """One message a block, one id and usage for all."""
        self.answers += 1
        shared = usage if usage is not None else {}
        return [self._block(f"msg_{self.answers}", block, shared) for block in blocks]

    def _block(self, ident: str, block: dict[str, Any], usage: dict[str, Any]) -> AssistantMessage:
        made = self.make.assistant([block], usage=usage)
        made.message.update(id=ident, model="claude-test-1", stop_reason="end_turn", stop_sequence=None)
        made.is_api_error_message = None
        return self._add(made)

    def says(self, text: str = "well", usage: dict[str, Any] | None = None) -> AssistantMessage:
        return self.answer({"type": "text", "text": text}, usage=usage)[0]

    def uses(self, count: int = 1, name: str = "Read", usage: dict[str, Any] | None = None) -> list[str]:
        """One answer with ``count`` tools; returns their ids."""
        ids = [f"toolu_{self.tools + n}" for n in range(1, count + 1)]
        self.tools += count
        self.answer(*({"type": "tool_use", "id": ident, "name": name, "input": {"n": 1}} for ident in ids), usage=usage)
        return ids

    def result(self, ident: str, content: Any = "ok", **fields: Any) -> UserMessage:
        return self._add(self.make.tool_result(ident, content, **fields))

    def round(self, *contents: Any, name: str = "Read") -> list[str]:
        """One answer with tools and their results."""
        ids = self.uses(len(contents), name)
        for ident, content in zip(ids, contents, strict=True):
            self.result(ident, content)
        return ids

    def attach(self, attachment: dict[str, Any]) -> AttachmentMessage:
        return self._add(self.make.attachment(attachment))

    def progress(self) -> Any:
        return self._add(self.make.progress("toolu_1", None, {"type": "bash_progress"}))

    def _add(self, message: Any) -> Any:
        self.messages.append(message)
        return message


def memory(path: str, content: str = "remember") -> dict[str, Any]:
    return {"type": "nested_memory", "path": path, "content": {"content": content}}


def plain(messages: Sequence[Any]) -> list[Any]:
    """Stands in for ``normalize_for_api``: what is said, nothing else."""
    return [m for m in messages if isinstance(m, (UserMessage, AssistantMessage)) and not m.is_virtual]


def pairs(messages: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The ids of all tool_use and of all tool_result blocks, in order."""
    found: dict[str, list[str]] = {"tool_use": [], "tool_result": []}
    for message in messages:
        if isinstance(message, (UserMessage, AssistantMessage)) and isinstance(message.message["content"], list):
            for block in message.message["content"]:
                if block["type"] in found:
                    found[block["type"]].append(block["id" if block["type"] == "tool_use" else "tool_use_id"])
    return found["tool_use"], found["tool_result"]


def attachment_counts(messages: Sequence[Any]) -> Counter[str]:
    return Counter(repr(sorted(m.attachment.items())) for m in messages if isinstance(m, AttachmentMessage))


class Summarizer:
    """A summarizer that keeps what it was given; ``answers`` are texts, or errors to raise, in order."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers) or ["the summary"]
        self.asked: list[list[Any]] = []

    async def __call__(self, messages: list[Any]) -> Any:
        self.asked.append(messages)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@st.composite
def talks(draw: st.DrawFn, longest: int = 12) -> list[Any]:
    """Conversations in all shapes: tool rounds (some streamed, some unanswered), attachments, process items."""
    talk = Talk()
    sizes = st.sampled_from([0, 3, 39, 40, 41, 60, 5_000])
    for _ in range(draw(st.integers(0, longest))):
        step = draw(st.sampled_from(["prompt", "says", "round", "streamed", "cut", "attach", "progress", "queued"]))
        if step == "prompt":
            talk.prompt(draw(st.sampled_from(["hi", "x" * 400])))
        elif step == "says":
            talk.says()
        elif step == "round":
            talk.round(*("r" * draw(sizes) for _ in range(draw(st.integers(1, 4)))))
        elif step == "streamed":
            # Tools that ran while their answer was still coming.
            talk.answers += 1
            for _ in range(draw(st.integers(1, 3))):
                talk.tools += 1
                ident = f"toolu_{talk.tools}"
                talk._block(f"msg_{talk.answers}", {"type": "tool_use", "id": ident, "name": "Bash", "input": {}}, {})
                talk.result(ident, [{"type": "text", "text": "s" * draw(sizes)}])
        elif step == "cut":
            talk.uses(draw(st.integers(1, 2)))
        elif step == "attach":
            talk.attach(memory(draw(st.sampled_from(["/a", "/b", "/c"])), draw(st.sampled_from(["1", "2" * 9_000]))))
        elif step == "progress":
            talk.progress()
        else:
            talk.attach({"type": "queued_command", "prompt": "also this"})
    return talk.messages
