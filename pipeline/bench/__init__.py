"""Benchmarks, installed with the package: seeded workloads, floors, and peers in the same run.

``turnstream bench`` prints the table of docs/performance.md; :func:`run` returns it as data.
"""

from turnstream.bench.runner import Row, environment, measure, run, table
from turnstream.bench.workloads import WORKLOADS, Workload, make_workload

__all__ = ["WORKLOADS", "Row", "Workload", "environment", "make_workload", "measure", "run", "table"]
