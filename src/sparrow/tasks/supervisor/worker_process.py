"""A worker process: `python -m sparrow.tasks.supervisor.worker_process FD`.

It loads its modules, reads its options from the connection to the supervisor, loads the app, and
reports its state over that connection. When it ends, the supervisor is gone, and the process
finishes what runs and ends, too: nobody would restart or stop it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from typing import TYPE_CHECKING

import msgspec

from sparrow.base.errors import SparrowError
from sparrow.tasks.supervisor.options import REPORT_INTERVAL_S, ProcessReport, WorkerProcessOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.tasks.runtime import Runtime

_logger = logging.getLogger("sparrow.worker")

DONE, FAILED, PERMANENT = 0, 1, 78
"""Exit codes."""


class ReportSender:
    """The way to the supervisor."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.report = ProcessReport()
        self._lock = threading.Lock()

    def send(self) -> None:
        """Send the report as it is now; a supervisor that is gone gets none."""
        with contextlib.suppress(OSError), self._lock:
            self._connection.sendall(msgspec.json.encode(self.report) + b"\n")

    def fail(self, error: BaseException, *, is_permanent: bool) -> int:
        """Report why this process cannot work; return its exit code."""
        if isinstance(error, SparrowError):
            text = error.text
        else:
            text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        self.report = ProcessReport(state="failed", error=text, is_permanent=is_permanent)
        self.send()
        return PERMANENT if is_permanent else FAILED


def main() -> int:
    """Work until a signal; return the exit code."""
    # Modules are no garbage: looking for some while they are loaded takes a tenth of the start.
    gc.disable()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        # A signal before the workers listen must not end this process with a traceback.
        stopped = _SignalBefore()
        from sparrow.tasks.runtime import Runtime
        from sparrow.tasks.supervisor.loader import load

        options = _read_options(connection)
        if options is None:
            return DONE
        os.environ.update(options.environment)
        reporter = ReportSender(connection)
        configure_logs(options)
        try:
            app = load(options.app)
            runtime = Runtime(
                app, concurrency=options.concurrency, queues=options.queues, prefetch=options.prefetch
            )
        except Exception as error:  # noqa: BLE001 - the module is any code
            return reporter.fail(error, is_permanent=True)
        gc.enable()
        gc.freeze()
        if stopped.is_received:
            return DONE
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(_work(runtime, options, reporter, connection, stopped))
        except SparrowError as error:
            return reporter.fail(error, is_permanent=not error.retriable)
        except Exception as error:  # noqa: BLE001 - hooks of the app are any code
            return reporter.fail(error, is_permanent=False)
        return DONE


def _read_options(connection: socket.socket) -> WorkerProcessOptions | None:
    """Wait for the options, which are one line; None if the supervisor ends first."""
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            return None
        line += part
    return msgspec.json.decode(line, type=WorkerProcessOptions)


class _SignalBefore:
    """SIGTERM and SIGINT that come before the workers listen."""

    def __init__(self) -> None:
        self.is_received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, *_: object) -> None:
        self.is_received = True


async def _work(
    runtime: Runtime,
    options: WorkerProcessOptions,
    reporter: ReportSender,
    connection: socket.socket,
    stopped: _SignalBefore,
) -> None:
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    watching = loop.create_task(_until_alone(connection))
    watching.add_done_callback(lambda task: None if task.cancelled() else runtime.stop("no supervisor"))

    def working() -> None:
        reporter.report.state = "working"
        reporter.send()
        if stopped.is_received:
            runtime.stop("signal")

    connection_lock = loop.create_task(_report(runtime, reporter))

    def end(why: str) -> None:
        """End this process, although a call still runs in it."""
        _count(runtime, reporter)
        reporter.report.error = why
        reporter.send()
        sys.stdout.flush()
        os._exit(FAILED)

    runtime.when_working = working
    runtime.end_process = end
    try:
        await runtime.run(options.shutdown_timeout_s)
    finally:
        for task in (watching, connection_lock):
            task.cancel()
        await asyncio.wait([watching, connection_lock])
        if runtime.stuck:  # the loop would wait for the call
            end(runtime.stuck)


async def _until_alone(connection: socket.socket) -> None:
    """Wait for the end of the supervisor, which sends nothing after the options."""
    while await asyncio.get_running_loop().sock_recv(connection, 100):
        pass


async def _report(runtime: Runtime, reporter: ReportSender) -> None:
    while True:
        _count(runtime, reporter)
        reporter.send()
        await asyncio.sleep(REPORT_INTERVAL_S)


def _count(runtime: Runtime, reporter: ReportSender) -> None:
    """Put the numbers of now into the report."""
    counts, report = runtime.counts, reporter.report
    report.done, report.failed, report.rejected = counts.done, counts.failed, counts.rejected
    report.running, report.rss_bytes = counts.running, rss_bytes()


def rss_bytes() -> int:
    """Return the resident set of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "text": record.getMessage(),
            **getattr(record, "sparrow", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure_logs(options: WorkerProcessOptions) -> None:
    """Let all logs go to stderr, unless the app's module sets up its own."""
    handler = logging.StreamHandler(sys.stderr)
    if options.log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(options.log_level)


if __name__ == "__main__":
    sys.exit(main())
