"""The transcript: JSONL that the existing readers open (WIRE.md §3)."""

from turnstream.sinks.transcript.files import Durability
from turnstream.sinks.transcript.guards import Limits, TranscriptLimitError
from turnstream.sinks.transcript.journal import Redact
from turnstream.sinks.transcript.layout import project_slug, session_path
from turnstream.sinks.transcript.sessions_store import SessionStoreAdapter
from turnstream.sinks.transcript.sidefiles import load_side_file, with_side_files
from turnstream.sinks.transcript.sink import TranscriptSink
from turnstream.sinks.transcript.tombstones import Tombstones

__all__ = [
    "Durability",
    "Limits",
    "Redact",
    "SessionStoreAdapter",
    "Tombstones",
    "TranscriptLimitError",
    "TranscriptSink",
    "load_side_file",
    "project_slug",
    "session_path",
    "with_side_files",
]
