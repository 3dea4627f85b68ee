"""What stands beside a chain and may belong to one of its answers (WIRE.md §3; FAULTS.md 39, 58).

``message.id`` joins the blocks of an answer, but it is no key: some gateways give all answers the same. So what comes
back must hang on the answer, too, or have lost its parent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from turnstream.sinks.transcript.reading.heads import ASSISTANT, USER, Member
from turnstream.sinks.transcript.reading.links import Links

__all__ = ["Group", "Groups"]


class Group:
    """An answer on the chain and what is around it.

    Attributes:
        answer: its message id, empty if it has none.
        chain: its members on the chain, in order.
        results: what stands among and behind them there, up to other words.
        beside: its members beside the chain.
        around: what else beside the chain may belong to it.
    """

    __slots__ = ("answer", "around", "beside", "chain", "results")

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.chain: list[int] = []
        self.results: list[int] = []
        self.beside: list[int] = []
        self.around: list[int] = []


class Groups:
    """Finds the answers on a chain that something beside it may belong to.

    Args:
        links: of the file.
        order: indexes of the chain's members, the root first.
        is_result: whether a user member holds a tool's result; asked for few.

    Attributes:
        places: index of a member → its place in the chain, -1 for those beside it.
        lost: users beside the chain whose parent isn't in the file: their content tells whose they are.
    """

    def __init__(self, links: Links, order: Sequence[int], is_result: Callable[[Member], bool]) -> None:
        self._links = links
        self._order = order
        self._is_result = is_result
        self._kids: dict[int, list[int]] = {}
        self._by_source: dict[str, list[int]] = {}
        self._orphans: dict[int, list[int]] = {}  # place of an answer → blocks of its that lost their parent
        self.lost: list[int] = []
        self.places = places = [-1] * len(links.members)
        for place, at in enumerate(order):
            places[at] = place
        if order and len(order) < len(links.members):
            self._look_beside()

    def _look_beside(self) -> None:
        links, places = self._links, self.places
        members, kids = links.members, self._kids
        orphans: list[int] = []
        for at, bridge in links.bridges.items():
            if bridge.kind in ("dangling_parent", "loop") and places[at] < 0 and links.belongs(members[at]):
                if members[at].kind == USER:
                    self.lost.append(at)
                elif members[at].answer:
                    orphans.append(at)
        self.lost.sort()
        if orphans:
            self._give(sorted(orphans))
        for at in self._near(orphans):
            member = members[at]
            if places[at] >= 0 or not links.belongs(member):
                continue
            if member.up >= 0:
                kids.setdefault(member.up, []).append(at)
            if member.more is not None and member.kind == USER and member.source is not None:
                self._by_source.setdefault(member.source, []).append(at)

    def _near(self, orphans: Sequence[int]) -> Iterable[int]:
        """Indexes, in order, of at least all members that hang on the chain, an orphan or what does, or name what does.

        Before the chain, where most of a long file may be, members hang on earlier ones, but for a few.
        """
        links = self._links
        members, first = links.members, min(self._order)
        if first == 0 or min(orphans, default=first) < first:
            return range(len(members))
        if any(at < first <= members[at].up for at in links.moved):
            return range(len(members))
        return [*sorted({at for at in links.early if at < first}), *range(first, len(members))]

    def _give(self, orphans: list[int]) -> None:
        """Each block that lost its parent to the nearest answer of its id: the one before it, else the one behind."""
        members = self._links.members
        answers: dict[str, list[int]] = {}
        for at in sorted(self._order):
            if members[at].answer:
                answers.setdefault(members[at].answer or "", []).append(at)
        for at in orphans:
            own = answers.get(members[at].answer or "")
            if own:
                nearest = own[max(bisect_left(own, at) - 1, 0)]
                self._orphans.setdefault(self.places[nearest], []).append(at)

    def find(self) -> Iterator[Group]:
        """The answers with what is around them, in the order of the chain."""
        seen: set[int] = set()
        for place in self._touched():
            if place not in seen:
                group = self._group_at(place)
                seen.update(self.places[at] for at in group.chain)
                self._look_around(group)
                yield group

    def _touched(self) -> list[int]:
        """Places of assistants in the chain that something beside it may belong to."""
        members, places, order = self._links.members, self.places, self._order
        if not (self._kids or self._by_source or self._orphans or self.lost):
            return []
        speaker, last = [], -1  # place → place of the assistant at or before it
        for place, at in enumerate(order):
            if members[at].kind == ASSISTANT:
                last = place
            speaker.append(last)
        if self.lost:
            # Any answer may be theirs.
            return sorted(set(speaker) - {-1})
        touched = set(self._orphans)
        for up, below in self._kids.items():
            place = places[up]
            if place < 0:
                continue
            # Blocks may hang side by side on the prompt.
            after = members[order[place + 1]] if place + 1 < len(order) else None
            if after is not None and after.answer and any(members[at].answer == after.answer for at in below):
                touched.add(place + 1)
            # On a result on the chain may hang the next block of the answer, and what came after the result.
            touched.add(speaker[place])
        find = self._links.find
        touched.update(speaker[places[at]] for one in self._by_source if (at := find(one)) >= 0 and places[at] >= 0)
        return sorted(touched - {-1})

    def _group_at(self, place: int) -> Group:
        """The answer on the chain that the assistant at this place belongs to.

        Results may stand between the blocks of one; a prompt may not.
        """
        members, order = self._links.members, self._order
        group = Group(members[order[place]].answer or "")
        first = here = place
        while group.answer and here > 0:
            here -= 1
            member = members[order[here]]
            if member.kind == ASSISTANT:
                if member.answer != group.answer:
                    break
                first = here
            elif member.kind == USER and not self._is_result(member):
                break
        for here in range(first, len(order)):
            at = order[here]
            member = members[at]
            if member.kind == ASSISTANT:
                if group.chain and (not group.answer or member.answer != group.answer):
                    break
                group.chain.append(at)
            elif member.kind == USER and not self._is_result(member):
                break
            else:
                group.results.append(at)
        return group

    def _look_around(self, group: Group) -> None:
        kids, places = self._kids, self.places
        members, answer = self._links.members, group.answer
        beside: dict[int, None] = {}
        around: dict[int, None] = {}
        todo = [kid for at in (*group.chain, *group.results) for kid in kids.get(at, ())]
        todo += [orphan for at in group.chain for orphan in self._orphans.get(places[at], ())]
        if answer:
            # Blocks may hang side by side on the prompt.
            first = members[group.chain[0]].up
            todo += [at for at in kids.get(first, ()) if members[at].answer == answer]
        while todo:
            at = todo.pop()
            member = members[at]
            if at in beside or at in around:
                continue
            below = kids.get(at, ())
            if member.kind == ASSISTANT:
                if not answer or member.answer != answer:
                    continue  # another answer
                beside[at] = None
            else:
                around[at] = None
                if member.kind == USER and not self._is_result(member):
                    continue  # somebody else's words
            todo.extend(below)
        for at in (*group.chain, *beside):
            uuid = members[at].uuid
            if uuid and uuid in self._by_source:
                around.update(dict.fromkeys(self._by_source[uuid]))
        group.beside = sorted(beside)
        group.around = sorted(around)
