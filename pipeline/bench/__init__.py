"""Benchmarks, installed with the package: seeded workloads, floors, and peers in the same run.

``turnstream bench`` prints the tables of docs/performance.md; :func:`run` returns them as data.
"""

from turnstream.bench.bars import Check, check
from turnstream.bench.contender import Contender, Found, Given, Timed, finish, given
from turnstream.bench.contenders import FLOORS, OURS
from turnstream.bench.conversation import make_conversation
from turnstream.bench.growth import OPERATIONS, grow_messages, time_session
from turnstream.bench.live import measure_live
from turnstream.bench.node import node_peers
from turnstream.bench.peers import python_peers
from turnstream.bench.report import render, table
from turnstream.bench.rows import (
    Against,
    BytesTouched,
    Decades,
    FileGrowth,
    Growth,
    IdleMemory,
    Listing,
    Live,
    LiveCost,
    LiveStreams,
    Row,
    SessionTime,
    Transcripts,
)
from turnstream.bench.runner import GROWTH, LIVE, TRANSCRIPT, Report, environment, grow, measure, run
from turnstream.bench.transcripts import measure_transcripts
from turnstream.bench.workloads import WORKLOADS, Workload, make_workload

__all__ = [
    "FLOORS",
    "GROWTH",
    "LIVE",
    "OPERATIONS",
    "OURS",
    "TRANSCRIPT",
    "WORKLOADS",
    "Against",
    "BytesTouched",
    "Check",
    "Contender",
    "Decades",
    "FileGrowth",
    "Found",
    "Given",
    "Growth",
    "IdleMemory",
    "Listing",
    "Live",
    "LiveCost",
    "LiveStreams",
    "Report",
    "Row",
    "SessionTime",
    "Timed",
    "Transcripts",
    "Workload",
    "check",
    "environment",
    "finish",
    "given",
    "grow",
    "grow_messages",
    "make_conversation",
    "make_workload",
    "measure",
    "measure_live",
    "measure_transcripts",
    "node_peers",
    "python_peers",
    "render",
    "run",
    "table",
    "time_session",
]
