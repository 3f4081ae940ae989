"""The example that kills its broker keeps its promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "kill_and_recover.py"


@pytest.mark.slow
def test_demonstration_ends_well():
    found = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT, "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "lost 0, twice 0, at another offset 0, partitions out of order 0" in found.stdout
    assert found.stdout.endswith("Every acknowledged message is there, once and in order.\n")
