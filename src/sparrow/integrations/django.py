"""A backend for Django's tasks (`django.tasks` of Django 6, or the package django-tasks), and its
worker.

    TASKS = {
        "default": {
            "BACKEND": "sparrow.integrations.django.SparrowBackend",
            "QUEUES": ["default", "emails"],
            "OPTIONS": {"url": "sparrow://127.0.0.1:9094"},
        }
    }

A task is a job of the queue `PREFIX + queue_name`; `run_after` and the priority (-100 to 100, in
ten steps) are kept by the broker. States and return values are in a topic. The worker is

    DJANGO_SETTINGS_MODULE=mysite.settings python -m sparrow.integrations.django --concurrency 4

A task that fails is FAILED with its traceback, and is not repeated, as Django has it; a worker that
dies is another matter: its tasks are delivered to others when their leases end. At SIGTERM it takes
nothing new and finishes what runs; after the shutdown timeout it releases it, which does not count
as a delivery. A job that names no task becomes a dead letter.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import functools
import logging
import os
import socket
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.client.client import Client, connect
from sparrow.client.policy import settings_of
from sparrow.client.signals import listening
from sparrow.client.worker import Reject, Shutdown, Worker, WorkerOptions, WorkerSet
from sparrow.integrations.result_topic import KEPT_MS, ResultTopic
from sparrow.sync.background import Background

try:
    from django.utils import timezone
    from django.utils.module_loading import import_string
except ImportError as error:
    raise ImportError(
        "sparrow.integrations.django needs Django 6, or Django and django-tasks; install them: "
        "pip install django django-tasks"
    ) from error
try:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    try:
        from django_tasks import task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
    except ImportError as error:
        raise ImportError(
            "sparrow.integrations.django needs django.tasks of Django 6, or the package django-tasks; "
            "install it: pip install django-tasks"
        ) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.client.job import Job

_LOWEST: Final = -100
_STEP: Final = 20
"""Django has 201 priorities, a queue has ten: 0 is 5, each 20 more one level."""


class StoredTask(msgspec.Struct):
    """A task with its state, as it is published and stored."""

    id: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    queue_name: str
    priority: int
    status: str
    run_after: datetime | None = None
    enqueued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_attempted_at: datetime | None = None
    errors: list[tuple[str, str]] = []
    worker_ids: list[str] = []
    return_value: Any = None


class SparrowBackend(BaseTaskBackend):
    """A backend of Django's tasks on queues.

    `OPTIONS`: `url`; `prefix` of the queues' names (""), `results` (the topic, "django-results"),
    `keep_ms` (time for which a new topic keeps results), `policy` of the queues, `connect` (options
    of `sparrow.connect`, such as a token).
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = self.options
        self.url: str = options.get("url", "sparrow://127.0.0.1:9094")
        self.prefix: str = options.get("prefix", "")
        self.policy = options.get("policy")
        self.connect: dict[str, Any] = options.get("connect", {})
        self._topic: str = options.get("results", "django-results")
        self._keep_ms: int = options.get("keep_ms", KEPT_MS)
        self._background: Background | None = None
        self._client: Client | None = None
        self._results: ResultTopic | None = None

    def _loop(self) -> Background:
        """Return the thread that has the client; another one after a fork."""
        if self._background is None or self._background.is_forked:
            self._background = Background(self.url)
            self._client = self._results = None
        return self._background

    async def _opened(self) -> tuple[Client, ResultTopic]:
        if self._client is None or self._results is None:
            self._client = await connect(self.url, **self.connect)
            self._results = self.results(self._client)
        return self._client, self._results

    def results(self, client: Client) -> ResultTopic:
        """Return the topic of results, through a client."""
        return ResultTopic(client, self._topic, keep_ms=self._keep_ms)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Publish a task, durably, and return its result, which is READY."""
        self.validate_task(task)
        stored = StoredTask(
            os.urandom(16).hex(),
            task.module_path,
            list(args),
            dict(kwargs),
            self.alias,
            task.queue_name,
            task.priority,
            TaskResultStatus.READY.value,
            task.run_after,
            timezone.now(),
        )
        result = self.result_of(stored, task)
        stored.args, stored.kwargs = result.args, result.kwargs
        self._loop().run(self._publish(stored))
        task_enqueued.send(type(self), task_result=result)
        return result

    async def _publish(self, stored: StoredTask) -> None:
        client, results = await self._opened()
        data = msgspec.json.encode(stored)
        await results.put(stored.id, data)  # first: a worker may be quicker than this process
        queue = client.queue(f"{self.prefix}{stored.queue_name}", policy=self.policy)
        await queue.publish(
            data, priority=min((stored.priority - _LOWEST) // _STEP, 9), deliver_at=stored.run_after
        )

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task.

        Raises:
            TaskResultDoesNotExist: there is none of that id, or the topic keeps it no longer.
        """
        stored = self._loop().run(self._stored(result_id))
        if stored is None:
            raise TaskResultDoesNotExist(result_id)
        return self.result_of(stored, import_string(stored.task))

    async def _stored(self, result_id: str) -> StoredTask | None:
        _, results = await self._opened()
        data = await results.get(result_id)
        return None if data is None else msgspec.json.decode(data, type=StoredTask)

    def close(self) -> None:
        """Disconnect."""
        if self._background is not None and not self._background.is_forked:
            self._background.run_last(self._close())
            self._background.stop()
            self._background = None

    async def _close(self) -> None:
        if self._results is not None:
            await self._results.close()
        if self._client is not None:
            await self._client.close()

    def result_of(self, stored: StoredTask, task: Any) -> Any:
        """Return a stored state as Django shows it."""
        named = task.using(
            priority=stored.priority,
            queue_name=stored.queue_name,
            run_after=stored.run_after,
            backend=stored.backend,
        )
        result = TaskResult(
            task=named,
            id=stored.id,
            status=TaskResultStatus[stored.status],
            enqueued_at=stored.enqueued_at,
            started_at=stored.started_at,
            finished_at=stored.finished_at,
            last_attempted_at=stored.last_attempted_at,
            args=stored.args,
            kwargs=stored.kwargs,
            backend=stored.backend,
            errors=[TaskError(exception_class_path=path, traceback=text) for path, text in stored.errors],
            worker_ids=list(stored.worker_ids),
        )
        object.__setattr__(result, "_return_value", stored.return_value)
        return result


