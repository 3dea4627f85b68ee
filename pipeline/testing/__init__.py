"""For tests, of this package and of code that uses it (DESIGN.md §7).

- :class:`VirtualLoop`, :func:`run_virtual`, :func:`virtual_time`: hours of waiting in milliseconds.
- :func:`check_sink`: does a sink keep its promises?
- :func:`cancel_everywhere`: a scenario cancelled at each of its steps; is anything left?
- :class:`RecordingSink`, :func:`record_observable`: what came out, when, on which thread.
- :func:`sample_items`, :func:`awkward_items`: items to feed; :func:`seeded_ids`, :func:`seeded_clock`.
"""

from turnstream.testing.cancelling import cancel_everywhere
from turnstream.testing.conformance import check_sink
from turnstream.testing.ids import seeded_clock, seeded_ids
from turnstream.testing.recorders import Recorded, RecordingSink, record_observable
from turnstream.testing.running import run_virtual, virtual_time
from turnstream.testing.samples import awkward_items, sample_items
from turnstream.testing.virtual_loop import DeadlockError, VirtualLoop

__all__ = [
    "DeadlockError",
    "Recorded",
    "RecordingSink",
    "VirtualLoop",
    "awkward_items",
    "cancel_everywhere",
    "check_sink",
    "record_observable",
    "run_virtual",
    "sample_items",
    "seeded_clock",
    "seeded_ids",
    "virtual_time",
]
