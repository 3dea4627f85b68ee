"""The self-made streams, all of them; each says which rule it holds and what must come out."""

from __future__ import annotations

import corpus_attempts
import corpus_blocks
import corpus_containers
import corpus_ends
import corpus_errors
import corpus_foreign
import corpus_framing
import corpus_order
import corpus_surrogates
import corpus_tool_ends
import corpus_tools
import corpus_usage
import corpus_whole_blocks
from entry import Entry

CORPUS: tuple[Entry, ...] = (
    *corpus_framing.ENTRIES,
    *corpus_blocks.ENTRIES,
    *corpus_whole_blocks.ENTRIES,
    *corpus_surrogates.ENTRIES,
    *corpus_tools.ENTRIES,
    *corpus_tool_ends.ENTRIES,
    *corpus_order.ENTRIES,
    *corpus_usage.ENTRIES,
    *corpus_attempts.ENTRIES,
    *corpus_ends.ENTRIES,
    *corpus_errors.ENTRIES,
    *corpus_foreign.ENTRIES,
    *corpus_containers.ENTRIES,
)
BY_NAME: dict[str, Entry] = {entry.name: entry for entry in CORPUS}
