"""The metrics sink: one lossless reducer for live streams and replays (WIRE.md §9)."""

from turnstream.sinks.metrics.schema import METRICS_SCHEMA
from turnstream.sinks.metrics.sink import SCHEMA_VERSION, MetricsSink
from turnstream.sinks.metrics.table import table

__all__ = ["METRICS_SCHEMA", "SCHEMA_VERSION", "MetricsSink", "table"]
