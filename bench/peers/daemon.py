"""A server process of another project: started on a free port with its own data directory, ended
when the measurement is over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.quiet import until_idle

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0


class NotInstalled(Exception):
    """A peer, or a client of it, is missing; the text says how to get it."""


def found(names: Sequence[str], how: str) -> str:
    """The first of these programs that is there.

    Raises:
        NotInstalled: none is; `how` says how to get it.
    """
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        raise NotInstalled(how)
    return program


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """Where a peer's data goes: beside the data of the brokers that `bench.server` starts, so on
    the same disk.
    """
    root = Path(tempfile.mkdtemp(prefix="sparrow-bench-peer-"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Daemon:
    """One server process, which may be killed and started again on its data.

    The process leads a group of its own, which is killed at the end if SIGTERM does not do: some
    servers are wrapped in a script.
    """

    def __init__(
        self, command: Sequence[str], log: Path, port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self.log = log
        self.port = port
        self._environment = environment
        """None: this process's own."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Begin; returns at once."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdout=output,
                stderr=output,
                env=None if self._environment is None else dict(self._environment),
                cwd=self.log.parent,
                start_new_session=True,
            )

    def until_accepting(self) -> None:
        """Wait until its port accepts.

        Raises:
            RuntimeError: it ended, or did not accept in time; with what it printed.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            self.check()
            time.sleep(0.005)
        raise self._failure("did not accept connections")

    def check(self) -> None:
        """Raises RuntimeError, with what it printed, if it has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise self._failure(f"ended with {self._process.returncode}")

    def memory_bytes(self) -> int:
        """Resident size of the process and of those that it has started."""
        process = psutil.Process(self.pid)
        return sum(int(each.memory_info().rss) for each in (process, *process.children(recursive=True)))

    def kill(self) -> None:
        """kill -9, of the whole group."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait; then whatever is left of the group is killed."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def _failure(self, what: str) -> RuntimeError:
        said = self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""
        return RuntimeError(f"{self.command!r} {what}:\n{said}")


class Peer(NamedTuple):
    """A peer that is set up and may be started."""

    daemon: Daemon
    address: Any
    """The address for its clients; most take the port."""


@contextlib.contextmanager
def running(daemon: Daemon) -> Iterator[Daemon]:
    """The daemon, from when it accepts and has come to rest until the block ends.

    Raises:
        RuntimeError: it ended, or did not accept in time; with what it printed.
    """
    daemon.spawn()
    try:
        daemon.until_accepting()
        until_idle(daemon.pid)
        yield daemon
    finally:
        daemon.stop()
