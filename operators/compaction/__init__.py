"""Compaction: the boundary slice and what shortens a context (WIRE.md §6).

``after_boundary`` slices, ``microcompact`` clears old tool results without a model, ``auto_compact``
summarizes when it is time and ``compact`` at once. ``boundary_slice`` and ``clear_old_results`` are the
first two as operators.
"""

from turnstream.operators.compaction.attachments import (
    Identify,
    attachment_identity,
    attachments_again,
    without_repeats,
)
from turnstream.operators.compaction.auto import AutoCompact, Compacted, auto_compact, compact
from turnstream.operators.compaction.boundary import (
    COMPACT_BOUNDARY,
    MICROCOMPACT_BOUNDARY,
    BoundarySlice,
    after_boundary,
    boundary_slice,
    is_compact_boundary,
    is_microcompact_boundary,
    make_boundary,
    make_microcompact_boundary,
)
from turnstream.operators.compaction.errors import CompactionError, is_prompt_too_long
from turnstream.operators.compaction.estimate import Estimate, estimate_tokens, rough_tokens, usage_tokens
from turnstream.operators.compaction.metadata import (
    CompactMetadata,
    MicrocompactMetadata,
    PreservedSegment,
    compact_metadata,
    microcompact_metadata,
    with_metadata,
)
from turnstream.operators.compaction.microcompact import (
    CLEARED_RESULT,
    Microcompacted,
    Microcompactor,
    apply_microcompact,
    clear_old_results,
    microcompact,
)
from turnstream.operators.compaction.segments import borders
from turnstream.operators.compaction.summarizing import Normalize, Summarize

__all__ = [
    "CLEARED_RESULT",
    "COMPACT_BOUNDARY",
    "MICROCOMPACT_BOUNDARY",
    "AutoCompact",
    "BoundarySlice",
    "CompactMetadata",
    "Compacted",
    "CompactionError",
    "Estimate",
    "Identify",
    "MicrocompactMetadata",
    "Microcompacted",
    "Microcompactor",
    "Normalize",
    "PreservedSegment",
    "Summarize",
    "after_boundary",
    "apply_microcompact",
    "attachment_identity",
    "attachments_again",
    "auto_compact",
    "borders",
    "boundary_slice",
    "clear_old_results",
    "compact",
    "compact_metadata",
    "estimate_tokens",
    "is_compact_boundary",
    "is_microcompact_boundary",
    "is_prompt_too_long",
    "make_boundary",
    "make_microcompact_boundary",
    "microcompact",
    "microcompact_metadata",
    "rough_tokens",
    "usage_tokens",
    "with_metadata",
    "without_repeats",
]
