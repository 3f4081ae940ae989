"""Switches a simulated machine on and off: the `Host` of `sparrow.testing` for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from sparrow.base.errors import SparrowError, TimedOut
from sparrow.server.config import ServerConfig
from sparrow.server.ready import Ready
from tests.crash.machine.orders import KILLED, POWER_LOST, Orders

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
_POLL_S = 0.005
_ROOT = Path(__file__).parents[3]


class MachineHost:
    """One machine: its process while it is on, the image of its disk always. Blocking; call it from
    one thread at a time.
    """

    def __init__(self, work_dir: str, seed: int, *, capacity_bytes: int, longest_sync_s: float) -> None:
        self._work_dir = work_dir
        self._seed = seed
        self._capacity_bytes = capacity_bytes
        self._longest_sync_s = longest_sync_s
        self._process: subprocess.Popen[bytes] | None = None
        self._off_after: int | None = None
        self._is_freed = False
        self._image_path = f"{work_dir}/disk.image"
        self._ready_path = f"{work_dir}/ready.json"
        self.log_path = f"{work_dir}/machine.log"
        self.power_failures = 0

    # ── Host ──

    def start(self, config: ServerConfig, given: Mapping[str, object]) -> Ready:
        """Start the machine; return once clients can connect. A power failure meanwhile is one more
        start.
        """
        while True:
            process = self._switch_on(given)
            if self._is_ready(process):
                with open(self._ready_path, encoding="utf-8") as file:
                    return Ready(**json.load(file))

    def stop(self) -> None:
        """Stop it with SIGTERM, and wait. A power failure meanwhile is no error: the machine is
        off.
        """
        process = self._process
        if process is not None:
            process.terminate()
            self._expect(self._ended(process), 0, POWER_LOST)

    def kill(self) -> None:
        """Kill the broker with kill -9: its process ends at once, the kernel's cache stays."""
        process = self._process
        if process is not None:
            self.tell("kill")
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)  # a stopped process would not receive it
            self._expect(self._ended(process), KILLED, POWER_LOST)

    # ── power ──

    def power_off_after(self, calls: int) -> None:
        """Lose power after this many more calls that change the disk; if the machine is off: in its
        next start, if that has this many.
        """
        if self._process is None:
            self._off_after = calls
        else:
            self.tell(f"power-off-after {calls}")

    def wait_until_off(self, timeout_s: float) -> bool:
        """Return True if the power failed before the timeout; else switch it off now."""
        process = self._process
        if process is None:
            return True
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.tell("power-off")
        was_off = process.returncode is not None
        self._expect(self._ended(process), POWER_LOST)
        return was_off

    def fill(self, left_bytes: int) -> None:
        """Let another program use all of the disk's space but so much. The machine must be on."""
        self._is_freed = False
        self.tell(f"fill {left_bytes}")

    def free(self) -> None:
        """Free the space of that program, also for a machine that is off."""
        self._is_freed = True
        self.tell("free")

    def tell(self, command: str) -> None:
        """Send a command (see `__main__`). It has no effect on a machine that is off."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError):  # the machine has just gone off
                process.stdin.write(f"{command}\n".encode())
                process.stdin.flush()

    # ── inside ──

    def _switch_on(self, options: Mapping[str, object]) -> subprocess.Popen[bytes]:
        with suppress(FileNotFoundError):
            os.unlink(self._ready_path)
        orders = Orders(
            self._image_path,
            self._ready_path,
            self._seed,
            self._capacity_bytes,
            dict(options),
            self._off_after,
            self._longest_sync_s,
            self._is_freed,
        )
        self._off_after = None
        path = f"{self._work_dir}/orders.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(asdict(orders), file)
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.machine", path],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=_ROOT,
            )
        return self._process

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until clients can connect. Return False if the power failed first."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not os.path.exists(self._ready_path):
            if process.poll() is not None:
                self._expect(self._ended(process), POWER_LOST)
                return False
            if time.monotonic() > deadline:
                process.kill()
                self._ended(process)
                raise TimedOut(f"the machine was not ready within {START_TIMEOUT_S:g} s: {self._log_end()}")
            time.sleep(_POLL_S)
        return True

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end of the process; return its exit code."""
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if self._process is process:
            self._process = None
            self.power_failures += code == POWER_LOST
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        return code

    def _expect(self, code: int, *expected: int) -> None:
        if code not in expected:
            raise SparrowError(f"the machine ended with code {code}: {self._log_end()}")

    def _log_end(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:].strip() or "it said nothing"
