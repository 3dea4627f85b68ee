"""Benchmarks, installed with the package: seeded workloads, floors, and peers in the same run.

``turnstream bench`` prints the tables of docs/performance.md; :func:`run` returns them as data.
"""

from turnstream.bench.bars import Check, check
from turnstream.bench.contender import Contender, Found, Given, Timed, finish, given
from turnstream.bench.contenders import FLOORS, OURS
from turnstream.bench.node import node_peers
from turnstream.bench.peers import python_peers
from turnstream.bench.report import render, table
from turnstream.bench.rows import Growth, Row
from turnstream.bench.runner import Report, environment, grow, measure, run
from turnstream.bench.workloads import WORKLOADS, Workload, make_workload

__all__ = [
    "FLOORS",
    "OURS",
    "WORKLOADS",
    "Check",
    "Contender",
    "Found",
    "Given",
    "Growth",
    "Report",
    "Row",
    "Timed",
    "Workload",
    "check",
    "environment",
    "finish",
    "given",
    "grow",
    "make_workload",
    "measure",
    "node_peers",
    "python_peers",
    "render",
    "run",
    "table",
]
