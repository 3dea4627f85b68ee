"""Reading transcripts: records, ``resume``, ``forks``, messages in the order of the file (WIRE.md §3)."""

from turnstream.sinks.transcript.reading.branches import Fork
from turnstream.sinks.transcript.reading.loading import load_messages
from turnstream.sinks.transcript.reading.records import Record, read_records
from turnstream.sinks.transcript.reading.report import DAMAGE, KINDS, Finding, ResumeReport
from turnstream.sinks.transcript.reading.resume import Resumed, forks, resume

__all__ = [
    "DAMAGE",
    "KINDS",
    "Finding",
    "Fork",
    "Record",
    "ResumeReport",
    "Resumed",
    "forks",
    "load_messages",
    "read_records",
    "resume",
]
