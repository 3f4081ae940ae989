"""Stamps and files by which the times of jobs are known, for senders and workers.

The tasks of every system: `empty`; `first` and `last`, which write the time to a file; `stamp`,
which notes how long ago it was sent; `dump`, which writes those times; `add` and `total` for
compositions.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

URL = os.environ.get("BENCH_URL", "")
DIRECTORY = Path(os.environ.get("BENCH_DIRECTORY", "."))
DEADLINE_S = 240.0

delays_ns: list[int] = []
"""Delays of the jobs of `stamp` in this worker process."""


def write_time(name: str) -> None:
    """Write the time (monotonic, ns) to a file, at once."""
    unfinished = DIRECTORY / f"{name}.part"
    unfinished.write_text(str(time.monotonic_ns()))
    unfinished.replace(DIRECTORY / name)


def note_delay(sent_ns: int) -> None:
    """Note how long ago a job was sent; all machines have the same clock, as there is one."""
    delays_ns.append(time.monotonic_ns() - sent_ns)


def write_delays() -> None:
    """Write the noted delays."""
    unfinished = DIRECTORY / "delays.part"
    unfinished.write_text(json.dumps(delays_ns))
    unfinished.replace(DIRECTORY / "delays")


def wait_for(name: str) -> str:
    """Wait for a file and return its text.

    Raises:
        TimeoutError: it did not come.
    """
    path, deadline = DIRECTORY / name, time.monotonic() + DEADLINE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {name} within {DEADLINE_S:g} s")
        time.sleep(0.002)
    text = path.read_text()
    path.unlink()
    return text


def quantiles_ms() -> dict[str, float]:
    """Return p50 and p99 of the delays, without their first fifth."""
    found = json.loads(wait_for("delays"))
    found = sorted(found[len(found) // 5 :])
    return {"p50_ms": found[len(found) // 2] / 1e6, "p99_ms": found[int(len(found) * 0.99)] / 1e6}
