"""Brokers of a cluster as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class BrokerProcess:
    """A `sparrow serve` of a cluster, which writes its log to a file."""

    def __init__(self, directory: Path, name: str, ledger: str, objects: str, **environment: str) -> None:
        self.name = name
        self._directory = directory / name
        self._directory.mkdir(exist_ok=True)
        self._ready = self._directory / "ready.json"
        self._ready.unlink(missing_ok=True)
        self.log_file = self._directory / "log"
        variables = {
            **os.environ,
            "SPARROW_LEDGER": ledger,
            "SPARROW_OBJECTS": objects,
            "SPARROW_NATIVE_PORT": "0",
            "SPARROW_KAFKA_PORT": "0",
            "SPARROW_HTTP_PORT": "0",
            "SPARROW_READY_FILE": str(self._ready),
            "SPARROW_LOG_LEVEL": "debug",
            **environment,
        }
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "import sys; from sparrow.cli import main; sys.exit(main())", "serve"],
                cwd=self._directory,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def is_ready(self) -> bool:
        return self._ready.exists() and json.loads(self._ready.read_text())["pid"] == self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def wait_until_ready(self, timeout_s: float = 60.0) -> dict[str, str]:
        """Return the content of the ready file, when clients can connect."""
        self.wait_for(lambda: self.is_ready, timeout_s)
        found: dict[str, str] = json.loads(self._ready.read_text())
        return found

    def wait_for_log(self, text: str, timeout_s: float = 60.0) -> None:
        self.wait_for(lambda: text in self.log, timeout_s)

    def wait_for(self, condition: object, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():  # type: ignore[operator]  # a function
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{self.name} ({self.process.poll()}):\n{self.log[-4000:]}")
            time.sleep(0.01)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self, timeout_s: float = 60.0) -> int:
        """End it by SIGTERM. Return the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def end(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()
