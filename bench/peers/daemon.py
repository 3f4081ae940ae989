"""A server process of another project: started on a free port with its own data directory, ended when the measurement is over."""

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

from bench.quiet import until_idle

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0


class NotInstalled(Exception):
    """A peer, or a client of it, is missing; the text says how to get it."""


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """Where a peer's data goes: beside the data of the brokers that `bench.server` starts, so on the same disk."""
    root = Path(tempfile.mkdtemp(prefix="sparrow-bench-peer-"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def daemon(
    command: Sequence[str], log: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run it until the block ends; begins when the port accepts and the server has come to rest, with the process id.

    The process leads a group of its own, which is killed at the end if SIGTERM does not do: some servers are wrapped in a script.

    Raises:
        RuntimeError: it ended, or did not accept in time; with what it printed.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        _until_accepting(process, port, log)
        until_idle(process.pid)
        yield process.pid
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _until_accepting(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text(errors='replace')[-4000:]}")
