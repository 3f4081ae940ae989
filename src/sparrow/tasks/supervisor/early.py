"""A worker process that is started before the command line is read: reading it takes as long as
loading what a worker needs. A command line that is wrong leaves it without options, and it ends.
"""

from __future__ import annotations

import socket
import subprocess

from sparrow.base.module_process import start_module

EarlyProcess = tuple["subprocess.Popen[bytes]", socket.socket]

_started: list[EarlyProcess] = []


def start_early() -> EarlyProcess:
    """Start a process that has no options yet."""
    return start_module("sparrow.tasks.supervisor.worker_process", in_own_session=True)


def begin() -> None:
    """Start the process of `taken`."""
    _started.append(start_early())


def taken() -> EarlyProcess | None:
    """Return the process that was started, once; None without one."""
    return _started.pop() if _started else None


def drop() -> None:
    """End the process of `taken`, if nobody took it."""
    left = taken()
    if left is not None:
        process, connection = left
        connection.close()
        process.kill()
        process.wait()
