"""Processes that run plain functions with `executor="process"`: one call at a time in each.

A process is started at the first call that finds none idle, up to the worker's concurrency, and
kept. At its timeout a call is interrupted by a signal; at its hard timeout the process is killed
and replaced. A process that ends by itself (a crash of a C library, the kernel's out-of-memory
killer) fails its call with the reason, and the worker goes on.

Rejected: `concurrent.futures.ProcessPoolExecutor`, which breaks as a whole when one process dies
and cannot end a single call.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.module_process import start_module
from sparrow.client.worker import Reject, Retry
from sparrow.tasks.errors import ArgumentsMisfit, TaskError, TimeLimitExceeded, UnencodableResult
from sparrow.tasks.frames import (
    LENGTH,
    Loaded,
    LoadTasks,
    Message,
    ProgressReport,
    Raised,
    Returned,
    TaskCall,
    decode,
    encode,
)
from sparrow.tasks.wire import CONTEXT, header_of

if TYPE_CHECKING:
    from sparrow.tasks.interface import AnyTask, App
    from sparrow.tasks.jobs import TaskJob

_START_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 2.0


class RemoteError(Exception):
    """An exception of a task in another process; its class has the name of the original."""

    where: str = ""


class ProcessDied(TaskError):
    """The process of a task ended in the middle of a call."""

    code = "PROCESS_DIED"


class _Process:
    """One process and its connection."""

    def __init__(self) -> None:
        self.process, self._socket = start_module("sparrow.tasks.task_process")
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self, start: LoadTasks) -> None:
        """Load the modules. Raises TaskError."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self.send(start)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                answer = await self.receive()
        except (TimeoutError, ProcessDied) as error:
            raise TaskError(
                f"a process for tasks did not start: {str(error) or 'no answer in time'}"
            ) from None
        if not isinstance(answer, Loaded) or answer.error:
            reason = answer.error if isinstance(answer, Loaded) else "it answered something else"
            raise TaskError(f"a process for tasks could not load them: {reason}")

    def send(self, message: Message) -> None:
        assert self._writer is not None
        self._writer.write(encode(message))

    async def receive(self) -> Message:
        """Return the next message. Raises ProcessDied."""
        assert self._reader is not None
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            code = await asyncio.to_thread(self.process.wait)
            how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
            raise ProcessDied(f"the process of the task ended {how}") from None

    def close(self, *, kill: bool) -> None:
        """End the process: an idle one ends when its connection does."""
        if kill:
            self.process.kill()
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()

    async def wait(self) -> None:
        """Wait for the end of the process; kill it if it takes too long."""
        try:
            await asyncio.to_thread(self.process.wait, _END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)
        if self._writer is not None:
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()


class ProcessPool:
    """The processes of one worker. Loop thread only."""

    def __init__(self, app: App, size: int) -> None:
        """Create a pool of at most `size` processes, none of which runs yet."""
        self._app = app
        self._slots = asyncio.Semaphore(size)
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()

    @property
    def pids(self) -> list[int]:
        """Return the ids of the processes."""
        return [each.process.pid for each in self._all]

    async def warm(self) -> None:
        """Start one process, so that the first call does not wait for it.

        Raises:
            TaskError: it cannot load the tasks.
        """
        self._idle.append(await self._started())

    async def close(self) -> None:
        """End all processes; those that run a call are killed."""
        gone, self._all = self._all, set()
        for process in gone:
            process.close(kill=process not in self._idle)
        self._idle = []
        await asyncio.gather(*(process.wait() for process in gone))

    async def _started(self) -> _Process:
        modules = sorted(
            {
                task.function.__module__
                for task in self._app.tasks.values()
                if task.settings.executor == "process"
            }
        )
        if "__main__" in modules:
            raise TaskError(
                'a task with executor="process" is declared in the program that runs (__main__), which other '
                "processes cannot import; declare it in a module"
            )
        process = _Process()
        self._all.add(process)
        try:
            await process.start(LoadTasks(list(sys.path), modules, self._app.name))
        except BaseException:
            await self._drop(process)
            raise
        return process

    async def _drop(self, process: _Process) -> None:
        self._all.discard(process)
        process.close(kill=True)
        await process.wait()

    async def run(
        self, task: AnyTask, job: TaskJob, value: bytes | None, *, keeps_result: bool
    ) -> msgspec.Raw:
        """Run a call and return its result as JSON.

        Raises:
            ProcessDied, TimeLimitExceeded, ArgumentsMisfit, UnencodableResult, Reject, Retry
            RemoteError: the task raised another exception.
        """
        async with self._slots:
            process = self._idle.pop() if self._idle else await self._started()
            is_usable = False
            try:
                result = await self._called(process, task, job, value, keeps_result)
                is_usable = True
            except (ProcessDied, asyncio.CancelledError, _HardLimit):
                raise
            except BaseException:
                is_usable = True
                raise
            finally:
                if is_usable and process in self._all:
                    self._idle.append(process)
                elif process in self._all:
                    await asyncio.shield(self._drop(process))
            return result

    async def _called(
        self, process: _Process, task: AnyTask, job: TaskJob, value: bytes | None, keeps_result: bool
    ) -> msgspec.Raw:
        options = task.settings
        process.send(
            TaskCall(
                task=task.name,
                id=job.id,
                attempt=job.delivery_count,
                attempts=job.attempts,
                queue=job.queue,
                value=value or b"{}",
                context=header_of(job.record.headers, CONTEXT) or b"",
                parents=list(job.parents),
                keeps_result=keeps_result,
            )
        )
        loop = asyncio.get_running_loop()
        soft = None
        if options.timeout_s is not None:
            soft = loop.call_later(options.timeout_s, process.process.send_signal, signal.SIGUSR1)
        try:
            async with asyncio.timeout(options.hard_timeout_s) as limit:
                while isinstance(message := await process.receive(), ProgressReport):
                    job.progress(message.fraction, message.text)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _HardLimit(
                f"the task did not end within its hard_timeout of {options.hard_timeout_s:g} s; its process "
                "was killed"
            ) from None
        finally:
            if soft is not None:
                soft.cancel()
        if isinstance(message, Returned):
            return msgspec.Raw(message.result)
        assert isinstance(message, Raised)
        raise _error_of(message, task)


class _HardLimit(TimeLimitExceeded):
    """The process was killed."""


_HardLimit.__name__ = TimeLimitExceeded.__name__


def _error_of(raised: Raised, task: AnyTask) -> Exception:
    """Return the exception that stands for one of another process."""
    if raised.kind == "reject" or any(
        f"{each.__module__}.{each.__qualname__}" in raised.bases for each in task.settings.reject_on
    ):
        return Reject(raised.text if raised.kind == "reject" else f"{raised.name}: {raised.text}")
    if raised.kind == "retry":
        return Retry(raised.text, delay_s=raised.delay_s)
    if raised.kind == "misfit":
        return ArgumentsMisfit(raised.text)
    if raised.kind == "result":
        return UnencodableResult(raised.text)
    if raised.kind == "timeout":
        return TimeLimitExceeded(f"{raised.text} of {task.settings.timeout_s or 0:g} s")
    error: RemoteError = type(raised.name, (RemoteError,), {})(raised.text)
    error.where = raised.where
    error.add_note(f"in the process of the task:\n{raised.where}")
    return error