class DjangoWorker:
    """Runs the tasks of a backend in threads.

    Args:
        backend: whose queues are taken from.
        concurrency: tasks at a time, over all queues.
        shutdown_timeout_s: seconds that running tasks may take after a signal or `stop`.
    """

    def __init__(
        self, backend: SparrowBackend, *, concurrency: int = 1, shutdown_timeout_s: float = 30.0
    ) -> None:
        self._backend = backend
        self._concurrency = concurrency
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._free = asyncio.Semaphore(concurrency)
        self._threads = ThreadPoolExecutor(concurrency, "sparrow django")
        self._calls: set[asyncio.Future[None]] = set()
        self._workers = WorkerSet()
        self._shutdown = Shutdown(self._workers, shutdown_timeout_s)

    @property
    def has_calls(self) -> bool:
        """True while calls of tasks run; after `run` their jobs were released."""
        return bool(self._calls)

    def stop(self, reason: str = "stop") -> None:
        """Take nothing new; `run` ends when the running tasks are done, or after the shutdown
        timeout, when they are released. A second call releases them at once. Loop thread only.
        """
        self._shutdown.signalled(reason)

    async def run(self) -> None:
        """Work until `stop`, or in the main thread SIGTERM or SIGINT."""
        backend, loop = self._backend, asyncio.get_running_loop()
        try:
            async with connect(backend.url, **backend.connect) as client:
                results = backend.results(client)
                for name in sorted(backend.queues):
                    self._workers.add(self._worker(client, f"{backend.prefix}{name}", results))
                with listening(lambda name: loop.call_soon_threadsafe(self.stop, name)):
                    await self._shutdown.run()
                await results.close()
        finally:
            # A thread cannot be interrupted; the job of its call was released.
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _worker(self, client: Client, queue: str, results: ResultTopic) -> Worker:
        options = WorkerOptions(
            concurrency=self._concurrency,
            prefetch=self._concurrency,
            policy=None if self._backend.policy is None else settings_of(self._backend.policy),
        )

        async def work(job: Job) -> None:
            async with self._free:
                if self._shutdown.is_stopping:
                    job.release_nowait()  # it waited for tasks of other queues
                else:
                    await self._work(job, results)

        return Worker(client.queue_with, queue, work, options)

    async def _work(self, job: Job, results: ResultTopic) -> None:
        try:
            stored, task = _read(job)
        except (msgspec.DecodeError, ImportError, TypeError) as error:
            raise Reject(f"the message names no task: {error}") from error
        now = timezone.now()
        stored.status = TaskResultStatus.RUNNING.value
        stored.started_at, stored.last_attempted_at = stored.started_at or now, now
        stored.worker_ids.append(self._name)
        await results.put(stored.id, msgspec.json.encode(stored))
        await self._call(task, stored)
        stored.finished_at = timezone.now()
        await results.put(stored.id, msgspec.json.encode(stored))

    async def _call(self, task: Any, stored: StoredTask) -> None:
        """Run a task in a thread. On cancellation its call goes on."""
        context = contextvars.copy_context()
        call = functools.partial(context.run, self._execute, task, stored)
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        await asyncio.wait([future])
        future.result()

    def _execute(self, task: Any, stored: StoredTask) -> None:
        """Run the function of a task; the outcome is in `stored`."""
        from django.db import close_old_connections

        backend = self._backend
        close_old_connections()
        try:
            result = backend.result_of(stored, task)
            task_started.send(type(backend), task_result=result)
            context = (TaskContext(task_result=result),) if task.takes_context else ()
            value = task.call(*context, *stored.args, **stored.kwargs)
            msgspec.json.encode(value)  # a value that cannot be stored is a failure of the task
            stored.return_value, stored.status = value, TaskResultStatus.SUCCESSFUL.value
        except Exception as error:  # noqa: BLE001 - whatever a task raises
            kind = type(error)
            text = "".join(traceback.format_exception(error))
            stored.errors.append((f"{kind.__module__}.{kind.__qualname__}", text))
            stored.status = TaskResultStatus.FAILED.value
        finally:
            close_old_connections()
        task_finished.send(type(backend), task_result=backend.result_of(stored, task))


