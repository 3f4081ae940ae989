"""Spark programs of users, each in a process of its own with a JVM of its own. Nothing of them is
left when a test ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparrow.sync
from tests.spark.class_archive import short_lived

if TYPE_CHECKING:
    from sparrow.testing.running_broker import RunningBroker

_LAST = "answer: "
TIMEOUT_S = 240


def run_program(text: str, folder: Path, **environment: str) -> Any:
    """Run a program; return what it passes to `answer`, after it ended well."""
    program = folder / "program.py"
    program.write_text(
        f"import json\n\ndef answer(value):\n    print({_LAST!r} + json.dumps(value))\n\n{text}"
    )
    written = run_command([sys.executable, "-W", "ignore", str(program)], folder, **environment)
    (line,) = [line for line in written.splitlines() if line.startswith(_LAST)]
    return json.loads(line.removeprefix(_LAST))


def lag_of(broker: RunningBroker, group: str) -> int:
    """Return the lag of a group, which must have committed something."""
    with sparrow.sync.connect(broker.url) as client:
        offsets = client.admin.describe_group(group).offsets
        assert offsets
        return sum(each.lag for each in offsets)


def run_command(command: list[str], folder: Path, **environment: str) -> str:
    """Run a command; return its output, after it ended well."""
    log = folder / "command.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SUBMIT_OPTS": short_lived(),
                **environment,
            },
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    written = log.read_text()
    assert code == 0, written[-8000:]
    return written
