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
dies is another matter: its tasks are delivered to others when their leases end. A job that names no
task becomes a dead letter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import traceback
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.client.client import Client, connect
from sparrow.integrations.lease_keeper import LeaseKeeper
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
        concurrency: tasks at a time.
    """

    def __init__(self, backend: SparrowBackend, *, concurrency: int = 1) -> None:
        self._backend = backend
        self._concurrency = concurrency
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._free = asyncio.Semaphore(concurrency)
        self._running: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Take nothing new; `run` ends when the running tasks are done. Loop thread only."""
        self._stopped.set()

    async def run(self) -> None:
        """Work until `stop`."""
        backend, keeper = self._backend, LeaseKeeper()
        keeper.start()
        async with connect(backend.url, **backend.connect) as client:
            results = backend.results(client)
            loops = [
                asyncio.create_task(self._take(client, f"{backend.prefix}{name}", results, keeper))
                for name in sorted(backend.queues)
            ]
            stopped = asyncio.create_task(self._stopped.wait())
            await asyncio.wait([*loops, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in loops:
                task.cancel()
            ends = await asyncio.gather(*loops, return_exceptions=True)
            if self._running:
                await asyncio.wait(set(self._running))
            stopped.cancel()
            await results.close()
            await keeper.stop()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _take(self, client: Client, queue: str, results: ResultTopic, keeper: LeaseKeeper) -> None:
        async with client.queue(queue, prefetch=self._concurrency, policy=self._backend.policy) as jobs:
            async for job in jobs:
                keeper.keep(job)
                await self._free.acquire()
                task = asyncio.create_task(self._work(job, results))
                self._running.add(task)
                task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._free.release()
        if not task.cancelled() and task.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a task of Django was not settled", "exception": task.exception()}
            )

    async def _work(self, job: Job, results: ResultTopic) -> None:
        try:
            stored, task = _read(job)
        except (msgspec.DecodeError, ImportError, TypeError) as error:
            await job.reject(f"the message names no task: {error}")
            return
        now = timezone.now()
        stored.status = TaskResultStatus.RUNNING.value
        stored.started_at, stored.last_attempted_at = stored.started_at or now, now
        stored.worker_ids.append(self._name)
        await results.put(stored.id, msgspec.json.encode(stored))
        await asyncio.to_thread(self._execute, task, stored)
        stored.finished_at = timezone.now()
        await results.put(stored.id, msgspec.json.encode(stored))
        await job.ack()

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


async def _serve(backend: SparrowBackend, concurrency: int) -> None:
    worker = DjangoWorker(backend, concurrency=concurrency)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    await worker.run()


def main() -> None:
    """Run a worker for one backend of the settings."""
    import django

    parser = argparse.ArgumentParser(
        prog="python -m sparrow.integrations.django", description="Run Django's tasks."
    )
    parser.add_argument("--backend", default="default", help="a key of TASKS")
    parser.add_argument("--concurrency", type=int, default=1, help="tasks at a time")
    options = parser.parse_args()
    django.setup()
    backend = task_backends[options.backend]
    if not hasattr(backend, "results"):
        parser.error(f"the backend {options.backend!r} of TASKS is no SparrowBackend")
    asyncio.run(_serve(backend, options.concurrency))


if __name__ == "__main__":
    main()
