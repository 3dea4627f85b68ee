"""What a model's name says about the requests it takes.

Only names of the form ``claude-<family>-<version>`` (or the older ``claude-<version>-<family>``) are read, with
the prefixes and suffixes that gateways add. Of any other name nothing is known, and callers get the stricter rule.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["has_long_context", "is_adaptive", "model_key", "model_version", "refuses_prefill", "takes_system_role"]

# us.anthropic.claude-sonnet-4-5-20250929-v1:0 · claude-sonnet-4-5@20250929 · anthropic/claude-opus-4.1 · …[1m]
_NAME: Final = re.compile(
    r"claude-(?:(?P<new>[a-z]+)-(?P<v1>\d{1,2}(?:[-.]\d{1,2}(?!\d))?)|(?P<v2>\d(?:[-.]\d)?)-(?P<old>[a-z]+))"
)
_DATE: Final = re.compile(r"(?:[-@]\d{8}|[-@]latest|@default)$")
_VERSIONED: Final = re.compile(r"-v\d+(?::\d+)?$")


@lru_cache(maxsize=256)
def model_key(model: str) -> str:
    """A model's name without what differs between its spellings, to compare two of them.

    ``claude-sonnet-4-5`` and ``us.anthropic.claude-sonnet-4-5-20250929-v1:0`` are the same model: a signature made
    under one name is good under the other.
    """
    name = model.strip().lower().partition("[")[0]
    at = name.find("claude-")
    if at > 0:
        name = name[at:]
    name = _DATE.sub("", _VERSIONED.sub("", name)).replace(".", "-")
    # Two families have kept a zero in their alias: claude-sonnet-4-0 is claude-sonnet-4-20250514.
    return name.removesuffix("-0")


@lru_cache(maxsize=256)
def model_version(model: str) -> tuple[str, int, int] | None:
    """The family and version in a model's name: ``("opus", 4, 6)``; None where the name doesn't say."""
    found = _NAME.search(model.lower())
    if found is None:
        return None
    family = found["new"] or found["old"]
    numbers = re.split(r"[-.]", found["v1"] or found["v2"])
    return family, int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def _at_least(model: str | None, major: int, minor: int) -> bool:
    version = model_version(model) if model else None
    return version is not None and version[1:] >= (major, minor)


def refuses_prefill(model: str | None) -> bool:
    """Whether the conversation must end with a user message: 4.6 and later, the 5 family.

    Source: the API's "This model does not support assistant message prefill" (langchain-ai/deepagents#1585,
    anthropics/claude-code#52433), the announcement of Claude 4.6.
    """
    return _at_least(model, 4, 6)


def is_adaptive(model: str | None) -> bool:
    """Whether thinking may stand anywhere in an answer or be left out of it: 4.6 and later.

    Source: recorded requests that got 200 (adaptive thinking whose tool loop has none; thinking after a server
    tool call).
    """
    return _at_least(model, 4, 6)


def takes_system_role(model: str | None) -> bool:
    """Whether ``messages`` may hold system entries: opus 4.8 and later, the fable family.

    Source: 22 recorded requests on claude-opus-4-8 and claude-fable-5 got 200; sonnet-4 refused the role, and
    sonnet-5 isn't known to take it.
    """
    version = model_version(model) if model else None
    return version is not None and version[0] not in ("sonnet", "haiku") and version[1:] >= (4, 8)


def has_long_context(model: str | None) -> bool:
    """Whether the model's context window is over 200,000 tokens, which raises the caps on images and PDF pages.

    Source: the vision guide ("100 per request for models with a 200k-token context window, 600 for all others").
    """
    version = model_version(model) if model else None
    return version is not None and version[0] != "haiku" and version[1:] >= (4, 6)
