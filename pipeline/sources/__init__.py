"""Sources: where bytes and items come from."""

from turnstream.flow.clocks import Clocks
from turnstream.sources.base import CHUNK_SIZE, Hand, LiveBatches, Source, Taker
from turnstream.sources.clocked import with_clocks
from turnstream.sources.files import from_file, from_stdin
from turnstream.sources.http import HTTPSource, decode_answer, from_request, shared_session, when_answered
from turnstream.sources.memory import from_async_iterable, from_bytes, from_items
from turnstream.sources.resilient import FallBack, resilient
from turnstream.sources.session import SessionSource, in_turn
from turnstream.sources.transcript import decode_transcript, from_transcript

__all__ = [
    "CHUNK_SIZE",
    "Clocks",
    "FallBack",
    "HTTPSource",
    "Hand",
    "LiveBatches",
    "SessionSource",
    "Source",
    "Taker",
    "decode_answer",
    "decode_transcript",
    "from_async_iterable",
    "from_bytes",
    "from_file",
    "from_items",
    "from_request",
    "from_stdin",
    "from_transcript",
    "in_turn",
    "resilient",
    "shared_session",
    "when_answered",
    "with_clocks",
]