def _read(job: Job) -> tuple[StoredTask, Any]:
    """Return what a job says, and its task.

    Raises:
        DecodeError, ImportError, TypeError: it names no task.
    """
    stored = msgspec.json.decode(job.value or b"", type=StoredTask)
    task = import_string(stored.task)
    if not isinstance(task, Task):
        raise TypeError(f"{stored.task} is no task of Django")
    return stored, task


def main() -> None:
    """Run a worker for one backend of the settings."""
    import django

    parser = argparse.ArgumentParser(
        prog="python -m sparrow.integrations.django", description="Run Django's tasks."
    )
    parser.add_argument("--backend", default="default", help="a key of TASKS")
    parser.add_argument("--concurrency", type=int, default=1, help="tasks at a time")
    parser.add_argument(
        "--shutdown-timeout",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds that running tasks may take after SIGTERM, before they are released (30)",
    )
    options = parser.parse_args()
    django.setup()
    backend = task_backends[options.backend]
    if not hasattr(backend, "results"):
        parser.error(f"the backend {options.backend!r} of TASKS is no SparrowBackend")
    worker = DjangoWorker(
        backend, concurrency=options.concurrency, shutdown_timeout_s=options.shutdown_timeout
    )
    asyncio.run(worker.run())
    if worker.has_calls:  # Python would wait for their threads; their jobs are delivered to others
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
