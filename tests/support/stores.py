"""A store of recordings that takes its time, fails or hangs as a test wants it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class Store:
    """Keeps files in memory; ``at`` is awaited with the name of each step before it."""

    def __init__(self, at: Callable[[str], Awaitable[None]]) -> None:
        self.at = at
        self.files: dict[str, bytes] = {}
        self.committed: set[str] = set()

    async def create(self, name: str) -> Any:
        await self.at("create")
        self.files[name] = b""
        return _File(self, name)

    async def aclose(self) -> None:
        await self.at("close")


class _File:
    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name

    async def write(self, data: bytes) -> None:
        await self.store.at("write")
        self.store.files[self.name] += data

    async def commit(self) -> None:
        await self.store.at("commit")
        self.store.committed.add(self.name)

    async def discard(self) -> None:
        await self.store.at("discard")
        del self.store.files[self.name]
