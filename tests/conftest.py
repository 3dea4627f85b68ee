"""What all tests share: the summary says how much was skipped for want of recordings."""

from __future__ import annotations

import pytest
import recordings


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not recordings.skipped:
        return
    terminalreporter.section("recordings", sep="-")
    terminalreporter.write_line(
        f"{recordings.FILES_WITH_EXPECTATION} recorded files skipped: {recordings.VARIABLE} names no folder with "
        f"EXPECTED.tsv. Untested: {', '.join(sorted(recordings.skipped))}"
    )
