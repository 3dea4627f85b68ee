"""What ``replay`` and ``send`` share: the options turned into sinks, one run, and a verdict."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

import orjson

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_PIPE, EXIT_USAGE
from turnstream.cli.output import OutputSink
from turnstream.cli.saying import say
from turnstream.cli.signals import Signals
from turnstream.composition import Pipeline
from turnstream.messages.errors import APIError, TranscriptError, TurnstreamError
from turnstream.messages.ids import IdSource, random_ids, stable_ids
from turnstream.messages.types import AssistantMessage, ResponseFailed
from turnstream.operators.batch import Batch
from turnstream.operators.failures import as_exception
from turnstream.run import RunOutcome
from turnstream.sinks.base import Sink, SinkBase
from turnstream.sinks.metrics import MetricsSink, table
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.ui import PlainRenderer, UISink
from turnstream.sinks.ui.terminal import encodable
from turnstream.sources import SessionSource, Source

__all__ = ["Command", "Work", "perform", "say", "warning_before"]

_NARROWEST = 20
"""Columns: a terminal that says fewer isn't believed."""


def warning_before(idle: float) -> float:
    """After how many seconds of silence to warn, where it is given up after ``idle``."""
    return min(45.0, idle / 2)


class Command(Protocol):
    """What a command adds to the sinks."""

    def source(self, work: Work) -> SessionSource[bytes, Any]:
        """What is played."""
        ...

    async def prepare(self, work: Work) -> None:
        """Runs before the run starts."""
        ...

    def left(self) -> str:
        """What a signal kept from being played, empty for nothing."""
        ...

    def unanswered(self) -> str:
        """What a signal broke off if no answer was open."""
        ...


class _Failures(SinkBase):
    """Tells each failed answer on standard error: file, event number, byte offset, error class."""

    name = "failures"
    wants_deltas = False

    def __init__(self, work: Work) -> None:
        self._work = work
        self.partial: AssistantMessage | None = None

    def on_next(self, batch: Sequence[Any], /) -> None:
        items = batch.items if isinstance(batch, Batch) else batch
        if ResponseFailed in (classes := set(map(type, items))) or AssistantMessage in classes:
            for item in items:
                if isinstance(item, ResponseFailed):
                    self._work.tell_failure(item)
                elif isinstance(item, AssistantMessage) and item.is_aborted_mid_stream:
                    self.partial = item


