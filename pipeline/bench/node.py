"""Peers under Node: one warmed process that is told, round by round, to run once and to say how long it took."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Final

from turnstream.bench.contender import Contender, Found, Given, Timed

__all__ = ["NODE_RXJS", "VARIABLE", "node_peers"]

NODE_RXJS: Final = "Node: eventsource-parser + rxjs"
VARIABLE: Final = "TURNSTREAM_BENCH_NODE"
"""The environment variable that names the folder whose ``node_modules`` has the packages."""

_WARM: Final = 2
"""Runs before the first that counts: the compiler is done after them."""

_SLOW: Final = "messages.stream()"


class _Node:
    """The process and its two pipes."""

    def __init__(self, node: str, folder: Path) -> None:
        script = resources.files("turnstream.bench").joinpath("peers.mjs").read_text(encoding="utf-8")
        # As --eval a module finds packages from the working directory, not from where our file lies.
        self._process = subprocess.Popen(
            [node, "--expose-gc", "--max-old-space-size=4096", "--input-type=module", "--eval", script],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        try:
            hello = self._answer()
        except BaseException:
            self.close()
            raise
        self.version: str = hello["node"]
        self.contenders: list[str] = hello["contenders"]
        self._loaded: Given | None = None

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"node ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"node: {answer['error']}")
        return answer

    def order(self, **what: str) -> dict[str, Any]:
        """Say one thing and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def load(self, given: Given) -> None:
        """Hand over the chunks, in a file."""
        if self._loaded is given:
            return
        # Who takes answers on their own gets them so under Node too.
        with tempfile.TemporaryDirectory(prefix="turnstream-bench-") as folder:
            path = Path(folder) / "workload"
            with open(path, "wb") as file:
                file.write(json.dumps([[len(chunk) for chunk in answer] for answer in given.answers]).encode() + b"\n")
                for answer in given.answers:
                    file.writelines(answer)
            self.order(load=str(path))
        self._loaded = given

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _prepare(node: _Node, name: str, given: Given) -> Given:
    node.load(given)
    for _ in range(_WARM):
        node.order(run=name)
    return given


def _run(node: _Node, name: str, given: Given) -> Timed:
    # The process holds one workload; in one measurement all contenders have the same.
    node.load(given)
    answer = node.order(run=name)
    return Timed(answer["seconds"], Found(**answer["found"]))


@contextlib.contextmanager
def node_peers(tell: Callable[[str], None] = lambda text: None) -> Generator[list[Contender], None, None]:
    """The peers whose packages Node finds; the process lives as long as the context.

    Args:
        tell: called with a line on what is missing.
    """
    node = shutil.which("node")
    folder = os.environ.get(VARIABLE)
    if node is None or not folder:
        tell("not measured: peers under Node " + ("(no node on PATH)" if node is None else f"({VARIABLE} isn't set)"))
        yield []
        return
    if not (Path(folder) / "node_modules").is_dir():
        tell(f"not measured: peers under Node ({VARIABLE}={folder} holds no node_modules)")
        yield []
        return
    process = _Node(node, Path(folder))
    try:
        if not process.contenders:
            tell(f"not measured: peers under Node ({folder} has none of eventsource-parser, rxjs, @anthropic-ai/sdk)")
        yield [
            Contender(
                name,
                partial(_run, process, name),
                prepare=partial(_prepare, process, name),
                slow=name.endswith(_SLOW),
            )
            for name in process.contenders
        ]
    finally:
        process.close()
