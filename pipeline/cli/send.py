"""``turnstream send``: one request to the API, its answer streamed into the same sinks as a replay."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from turnstream.cli import EXIT_USAGE
from turnstream.cli.work import Work, perform, say, warning_before
from turnstream.flow.clocks import Clocks
from turnstream.messages.factories import MessageFactory
from turnstream.messages.jsonvalue import JSONValueError, loads
from turnstream.messages.types import RequestStart, ResponseFailed, SystemMessage
from turnstream.operators import accumulate, decode, parse_events
from turnstream.operators.batch import Batch
from turnstream.operators.resilience import RetryPolicy, host_budget, may_fall_back
from turnstream.operators.stage import Operator
from turnstream.sinks.base import Sink, SinkBase
from turnstream.sources import HTTPSource, Source, from_request, when_answered
from turnstream.sources.resilient import FALLBACK_SECONDS, FallBack, Make, ResilientSource, resilient

__all__ = ["send"]

_MODEL: Final = "claude-sonnet-4-5"
_MAX_TOKENS: Final = 4096
_LONGEST_TITLE: Final = 60
_BUSY: Final = frozenset({"overloaded_error", "rate_limit_error"})


class _Send:
    """One request as a session of one answer."""

    def __init__(self, options: argparse.Namespace, request: dict[str, Any], name: str) -> None:
        self._options = options
        self._request = request
        self._name = name
        idle = options.idle_timeout
        self._clocks = Clocks(
            connect=options.connect_timeout,
            first_byte=options.first_byte_timeout,
            idle=idle,
            idle_warning=None if idle is None else warning_before(idle),
            progress=options.progress_timeout,
        )
        self._attempt = 0
        self.ask()(RequestStart())  # what is wrong with the request or the URL is told before anything is opened

    def ask(self, *, stream: bool = True, model: str | None = None) -> Make:
        """Makes the source of an attempt.

        Raises:
            ValueError: the request or the URL can't be used (when it is called).
        """

        def make(start: RequestStart) -> HTTPSource:
            self._attempt = start.attempt
            request = self._request if model is None else _for_model(self._request, model)
            return from_request(request, base_url=self._options.base_url, stream=stream, clocks=self._clocks)

        return make

    def source(self, work: Work) -> ResilientSource:
        options = self._options
        strict = options.strict
        name = self._name

        def operator(source: Source[bytes]) -> Operator[bytes, Any]:
            assert isinstance(source, HTTPSource)
            # Two attempts may be answered with the same message id.
            ids = work.ids(0, name) if self._attempt <= 1 else work.ids(0, name, self._attempt)
            return when_answered(
                lambda: (
                    decode(content_type=source.content_type, strict=strict)
                    | parse_events(strict=strict)
                    | accumulate(ids=ids, strict=strict, request_id=source.request_id)
                )
            )

        return resilient(
            self.ask(),
            operator,
            retry=self._retry(),
            fall_back=self._fall_back(),
            clocks=self._clocks,
            budget=host_budget(options.base_url),
            ids=work.ids("system", name),
            name="send",
            started=work.started,
        )

    def _retry(self) -> RetryPolicy:
        return RetryPolicy(tries=1 + self._options.retries, total=self._options.retry_time)

    def _fall_back(self) -> list[FallBack]:
        options = self._options
        model = options.fallback_model

        def suits(failed: ResponseFailed) -> bool:
            # A model that has no room has none without a stream either.
            return may_fall_back(failed) and not (model is not None and failed.error.get("type") in _BUSY)

        found: list[FallBack] = []
        if options.stream_fallback:
            plain = self.ask(stream=False)
            found.append(FallBack(plain, "a request that doesn't stream", timeout=FALLBACK_SECONDS, suits=suits))
        if model is not None:
            found.append(FallBack(self.ask(model=model), f"model {model}", retry=self._retry()))
        return found

    async def prepare(self, work: Work) -> None:
        """The user's message is in the transcript before the request goes out."""
        content = _last_words(self._request)
        if work.transcript is not None and content:
            message = MessageFactory(work.ids("user", self._name)).user(content)
            await work.transcript.record([message])

    def left(self) -> str:
        return ""

    def unanswered(self) -> str:
        return "the request was given up before its answer began"

    def more(self, work: Work) -> Sequence[Sink]:
        """Where the conversation isn't shown, standard error says what is waited for."""
        return () if work.shows else (_Waits(),)


