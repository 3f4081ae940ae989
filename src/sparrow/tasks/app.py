"""`sparrow.Tasks`: the tasks of a program, made when it is imported; no broker is needed for that.

    app = sparrow.Tasks("mailer")

    @app.task(queue="emails", retries=5, timeout="30s")
    async def send(to: str, body: str) -> int: ...

    await send.send("alice", "hello")

The app connects at the first send, once per event loop, to the broker of `url` (default:
`SPARROW_URL`, as the command line). `async with app:` closes the connection at its end.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast, overload

import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.client.client import DEFAULT_URL, connect
from sparrow.client.options import check_name
from sparrow.client.policy import settings_of
from sparrow.records.wellknown import PARENT_ID
from sparrow.tasks.connection import Connection, TaskMessage
from sparrow.tasks.errors import TaskError, TimeLimitExceeded
from sparrow.tasks.options import TaskOptions, rate_per_s, seconds
from sparrow.tasks.registry import register
from sparrow.tasks.results import Result
from sparrow.tasks.schedules import TaskSchedule
from sparrow.tasks.signature import ENCODER
from sparrow.tasks.task import Task
from sparrow.tasks.wire import FILL, IGNORE, PARENTS_FAILED, TASK, TASK_ID, IdSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from sparrow.client.client import Client
    from sparrow.client.job import Job
    from sparrow.client.policy import Policy
    from sparrow.sync.background import Background
    from sparrow.tasks.compositions import Step
    from sparrow.tasks.in_process import TestRun
    from sparrow.tasks.options import Backoff, Duration, Executor
    from sparrow.tasks.results import ResultReader
    from sparrow.tasks.wire import Header

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Middleware = TypeVar("Middleware", bound="Callable[..., Awaitable[Any]]")
AnyTask = TypeVar("AnyTask", bound="Task[..., Any]")
Hook = TypeVar("Hook", bound="Callable[..., Any]")

_LOGIN_VARIABLES = {"token": "SPARROW_TOKEN", "user": "SPARROW_USER", "password": "SPARROW_PASSWORD"}
_FILE_VARIABLES = ("ca_file", "certificate_file", "key_file")


class Tasks:
    """The tasks of a program. Making one does nothing but remember its arguments."""

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        queues: Mapping[str, Policy] | None = None,
        context: Iterable[ContextVar[Any]] = (),
        results_ttl: Duration = "1d",
        **login: Any,
    ) -> None:
        """Create an app.

        Args:
            name: names its queues and topics: `NAME` is the queue of tasks that have none,
                `NAME.flows` that of compositions, `NAME.results` the topic of results.
            url: the broker; None: `SPARROW_URL`, else `sparrow://127.0.0.1:9094`.
            queues: policies by queue, such as {"emails": {"lease": "1m", "order": "key"}}.
            context: context variables whose values travel with each job; JSON must be able to
                carry them.
            results_ttl: how long results are kept.
            login: options of `sparrow.connect`: token, user, password, ca_file, …

        Raises:
            InvalidArgument, InvalidConfig: an argument has a wrong value.
        """
        check_name("the name of an app", name)
        self.name = name
        self.tasks: dict[str, Task[..., Any]] = {}
        """All tasks by name."""
        self.schedules: dict[str, TaskSchedule] = {}
        """All schedules by name."""
        self.ids = IdSource()
        self.middlewares: list[Callable[..., Awaitable[Any]]] = []
        self.send_hooks: list[Callable[[TaskMessage], object]] = []
        self.start_hooks: list[Callable[[], object]] = []
        self.stop_hooks: list[Callable[[], object]] = []
        self.results_ttl_ms = round((seconds("results_ttl", results_ttl) or 0) * 1000)
        if self.results_ttl_ms < 1000:
            raise InvalidArgument(f"results_ttl is {results_ttl!r}; it must be a second or more")
        self._url = url
        self._login = login
        self._queues = dict(queues or {})
        for policy in self._queues.values():
            settings_of(policy)
        self._context = {each.name: each for each in context}
        self._connections: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Connection]] = (
            weakref.WeakKeyDictionary()
        )
        self._pid = os.getpid()
        self._background: Background | None = None
        register(self)

    def __repr__(self) -> str:
        return f"<Tasks {self.name!r}: {len(self.tasks)} tasks>"

    # ── declaring ─────────────────────────────────────────────────────────────────────────────────

    @overload
    def task(self, function: Callable[Concatenate[Job, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Job, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        retries: int = 4,
        backoff: Backoff = "exponential",
        backoff_delay: Duration = "1s",
        backoff_max: Duration = "10m",
        jitter: float = 0.1,
        timeout: Duration | None = None,
        hard_timeout: Duration | None = None,
        rate: str | float | None = None,
        executor: Executor = "auto",
        priority: int | None = None,
        unique_for: Duration | None = None,
        ttl: Duration | None = None,
        results: bool = False,
        reject_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> _Declare: ...

    def task(  # type: ignore[misc]  # mypy takes the parameter before `/` for a required one
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retries: int = 4,
        backoff: Backoff = "exponential",
        backoff_delay: Duration = "1s",
        backoff_max: Duration = "10m",
        jitter: float = 0.1,
        timeout: Duration | None = None,
        hard_timeout: Duration | None = None,
        rate: str | float | None = None,
        executor: Executor = "auto",
        priority: int | None = None,
        unique_for: Duration | None = None,
        ttl: Duration | None = None,
        results: bool = False,
        reject_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> Any:
        """Declare a function as a task: `@app.task`, or `@app.task(queue="emails", …)`.

        A duration is a text ("30s"), a timedelta or milliseconds.

        Args:
            name: the name on the wire; default: the function's. Keep it when the function is
                renamed.
            queue: default: the app's name.
            retries: attempts after the first one that failed.
            backoff, backoff_delay, backoff_max, jitter: delays between attempts, as in the policy
                of a queue.
            timeout: async: the call is cancelled; in a process: it is interrupted; in a thread: the
                job is given back, but the thread goes on.
            hard_timeout: in a process: it is killed; else the call is left, and if it is async
                cancelled; while it does not end, the worker process is replaced.
            rate: runs at most, over all workers, such as "100/s"; the queue may have no other task.
            executor: for plain functions: "thread" (as "auto"), or "process" for work that keeps
                the processor busy.
            priority: 0 to 9, 9 first.
            unique_for: how long `unique` of a send is remembered; None: as long as the broker
                remembers (`http.idempotency_window`, a day).
            ttl: a job that was not started for so long is dropped.
            results: keep what the task returns, for the app's `results_ttl`.
            reject_on: exceptions after which another attempt makes no sense.

        Raises:
            TypeError: the function's parameters cannot be sent, or it has a yield.
            InvalidArgument: an option has a wrong value, or the name is taken.
        """

        def declare(declared: Callable[..., Any]) -> Task[..., Any]:
            found = name or declared.__name__
            options = TaskOptions(
                name=found,
                queue=queue or self.name,
                retries=retries,
                backoff=backoff,
                backoff_delay_s=seconds("backoff_delay", backoff_delay) or 0.0,
                backoff_max_s=seconds("backoff_max", backoff_max) or 0.0,
                jitter=jitter,
                timeout_s=seconds("timeout", timeout),
                hard_timeout_s=seconds("hard_timeout", hard_timeout),
                rate_per_s=rate_per_s("rate", rate),
                executor=executor,
                priority=priority,
                unique_for_s=seconds("unique_for", unique_for),
                ttl_s=seconds("ttl", ttl),
                results=results,
                reject_on=reject_on if isinstance(reject_on, tuple) else (reject_on,),
            )
            return self._add(Task(self, declared, options))

        return declare if function is None else declare(function)

    def _add(self, task: Task[..., Any]) -> Task[..., Any]:
        other = self.tasks.get(task.name)
        if other is not None and (other.function.__module__, other.function.__qualname__) != (
            task.function.__module__,
            task.function.__qualname__,
        ):
            raise InvalidArgument(
                f"the app {self.name!r} has two tasks {task.name!r}: {_where(other)} and {_where(task)}; "
                "give one another name: @app.task(name=…)"
            )
        check_name("the queue of a task", task.settings.queue)
        for each in self.tasks.values():
            is_shared = each.settings.queue == task.settings.queue and each.name != task.name
            if is_shared and (each.settings.rate_per_s is not None or task.settings.rate_per_s is not None):
                limited, free = (each, task) if each.settings.rate_per_s is not None else (task, each)
                raise InvalidArgument(
                    f"the task {limited.name!r} has a rate, which is one of its queue "
                    f"{task.settings.queue!r}, and the task {free.name!r} has the same queue; give one of "
                    "them another queue"
                )
        self.tasks[task.name] = task
        return task

    def schedule(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        name: str | None = None,
        time_zone: str | None = None,
        misfire: str | None = None,
        overlap: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Callable[[AnyTask], AnyTask]:
        """Declare a schedule in the broker for a task: `@app.schedule("*/5 * * * *")` above
        `@app.task`. Workers create it when they start; it then runs whether they do or not.

        Args:
            cron, every, time_zone, misfire, overlap: as of `client.admin.put_schedule`.
            name: default: `APP.TASK`; a second schedule of a task needs one.
            arguments: of the task, by name.

        Raises:
            TypeError: below is no task. ArgumentsMisfit: the arguments do not fit.
            InvalidArgument: the name is taken.
        """

        def declare(task: AnyTask) -> AnyTask:
            if not isinstance(task, Task):
                raise TypeError("@app.schedule is written above @app.task")
            found = name or f"{self.name}.{task.name}"
            if found in self.schedules:
                raise InvalidArgument(f"the app {self.name!r} has two schedules {found!r}; name one of them")
            settings = {
                "cron": cron,
                "every": every,
                "time_zone": time_zone,
                "misfire": misfire,
                "overlap": overlap,
                "priority": task.settings.priority,
            }
            self.schedules[found] = TaskSchedule(found, task, dict(arguments or {}), settings)
            return task

        return declare

    def middleware(self, function: Middleware) -> Middleware:
        """Declare a function that is called around each task: `async def layer(job, call_next)`,
        which awaits `call_next(job)` and returns its result. The first one is the outermost.
        """
        self.middlewares.append(function)
        return function

    def before_send(self, function: Hook) -> Hook:
        """Declare a function that gets each `TaskMessage` before it is sent, and may change it."""
        self.send_hooks.append(function)
        return function

    def on_start(self, function: Hook) -> Hook:
        """Declare a function, plain or async, that each worker process calls before its first
        job.
        """
        self.start_hooks.append(function)
        return function

    def on_stop(self, function: Hook) -> Hook:
        """Declare a function, plain or async, that each worker process calls after its last job."""
        self.stop_hooks.append(function)
        return function

    # ── names ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def flows(self) -> str:
        """The queue of compositions."""
        return f"{self.name}.flows"

    @property
    def results_topic(self) -> str:
        """The topic of results."""
        return f"{self.name}.results"

    @property
    def queues(self) -> list[str]:
        """The queues of all tasks, and that of compositions."""
        names = {task.settings.queue for task in self.tasks.values()} | self._queues.keys()
        return [*sorted(names), self.flows]

    def policy_of(self, queue: str) -> Policy | None:
        """Return the settings that a queue must have: those of the app, and what its tasks need."""
        policy: dict[str, Any] = {}
        tasks = [task.settings for task in self.tasks.values() if task.settings.queue == queue]
        if queue == self.flows:
            tasks = [task.settings for task in self.tasks.values()]
            policy |= {"order": "parented", "parent_failed": "release"}
        if tasks:
            policy["delivery_limit"] = max(each.attempts for each in tasks)
        rates = [each.rate_per_s for each in tasks if each.rate_per_s is not None]
        if rates and queue != self.flows:
            policy["rate"] = rates[0]
        policy |= self._queues.get(queue, {})
        return cast("Policy", policy) if policy else None

    def settings_of(self, queue: str) -> dict[str, Any] | None:
        """Return `policy_of` by the names of settings, as `WorkerOptions` takes them."""
        policy = self.policy_of(queue)
        return None if policy is None else settings_of(policy)

    # ── connecting ────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        await self.connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection of this event loop, if there is one. Raises as `Client.close`."""
        task = self._connections.pop(asyncio.get_running_loop(), None)
        if task is not None:
            with suppress(SparrowError):
                await task
            if task.exception() is None:
                await task.result().close()

    def close_sync(self) -> None:
        """Close the connection of `send_sync`."""
        background, self._background = self._background, None
        if background is not None and not background.is_forked:
            try:
                background.run(self.close())
            finally:
                background.stop()

    async def connection(self) -> Connection:
        """Return the connection of this event loop; the first call connects.

        Raises:
            SparrowError: the broker cannot be reached, or refuses.
        """
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():  # forked: the parent's connections are of no use here
            self._pid = os.getpid()
            self._connections = weakref.WeakKeyDictionary()
            self._background = None
        task = self._connections.get(loop)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._connections[loop] = loop.create_task(self._connect())
        if task.done():
            return task.result()
        return await asyncio.shield(task)

    async def _connect(self) -> Connection:
        client = await connect(self.url, **self.login_options())
        return self._wrapped(client, owns_client=True)

    def _wrapped(self, client: Client, *, owns_client: bool) -> Connection:
        return Connection(
            client, self.policy_of, self.results_topic, self.results_ttl_ms, owns_client=owns_client
        )

    def use(self, client: Client) -> None:
        """Send over a client that the program has, on its event loop, instead of connecting."""
        loop = asyncio.get_running_loop()

        async def wrapped() -> Connection:
            return self._wrapped(client, owns_client=False)

        self._connections[loop] = loop.create_task(wrapped())

    @property
    def url(self) -> str:
        """The broker's URL."""
        return self._url or os.environ.get("SPARROW_URL") or DEFAULT_URL

    @url.setter
    def url(self, url: str | None) -> None:
        self._url = url

    @property
    def given_url(self) -> str | None:
        """The URL that was given to the app; None: that of the environment."""
        return self._url

    @property
    def is_connected(self) -> bool:
        """True if there is a connection for the running event loop."""
        return asyncio.get_running_loop() in self._connections

    def login_options(self) -> dict[str, Any]:
        """Return the options of `sparrow.connect`: the app's, else those of the environment."""
        found: dict[str, Any] = {"client_name": self.name, **self._login}
        if not {"token", "user"} & self._login.keys():
            given = {name: os.environ.get(variable) for name, variable in _LOGIN_VARIABLES.items()}
            if given["user"]:
                del given["token"]
            found |= {name: value for name, value in given.items() if value}
        for name in _FILE_VARIABLES:
            value = os.environ.get(f"SPARROW_{name.upper()}")
            if value:
                found.setdefault(name, value)
        return found

    def run_sync(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on a thread of the app's own, and return its result. Any thread that has
        no event loop.
        """
        from sparrow.sync.background import Background

        if self._background is None or self._background.is_forked:
            self._background = Background(self.url)
        return self._background.run(make())

    async def reader(self) -> ResultReader:
        """Return the reader of results of this event loop."""
        return await (await self.connection()).reader()

    def result(self, job_id: str, task: Task[..., R] | None = None) -> Result[Any]:
        """Return the result of a job by its ID, as from another program."""
        if task is not None:
            return task.result(job_id)
        return Result(job_id, "", self.reader)

    # ── context variables ─────────────────────────────────────────────────────────────────────────

    def context_values(self) -> bytes:
        """Return the values of the app's context variables as JSON; b"" if none is set."""
        if not self._context:
            return b""
        missing = object()
        values = {name: variable.get(missing) for name, variable in self._context.items()}
        given = {name: value for name, value in values.items() if value is not missing}
        if not given:
            return b""
        try:
            return ENCODER.encode(given)
        except (TypeError, NotImplementedError, ValueError, msgspec.MsgspecError) as error:
            raise TaskError(
                f"the context variables {sorted(given)} cannot travel with a job: {error}"
            ) from None

    def enter_context(self, values: bytes) -> None:
        """Set context variables to values that came with a job; those that are unknown here are
        ignored.
        """
        try:
            given = msgspec.json.decode(values, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # another program wrote the header
        for name, value in given.items():
            if name in self._context:
                self._context[name].set(value)

    # ── compositions ──────────────────────────────────────────────────────────────────────────────

    async def send_steps(self, steps: Sequence[Step[Any]], exits: Sequence[Step[Any]]) -> list[Result[Any]]:
        """Send the steps of a composition, each behind its parents; return results of `exits`."""
        ids = {step: self.ids.next() for step in steps}
        messages = [self._step_message(step, ids) for step in steps]
        connection = await self.connection()
        for delivery in await connection.send_all(messages):
            await delivery
        return [Result(ids[step], step.task.name, self.reader, step.task.signature.returns) for step in exits]

    def _step_message(self, step: Step[Any], ids: dict[Step[Any], str]) -> TaskMessage:
        job_id, fill = ids[step], step.fill
        headers: list[Header] = [
            (TASK, step.task.name.encode()),
            (TASK_ID, job_id.encode()),
        ]
        values = self.context_values()
        if values:
            headers.append(("task-context", values))
        if fill is not None:
            headers.append((FILL, fill.encode() + (b"[]" if step.fills_list else b"")))
        if step.failure == "ignore":
            headers.append((PARENTS_FAILED, IGNORE))
        headers.append(("message-id", job_id.encode()))
        headers += [(PARENT_ID, ids[each].encode()) for each in step.parents]
        message = TaskMessage(
            id=job_id,
            task=step.task.name,
            queue=self.flows,
            value=step.task.signature.encode_without(fill, step.args, step.kwargs),
            headers=headers,
            schedule={} if step.priority is None else {"priority": step.priority},
        )
        for hook in self.send_hooks:
            hook(message)
        return message

    # ── running ───────────────────────────────────────────────────────────────────────────────────

    async def run_worker(
        self,
        *,
        concurrency: int = 8,
        queues: Sequence[str] | None = None,
        prefetch: int | None = None,
        shutdown_timeout_s: float = 30.0,
        handle_signals: bool = True,
    ) -> None:
        """Work until a signal, as `Client.run_workers`; `sparrow worker` runs this in each process.

        Args:
            concurrency: jobs that run at a time, over all queues.
            queues: default: those of all tasks, and that of compositions.
            prefetch: jobs of each queue that are here at a time; None: four for each that runs.

        Raises:
            TaskError: a task cannot be run, a queue has none.
            TimeLimitExceeded: a call did not end at its `hard_timeout`, and still runs; the other
                jobs have finished. End the process: it may hold what the call has.
            SparrowError: the broker cannot be reached, or refuses.
        """
        from sparrow.tasks.runtime import Runtime

        runtime = Runtime(self, concurrency=concurrency, queues=queues, prefetch=prefetch)
        await runtime.run(shutdown_timeout_s, handle_signals=handle_signals)
        if runtime.stuck:
            raise TimeLimitExceeded(runtime.stuck)

    def testing(self, *, delays: bool = False, **options: Any) -> AbstractAsyncContextManager[TestRun]:
        """Run a broker in this process, for tests; `await run.drain()` does all jobs that are
        waiting.

        Args:
            delays: False: delays of sends and retries are left out, so that `drain` runs all.
            options: those of the broker, as of `sparrow.testing.broker`.
        """
        from sparrow.tasks.in_process import test_run

        return test_run(self, has_delays=delays, options=options)


def _where(task: Task[..., Any]) -> str:
    return f"{task.function.__module__}.{task.function.__qualname__}"


class _Declare:
    """The type of `@app.task(…)`."""

    if TYPE_CHECKING:

        @overload
        def __call__(
            self, function: Callable[Concatenate[Job, P], Coroutine[Any, Any, R]], /
        ) -> Task[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
        @overload
        def __call__(self, function: Callable[Concatenate[Job, P], R], /) -> Task[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
        def __call__(self, function: Any, /) -> Any: ...
