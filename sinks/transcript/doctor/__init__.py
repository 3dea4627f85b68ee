"""Diagnosing and mending transcripts (WIRE.md §3)."""

from turnstream.sinks.transcript.doctor.mending import diagnose, repair
from turnstream.sinks.transcript.doctor.report import KINDS, Finding, Kind, Report, Severity

__all__ = ["KINDS", "Finding", "Kind", "Report", "Severity", "diagnose", "repair"]
