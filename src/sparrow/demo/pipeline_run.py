"""`sparrow pipeline run` as users run it: in a separate process, with its own session that can be
killed as a whole.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from sparrow.base.errors import SparrowError

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S: Final = 0.01
_MASTER: Final = f"local[{min(4, os.cpu_count() or 1)}]"
"""This machine, whatever the environment says of others; a demonstration is too small for many
cores.
"""
_SAID: Final = "sparrow: "
"""Prefix of the errors of commands."""
_END_S: Final = 10.0
"""Time in which processes must be gone after kill -9."""
_TOLD_BYTES: Final = 4000
"""Bytes of the log that are searched for a reason."""


class PipelineRun:
    """One run. End it by `kill` or `wait`, or use it in a `with` block, which leaves no process
    behind.

    Args:
        file: of the pipeline; its directory is the one that the run works in.
        log: gets what Spark and Java write.
    """

    def __init__(self, file: str, *, url: str, log: str, is_once: bool) -> None:
        self._log = log
        self._outcomes = f"{log}.json"
        command = [sys.executable, "-m", "sparrow", "pipeline", "run", file, "--json", "--master", _MASTER]
        with open(log, "wb") as errors, open(self._outcomes, "wb") as out:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                command + ["--once"] * is_once,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                # Not on the command line, which everybody on the machine may read: the URL may have
                # a token.
                env={**os.environ, "SPARROW_URL": url, "PYTHONUNBUFFERED": "1"},
                cwd=os.path.dirname(file),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_until(
        self, is_reached: Callable[[], bool], timeout_s: float, during: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until a condition holds that the run will reach.

        Args:
            during: called repeatedly meanwhile.

        Raises:
            SparrowError: the run has ended before, or it takes too long.
        """
        deadline = time.monotonic() + timeout_s
        while not is_reached():
            if self._process.poll() is not None:
                raise SparrowError(f"the pipeline ended too early: {self._reason()}")
            if time.monotonic() > deadline:
                raise SparrowError(
                    f"the pipeline takes longer than {timeout_s:.0f} s; its log is {self._log}"
                )
            during()
            time.sleep(POLL_S)

    def wait(self, timeout_s: float, during: Callable[[], None] = lambda: None) -> None:
        """Wait until it has ended by itself, without an error.

        Raises:
            SparrowError: it has failed, or takes too long.
        """
        self.wait_until(lambda: self._process.poll() is not None, timeout_s, during)
        if self._process.returncode:
            raise SparrowError(f"the pipeline failed: {self._reason()}")

    def kill(self) -> int:
        """Kill the driver, its Java, and Spark's Python processes (-9), and return their number."""
        session = self._process.pid
        if self._process.poll() is None:
            # Stop everything while the others are looked for.
            os.killpg(session, signal.SIGSTOP)
        found = killed = _kill(session)
        self._process.wait()
        deadline = time.monotonic() + _END_S
        while killed and time.monotonic() < deadline:
            time.sleep(POLL_S)
            killed = _kill(session)
        return found

    def _reason(self) -> str:
        """Return why it failed: its own error, else the last line that it wrote."""
        said = _last_lines(self._log)
        own = [line.removeprefix(_SAID) for line in said if line.startswith(_SAID)]
        failures = []
        for line in _last_lines(self._outcomes):
            with suppress(ValueError, KeyError, TypeError):
                failures.append(str(json.loads(line)["outcome"]["failure"]["text"]))
        told = failures or own or said
        return told[-1] if told else f"it said nothing; exit code {self._process.returncode}"


def _kill(session: int) -> int:
    """Kill the processes of a session (Spark's Python daemons have their own process groups), and
    return their number. Without /proc they are found only as a process group.
    """
    if not os.path.isdir("/proc/self"):
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)
            return 1
        return 0
    found = 0
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        with suppress(OSError):
            if os.getsid(pid) == session and not _is_dead(pid):
                os.kill(pid, signal.SIGKILL)
                found += 1
    return found


def _is_dead(pid: int) -> bool:
    """Return True if the process has ended and waits for its parent."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")


def _last_lines(path: str) -> list[str]:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - _TOLD_BYTES))
        return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