class _Waits(SinkBase):
    """Tells waits and switches on standard error."""

    name = "waits"
    wants_deltas = False

    def on_next(self, batch: Sequence[Any], /) -> None:
        for item in batch.items if isinstance(batch, Batch) else batch:
            if not isinstance(item, SystemMessage):
                continue
            fields = item.fields
            if item.subtype == "api_error":
                error = fields.get("error") or {}
                say(
                    f"{error.get('type')}: {error.get('message')}; again in {fields['retryInMs'] / 1000:.1f} s "
                    f"(retry {fields['retryAttempt']} of {fields['maxRetries']})"
                )
            elif fields.get("fallback"):
                say(str(item.content))


def _for_model(request: dict[str, Any], model: str) -> dict[str, Any]:
    """The request for another model: thinking is signed for the one that thought it (WIRE.md §4, repair)."""
    messages = request.get("messages")
    kept: list[Any] = []
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list) and message.get("role") == "assistant":
            rest = [block for block in content if not _is_thinking(block)]
            if rest or not content:
                kept.append({**message, "content": rest})
        else:
            kept.append(message)
    return {**request, "model": model, **({"messages": kept} if isinstance(messages, list) else {})}


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("thinking", "redacted_thinking")


def _last_words(request: dict[str, Any]) -> Any:
    """The content of the last user message, None if there is none."""
    messages = request.get("messages")
    for message in reversed(messages) if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            return content if isinstance(content, (str, list)) else None
    return None


def _read(path: str) -> bytes:
    if path == "-":
        if sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed")
        return sys.stdin.buffer.read()
    return Path(path).read_bytes()


class _UsageError(Exception):
    """What is wrong with the command line."""


def _asked(options: argparse.Namespace) -> tuple[dict[str, Any], str, str]:
    """The request, the name that stable ids depend on, and what a title calls it."""
    if options.prompt is None and options.request is None:
        raise _UsageError("give a PROMPT, or --request FILE.json")
    if options.prompt is not None and options.request is not None:
        raise _UsageError("give a PROMPT or --request, not both")
    if options.prompt is not None:
        return _from_prompt(options)
    for name in ("model", "max_tokens", "system"):
        if getattr(options, name) is not None:
            raise _UsageError(f"--{name.replace('_', '-')} goes with a PROMPT; the request has its own")
    path: str = options.request or "-"
    shown = "standard input" if path == "-" else path
    try:
        request = loads(_read(path))
    except OSError as error:
        raise _UsageError(f"can't read the request from {shown}: {error.strerror}") from None
    except JSONValueError as error:
        raise _UsageError(f"{shown} holds no JSON: {error}") from None
    if not isinstance(request, dict):
        raise _UsageError(f"{shown} holds no JSON object")
    return request, Path(shown).name, Path(shown).name


def _from_prompt(options: argparse.Namespace) -> tuple[dict[str, Any], str, str]:
    prompt = options.prompt
    try:
        if prompt == "-":
            prompt = _read("-").decode("utf-8", "replace")
    except OSError as error:
        raise _UsageError(f"can't read the prompt from standard input: {error.strerror}") from None
    # What the command line couldn't decode, the API couldn't either.
    prompt = prompt.encode("utf-8", "replace").decode()
    if not prompt.strip():
        raise _UsageError("the PROMPT is empty")
    request: dict[str, Any] = {
        "model": options.model or os.environ.get("ANTHROPIC_MODEL") or _MODEL,
        "max_tokens": options.max_tokens or _MAX_TOKENS,
        "messages": [{"role": "user", "content": prompt}],
    }
    if options.system:
        request["system"] = options.system.encode("utf-8", "replace").decode()
    line = " ".join(prompt.split())
    return request, prompt, line if len(line) <= _LONGEST_TITLE else f"{line[:_LONGEST_TITLE]}…"


def send(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream send --help``.

    Returns:
        The exit status.
    """
    try:
        request, name, shown = _asked(options)
        command = _Send(options, request, name)
    except (_UsageError, ValueError) as error:
        say(f"{error}")
        return EXIT_USAGE
    return perform(
        options,
        command,
        names=[name],
        title=shown if options.prompt is not None else f"Answer to {shown}",
        timed=True,
        more=command.more,
        inputs=[options.request] if options.request is not None else ["-"] if options.prompt == "-" else [],
    )
