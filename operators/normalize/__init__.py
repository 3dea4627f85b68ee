"""Normalization for the API, one stage a file (WIRE.md §4)."""

from turnstream.messages.identity import tombstoned_uuids
from turnstream.operators.normalize.api import normalize_for_api, request_messages
from turnstream.operators.normalize.attachments import ReorderAttachments, reorder_attachments
from turnstream.operators.normalize.convert import ConvertContext, convert_context
from turnstream.operators.normalize.edges import CONTINUE
from turnstream.operators.normalize.fields import BLOCKS, BlockShape
from turnstream.operators.normalize.filter import Context, FilterForAPI, filter_for_api
from turnstream.operators.normalize.limits import Dialect, MediaLimits, limits_for
from turnstream.operators.normalize.log import Explain, Repair
from turnstream.operators.normalize.merge import MergeTurns, merge_turns
from turnstream.operators.normalize.options import Prefill
from turnstream.operators.normalize.refusal import Refusal, parse_refusal
from turnstream.operators.normalize.renderers import RENDERERS, Renderer, Words, reminder
from turnstream.operators.normalize.thinking import can_think

__all__ = [
    "BLOCKS",
    "CONTINUE",
    "RENDERERS",
    "BlockShape",
    "Context",
    "ConvertContext",
    "Dialect",
    "Explain",
    "FilterForAPI",
    "MediaLimits",
    "MergeTurns",
    "Prefill",
    "Refusal",
    "Renderer",
    "ReorderAttachments",
    "Repair",
    "Words",
    "can_think",
    "convert_context",
    "filter_for_api",
    "limits_for",
    "merge_turns",
    "normalize_for_api",
    "parse_refusal",
    "reminder",
    "reorder_attachments",
    "request_messages",
    "tombstoned_uuids",
]
