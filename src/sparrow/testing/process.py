"""A broker in a separate process: `sparrow serve` itself, so that it can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from sparrow.base.errors import DataDirectoryError, InvalidConfig, SparrowError, TimedOut
from sparrow.base.settings import ENVIRONMENT_PREFIX, options_of
from sparrow.server.config import ServerConfig
from sparrow.server.ready import Ready

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 40.0
_POLL_S = 0.005
_START_ERRORS: dict[int, type[SparrowError]] = {78: InvalidConfig, 73: DataDirectoryError}
"""Errors by exit code, see docs/cli.md."""


class ProcessHost:
    """Runs `sparrow serve`. Its log is in `log_path`; the end of it is shown when the start fails.

    `program`: arguments of this interpreter, for a host of another program with the same commands.
    """

    program: ClassVar[Sequence[str]] = ("-m", "sparrow")

    def __init__(self, work_dir: str) -> None:
        self._ready_path = f"{work_dir}/ready.json"
        self._config_path = f"{work_dir}/sparrow.yml"
        self._work_dir = work_dir
        self.log_path = f"{work_dir}/broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, config: ServerConfig, given: Mapping[str, object]) -> Ready:  # noqa: ARG002 - the protocol's names
        """Start the broker, and return once clients can connect.

        Raises:
            SparrowError: it ended instead; the message has its log's end.
            TimedOut: it was not ready in 30 s.
        """
        with suppress(FileNotFoundError):
            os.unlink(self._ready_path)
        self._write_config(given)
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                [sys.executable, *self.program, "serve", "--config", self._config_path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._work_dir,
                env={k: v for k, v in os.environ.items() if not k.startswith(ENVIRONMENT_PREFIX)},
            )
        try:
            return self._wait_until_ready(self._process)
        except BaseException:
            # Ctrl-C at a terminal also reaches the broker, which may be on its way out: no goodbye
            # then.
            self.kill()
            raise

    def _write_config(self, given: Mapping[str, object]) -> None:
        keys = {each.name: each.key for each in options_of(ServerConfig)}
        values = {keys[name]: value for name, value in given.items()}
        values["ready_file"] = self._ready_path
        values["data_dir"] = os.path.abspath(str(values["data_dir"]))
        with open(self._config_path, "w", encoding="utf-8") as file:
            json.dump(values, file)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> Ready:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not os.path.exists(self._ready_path):
            if process.poll() is not None:
                self._process = None
                raise _START_ERRORS.get(process.returncode, SparrowError)(
                    self._log_end().removeprefix("sparrow: ")
                )
            if time.monotonic() > deadline:
                self.kill()
                raise TimedOut(f"the broker was not ready within {START_TIMEOUT_S:g} s: {self._log_end()}")
            time.sleep(_POLL_S)
        with open(self._ready_path, encoding="utf-8") as file:
            return Ready(**json.load(file))

    def _log_end(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:].strip() or "it said nothing"

    def stop(self) -> None:
        """Send SIGTERM, and wait.

        Raises:
            SparrowError: it did not end well; the message has its log's end.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code != 0:
            raise SparrowError(f"the broker ended with code {code}: {self._log_end()}")

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
