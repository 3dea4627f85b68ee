"""What a model's name tells: family and version, and which rules hang on them.

Sources: the vendor's migration guides (prefill ends with 4.6, manual thinking with 4.7, one of temperature and
top_p from 4.1/4.5), its model overview (output limits, context sizes), recorded 200s for the system role.
An unknown name has no version: rules that only some models have don't hold for it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_OLD = re.compile(r"claude-(\d)(?:[-.](\d))?-([a-z]+)")
_NEW = re.compile(r"claude-([a-z]+)-(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")


class Model(NamedTuple):
    """A parsed name; ``version`` is None where the name isn't one we know the pattern of."""

    name: str | None
    family: str | None
    version: tuple[int, int] | None

    def since(self, major: int, minor: int = 0) -> bool:
        """Whether it is this version or a later one (False when unknown)."""
        return self.version is not None and self.version >= (major, minor)

    def before(self, major: int, minor: int = 0) -> bool:
        """Whether it is an earlier version (False when unknown)."""
        return self.version is not None and self.version < (major, minor)

    @property
    def refuses_prefill(self) -> bool:
        return self.since(4, 6)

    @property
    def takes_system_role(self) -> bool:
        """Opus from 4.8, the fable family, later ones; sonnet-5 refuses it. Unknown names: not known to refuse."""
        if self.version is None:
            return True
        if self.family == "opus":
            return self.version >= (4, 8)
        return self.version > (5, 0) or (self.version == (5, 0) and self.family not in ("sonnet", "haiku"))

    @property
    def thinks_unasked(self) -> bool:
        """Whether a request without ``thinking`` gets adaptive thinking."""
        return self.since(5)

    @property
    def manual_thinking(self) -> bool:
        return not self.since(4, 7)

    @property
    def adaptive_thinking(self) -> bool:
        return not self.before(4, 6)

    @property
    def one_sampling_parameter(self) -> bool:
        return self.since(4, 5) or (self.family == "opus" and self.since(4, 1))

    @property
    def long_context(self) -> bool:
        """A context of a million tokens: 600 PDF pages and images instead of 100."""
        return self.since(4, 6) and self.family != "haiku"

    @property
    def checks_media_type(self) -> bool:
        """A recorded 200 of 2024 (3.5 sonnet) declares a JPEG as PNG; later models refuse it."""
        return not self.before(3, 7)

    @property
    def max_output(self) -> int | None:
        """The most ``max_tokens`` may say, None when unknown."""
        if self.version is None:
            return None
        if self.version < (3, 5):
            return 4096
        if self.version < (3, 7):
            return 8192
        if self.version < (4, 0):
            return 128_000  # 64,000 without a beta header
        if self.version < (4, 5):
            return 32_000 if self.family == "opus" else 64_000
        return 64_000 if self.version < (4, 6) else 128_000

    def takes_effort(self, level: str) -> bool:
        if self.version is None:
            return True
        if level == "xhigh":
            return self.since(4, 7)
        if level == "max":
            return self.since(4, 6)
        return self.since(4, 6) or (self.family == "opus" and self.since(4, 5))


@lru_cache(maxsize=256)
def parse_model(name: str | None) -> Model:
    """The model of a name: dated, dotted and prefixed spellings too (``us.anthropic.claude-…``)."""
    text = (name or "").lower()
    if found := _NEW.search(text):
        return Model(name, found[1], (int(found[2]), int(found[3] or 0)))
    if found := _OLD.search(text):
        return Model(name, found[3], (int(found[1]), int(found[2] or 0)))
    return Model(name, None, None)
