"""What stages 5 and 6 are told about the request, in one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from turnstream.operators.normalize.limits import Dialect, MediaLimits
from turnstream.operators.normalize.log import Explain, Repair
from turnstream.operators.normalize.models import model_key, refuses_prefill

__all__ = ["Options", "Prefill", "tool_names"]

Prefill = Literal["refuse", "allow"]


@dataclass(frozen=True)
class Options:
    """See :func:`turnstream.operators.normalize.normalize_for_api` for the meaning of each.

    Attributes:
        model: the model the request goes to, None if unknown.
        dialect: whose rules count.
        names: names of the tools the request declares, None if unknown.
        thinking: whether the request will have thinking on.
        prefill: whether it may end with an assistant message.
        reserved_cache_marks: how many cache marks are used outside the messages.
        limits: what media the API takes.
        explain: takes each repair.
    """

    model: str | None = None
    dialect: Dialect = "anthropic"
    names: frozenset[str] | None = None
    thinking: bool = False
    prefill: Prefill = "refuse"
    reserved_cache_marks: int = 0
    limits: MediaLimits = field(default_factory=MediaLimits)
    explain: Explain | None = None

    @property
    def bedrock(self) -> bool:
        """Whether roles must alternate, ids be short and tool blocks have tools."""
        return self.dialect == "bedrock"

    @property
    def may_prefill(self) -> bool:
        """Whether the last message may be the assistant's: the model must take it, and thinking excludes it."""
        return self.prefill == "allow" and not self.thinking and not refuses_prefill(self.model)

    def is_foreign(self, model: Any) -> bool:
        """Whether ``model`` is surely another than the request's: its signatures aren't good there."""
        if not self.model or not isinstance(model, str) or not model:
            return False
        return model_key(model) != model_key(self.model)

    def say(self, stage: str, uuid: str | None, what: str, why: str) -> None:
        """Pass a repair on."""
        if self.explain is not None:
            self.explain(Repair(stage, uuid or None, what, why))


def tool_names(tools: Sequence[Mapping[str, Any]] | None) -> frozenset[str] | None:
    """The names of declared tools; None if not all are known, as of an MCP toolset."""
    if tools is None:
        return None
    names = [tool.get("name") for tool in tools]
    if not all(isinstance(name, str) for name in names):
        return None
    return frozenset(_strings(names))


def _strings(values: Iterable[Any]) -> Iterable[str]:
    return (value for value in values if isinstance(value, str))
