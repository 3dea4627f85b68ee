"""``collapse_reads``: a run of reading and searching tools, shown as counts (WIRE.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, overload

from turnstream.messages.types import CollapsedReadSearch, GroupedToolUse, RequestStart
from turnstream.operators.display.group import derived_from
from turnstream.operators.display.parts import PASSING, Item, is_thinking, tool_ids, tool_use
from turnstream.operators.stage import Fault, Operator, lift, run_stages

__all__ = ["READ_TOOLS", "SEARCH_TOOLS", "Classify", "CollapseReads", "classify_tool", "collapse_reads", "uncollapse"]

READ_TOOLS: Final = frozenset({"read", "notebookread", "read_file", "readfile", "view"})
"""Tools that read a file, in small letters."""

SEARCH_TOOLS: Final = frozenset(
    {"grep", "glob", "ls", "search", "grep_search", "file_search", "list_dir", "list_files"}
)
"""Tools that look for files or in them, in small letters."""

Classify = Callable[[str, Mapping[str, Any]], Literal["read", "search"] | None]
"""Says of a tool's name and input whether it only reads or searches."""

_PATHS: Final = ("file_path", "notebook_path", "path")
_PASSING: Final = PASSING | {RequestStart}


def classify_tool(name: str, tool_input: Mapping[str, Any]) -> Literal["read", "search"] | None:
    """By name only: what a shell's command does can't be told from its text."""
    name = name.lower()
    return "read" if name in READ_TOOLS else "search" if name in SEARCH_TOOLS else None


class CollapseReads:
    """The stage: a run of ``minimum`` or more uses becomes a ``CollapsedReadSearch``.

    A run goes over several answers. It takes in what belongs to its tools (results, hooks' output,
    progress), groups of such tools, and the thinking between two of them. Everything else that stands in a
    display's list ends it: a text, another tool, a notice. Process items pass at once and end nothing.

    Memory: the run that is open.

    Args:
        classify: which tools read and search.
        minimum: uses a run must have; fewer stay as they are.
    """

    def __init__(self, classify: Classify = classify_tool, minimum: int = 2) -> None:
        self._classify = classify
        self._minimum = minimum
        self._run: list[Any] = []
        self._after: list[Any] = []  # thinking behind the run: in it only if it goes on
        self._tools: set[str | None] = set()
        self._reads = 0
        self._searches = 0
        self._files: dict[str, None] = {}

    def feed(self, batch: Sequence[Item], /) -> Sequence[Item | Fault]:
        """Take one batch."""
        out: list[Any] = []
        run, after = self._run, self._after
        for item in batch:
            uses = self._uses(item)
            if uses:
                self._count(uses)
            elif not run:
                out.append(item)
                continue
            elif self._tools.isdisjoint(tool_ids(item)):
                if is_thinking(item):
                    after.append(item)
                else:
                    if item.__class__ not in _PASSING:
                        self._end(out)
                    out.append(item)
                continue
            if after:
                run.extend(after)
                after.clear()
            run.append(item)
        return out

    def _uses(self, item: Item) -> Sequence[dict[str, Any]]:
        """The tool_use blocks of an item that only reads and searches, else none."""
        messages = item.messages if isinstance(item, GroupedToolUse) else (item,)
        uses = [use for use in map(tool_use, messages) if use is not None]
        return uses if len(uses) == len(messages) and all(map(self._kind, uses)) else ()

    def _kind(self, use: dict[str, Any]) -> Literal["read", "search"] | None:
        name, given = use.get("name"), use.get("input")
        return self._classify(name, given if isinstance(given, dict) else {}) if isinstance(name, str) else None

    def _count(self, uses: Sequence[dict[str, Any]]) -> None:
        for use in uses:
            self._tools.add(use["id"])
            if self._kind(use) == "search":
                self._searches += 1
                continue
            self._reads += 1
            given: Any = use.get("input")
            for key in _PATHS if isinstance(given, dict) else ():
                path = given.get(key)
                if isinstance(path, str):
                    self._files[path] = None
                    break

    def _end(self, out: list[Any]) -> None:
        run = self._run
        if self._reads + self._searches < self._minimum:
            out.extend(run)
        else:
            first = run[0]
            out.append(
                CollapsedReadSearch(
                    read_count=self._reads,
                    search_count=self._searches,
                    files=list(self._files),
                    messages=list(run),
                    uuid=derived_from(first.uuid, "collapsed"),
                    timestamp=first.timestamp,
                )
            )
        out.extend(self._after)
        run.clear()
        self._after.clear()
        self._tools.clear()
        self._files.clear()
        self._reads = self._searches = 0

    def flush(self) -> Sequence[Item | Fault]:
        """The end of the run."""
        out: list[Any] = []
        if self._run:
            self._end(out)
        return out

    def fail(self, error: Exception, /) -> Sequence[Item | Fault]:
        """The end of the run."""
        return self.flush()


def uncollapse(items: Iterable[Item], /) -> list[Item]:
    """Take collapsed runs apart again: ``uncollapse(collapse_reads(x))`` is ``x``.

    The exception to the rule: process items that stood within a run stand before it.
    """
    out: list[Any] = []
    for item in items:
        if isinstance(item, CollapsedReadSearch):
            out.extend(item.messages)
        else:
            out.append(item)
    return out


@overload
def collapse_reads(*, classify: Classify = ..., minimum: int = 2) -> Operator[Item, Item]: ...
@overload
def collapse_reads(messages: Iterable[Item], /, *, classify: Classify = ..., minimum: int = 2) -> list[Item]: ...
def collapse_reads(
    messages: Iterable[Item] | None = None, /, *, classify: Classify = classify_tool, minimum: int = 2
) -> Operator[Item, Item] | list[Item]:
    """A run of reading and searching tools between texts becomes a ``CollapsedReadSearch`` (WIRE.md §5).

    ``read_count`` and ``search_count`` are uses, ``files`` the paths read, each once. ``messages`` is the run
    itself, which :func:`uncollapse` puts back.

    Args:
        messages: a list, reordered and perhaps grouped; without it the operator is returned.
        classify: which tools read and search; by default those of :data:`READ_TOOLS` and :data:`SEARCH_TOOLS`.
        minimum: uses a run must have.
    """
    operator: Operator[Item, Item] = lift(lambda: CollapseReads(classify, minimum), "collapse_reads")
    return operator if messages is None else run_stages(messages, operator)
