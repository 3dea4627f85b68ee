"""What all tests share: the summary says how much was skipped for want of recordings."""

from __future__ import annotations

import signal

import hypothesis
import pytest
import recordings

# No test's verdict hangs on how busy the machine is (speed lives in benchmarks).
hypothesis.settings.register_profile("turnstream", deadline=None)
hypothesis.settings.load_profile("turnstream")

# A job in the background of a shell is started with SIGINT ignored, and so would be what its tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not recordings.skipped:
        return
    terminalreporter.section("recordings", sep="-")
    terminalreporter.write_line(
        f"{recordings.FILES_WITH_EXPECTATION} recorded files skipped: {recordings.VARIABLE} names no folder with "
        f"EXPECTED.tsv. Untested: {', '.join(sorted(recordings.skipped))}"
    )
