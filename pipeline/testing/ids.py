"""Ids and time that repeat: the same seed, the same uuids and moments."""

from turnstream.messages import seeded_clock, seeded_ids

__all__ = ["seeded_clock", "seeded_ids"]
