"""A summary of the faults that brokers suffered."""

from __future__ import annotations

import pytest

from tests.crash.faults import ENDURED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how often each fault was made, if one process runs the tests (`make crash`)."""
    if ENDURED:
        told = ", ".join(f"{name} {count}" for name, count in ENDURED.most_common())
        terminalreporter.write_line(f"{ENDURED.total()} faults: {told}")
