"""`sparrow pipeline run` as users run it: in a separate process, with its own process group that
can be killed as a whole.

The progress of the queries is read from their checkpoints, where Spark notes each batch twice:
before it begins (`offsets/N`) and after it is committed (`commits/N`). A batch that is between the
two when the processes are killed must be done again by the next run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from sparrow.base.errors import SparrowError

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


@dataclass(frozen=True)
class QueryBatches:
    """Number of batches that a query has begun, and that it has committed."""

    begun: int = 0
    committed: int = 0

    @property
    def is_in_one(self) -> bool:
        """Return True if a batch has begun that is not committed."""
        return self.begun > self.committed


def batches_of(checkpoint: str) -> QueryBatches:
    """Return the batches of a checkpoint; none before the query has begun."""
    committed = _newest(f"{checkpoint}/commits")
    # In this order: a batch that begins between the two looks shall not seem to be committed before
    # it began.
    return QueryBatches(max(committed, _newest(f"{checkpoint}/offsets")), committed)


def _newest(directory: str) -> int:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    return max((int(name) + 1 for name in names if name.isdecimal()), default=0)


class PipelineRun:
    """One run. End it by `kill` or `wait`, or use it in a `with` block, which leaves no process
    behind.
    """

    def __init__(self, file: str, *, url: str, log: str, is_once: bool) -> None:
        """
        Args:
            file: of the pipeline; its directory is the one that the run works in.
            log: gets what Spark and Java write.
        """
        self._log = log
        self._outcomes = f"{log}.json"
        command = [sys.executable, "-m", "sparrow", "pipeline", "run", file, "--json", "--master", _MASTER]
        with open(log, "wb") as errors, open(self._outcomes, "wb") as out:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                command + (["--once"] if is_once else []),
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
        is_running = self._process.poll() is None
        if is_running:
            # Stop everything while the others are looked for.
            os.killpg(self._process.pid, signal.SIGSTOP)
        members = _session(self._process.pid)
        if is_running:
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in members:
            _kill(pid)
        self._process.wait()
        deadline = time.monotonic() + _END_S
        while (left := _session(self._process.pid)) and time.monotonic() < deadline:
            for pid in left:
                _kill(pid)
            time.sleep(POLL_S)
        return max(len(members), int(is_running))

    def _reason(self) -> str:
        """Return why it failed: its own error, else the last line that it wrote."""
        said = _last_lines(self._log)
        own = [line.removeprefix(_SAID) for line in said if line.startswith(_SAID)]
        told = _failures(_last_lines(self._outcomes)) or own or said
        return told[-1] if told else f"it said nothing; exit code {self._process.returncode}"


def _session(number: int) -> list[int]:
    """Return the processes of a session: Spark's Python daemons have their own process groups.
    Without /proc none are found, and they end by themselves when Java is gone.
    """
    found: list[int] = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return found
    for pid in pids:
        try:
            if os.getsid(pid) == number and not _is_dead(pid):
                found.append(pid)
        except OSError:
            continue
    return found


def _is_dead(pid: int) -> bool:
    """Return True if the process has ended and waits for its parent."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _last_lines(path: str) -> list[str]:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - _TOLD_BYTES))
        return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


def _failures(lines: Iterable[str]) -> list[str]:
    """Return the failures among the outcomes of flows."""
    found = []
    for line in lines:
        try:
            failure = json.loads(line)["outcome"]["failure"]
        except (ValueError, KeyError, TypeError):
            continue
        if failure is not None:
            found.append(str(failure["text"]))
    return found
