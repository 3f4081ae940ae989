"""A process that runs tasks with `executor="process"`: `python -m sparrow.tasks.task_process FD`.

It loads the modules that declare the tasks, and runs one call after the other in its main thread,
so that a timeout can interrupt Python code there: SIGUSR1 from the worker raises
`TimeLimitExceeded`. The worker kills a process that does not end at that. When the worker is gone,
the connection ends, and so does this process.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import select
import signal
import socket
import sys
import threading
import traceback
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from sparrow.client.worker import Reject, Retry
from sparrow.tasks.errors import ArgumentsMisfit, TimeLimitExceeded, UnencodableResult
from sparrow.tasks.frames import (
    Loaded,
    LoadTasks,
    ProgressReport,
    Raised,
    Returned,
    TaskCall,
    encode,
    receive,
)
from sparrow.tasks.jobs import LocalJob, enter_job
from sparrow.tasks.registry import app_named
from sparrow.tasks.signature import result_as_json

if TYPE_CHECKING:
    from types import FrameType

    from sparrow.tasks.interface import App


class _Interrupt:
    """The time limit of the call that runs."""

    def __init__(self) -> None:
        self.is_running = False

    def received(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's
        """Interrupt the call; a signal that comes behind its end has no effect."""
        if self.is_running:
            self.is_running = False
            raise TimeLimitExceeded("the task did not end within its timeout")


def main() -> None:
    """Serve calls until the worker closes the connection."""
    interrupt = _Interrupt()
    signal.signal(signal.SIGUSR1, interrupt.received)
    # The worker decides when this process ends: Ctrl-C at a terminal also reaches it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    with connection:
        start = receive(connection)
        if not isinstance(start, LoadTasks):
            return
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        app = _load(connection, start)
        while app is not None:
            call = receive(connection)
            if not isinstance(call, TaskCall):
                return
            # A context of its own for each call, as in the worker.
            answer = copy_context().run(_answer, app, call, connection, interrupt)
            connection.sendall(encode(answer))


def _end_with(connection: socket.socket) -> None:
    """End this process when the worker is gone, also in the middle of a call: nobody waits for it,
    and another worker will have its job.
    """
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", select.POLLHUP))
    poll.poll()
    os._exit(0)


def _load(connection: socket.socket, start: LoadTasks) -> App | None:
    sys.path[:] = start.path
    try:
        for module in start.modules:
            importlib.import_module(module)
        app = app_named(start.app)
    except BaseException as error:  # noqa: BLE001 - the worker gets every error
        connection.sendall(encode(Loaded(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")))
        return None
    connection.sendall(encode(Loaded()))
    return app


def _answer(app: App, call: TaskCall, connection: socket.socket, interrupt: _Interrupt) -> Returned | Raised:
    """Run one call and return what becomes of it."""
    job = LocalJob(
        call.task,
        call.id,
        attempt=call.attempt,
        attempts=call.attempts,
        queue=call.queue,
        parents=call.parents,
        report=lambda fraction, text: connection.sendall(encode(ProgressReport(fraction, text))),
    )
    try:
        task = app.tasks[call.task]
        args, kwargs = task.signature.decode(call.value)
        if call.context:
            app.enter_context(call.context)
        enter_job(job)
        interrupt.is_running = True
        try:
            value = task.signature.call(job, args, kwargs)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
        finally:
            interrupt.is_running = False
        return Returned(result_as_json(task.name, value) if call.keeps_result else b"null")
    except BaseException as error:  # noqa: BLE001 - the worker gets every error
        return _raised(error)


def _raised(error: BaseException) -> Raised:
    kinds: list[tuple[type[BaseException], str]] = [
        (Reject, "reject"),
        (Retry, "retry"),
        (ArgumentsMisfit, "misfit"),
        (UnencodableResult, "result"),
        (TimeLimitExceeded, "timeout"),
    ]
    kind = next((name for each, name in kinds if isinstance(error, each)), "failed")
    delay: Any = getattr(error, "delay_s", None) if kind == "retry" else None
    bases = [f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__]
    where = "".join(traceback.format_exception(error))
    return Raised(kind, type(error).__name__, str(error), where, delay, bases)


if __name__ == "__main__":
    main()
    # Threads of the task's libraries must not keep the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
