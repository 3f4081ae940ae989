"""Modules of this package that run as processes, connected to this one by a socket.

Such a module gets the number of its descriptor as its argument, and ends when the connection does.
"""

from __future__ import annotations

import socket
import subprocess
import sys


def start_module(
    module: str, *, in_own_session: bool = False
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a module, and return its process and our end of the connection.

    Args:
        in_own_session: Ctrl-C at a terminal does not reach it.

    Raises:
        OSError: no process can be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=in_own_session,
            )
        except BaseException:
            ours.close()
            raise
    return process, ours