class Work:
    """One invocation.

    Args:
        options: the command line's.
        command: what is particular to the command.
        names: of the inputs; stable ids depend on them.
        title: names a new transcript; None for none.
        session_id: of a new transcript, None for a new one.
        timed: whether the sources have arrival times.

    Raises:
        OSError: the metrics file can't be opened; a usage error, so before anything is read.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        command: Command,
        *,
        names: Sequence[str],
        title: str | None,
        timed: bool,
        session_id: str | None = None,
    ) -> None:
        self.options = options
        self.command = command
        self.names = tuple(names)
        self.title = title
        self.session_id = session_id
        self.timed = timed
        self.current = ""
        self.started_at: float | None = None
        self.transcript: TranscriptSink | None = None
        self.clear: Callable[[], None] = lambda: None  # takes away what would disturb a line on standard error
        self._metrics = MetricsSink()
        self._failures = _Failures(self)
        self._session: SessionSource[bytes, Any] | None = None
        # Opened before anything is read, emptied only when there is something to write.
        self._metrics_stream: TextIO | None = None
        if options.metrics_file:
            fd = os.open(options.metrics_file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._metrics_stream = open(fd, "w", encoding="utf-8")  # noqa: SIM115

    # -- parts -----------------------------------------------------------------------------------------

    def ids(self, *scope: object) -> IdSource:
        """Random ids, or with ``--ids stable`` those that ``scope`` gives."""
        return stable_ids(*scope) if self.options.ids == "stable" else random_ids()

    def started(self, source: Source[bytes]) -> None:
        """A source is opened: failures are its, and the clock of the first token runs."""
        self.current = source.name
        self.started_at = asyncio.get_running_loop().time() if self.timed else None

    def human(self) -> TextIO:
        """Where the conversation and tables go: standard output unless that carries data."""
        data = self.options.output != "none" or (self.options.metrics == "json" and not self.options.metrics_file)
        return sys.stderr if data else sys.stdout

    @property
    def shows(self) -> bool:
        """Whether the conversation is shown."""
        return self.options.ui == "plain" or (self.options.ui == "auto" and self.human() is sys.stdout)

    def sinks(self) -> list[Sink]:
        """The sinks that the options ask for.

        Raises:
            TranscriptError: the transcript can't be written.
        """
        options = self.options
        sinks: list[Sink] = []
        if options.output != "none":
            sinks.append(OutputSink(sys.stdout.buffer, options.output, lambda: self.started_at))
        if self.shows:
            human = self.human()
            live = human.isatty()
            color = live and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
            width = max(shutil.get_terminal_size().columns, _NARROWEST) if live else 80
            sinks.append(UISink(PlainRenderer(human, live=live, color=color, width=width)))
        if options.transcript is not None:
            self.transcript = self._open_transcript(options.transcript)
            sinks.append(self.transcript)
        return [*sinks, self._metrics, self._failures]

    def _open_transcript(self, path: str) -> TranscriptSink:
        options = self.options
        try:
            sink = TranscriptSink(
                path,
                session_id=self.session_id,
                title=self.title,
                append=options.append,
                durability="fsync" if options.fsync else "flush",
                device_patience=0,
                ids=self.ids("session", *self.names),
            )
            sink.open()
        except TranscriptError as error:
            if not options.append and Path(path).is_file() and not Path(path).is_symlink():
                error.hint = "--append goes on with it; or choose another file"
            raise
        return sink

    # -- the run ---------------------------------------------------------------------------------------

    async def run(self, more: Callable[[], Sequence[Sink]] = lambda: ()) -> int:
        """Prepare, run, tell.

        Args:
            more: makes further sinks.

        Returns:
            The exit status.
        """
        with Signals() as signals:
            sinks = [*self.sinks(), *more()]
            self._session = self.command.source(self)
            try:
                await self.command.prepare(self)
            except (TurnstreamError, asyncio.CancelledError) as error:
                return await self._not_begun(error, signals)
            async with Pipeline(self._session).to(*sinks) as run:
                signals.watch(run)
                outcome = await run
        told = self._tell_metrics()
        status = self._verdict(outcome)
        if not told and status == EXIT_COMPLETE:
            status = EXIT_FAILED
        if signals.caught is not None and outcome.status == "aborted":
            self._tell_interruption(signals.caught.name, outcome)
            if status != EXIT_PIPE:
                status = 128 + signals.caught
        return status

    def close(self) -> None:
        """Let go of the metrics file. Idempotent."""
        if self._metrics_stream is not None:
            with contextlib.suppress(OSError):  # what it couldn't write was told
                self._metrics_stream.close()

    async def _not_begun(self, error: BaseException, signals: Signals) -> int:
        if self.transcript is not None:
            try:
                await self.transcript.aclose()
            except TurnstreamError as second:
                if isinstance(error, asyncio.CancelledError):
                    say(f"{second} [{type(second).__name__}]")
        if isinstance(error, asyncio.CancelledError):
            if signals.caught is None:
                raise error
            say(f"{signals.caught.name}: nothing was sent")
            return 128 + signals.caught
        say(f"{error} [{type(error).__name__}]; nothing was sent")
        return EXIT_FAILED

    # -- telling ---------------------------------------------------------------------------------------

    def tell_failure(self, failed: ResponseFailed) -> None:
        """One line on standard error for a failed answer."""
        self.clear()
        error = as_exception(failed, file=self.current)
        details = ""
        if isinstance(error, APIError):
            details = "".join(
                f", {word} {value}"
                for word, value in (("status", error.status), ("request", error.request_id))
                if value is not None
            )
        say(f"{failed.outcome}: {error} [{type(error).__name__}]{details}")

    def _tell_metrics(self) -> bool:
        """The metrics, where and how the options say; False if they couldn't be written."""
        try:
            self._write_metrics()
        except BrokenPipeError:
            raise
        except OSError as error:
            say(f"can't write the metrics: {error.strerror}")
            return False
        return True

    def _write_metrics(self) -> None:
        options = self.options
        if options.metrics == "none" and not options.metrics_file:
            return
        report = self._metrics.report()
        if options.metrics == "table":
            text = table(report)
        else:
            text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode()
        if self._metrics_stream is not None:
            with self._metrics_stream as stream:
                if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    stream.truncate(0)
                stream.write(text + "\n")
        else:
            stream = sys.stdout if options.metrics == "json" and options.output == "none" else self.human()
            print(encodable(text, stream.encoding), file=stream)

    def _tell_interruption(self, signal: str, outcome: RunOutcome) -> None:
        """What a signal lost, and what was kept."""
        told: list[str] = []
        aborted = [failed for failed in outcome.failures if failed.error.get("type") == "aborted"]
        if aborted:
            told.append(f"the open answer was cut off: {_counted(len(aborted[-1].kept), 'content block')} kept")
            partial = self._failures.partial
            tools = (partial.unfinished_tool_inputs or ()) if partial is not None else ()
            told += [f"the input of tool {tool.get('name')} is unfinished, kept as text" for tool in tools]
            told.append("what the source hadn't given yet is lost")
        elif outcome.answers_complete:
            told.append("no answer was cut off")
        else:
            told.append(self.command.unanswered())
        if left := self.command.left():
            told.append(left)
        if self.transcript is not None:
            statistics = outcome.statistics[self.transcript.name]
            lost = statistics["pending_lines"]
            told.append(
                f"{self.options.transcript} holds {_counted(statistics['lines'], 'new line')}"
                + (f", {lost} lost" if lost else "")
            )
        say(f"{signal}: {'; '.join(told)}")

    def _verdict(self, outcome: RunOutcome) -> int:
        """The exit status; what wasn't told yet is told."""
        assert self._session is not None
        failed = not outcome.ok
        pipe = False
        for name, error in outcome.sink_errors.items():
            if _is_broken_pipe(error):
                pipe = True
            else:
                say(f"{error} [{type(error).__name__}]" if name in str(error) else f"{name}: {error}")
        for _, error in self._session.errors:
            failed = True
            if not isinstance(error, TurnstreamError) or outcome.answers_failed == 0:
                say(f"{error} [{type(error).__name__}]")
        if outcome.error is not None and all(error is not outcome.error for _, error in self._session.errors):
            say(f"{outcome.error} [{type(outcome.error).__name__}]")
        if pipe:
            return EXIT_PIPE
        return EXIT_FAILED if failed else EXIT_COMPLETE


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _is_broken_pipe(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__cause__
    return False


def _clash(options: argparse.Namespace, inputs: Sequence[str]) -> str | None:
    """What would be overwritten, or read while it is written; None if all files are different ones."""
    files: dict[object, str] = {}
    for name in inputs:
        if (identity := _identity(0 if name == "-" else name)) is not None:
            files[identity] = "an input"
    for name, what in ((options.transcript, "the transcript"), (options.metrics_file, "the metrics file")):
        if name is None or (identity := _identity(name)) is None:
            continue
        if identity in files:
            return f"{what} {name} is {files[identity]}, too"
        files[identity] = what
    return "standard output is an input, too" if files.get(_identity(1)) == "an input" else None


def _identity(file: str | int) -> object | None:
    """What tells one regular file (also one that isn't there yet) from another, whatever its name; else None."""
    try:
        there = os.stat(file)
    except OSError:
        return os.path.realpath(file) if isinstance(file, str) else None
    return (there.st_dev, there.st_ino) if stat.S_ISREG(there.st_mode) else None


def perform(
    options: argparse.Namespace,
    command: Command,
    *,
    names: Sequence[str],
    title: str | None,
    timed: bool,
    session_id: str | None = None,
    more: Callable[[Work], Sequence[Sink]] = lambda work: (),
    inputs: Sequence[str] = (),
) -> int:
    """Run a command from its options to its exit status.

    The arguments are those of :class:`Work`, and ``inputs``: the files that are read; none of them is written.
    """
    if options.append and options.transcript is None:
        say("--append goes with --transcript")
        return EXIT_USAGE
    if options.transcript is not None and not Path(options.transcript).name:
        say(f"the transcript needs the name of a file, not {options.transcript!r}")
        return EXIT_USAGE
    if options.transcript is not None and not options.append and os.path.isfile(options.transcript):
        say(f"the transcript {options.transcript} exists; --append goes on with it; or choose another file")
        return EXIT_USAGE
    if options.metrics == "none" and options.metrics_file:
        say("--metrics-file goes with --metrics table or json")
        return EXIT_USAGE
    data = options.output != "none" or (options.metrics == "json" and not options.metrics_file)
    if data and sys.__stdout__ is None:
        say("standard output is closed")
        return EXIT_USAGE
    if (clash := _clash(options, inputs)) is not None:
        say(clash)
        return EXIT_USAGE
    try:
        work = Work(options, command, names=names, title=title, timed=timed, session_id=session_id)
    except OSError as error:
        say(f"can't write {options.metrics_file}: {error.strerror}")
        return EXIT_USAGE
    try:
        return asyncio.run(work.run(lambda: more(work)))
    except TranscriptError as error:
        say(f"{error}")
        return EXIT_USAGE
    finally:
        work.close()
