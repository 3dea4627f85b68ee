"""The ids of the parts that messages are split into: the same every time, and never the same twice (WIRE.md §2)."""

from __future__ import annotations

import re
import uuid
from typing import Final

from turnstream.messages.ids import NAMESPACE, derive_uuid

__all__ = ["PartIds"]

# What derive_uuid makes for any index that occurs: made by it, or one of a sequence of ids.
_IS_NUMBERED: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-0{6}[0-9a-f]{6}", re.IGNORECASE).fullmatch
_PREFIX: Final = 24


class PartIds:
    """Hands out ids, one message at a time; what it says depends on the messages before it only.

    ``derive_uuid(parent, index)`` keeps just 24 characters of the parent, so two parents can come to one
    id. Then, and where they would later, the id is uuid5 of ``parent/index`` instead:

    - the id is taken: it was given away, or another message came with it;
    - the parent was derived itself, from one that a sibling before it in the list was derived from (a list
      that was split before): it keeps its id if it is one block, and nothing is derived from it;
    - the parent is one of a sequence (``…0001``) and the part's number is higher than its own: that may be
      a later message's id, which no later message should lose.

    Memory: the ids of the messages that came.
    """

    __slots__ = ("_again", "_families", "_made", "_own")

    def __init__(self) -> None:
        self._own: set[str] = set()
        self._made: set[str] = set()
        # The first 24 characters of numbered ids → the first that came with them, and whose part it is.
        self._families: dict[str, tuple[str, object]] = {}
        self._again: dict[str, int] = {}

    def stays(self, own: str) -> bool:
        """Note the id of a message that isn't split; False if a part of another message has it already."""
        if own in self._made:
            return False
        if own:
            self._own.add(own)
        return True

    def note(self, own: str, family: object) -> bool:
        """Note that a user or assistant message came with ``own``.

        Args:
            own: its uuid.
            family: what the parts of one message have in common.

        Returns:
            Whether it is a part of a message that another part of came before.
        """
        self._own.add(own)
        if not _IS_NUMBERED(own):
            return False
        first, of = self._families.setdefault(own[:_PREFIX], (own, family))
        return first != own and of == family

    def parts(self, own: str, count: int, family: object) -> list[str]:
        """The ids of the ``count`` parts of the message ``own``, none of them given away before."""
        known = own in self._own
        sibling = self.note(own, family)
        if sibling and count == 1 and not known and own not in self._made:
            self._made.add(own)
            return [own]
        return [self._part(own, index, sibling, known) for index in range(count)]

    def other(self, own: str, index: int) -> str:
        """The id of part ``index`` where none may be derived: uuid5 of ``own/index``, and of more if that is taken."""
        # An id may hold what is no Unicode: its surrogates, and only these, are written out.
        name = f"{own}/{index}".encode("utf-8", "backslashreplace").decode()
        out = str(uuid.uuid5(NAMESPACE, name))
        while out in self._made or out in self._own:
            self._again[name] = count = self._again.get(name, 0) + 1
            out = str(uuid.uuid5(NAMESPACE, f"{name}/{count}"))
        self._made.add(out)
        return out

    def _part(self, own: str, index: int, sibling: bool, known: bool) -> str:
        if sibling or not own.isascii():
            return self.other(own, index)
        out = derive_uuid(own, index)
        # A first part may come to its parent's own id, which is free unless another message came with it.
        taken = known if out == own else out in self._own or _is_ahead(out, own, index)
        if taken or out in self._made:
            return self.other(own, index)
        self._made.add(out)
        return out


def _is_ahead(out: str, own: str, index: int) -> bool:
    """Whether part ``index`` has a higher number than its parent in the parent's own sequence."""
    return out[:_PREFIX] == own[:_PREFIX] and index > int(own[_PREFIX:], 16)
