"""A worker process as its supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.tasks.supervisor.early import start_early
from sparrow.tasks.supervisor.options import ProcessReport

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from sparrow.tasks.supervisor.early import EarlyProcess
    from sparrow.tasks.supervisor.options import WorkerProcessOptions

_DECODER: Final = msgspec.json.Decoder(ProcessReport)
_MAX_LINE_BYTES: Final = 1 << 20


class Child:
    """One worker process. Loop thread only."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.report = ProcessReport()
        self.heard_at = time.monotonic()
        """Monotonic time (s) of the last report."""
        self.has_worked = False
        self.is_ending = False
        """True if it was asked to end, so that its end is no crash."""
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = loop.create_future()
        """The exit code, once the process has ended."""
        self._process = process
        self._writer = writer
        self._listening = loop.create_task(self._listen(reader))
        self.when_working: Callable[[], None] = lambda: None
        threading.Thread(target=self._await_end, args=(loop,), daemon=True).start()

    @classmethod
    async def start(cls, options: WorkerProcessOptions, early: EarlyProcess | None = None) -> Child:
        """Start a process, or use one that was started before its options were known. It is in a
        session of its own: Ctrl-C at a terminal reaches the supervisor alone, which passes it on
        once.
        """
        process, connection = start_early() if early is None else early
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_LINE_BYTES)
        writer.write(msgspec.json.encode(options) + b"\n")
        return cls(process, reader, writer)

    def _await_end(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._note_end, code)

    def _note_end(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_working(self) -> bool:
        """True if it takes jobs."""
        return self.report.state == "working" and not self.is_ending and not self.ended.done()

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
        self.is_ending = self.is_ending or number in (signal.SIGTERM, signal.SIGINT)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for the end of the process and of its reports; return its exit code."""
        code = await asyncio.shield(self.ended)
        self._writer.close()
        # Task processes of a worker that was killed may have the other end for a moment.
        await asyncio.wait([self._listening], timeout=1)
        self._listening.cancel()
        return code
