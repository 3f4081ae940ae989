"""A worker process as its supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.tasks.supervisor.options import ProcessReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.tasks.supervisor.options import WorkerProcessOptions

_DECODER: Final = msgspec.json.Decoder(ProcessReport)
_MAX_LINE_BYTES: Final = 1 << 20


class Child:
    """One worker process. Loop thread only."""

    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader) -> None:
        self.process = process
        self.report = ProcessReport()
        self.heard_at = time.monotonic()
        """Monotonic time (s) of the last report."""
        self.has_worked = False
        self.is_ending = False
        """True if it was asked to end, so that its end is no crash."""
        self._writer: asyncio.StreamWriter | None = None
        self._listening = asyncio.get_running_loop().create_task(self._listen(reader))
        self.when_working: Callable[[], None] = lambda: None

    @classmethod
    async def start(cls, options: WorkerProcessOptions) -> Child:
        """Start a process. It is in a session of its own: Ctrl-C at a terminal reaches the
        supervisor alone, which passes it on once.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sparrow.tasks.supervisor.worker_process",
                msgspec.json.encode(options).decode(),
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=_MAX_LINE_BYTES)
        child = cls(process, reader)
        child._writer = writer
        return child

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    @property
    def is_working(self) -> bool:
        """True if it takes jobs."""
        return self.report.state == "working" and not self.is_ending and self.process.returncode is None

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                with contextlib.suppress(msgspec.MsgspecError):
                    self.report = _DECODER.decode(line)
                self.heard_at = time.monotonic()
                if self.report.state == "working" and not self.has_worked:
                    self.has_worked = True
                    self.when_working()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if number in (signal.SIGTERM, signal.SIGKILL):
            self.is_ending = self.is_ending or number == signal.SIGTERM
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def wait(self) -> int:
        """Wait for the end of the process and of its reports; return its exit code."""
        code = await self.process.wait()
        if self._writer is not None:
            self._writer.close()
        # Task processes of a worker that was killed may have the other end for a moment.
        await asyncio.wait([self._listening], timeout=1)
        self._listening.cancel()
        return code
