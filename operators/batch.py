"""What flows: batches, the items that one chunk of bytes caused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import msgspec

__all__ = ["Batch", "StreamKey"]

T_co = TypeVar("T_co", covariant=True)


class StreamKey(NamedTuple):
    """Whose stream a batch belongs to: the session, and the tool use that a sub-agent answers."""

    session: str | None = None
    parent_tool_use_id: str | None = None


if TYPE_CHECKING:

    class Batch(Sequence[T_co], Generic[T_co]):
        """An immutable sequence of the items that one chunk of bytes caused.

        Attributes:
            items: the items.
            at: arrival time of the chunk, monotonic seconds of the loop; None for a plain list and
                for an unpaced replay.
            key: whose stream it is, None for the only one.
            weight: bytes of the chunk that caused the batch; 0 for what no bytes caused.
            plain: whether it surely holds nothing but deltas to one open block (False says nothing):
                a sink that cares only for what is finished needn't look.
        """

        items: Sequence[T_co]
        at: float | None
        key: StreamKey | None
        weight: int
        plain: bool

        def __init__(
            self,
            items: Sequence[T_co],
            at: float | None = None,
            key: StreamKey | None = None,
            weight: int = 0,
            plain: bool = False,
        ) -> None: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[T_co]: ...
        @overload
        def __getitem__(self, index: int) -> T_co: ...
        @overload
        def __getitem__(self, index: slice) -> Sequence[T_co]: ...
        def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]: ...

else:
    # A Struct because one is made per chunk: 24 ns against 90 for a class with slots. StructMeta is no
    # ABCMeta, so it is registered as a Sequence instead of derived from it.
    class Batch(msgspec.Struct, frozen=True, gc=False):  # noqa: D101 - above
        items: Any
        at: float | None = None
        key: StreamKey | None = None
        weight: int = 0
        plain: bool = False

        def __len__(self):
            return len(self.items)

        def __iter__(self):
            return iter(self.items)

        def __getitem__(self, index):
            return self.items[index]

        def __contains__(self, item):
            return item in self.items

        def __reversed__(self):
            return reversed(self.items)

        def index(self, value, *bounds):  # noqa: D102 - Sequence's
            return self.items.index(value, *bounds)

        def count(self, value):  # noqa: D102 - Sequence's
            return self.items.count(value)

    Batch.__class_getitem__ = classmethod(lambda cls, item: cls)
    Sequence.register(Batch)
