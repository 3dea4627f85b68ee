"""The transcript: JSONL that the existing readers open (WIRE.md §3)."""

from turnstream.sinks.transcript.files import Durability
from turnstream.sinks.transcript.journal import Redact
from turnstream.sinks.transcript.layout import project_slug, session_path
from turnstream.sinks.transcript.sink import TranscriptSink

__all__ = ["Durability", "Redact", "TranscriptSink", "project_slug", "session_path"]
