"""A session with everything in it, written through the public API: what crash and reader tests work on.

Parallel tool calls, a superseded attempt (tombstones), a message taken back from the middle (a filler), side files,
progress, system and attachment records, optionally a compaction that keeps the end of what was before.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transcripts import SESSION, Answer, maker

from turnstream.messages import OpaqueRecord
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.guards import Limits

KEYS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
MODEL = "claude-sonnet-4-5-20250929"
SIDE = 8_000
"""Bytes of a result that stay in the line."""


@dataclass
class Sample:
    """What the session holds, as known from writing it.

    Attributes:
        path: the file.
        open_bytes: the file's bytes just before it was closed: fillers are still in it.
        said: uuids of the user and assistant messages that are in force, in order (with a compaction: since its
            summary and with what it kept).
        all: uuids of all members that are in force, in the order of writing.
        taken: uuids that were taken back.
        large: tool_use id → the result that is in a side file.
        tools: how many tool calls.
        prompts: texts of the user's prompts.
        tokens: usage summed up over answers in force, by key.
    """

    path: Path
    open_bytes: bytes = b""
    said: list[str] = field(default_factory=list)
    all: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    large: dict[str, str] = field(default_factory=dict)
    tools: int = 0
    prompts: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))


def write_sample(path: Path, *, turns: int = 8, compaction: bool = True, seed: int = 7, **options: Any) -> Sample:
    """Write it; a turn has about 6 KB."""
    return asyncio.run(_write(path, turns, compaction, seed, options))


async def _write(path: Path, turns: int, compaction: bool, seed: int, options: dict[str, Any]) -> Sample:
    out, make, chance = Sample(path), maker(seed), random.Random(seed)
    sink = TranscriptSink(path, session_id=SESSION, limits=Limits(tool_result=SIDE), title="A sample", **options)

    def answer(number: int, part: str) -> Answer:
        made = Answer(make, f"msg_{number}_{part}")
        made.envelope["model"] = MODEL
        made.usage.update({key: chance.randrange(1, 5000) for key in KEYS})
        return made

    async def wrote(*messages: Any) -> None:
        await sink.drain()
        out.all += [m.uuid for m in messages]
        out.said += [m.uuid for m in messages]

    def counted(made: Answer) -> None:
        for message in made.messages:
            message.request_id = f"req_{made.envelope['id']}"
        for key in KEYS:
            out.tokens[key] += made.usage[key]

    for number in range(turns):
        text = f"{number}: what is in the files? ✅ " + "words and more " * chance.randrange(3, 60)
        user = make.user(text)
        out.prompts.append(text)
        memory = make.attachment({"type": "memory", "content": f"note {number}"})
        await sink.record([user, memory])
        await wrote(user)
        out.all.append(memory.uuid)
        first = answer(number, "a")
        if number % 3 == 1:
            gone = answer(number, "gone")
            sink.on_next([gone.start(), *gone.text("never " * 50), *gone.tool(f"toolu_{number}_gone")])
            await sink.drain()
            sink.on_next(gone.tombstones())
            out.taken += [m.uuid for m in gone.messages]
        calls = [f"toolu_{number}_{n}" for n in range(1 + number % 3)]
        out.tools += len(calls)
        sink.on_next(
            [
                first.start(),
                *first.block({"type": "thinking", "thinking": "hm " * 80, "signature": "c2lnbmF0dXJl" * 20}),
                *first.text("I look — " + "möglich 🛶 " * chance.randrange(5, 40)),
                *(item for call in calls for item in first.tool(call)),
            ]
        )
        counted(first)
        sink.on_next(first.end(first.usage["output_tokens"], "tool_use"))
        await wrote(*first.messages)
        results = []
        for n, call in enumerate(calls):
            content = f"{call}: " + "a line of output\n" * (2_000 if n == 1 else 60)
            if len(content) > SIDE:
                out.large[call] = content
            source = next(m for m in first.messages if m.message["content"][0].get("id") == call)
            output = {"stdout": content[:200], "interrupted": False}
            results.append(make.tool_result(call, content, tool_use_result=output, source=source))
        sink.on_next([make.progress(calls[0], None, {"type": "bash_progress", "output": "x" * 500})])
        await sink.record(results)
        await wrote(*results)
        notice = make.system("informational", f"notice {number}", level="info")
        sink.append(notice)
        wrong = make.user(f"{number}: no, forget this " + "x" * 200)
        if number % 3 == 2:
            sink.append(wrong)
        await sink.drain()
        out.all.append(notice.uuid)
        last = answer(number, "b")
        sink.on_next([last.start(), *last.text("They hold: " + "ünïcode " * chance.randrange(5, 60))])
        counted(last)
        sink.on_next(last.end(last.usage["output_tokens"]))
        await wrote(*last.messages)
        if number % 3 == 2:
            sink.append(make.tombstone(wrong))
            out.taken.append(wrong.uuid)
        snapshot = {"type": "file-history-snapshot", "messageId": user.uuid, "snapshot": {"n": number}}
        sink.on_next([OpaqueRecord(type=snapshot["type"], data=snapshot)])
        if compaction and number == turns // 2:
            kept = [*first.messages, *results, notice, *last.messages]
            segment = {"headUuid": kept[0].uuid, "anchorUuid": "", "tailUuid": kept[-1].uuid}
            summary = make.user(
                "This session goes on from one that ran out of context: words.", is_compact_summary=True
            )
            segment["anchorUuid"] = summary.uuid
            boundary = make.system(
                "compact_boundary",
                "Conversation compacted",
                compactMetadata={"trigger": "auto", "preTokens": 150_000, "preservedSegment": segment},
            )
            await sink.record([boundary, summary, *kept])
            out.said = [summary.uuid, *(m.uuid for m in kept if m is not notice)]
            out.all += [boundary.uuid, summary.uuid]
    await sink.drain()
    out.open_bytes = path.read_bytes()
    await sink.aclose()
    return out
