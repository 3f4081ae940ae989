"""`sparrow pipeline run` as users run it: in a process of its own, with a process group of its own that can be killed as a whole.

How far the queries are is read from their checkpoints, where Spark notes each batch twice: before it begins (`offsets/N`) and after it is committed (`commits/N`). What is between the
two when the processes are killed is the batch that the next run has to do again.
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
"""On this machine, whatever the environment says of others; a demonstration is too small for many cores."""
_SAID: Final = "sparrow: "
"""How commands begin what they say of a failure."""
_END_S: Final = 10.0
"""How long processes may take to be gone after kill -9."""
_TOLD_BYTES: Final = 4000
"""How much of the log is looked through for a reason."""


@dataclass(frozen=True)
class Batches:
    """How many batches a query has begun, and how many it has committed."""

    begun: int = 0
    committed: int = 0

    @property
    def is_in_one(self) -> bool:
        """Whether a batch has begun that is not committed."""
        return self.begun > self.committed


def batches_of(checkpoint: str) -> Batches:
    """What a checkpoint has; none before the query has begun."""
    committed = _newest(f"{checkpoint}/commits")
    # In this order: a batch that begins between the two looks shall not seem to be committed before it began.
    return Batches(max(committed, _newest(f"{checkpoint}/offsets")), committed)


def _newest(directory: str) -> int:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    return max((int(name) + 1 for name in names if name.isdecimal()), default=0)


class PipelineRun:
    """One run. Leave it by `kill` or `wait`, or use it in a `with` block, which leaves no process behind."""

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
                # Not on the command line, which everybody on the machine may read: the URL may have a token.
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
        """Until something is reached that the run is on its way to.

        Args:
            during: called again and again meanwhile.

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
        """Until it has ended by itself, and well.

        Raises:
            SparrowError: it has failed, or takes too long.
        """
        self.wait_until(lambda: self._process.poll() is not None, timeout_s, during)
        if self._process.returncode:
            raise SparrowError(f"the pipeline failed: {self._reason()}")

    def kill(self) -> int:
        """kill -9 all of it: the driver, its Java, and Spark's Python processes; how many there were."""
        is_running = self._process.poll() is None
        if is_running:
            # Nothing goes on while the others are looked for.
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
        """Why it failed: what it says itself, else the last that it wrote."""
        said = _last_lines(self._log)
        own = [line.removeprefix(_SAID) for line in said if line.startswith(_SAID)]
        told = _failures(_last_lines(self._outcomes)) or own or said
        return told[-1] if told else f"it said nothing; exit code {self._process.returncode}"


def _session(number: int) -> list[int]:
    """The processes of a session: Spark's Python daemons have process groups of their own. Without /proc there is nothing to see, and they end by themselves when Java is gone."""
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
    """Whether it waits for its parent to look at it."""
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
    """The failures among the outcomes of flows."""
    found = []
    for line in lines:
        try:
            failure = json.loads(line)["outcome"]["failure"]
        except (ValueError, KeyError, TypeError):
            continue
        if failure is not None:
            found.append(str(failure["text"]))
    return found
