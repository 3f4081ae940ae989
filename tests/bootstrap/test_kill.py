"""kill -9 of a real broker while it applies the declarations of its file; the next start completes
them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sparrow.client import connect
from tests.bootstrap.conftest import Write

QUEUES = 30
DECLARED = {
    "topics": {f"topic-{n}": {"partitions": 2, "config": {"retention.ms": "1d"}} for n in range(QUEUES)},
    "queues": {
        f"queue-{n}": {
            "topics": [f"topic-{n}", f"more-{n}"],
            "policy": {"lease": "1m", "order": "parented"},
            "subscribers": {"a": "https://a.example.org", "b": None},
        }
        for n in range(QUEUES)
    },
}
STEPS = 3 * QUEUES
"""Logged ones: a topic, a queue and a webhook each."""


class Serving:
    """A `sparrow serve` process over the directory; its log is read."""

    def __init__(self, directory: Path) -> None:
        options = (
            "--native-port 0 --kafka-port off --http-port off --reserve 0 --log-format json --data-dir data"
        )
        self.process = subprocess.Popen(
            [Path(sys.executable).parent / "sparrow", "serve", *options.split()],
            cwd=directory,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("SPARROW_")},
        )

    def read(self, until: str, times: int = 1) -> list[str]:
        """Read lines until one has a word for the so-many-th time, or until the end."""
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            times -= until in line
            if not times:
                break
        return lines

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.mark.slow
async def test_a_start_that_was_killed_again_and_again_is_completed(write: Write, directory: Path):
    write(yaml.safe_dump(DECLARED))
    made = 0
    for steps in (1, QUEUES // 2, QUEUES, QUEUES // 2 + 1):
        serving = Serving(directory)
        made += sum("made" in line for line in serving.read(" made", steps))
        assert serving.end(signal.SIGKILL) == -signal.SIGKILL
    assert 2 * QUEUES < made < STEPS
    serving = Serving(directory)
    lines = serving.read("is ready")
    assert any(" made" in line for line in lines)
    url = serving.read("sparrow://")[-1].split()[-1]
    async with connect(url) as client:
        topics = {each.name: each.partition_count for each in await client.admin.list_topics()}
        assert topics == {f"topic-{n}": 2 for n in range(QUEUES)} | {f"more-{n}": 4 for n in range(QUEUES)}
        queues = {each.name: each for each in await client.admin.list_queues()}
    for n in range(QUEUES):
        queue = queues.pop(f"queue-{n}")
        assert tuple(queue.topics) == (f"topic-{n}", f"more-{n}")
        assert (queue.policy["lease_ms"], queue.policy["order"]) == (60_000, "parented")
        assert queue.policy["subscribers"] == ["a", "b"]
    assert queues == {}
    assert serving.end(signal.SIGTERM) == 0
    serving = Serving(directory)
    assert not any("made" in line for line in serving.read("is ready"))
    assert serving.end(signal.SIGTERM) == 0
