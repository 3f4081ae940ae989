"""A Spark driver process (`bench.clients.spark`) and what it is asked for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


class SparkFailed(RuntimeError):
    """A piece of work failed in Spark."""


class SparkDriver:
    """Asks and waits."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Have a piece of work done.

        Raises:
            SparkFailed: with what Spark said.
        """
        assert self._process.stdin is not None
        print(json.dumps({"do": do, **request}), file=self._process.stdin, flush=True)
        answer = self.answer()
        if "error" in answer:
            raise SparkFailed(answer["error"])
        return answer

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SparkFailed(f"the driver ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextlib.contextmanager
def spark_driver(jars: Sequence[str] = ()) -> Iterator[SparkDriver]:
    """One with `local[2]` and these jars on its class path, for the length of the block."""
    scratch = tempfile.mkdtemp(prefix="sparrow-bench-spark-")
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.local.dir": scratch,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.driver.extraClassPath": ":".join(jars),
    }
    command = [sys.executable, "-m", "bench.clients.spark", json.dumps(conf)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with Path(scratch, "driver.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=-1,
            stdout=-1,
            stderr=log,
            text=True,
            start_new_session=True,  # the JVM is of its group
        )
    try:
        driver = SparkDriver(process)
        try:
            driver.answer()
        except SparkFailed as error:
            said = Path(scratch, "driver.log").read_text()[-4000:]
            raise SparkFailed(f"{error}\n{said}") from None
        yield driver
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
