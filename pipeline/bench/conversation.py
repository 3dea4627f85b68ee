"""Conversations made from a seed, as a coding agent keeps them: one content block a message, tools with their
progress, hooks and results, attachments, notices, and now and then what real files hold and an API refuses.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    Message,
    MessageFactory,
    ProgressMessage,
    SystemMessage,
    UserMessage,
    seeded_clock,
    seeded_ids,
)

__all__ = ["make_conversation"]

_WORDS: Final = (
    "the", "stream", "of", "a", "river", "is", "read", "once", "and", "then", "kept;", "café", "naïve", "漢字", "🛶",
    "`code`", "**bold**", "\n", "\n\n", "- item", "line 42:", '"quoted"', "back\\slash", "<tag>", "{json}",
)  # fmt: skip
_TOOLS: Final = ("Read", "Read", "Grep", "Glob", "Bash", "Bash", "Edit", "Write", "TodoWrite")
# 1 × 1 pixel.
_PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_MODEL: Final = "claude-bench-1"


def make_conversation(messages: int, *, seed: int = 7) -> list[Message]:
    """A conversation; the same arguments always give the same messages, and a longer one begins with a shorter.

    What makes a whole conversation cost more (a message with several blocks, from which on ids are derived; an
    empty answer, after which messages are merged once more) is in its first turn, and later now and then: else
    short conversations would look cheap for not having it.

    Conversations of different seeds have no id in common, so they can be put one behind the other.

    Args:
        messages: how many.
        seed: of everything random in it.
    """
    return list(islice(_Maker(seed).turns(), messages))


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"conversation/{seed}")
        self.seed = seed
        self.ids = seeded_ids(seed)
        self.make = MessageFactory(self.ids, seeded_clock(step=0.35))
        self.parent: str | None = None
        self.answers = 0
        self.tools = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def words(self, least: int, most: int) -> str:
        return " ".join(self.random.choices(_WORDS, k=self.random.randint(least, most)))

    def linked(self, message: Any) -> Any:
        """The message with the envelope of a transcript line."""
        message.extra = {
            "parentUuid": self.parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/src/river",
            "sessionId": "5c0375b4-57a5-4f26-b12d-d022ee4e51b7",
            "version": "2.1.0",
            "gitBranch": "main",
        }
        self.parent = message.uuid
        return message

    def turns(self) -> Iterator[Message]:
        while True:
            yield from self.turn()

    def turn(self) -> Iterator[Message]:
        first = self.answers == 0
        yield self.linked(self.question(image=first))
        if first or self.chance(0.005):
            # The model said nothing. Once that is taken out, its neighbours have to be merged.
            yield from map(self.linked, self.blocks({"type": "text", "text": ""}, stop_reason="end_turn"))
            return
        if self.chance(0.3):
            yield self.attachment()
        for _ in range(self.random.randint(1, 7)):
            cut = self.chance(0.01)
            yield from self.answer(cut=cut)
            if cut:
                yield self.linked(self.make.interruption(tool_use=True))
                return
        if self.chance(0.01):
            yield self.linked(self.make.api_error("API Error: overloaded", api_error="overloaded"))
        yield from self.last_words()
        yield from self.notices()

    def question(self, *, image: bool = False) -> UserMessage:
        if image or self.chance(0.05):
            picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}}
            text = "" if self.chance(0.2) else self.words(3, 20)
            return self.make.user([{"type": "text", "text": text}, picture])
        if self.chance(0.5):
            return self.make.user([{"type": "text", "text": self.words(5, 60)}])
        return self.make.user(self.words(5, 60))

    def attachment(self) -> AttachmentMessage:
        kind = self.random.choice(("nested_memory", "edited_text_file", "queued_command", "skill_listing"))
        bodies: dict[str, dict[str, Any]] = {
            "nested_memory": {"path": "/src/river/NOTES.md", "content": {"content": self.words(20, 80)}},
            "edited_text_file": {"filename": "/src/river/flow.py", "snippet": self.words(10, 40)},
            "queued_command": {"prompt": self.words(3, 15)},
            "skill_listing": {"content": self.words(30, 90)},
        }
        made = self.linked(self.make.attachment({"type": kind, **bodies[kind]}))
        assert isinstance(made, AttachmentMessage)
        return made

    def blocks(self, *blocks: dict[str, Any], stop_reason: str) -> list[AssistantMessage]:
        """One answer: a message for each block, all with the answer's usage."""
        self.answers += 1
        usage = {
            "input_tokens": self.random.randint(3, 900),
            "cache_creation_input_tokens": self.random.randint(0, 2_000),
            "cache_read_input_tokens": self.random.randint(5_000, 90_000),
            "output_tokens": self.random.randint(20, 1_500),
            "service_tier": "standard",
        }
        return [
            AssistantMessage(
                message={
                    "id": f"msg_{self.seed}_{self.answers:08d}",
                    "type": "message",
                    "role": "assistant",
                    "model": _MODEL,
                    "content": [block],
                    "stop_reason": stop_reason,
                    "stop_sequence": None,
                    "usage": usage,
                },
                uuid=self.ids("assistant"),
                timestamp=self.make.timestamp(),
                request_id=f"req_{self.seed}_{self.answers:08d}",
            )
            for block in blocks
        ]

    def thinking(self) -> dict[str, Any]:
        # Cut off before its signature came, now and then.
        return {
            "type": "thinking",
            "thinking": self.words(10, 120),
            "signature": "" if self.chance(0.02) else "c2VlZGVkIHNpZ25hdHVyZQ==",
        }

    def use(self) -> dict[str, Any]:
        self.tools += 1
        name = self.random.choice(_TOOLS)
        arguments: Any = {"file_path": f"/src/river/{self.random.randrange(400)}.py", "limit": 40}
        if name == "Bash":
            arguments = {"command": "make test", "description": self.words(3, 8)}
        elif name in ("Edit", "Write"):
            arguments["content"] = self.words(20, 200)
        if self.chance(0.005):
            arguments = '{"file_path": "/src/riv'
        return {"type": "tool_use", "id": f"toolu_{self.seed}_{self.tools:08d}", "name": name, "input": arguments}

    def answer(self, *, cut: bool) -> Iterator[Message]:
        """An answer that calls tools, and what came of them."""
        blocks: list[dict[str, Any]] = []
        if self.chance(0.4):
            blocks.append(self.thinking())
        if self.chance(0.5):
            blocks.append(
                {"type": "text", "text": self.random.choice(("", "\n\n", self.words(5, 60), self.words(5, 30)))}
            )
        blocks += [self.use() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
        messages = self.blocks(*blocks, stop_reason="tool_use")
        asked = [m for m in messages if m.message["content"][0]["type"] == "tool_use"]
        # Of parallel calls the first may be done while the answer still streams.
        early = len(asked) > 1 and self.chance(0.5)
        for message in messages:
            message.timestamp = self.make.timestamp()
            yield self.linked(message)
            if early and message is asked[0]:
                yield from self.done(message)
        left = asked[1:] if early else asked
        for message in left[: len(left) // 2] if cut else left:
            yield from self.done(message)

    def done(self, asked: AssistantMessage) -> Iterator[Message]:
        """One tool's progress, hooks and result."""
        block = asked.message["content"][0]
        tool = block["id"]
        if self.chance(0.3):
            yield self.hook(tool, "PreToolUse")
        if block["name"] == "Bash":
            for tick in range(self.random.randint(0, 4)):
                yield self.progress(tool, {"type": "bash_progress", "output": self.words(2, 10), "elapsed": tick})
        failed = self.chance(0.06)
        result = self.make.tool_result(
            tool,
            self.words(10, 300),
            is_error=failed,
            tool_use_result={"stdout": self.words(10, 60), "stderr": "", "interrupted": False},
            source=asked,
        )
        yield self.linked(result)
        if self.chance(0.3):
            yield self.hook(tool, "PostToolUse")
        if self.chance(0.1):
            yield self.attachment()

    def hook(self, tool: str, event: str) -> AttachmentMessage:
        made = self.linked(
            self.make.attachment(
                {
                    "type": "hook_success",
                    "hookName": f"{event}:lint",
                    "hookEvent": event,
                    "toolUseID": tool,
                    "content": "ok",
                }
            )
        )
        assert isinstance(made, AttachmentMessage)
        return made

    def progress(self, tool: str, data: dict[str, Any]) -> ProgressMessage:
        return self.make.progress(tool, tool, data)

    def last_words(self) -> Iterator[Message]:
        blocks: list[dict[str, Any]] = [self.thinking()] if self.chance(0.2) else []
        blocks.append({"type": "text", "text": self.words(20, 150)})
        yield from map(self.linked, self.blocks(*blocks, stop_reason="end_turn"))

    def notices(self) -> Iterator[SystemMessage]:
        yield self.linked(self.make.system("turn_duration", durationMs=self.random.randint(900, 200_000)))
        if self.chance(0.1):
            yield self.linked(self.make.system("local_command", "<command-name>/cost</command-name>"))
            yield self.linked(
                self.make.system("local_command", f"<local-command-stdout>{self.words(3, 20)}</local-command-stdout>")
            )
