"""Parallel tool calls fork the chain: every sibling and its result comes back (WIRE.md §3; FAULTS.md 39).

The blocks of one answer are records of their own, each result hangs on the one that asked, and what follows hangs on
one of the results. So the way from the leaf to the root passes one result of several, and not always all blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnstream.messages.jsonvalue import dumps
from turnstream.messages.types import AssistantMessage, AttachmentMessage, SystemMessage
from turnstream.operators.compaction.boundary import is_compact_boundary
from turnstream.sinks.transcript.reading.content import Content
from turnstream.sinks.transcript.reading.groups import Group, Groups
from turnstream.sinks.transcript.reading.heads import ASSISTANT, USER, Member
from turnstream.sinks.transcript.reading.links import Links
from turnstream.sinks.transcript.reading.report import ResumeReport

__all__ = ["Siblings"]


class Siblings:
    """What stands beside a chain and belongs to its answers.

    Args:
        links: of the file.
        order: indexes of the chain's members, the root first.
        is_result: whether a user member holds a tool's result; asked for few.

    Attributes:
        wanted: indexes of the members beside the chain whose content :meth:`compose` needs, in the file's order.
    """

    def __init__(self, links: Links, order: Sequence[int], is_result: Callable[[Member], bool]) -> None:
        self._links = links
        self._order = order
        groups = Groups(links, order, is_result)
        self._places = groups.places
        self._lost = groups.lost
        self._groups = list(groups.find())
        wanted = set(groups.lost)
        for group in self._groups:
            wanted.update(group.beside, group.around)
        self.wanted = sorted(wanted)

    def compose(self, content: Content, report: ResumeReport) -> list[int]:
        """The chain with what belongs to it.

        Args:
            content: of the chain and of what is ``wanted``.
            report: is told what came back.

        Returns:
            Indexes in the order of the conversation: an answer's blocks, then its results in the order of the file.
        """
        if not self.wanted:
            return list(self._order)
        on = self._places
        answered = {ident for at, ids in content.answered.items() if on[at] >= 0 for ident in ids}
        lost = {ident: at for at in self._lost for ident in content.answered.get(at, ())}
        before: dict[int, list[int]] = {}
        behind: dict[int, list[int]] = {}
        belongs: dict[int, str] = {}  # what comes back → the call that it belongs to
        asker: dict[str, int] = {}
        for group in self._groups:
            blocks = self._blocks(group, content)
            chain = sorted(group.chain) if blocks else []
            for at in blocks:
                place = bisect_right(chain, at)
                where = before.setdefault(chain[place], []) if place < len(chain) else behind.setdefault(chain[-1], [])
                where.append(at)
                self._say(report, "sibling_restored", at, f"a block of the answer {group.answer}")
            asked = {ident: at for at in (*group.chain, *blocks) for ident in content.asked.get(at, ())}
            if not asked:
                continue
            asker.update(asked)
            found = group.around
            if lost:
                found = sorted({*found, *(lost[ident] for ident in asked if ident in lost)})
            results = self._results(group, found, asked, answered, content)
            for at, ident in results.items():
                kind = "result_restored" if content.answered.get(at, ()) else "attachment_restored"
                self._say(report, kind, at, f"it belongs to the tool call {ident}")
            belongs.update(results)
        order = self._with_blocks(before, behind)
        return self._with_results(order, belongs, asker, content) if belongs else order

    def _blocks(self, group: Group, content: Content) -> list[int]:
        """Those that say something that isn't on the chain yet: a block written twice is one."""
        if not group.beside:
            return []
        seen = {_said(content.messages.get(at)) for at in group.chain}
        asked = {ident for at in group.chain for ident in content.asked.get(at, ())}
        out = []
        for at in group.beside:
            message = content.messages.get(at)
            if message.__class__ is not AssistantMessage:
                continue
            ids, said = content.asked.get(at, ()), _said(message)
            if (ids and asked.issuperset(ids)) or said in seen:
                continue
            asked.update(ids)
            seen.add(said)
            out.append(at)
        return out

    def _results(
        self,
        group: Group,
        found: list[int],
        asked: dict[str, int],
        answered: set[str],
        content: Content,
    ) -> dict[int, str]:
        """Of what is around, the results of calls that have none on the chain, and what hangs on calls and results.

        Returns:
            Index → the call that it belongs to, in the order of the file.
        """
        members, ids_of = self._links.members, content.answered
        taken: dict[int, str] = {}
        silent: dict[int, list[int]] = {}
        # Of several results of one call the last one.
        for at in reversed(found):
            if members[at].kind != USER:
                silent.setdefault(members[at].up, []).append(at)
            elif at in ids_of:
                ids = [ident for ident in ids_of[at] if ident in asked and ident not in answered]
                if ids:
                    answered.update(ids)
                    taken[at] = ids[0]
        if silent:
            _give(silent, taken, taken)
        if silent:
            _give(silent, self._owners(group, asked, content), taken)
        return {at: taken[at] for at in sorted(taken)} if len(taken) > 1 else taken

    def _owners(self, group: Group, asked: dict[str, int], content: Content) -> dict[int, str]:
        """What stands on the chain → the call that it is or belongs to."""
        members = self._links.members
        owner = {at: ident for ident, at in reversed(asked.items())}
        for at in group.results:
            for ident in content.answered.get(at, ()):
                if ident in asked:
                    owner[at] = ident
                    break
            else:
                if members[at].kind != USER and members[at].up in owner:
                    owner[at] = owner[members[at].up]
        return owner

    def _with_blocks(self, before: Mapping[int, list[int]], behind: Mapping[int, list[int]]) -> list[int]:
        if not before and not behind:
            return list(self._order)
        out: list[int] = []
        done = 0
        for place in sorted({self._places[at] for at in (*before, *behind)}):
            at = self._order[place]
            out += self._order[done:place]
            out += before.get(at, ())
            out.append(at)
            out += behind.get(at, ())
            done = place + 1
        out += self._order[done:]
        return out

    def _with_results(
        self, order: list[int], belongs: Mapping[int, str], asker: Mapping[str, int], content: Content
    ) -> list[int]:
        """Results come behind the last block before the first result, those of one answer in the order of the file."""
        members = self._links.members
        askers = set(asker.values())
        places = {at: place for place, at in enumerate(order) if at in askers}
        around: dict[int, list[int]] = {}
        ends: dict[int, int] = {}
        for at, ident in belongs.items():
            first = places[asker[ident]]
            if first not in ends:
                here, answer = first, members[order[first]].answer
                while (
                    answer
                    and here not in ends
                    and here + 1 < len(order)
                    and members[order[here + 1]].kind == ASSISTANT
                    and members[order[here + 1]].answer == answer
                ):
                    here += 1
                place = ends.get(here, here)
                for one in range(first, here + 1):
                    ends[one] = place
            place = ends[first]
            around.setdefault(place, []).append(at)
        out: list[int] = []
        place = 0
        for end in sorted(around):
            out += order[place : end + 1]
            waiting = sorted(around[end])
            place = end + 1
            done = 0
            while done < len(waiting) and place < len(order) and self._is_around(order[place], content):
                if waiting[done] < order[place]:
                    out.append(waiting[done])
                    done += 1
                else:
                    out.append(order[place])
                    place += 1
            out.extend(waiting[done:])
        out += order[place:]
        return out

    def _is_around(self, at: int, content: Content) -> bool:
        """Whether it may stand among the results of an answer."""
        if at in content.answered:
            return True
        message = content.messages.get(at)
        return isinstance(message, AttachmentMessage) or (
            isinstance(message, SystemMessage) and not is_compact_boundary(message)
        )

    def _say(self, report: ResumeReport, kind: str, at: int, why: str) -> None:
        member = self._links.members[at]
        report.add(kind, why, line=member.line, offset=member.offset, uuid=member.uuid or None)


def _give(silent: dict[int, list[int]], owner: Mapping[int, str], taken: dict[int, str]) -> None:
    """Put what hangs on something that belongs to a call, and on that in its turn, from ``silent`` into ``taken``."""
    todo = [(up, owner[up]) for up in silent if up in owner]
    while todo:
        up, ident = todo.pop()
        for at in silent.pop(up, ()):
            taken[at] = ident
            if at in silent:
                todo.append((at, ident))


def _said(message: Any) -> bytes | None:
    return dumps(message.message.get("content")) if isinstance(message, AssistantMessage) else None
