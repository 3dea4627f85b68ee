"""A program that writes transcripts until it is killed. Run by tests/crash; needs POSIX (``fork``).

``python crash_writer.py ACKS`` reads orders from standard input, a line each: ``PATH SEED TOMBSTONES``. For each it
forks a child that works on the transcript at PATH, at random by SEED, forever. ACKS is a file descriptor: to it go
JSON lines, each one write (so that a line is whole or not there), which say what is *acknowledged*:

- ``{"child": pid}``: from the server, one for each order;
- ``{"open": true}``: the sink is made; work begins;
- ``{"wrote": [uuid, …]}``: these are in the file now, in this order, behind all that were told before;
- ``{"taking": [uuid, …]}``: these are about to be taken back: from now on they may be gone;
- ``{"took": [uuid, …]}``: and now they are;
- ``{"began": uuid}``: a compaction's boundary with all that belongs to it is in the file;
- ``{"closing": true}``: the sink is about to be closed;
- ``{"closed": true}``: it was (fillers are gone), and is opened again;
- ``{"failed": text}``: something raised; that must not be;
- ``{"dead": status}``: from the server: the child was reaped.

Forking a server that has imported everything takes 1 ms, starting an interpreter 300.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import traceback
from pathlib import Path
from typing import Any

from transcripts import Answer

from turnstream.messages import MessageFactory, seeded_clock, seeded_ids
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.guards import Limits

TOOL_RESULT = "a line of output, ünïcode and all ✅\n"


class Work:
    """One child's work on one transcript."""

    def __init__(self, path: Path, seed: int, tombstones: str, acks: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.make = MessageFactory(seeded_ids(seed), seeded_clock())
        self.options: dict[str, Any] = {"tombstones": tombstones, "limits": Limits(tool_result=20_000)}
        self.acks = acks
        self.count = 0
        self.live: list[Any] = []  # acknowledged messages that may be taken back
        self.sink = self.opened()

    def opened(self) -> TranscriptSink:
        return TranscriptSink(self.path, append=True, title="killed", cwd="/w", **self.options)

    def tell(self, **what: Any) -> None:
        os.write(self.acks, json.dumps(what).encode() + b"\n")

    def acknowledge(self, messages: list[Any]) -> None:
        self.tell(wrote=[m.uuid for m in messages])
        self.live = (self.live + messages)[-8:]

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.make.ids('name')[:8]}_{self.count}"

    def text(self) -> str:
        return "words äöü 🛶 " * self.random.choice((1, 5, 40, 400))

    async def forever(self) -> None:
        self.tell(open=True)
        steps = (self.turn, self.answer, self.tools, self.superseded, self.take_back, self.compact, self.reopen)
        weights = (4, 4, 4, 4, 4, 1, 1)
        while True:
            (step,) = self.random.choices(steps, weights)
            await step()

    async def turn(self) -> None:
        user = self.make.user(self.text())
        await self.sink.record([user])
        self.acknowledge([user])

    async def answer(self) -> None:
        answer = Answer(self.make, self.name("msg"))
        self.sink.on_next([answer.start(), *answer.text(self.text())])
        if self.random.random() < 0.5:
            await asyncio.sleep(0)
        self.sink.on_next([*answer.text(self.text()), *answer.end()])
        await self.sink.drain()
        self.acknowledge(answer.messages)

    async def tools(self) -> None:
        answer = Answer(self.make, self.name("msg"))
        idents = [self.name("toolu") for _ in range(self.random.choice((1, 2, 3)))]
        self.sink.on_next([answer.start(), *(i for ident in idents for i in answer.tool(ident)), *answer.end()])
        results = [
            self.make.tool_result(ident, TOOL_RESULT * self.random.choice((1, 10, 3000)), source=answer.messages[index])
            for index, ident in enumerate(idents)
        ]
        await self.sink.record(results)
        self.tell(wrote=[m.uuid for m in (*answer.messages, *results)])
        self.live = []  # taking a tool's result back isn't what a session does

    async def superseded(self) -> None:
        """An attempt whose blocks are in the file is tombstoned by the next one."""
        first, second = Answer(self.make, self.name("msg")), Answer(self.make, self.name("msg"))
        self.sink.on_next([first.start(), *first.text(self.text()), *first.text(self.text())])
        if self.random.random() < 0.7:
            await self.sink.drain()
            self.tell(wrote=[m.uuid for m in first.messages])
        self.tell(taking=[m.uuid for m in first.messages])
        self.sink.on_next([*first.tombstones(), second.start(), *second.text(self.text()), *second.end()])
        await self.sink.drain()
        self.tell(took=[m.uuid for m in first.messages])
        self.acknowledge(second.messages)

    async def take_back(self) -> None:
        """Some message that is in the file: the last one, or one before."""
        if not self.live:
            return
        message = self.live.pop(self.random.choice((-1, self.random.randrange(len(self.live)))))
        self.tell(taking=[message.uuid])
        self.sink.append(self.make.tombstone(message))
        await self.sink.drain()
        self.tell(took=[message.uuid])

    async def compact(self) -> None:
        queued = self.make.user("just before the compaction")
        self.sink.append(queued)
        boundary = self.make.system(
            "compact_boundary", "Conversation compacted", compactMetadata={"trigger": "auto", "preTokens": 1000}
        )
        summary = self.make.user("This is what went before: words.", is_compact_summary=True)
        await self.sink.record([boundary, summary])
        self.tell(wrote=[queued.uuid, boundary.uuid, summary.uuid])
        self.tell(began=boundary.uuid)
        self.live = []

    async def reopen(self) -> None:
        self.tell(closing=True)
        await self.sink.aclose()
        self.tell(closed=True)
        self.sink = self.opened()


def child(path: Path, seed: int, tombstones: str, acks: int) -> None:
    try:
        asyncio.run(Work(path, seed, tombstones, acks).forever())
    except BaseException:  # noqa: BLE001 - whatever it is, the test must hear of it
        os.write(acks, json.dumps({"failed": traceback.format_exc()[-3000:]}).encode() + b"\n")
    finally:
        os._exit(1)


def serve(acks: int) -> None:
    for line in sys.stdin:
        path, seed, tombstones = line.rstrip("\n").rsplit(" ", 2)
        pid = os.fork()
        if pid == 0:
            child(Path(path), int(seed), tombstones, acks)
        os.write(acks, json.dumps({"child": pid}).encode() + b"\n")
        _, status = os.waitpid(pid, 0)
        os.write(acks, json.dumps({"dead": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
