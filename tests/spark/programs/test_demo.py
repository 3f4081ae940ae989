"""`sparrow demo` as a user runs it, with Spark: a small history with merges, from git to the chart,
without any stub.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys

import pytest

from tests.demo.repositories import QUIET, git, repository
from tests.spark.class_archive import java

COMMITS = 60
TIMEOUT_S = 400


def history(seed: int) -> list[list[int]]:
    """Return a history, parents by number: branches, merges of two and three, and a second root."""
    chance = random.Random(seed)
    made: list[list[int]] = [[], []]
    for number in range(2, COMMITS):
        count = chance.choice([1, 1, 1, 2, 2, 3])
        made.append(
            sorted(chance.sample(range(max(0, number - 6), number), min(count, number)), reverse=True)
        )
    return made


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.skipif(not java(), reason="Spark needs Java, and there is none")
def test_a_history_goes_from_git_to_the_chart_and_every_check_holds(tmp_path):
    path = repository(tmp_path / "repo", history(7))
    merged = int(git(path, "rev-list", "--count", "HEAD"))
    run = subprocess.Popen(
        [sys.executable, "-m", "sparrow", "demo", "--repo", str(path), "--workers", "2", "--json"],
        cwd=tmp_path,
        env={**QUIET, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = run.communicate(timeout=TIMEOUT_S)
    except BaseException:
        os.killpg(run.pid, signal.SIGINT)
        run.communicate(timeout=60)
        raise
    assert run.returncode == 0, f"{out}\n{err}"
    report = json.loads(out)
    assert report["held"]
    checks = {check["name"]: check for check in report["checks"]}
    assert "the pipeline was killed in the middle, and went on to its end" in checks
    once = checks["the table has each of the commits exactly once"]
    assert once["detail"].startswith(f"{merged} rows")
    assert all(check["held"] for check in checks.values())
    with open(report["outputs"]["chart"], "rb") as chart:
        assert chart.read(8) == b"\x89PNG\r\n\x1a\n"
    assert os.path.isdir(report["outputs"]["table"])
    assert "WARN" not in err, "Spark's log stays out of the terminal"
