"""Brokers that are restarted often reuse compiled modules, whatever the environment says about
writing them.
"""

from __future__ import annotations

import pytest

from tests.crash.faults import ENDURED


@pytest.fixture(autouse=True, scope="session")
def compiled_modules(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("pyc")))
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how often each fault was made, if one process runs the tests (`make crash`)."""
    if ENDURED:
        told = ", ".join(f"{name} {count}" for name, count in ENDURED.most_common())
        terminalreporter.write_line(f"{ENDURED.total()} faults: {told}")
