"""``turnstream replay``: recorded streams through the stages into the sinks."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import orjson

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_PIPE, EXIT_USAGE
from turnstream.cli.output import OutputSink
from turnstream.cli.progress import LONG, ProgressBar
from turnstream.composition import Pipeline, RunOutcome
from turnstream.messages.errors import TranscriptError, TurnstreamError
from turnstream.messages.ids import IdSource, random_ids, stable_ids
from turnstream.messages.types import ResponseFailed
from turnstream.operators import accumulate, as_exception, decode, parse_events
from turnstream.operators.batch import Batch
from turnstream.operators.stage import Operator
from turnstream.sinks.base import Sink, SinkBase
from turnstream.sinks.metrics import MetricsSink, table
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.ui import PlainRenderer, UISink
from turnstream.sources import SessionSource, Source, from_file, from_stdin

__all__ = ["replay"]


class _Failures(SinkBase):
    """Tells each failed answer on standard error: file, event number, byte offset, error class."""

    name = "failures"

    def __init__(self, replay: _Replay) -> None:
        self._replay = replay

    def on_next(self, batch: Sequence[Any], /) -> None:
        items = batch.items if isinstance(batch, Batch) else batch
        if ResponseFailed in map(type, items):
            for item in items:
                if isinstance(item, ResponseFailed):
                    self._replay.tell_failure(item)


class _Replay:
    """One invocation: the options turned into a source, sinks, and a verdict."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.current = ""
        self.started_at: float | None = None
        self.metrics: MetricsSink | None = None
        self.session: SessionSource[bytes, Any] | None = None
        # Opened before anything is read: a path that can't be written is a usage error.
        self.metrics_stream: TextIO | None = (
            open(options.metrics_file, "w", encoding="utf-8") if options.metrics_file else None  # noqa: SIM115
        )

    # -- parts -----------------------------------------------------------------------------------------

    def source(self) -> SessionSource[bytes, Any]:
        """All files as one session."""
        sources: list[Source[bytes]] = [
            from_stdin() if name == "-" else from_file(name, pace=self.options.speed) for name in self.options.files
        ]
        numbers = {id(source): number for number, source in enumerate(sources)}

        def operator(source: Source[bytes]) -> Operator[bytes, Any]:
            strict = self.options.strict
            ids: IdSource = random_ids()
            if self.options.ids == "stable":
                ids = stable_ids(numbers[id(source)], Path(source.name).name)
            return decode(strict=strict) | parse_events(strict=strict) | accumulate(ids=ids, strict=strict)

        self.session = SessionSource(
            sources, operator, name="replay", announce=self.options.speed is not None, started=self._started
        )
        return self.session

    def _started(self, source: Source[bytes]) -> None:
        self.current = source.name
        self.started_at = asyncio.get_running_loop().time() if self.options.speed is not None else None

    def human(self) -> TextIO:
        """Where the conversation and tables go: standard output unless that carries data."""
        data = self.options.output != "none" or (self.options.metrics == "json" and not self.options.metrics_file)
        return sys.stderr if data else sys.stdout

    def sinks(self) -> list[Sink]:
        """The sinks that the options ask for."""
        options = self.options
        sinks: list[Sink] = []
        if options.output != "none":
            sinks.append(OutputSink(sys.stdout.buffer, options.output, lambda: self.started_at))
        human = self.human()
        show = options.ui == "plain" or (options.ui == "auto" and human is sys.stdout)
        if show:
            live = human.isatty()
            color = live and not os.environ.get("NO_COLOR")
            sinks.append(UISink(PlainRenderer(human, live=live, color=color)))
        if options.transcript is not None:
            sinks.append(self._transcript(options.transcript))
        self.metrics = MetricsSink()
        sinks.append(self.metrics)
        total = _size(options.files)
        if total >= LONG and sys.stderr.isatty() and not (show and human.isatty()) and options.speed is None:
            sinks.append(ProgressBar(sys.stderr, total))
        sinks.append(_Failures(self))
        return sinks

    def _transcript(self, path: str) -> TranscriptSink:
        names = [Path(name).name for name in self.options.files]
        ids: IdSource | None = None
        if self.options.ids == "stable":
            ids = stable_ids("session", *names)
        try:
            sink = TranscriptSink(
                path,
                title=f"Replay of {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else ""),
                append=self.options.append,
                durability="fsync" if self.options.fsync else "flush",
                device_patience=0,
                ids=ids,
            )
            sink.open()
        except TranscriptError as error:
            if not self.options.append and Path(path).exists():
                error.hint = "--append goes on with it; or choose another file"
            raise
        return sink

    # -- telling ---------------------------------------------------------------------------------------

    def tell_failure(self, failed: ResponseFailed) -> None:
        """One line on standard error for a failed answer."""
        error = as_exception(failed, file=self.current)
        say(f"{failed.outcome}: {error} [{type(error).__name__}]")

    def tell_metrics(self) -> None:
        """The metrics, where and how the options say."""
        options = self.options
        if options.metrics == "none" and not options.metrics_file:
            return
        assert self.metrics is not None
        report = self.metrics.report()
        if options.metrics == "table":
            text = table(report)
        else:
            text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode()
        if self.metrics_stream is not None:
            with self.metrics_stream as stream:
                stream.write(text + "\n")
        elif options.metrics == "json" and options.output == "none":
            print(text)
        else:
            print(text, file=self.human())

    def verdict(self, outcome: RunOutcome) -> int:
        """The exit status; what wasn't told yet is told."""
        assert self.session is not None
        failed = not outcome.ok
        pipe = False
        for name, error in outcome.sink_errors.items():
            if _is_broken_pipe(error):
                pipe = True
            else:
                say(f"{error} [{type(error).__name__}]" if name in str(error) else f"{name}: {error}")
        for _, error in self.session.errors:
            failed = True
            if not isinstance(error, TurnstreamError) or outcome.answers_failed == 0:
                say(f"{error} [{type(error).__name__}]")
        if outcome.error is not None:
            say(f"{outcome.error} [{type(outcome.error).__name__}]")
        if pipe:
            return EXIT_PIPE
        return EXIT_FAILED if failed else EXIT_COMPLETE


def say(text: str) -> None:
    """One line on standard error."""
    print(f"turnstream: {text}", file=sys.stderr)


def _is_broken_pipe(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__cause__
    return False


def _size(files: Sequence[str]) -> int:
    total = 0
    for name in files:
        try:
            total += os.stat(name).st_size
        except OSError:
            return 0
    return total


async def _run(work: _Replay) -> int:
    sinks = work.sinks()
    async with Pipeline(work.source()).to(*sinks) as run:
        outcome = await run
    work.tell_metrics()
    return work.verdict(outcome)


def replay(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream replay --help``.

    Returns:
        The exit status.
    """
    if options.files.count("-") > 1:
        say("standard input can be read only once")
        return EXIT_USAGE
    if options.append and options.transcript is None:
        say("--append goes with --transcript")
        return EXIT_USAGE
    try:
        work = _Replay(options)
    except OSError as error:
        say(f"can't write {options.metrics_file}: {error.strerror}")
        return EXIT_USAGE
    try:
        return asyncio.run(_run(work))
    except TranscriptError as error:
        say(f"{error}")
        return EXIT_USAGE
