"""``turnstream normalize``: a file's messages as the API takes them, or as a display shows them."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from turnstream.cli.reading import BadLine, Record, conversation, open_input, read_records, shown_name
from turnstream.cli.saying import reason, say
from turnstream.messages.codec import to_wire
from turnstream.messages.jsonvalue import JSONValueError, dumps, loads
from turnstream.messages.types import RESULT_TYPES, Message, ProgressMessage, QueryItem, Tombstone
from turnstream.operators.compaction.boundary import without_tombstoned
from turnstream.operators.display import for_display
from turnstream.operators.normalize import Repair, can_think, normalize_for_api, request_messages
from turnstream.sinks.ui.terminal import safe

__all__ = ["normalize"]

_FOR_API = ("dialect", "model", "thinking", "tools", "prefill", "reserved_cache_marks", "refused", "explain")
"""Options that say nothing about a display."""


class _Notes:
    """What goes to standard error beside errors: lines that were passed over, and repairs."""

    def __init__(self, shape: str | None) -> None:
        self.all = shape is not None  # the filter shall say why it drops each message
        self._json = shape == "json"

    def repair(self, repair: Repair) -> None:
        """One repair: ``stage uuid what: why``."""
        if self._json:
            self._line(
                dumps({"stage": repair.stage, "uuid": repair.uuid, "what": repair.what, "why": repair.why}).decode()
            )
        else:
            text = f"{repair.stage} {repair.uuid or '-'} {repair.what}: {repair.why}"
            self._line(safe(" ".join(text.splitlines())))

    def bad_line(self, bad: BadLine) -> None:
        """A line that holds no record; in JSON it is a note of the stage ``read``."""
        if self._json:
            self.repair(Repair("read", None, f"line {bad.line}, byte {bad.offset}: skipped", bad.problem))
        else:
            say(f"line {bad.line}, byte {bad.offset}: {bad.problem}; skipped")

    def skipped(self, bad: int, lines: int) -> None:
        """How many lines were passed over, at the end."""
        if bad and not self._json:
            say(f"{bad} of {lines} lines skipped")

    def _line(self, text: str) -> None:
        # Whoever doesn't listen any more misses notes, not the messages.
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr)


def normalize(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream normalize --help``.

    Returns:
        The exit status.
    """
    if options.purpose == "display" and (wrong := [name for name in _FOR_API if getattr(options, name) is not None]):
        say(f"--{wrong[0].replace('_', '-')} goes with --for api")
        return EXIT_USAGE
    if options.file == "-" and options.tools == "-":
        say("standard input can be read only once")
        return EXIT_USAGE
    tools: list[dict[str, Any]] | None = None
    if options.tools is not None:
        try:
            tools = _tools(options.tools)
        except ValueError as error:
            say(f"{error}")
            return EXIT_USAGE
    notes = _Notes(options.explain)
    name = shown_name(options.file)
    try:
        opened = open_input(options.file)
    except (OSError, ValueError) as error:
        say(f"can't read {name}: {reason(error)}")
        return EXIT_USAGE
    with opened as stream:
        try:
            messages = conversation(_kept(read_records(stream), notes, options.purpose))
        except OSError as error:
            say(f"can't read {name}: {reason(error)}")
            return EXIT_FAILED
    if not any(isinstance(message, RESULT_TYPES) for message in messages):
        say(f"{name} holds no message of a conversation")
        return EXIT_FAILED
    if options.purpose == "display":
        return _write(map(to_wire, for_display(without_tombstoned(messages))))
    return _write(_for_api(messages, tools, options, notes))


def _for_api(
    messages: list[Message], tools: list[dict[str, Any]] | None, options: argparse.Namespace, notes: _Notes
) -> Iterator[dict[str, Any]]:
    explain: Callable[[Repair], None] | None = notes.repair if options.explain else None
    normalized = normalize_for_api(
        # A display's groups are messages, too, but none that a file is expected to hold; the filter drops them.
        cast("list[QueryItem]", messages),
        tools=tools,
        model=options.model,
        thinking=bool(options.thinking),
        dialect=options.dialect or "anthropic",
        prefill=options.prefill or "refuse",
        reserved_cache_marks=options.reserved_cache_marks or 0,
        refused=options.refused,
        explain=explain,
    )
    if options.thinking and not can_think(normalized, options.model):
        say("the request can't have thinking on: the answer that calls tools began without it")
    yield from request_messages(normalized)


def _write(lines: Iterator[Any]) -> int:
    write = sys.stdout.buffer.write
    empty = True
    for line in lines:
        write(dumps(line) + b"\n")
        empty = False
    sys.stdout.buffer.flush()
    if empty:
        say("no message is left")
        return EXIT_FAILED
    return EXIT_COMPLETE


def _kept(records: Iterator[Record | BadLine], notes: _Notes, purpose: str) -> Iterator[Message]:
    """The messages that matter; what is bad is told. Nothing else is held: files may be mostly progress."""
    bad = last = 0
    wanted = (*RESULT_TYPES, Tombstone) if purpose == "api" else (*RESULT_TYPES, Tombstone, ProgressMessage)
    for record in records:
        last = record.line
        if isinstance(record, BadLine):
            bad += 1
            notes.bad_line(record)
        elif notes.all or isinstance(record.message, wanted):
            # The line itself isn't written again, so it needn't be kept beside what it holds.
            record.message.__dict__.pop("raw", None)  # pyright: ignore[reportAttributeAccessIssue]
            yield record.message
    notes.skipped(bad, last)


def _tools(name: str) -> list[dict[str, Any]]:
    """Tool definitions: a JSON list, or an object such as a request whose ``tools`` it is.

    Raises:
        ValueError: with words that say what is wrong with the file.
    """
    shown = shown_name(name)
    try:
        with open_input(name) as stream:
            value = loads(stream.read())
    except JSONValueError as error:
        raise ValueError(f"{shown} holds no JSON: {error}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"can't read the tools from {shown}: {reason(error)}") from None
    if isinstance(value, dict):
        value = value.get("tools")
    if not isinstance(value, list) or not all(map(_is_tool, value)):
        raise ValueError(f"{shown} holds no list of tools, each an object with a name or a type")
    return value


def _is_tool(value: Any) -> bool:
    # A toolset (of an MCP server) has a type and no name: which tools it declares isn't known then.
    return isinstance(value, dict) and (isinstance(value.get("name"), str) or isinstance(value.get("type"), str))
