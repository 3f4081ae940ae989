"""A task: a function that workers call, and the ways to send it."""

from __future__ import annotations

import functools
import inspect
import time
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from sparrow.base.errors import InvalidArgument
from sparrow.client.options import epoch_ms
from sparrow.tasks.compositions import Step
from sparrow.tasks.connection import TaskMessage
from sparrow.tasks.errors import TaskError
from sparrow.tasks.jobs import LocalJob, enter_job
from sparrow.tasks.options import SEND_OPTIONS, SendOptions, seconds
from sparrow.tasks.results import Result
from sparrow.tasks.signature import Signature
from sparrow.tasks.wire import CONTEXT, TASK, TASK_ID, IdSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Unpack

    from sparrow.tasks.connection import Connection
    from sparrow.tasks.interface import App
    from sparrow.tasks.options import TaskOptions
    from sparrow.tasks.wire import Header

P = ParamSpec("P")
R = TypeVar("R")

_LOCAL_IDS = IdSource()


class Task(Generic[P, R]):
    """A function that was declared with `@app.task`; calling it calls the function.

    `P` are the parameters that are sent, `R` is the type of the result.
    """

    def __init__(self, app: App, function: Callable[..., Any], options: TaskOptions) -> None:
        functools.update_wrapper(self, function)
        self.app = app
        self.function = function
        self.settings = options
        self.signature = Signature(function, options.name)
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"the task {options.name!r} has a yield, so calling it would run nothing of it")
        if self.is_async and options.executor != "auto":
            raise InvalidArgument(
                f"the task {options.name!r} is async, and executor is {options.executor!r}; async functions "
                "run on the worker's loop, executors are for plain ones"
            )
        if options.name and not options.name.isprintable():
            raise InvalidArgument(f"the name of a task is {options.name!r}; it must be printable text")
        self._task_header: Header = (TASK, options.name.encode())
        self._inline = SEND_OPTIONS - set(self.signature.names)
        """Options that `send` takes: a parameter of the same name goes first."""
        self._common = _schedule_of(options.priority, options.ttl_s)

    @property
    def name(self) -> str:
        """The name under which workers find the task."""
        return self.settings.name

    def __repr__(self) -> str:
        return f"<Task {self.name!r} of {self.app.name!r}, queue {self.settings.queue!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function itself, with all that it takes."""
        return self.function(*args, **kwargs)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Result[R]:
        """Send a job, and return when it is on stable storage.

        Besides the task's arguments it takes the options of `SendOptions` (delay, priority, key,
        unique, …), except for those that are the name of a parameter; `options(…).send(…)` takes
        all. mypy knows them with the plugin `sparrow.tasks.mypy_plugin`.

        Raises:
            ArgumentsMisfit: the arguments do not fit the task's parameters.
            InvalidArgument: an option has a wrong value.
            SparrowError: the broker cannot be reached, or refuses.
        """
        given: dict[str, Any] = kwargs
        options = {name: given.pop(name) for name in self._inline & given.keys()} if given else {}
        return await self._send(args, given, options)

    def options(self, **options: Unpack[SendOptions]) -> Prepared[P, R]:
        """Return the task with options of a send: `await task.options(delay="10m").send(…)`."""
        _check_names(options)
        return Prepared(self, options)

    async def send_many(
        self, many: Iterable[Sequence[Any]], **options: Unpack[SendOptions]
    ) -> list[Result[R]]:
        """Send a job for each sequence of arguments, as one stream; return when all are on stable
        storage. `unique` is not for many. Raises as `send`.
        """
        _check_names(options)
        if options.get("unique") is not None:
            raise InvalidArgument("unique is an option of one job; send_many has many")
        connection = await self.app.connection()
        if not self.settings.results and not self.app.send_hooks:
            return await self._send_alike(connection, many, cast("dict[str, Any]", options))
        made = self._stream(options)
        messages = [made(args) for args in many]
        for delivery in await connection.send_all(messages):
            if not delivery.done:
                await delivery
            delivery.result()
        return [self.result(message.id) for message in messages]

    async def _send_alike(
        self, connection: Connection, many: Iterable[Sequence[Any]], options: dict[str, Any]
    ) -> list[Result[R]]:
        """Send jobs that have no ID of their own, which halves the work: their position is one."""
        key = options.get("key")
        encode = self.signature.encode
        topic, deliveries = await connection.send_values(
            options.get("queue") or self.settings.queue,
            (encode(args, {}) for args in many),
            None if key is None else key.encode(),
            (self._task_header, *self._context()),
            {**self._common, **_schedule_from(options)},
        )
        results: list[Result[R]] = []
        name, prefix = self.name, f"{topic}-"
        for delivery in deliveries:
            if not delivery.done:
                await delivery
            at = delivery.result()
            results.append(Result(f"{prefix}{at.partition}-{at.offset}", name, None))
        return results

    async def _send(self, args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any]) -> Result[R]:
        message = self._message(args, kwargs, options)
        connection = await self.app.connection()
        if message.unique is not None:
            return self.result(await connection.send_unique(message))
        await (await connection.send(message))
        return self.result(message.id)

    def message(self, *args: P.args, **kwargs: P.kwargs) -> TaskMessage:
        """Return a job as `send` would send it: queue, value, key, headers and options of
        `client.publish`. For schedules, and for programs that send by other ways.
        """
        given: dict[str, Any] = kwargs
        options = {name: given.pop(name) for name in self._inline & given.keys()} if given else {}
        return self._message(args, given, options)

    def _message(self, args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any]) -> TaskMessage:
        schedule = self._common
        key = None
        if options:
            schedule = {**schedule, **_schedule_from(options)}
            key = options.get("key")
        job_id = self.app.ids.next()
        message = TaskMessage(
            id=job_id,
            task=self.settings.name,
            queue=options.get("queue") or self.settings.queue,
            value=self.signature.encode(args, kwargs),
            key=None if key is None else key.encode(),
            headers=[self._task_header, (TASK_ID, job_id.encode()), *self._context()],
            schedule=schedule,
            unique=options.get("unique"),
            unique_for_s=self.settings.unique_for_s,
        )
        for hook in self.app.send_hooks:
            hook(message)
        return message

    def _stream(self, options: SendOptions) -> Callable[[Sequence[Any]], TaskMessage]:
        """Return a function that makes messages with the same options."""
        if self.app.send_hooks:
            return lambda args: self._message(args, {}, cast("dict[str, Any]", options))
        plain = cast("dict[str, Any]", options)
        schedule = {**self._common, **_schedule_from(plain)}
        key = plain.get("key")
        key_bytes = None if key is None else key.encode()
        queue = plain.get("queue") or self.settings.queue
        context = self._context()
        next_id, encode, name, first = self.app.ids.next, self.signature.encode, self.name, self._task_header

        def made(args: Sequence[Any]) -> TaskMessage:
            job_id = next_id()
            return TaskMessage(
                id=job_id,
                task=name,
                queue=queue,
                value=encode(args, {}),
                key=key_bytes,
                headers=[first, (TASK_ID, job_id.encode()), *context],
                schedule=schedule,
            )

        return made

    def _context(self) -> list[Header]:
        values = self.app.context_values()
        return [(CONTEXT, values)] if values else []

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> BlockingResult[R]:
        """Send a job from a thread without an event loop, and wait until it is on stable storage;
        otherwise as `send`.
        """
        given: dict[str, Any] = kwargs
        options = {name: given.pop(name) for name in self._inline & given.keys()} if given else {}
        return BlockingResult(self.app, self.app.run_sync(lambda: self._send(args, given, options)))

    def result(self, job_id: str) -> Result[R]:
        """Return the result of a job of this task by its ID."""
        reader = self.app.reader if self.settings.results else None
        return Result(job_id, self.name, reader, self.signature.returns)

    # ── compositions ──────────────────────────────────────────────────────────────────────────────

    def s(self, *args: Any, **kwargs: Any) -> Step[R]:
        """Return a step of a composition. Its first parameter that is not given here gets the
        result of the step before it (of several: the list of their results).
        """
        return Step(self, args, kwargs)

    # ── in place ──────────────────────────────────────────────────────────────────────────────────

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run the task here and now, as a worker would: arguments are encoded, checked and decoded,
        and there is a job. For tests. An async task returns a coroutine.

        Raises:
            ArgumentsMisfit: as `send`.
        """
        given: dict[str, Any] = kwargs
        positional, named = self.signature.decode(self.signature.encode(args, given))
        job = LocalJob(
            self.name, _LOCAL_IDS.next(), attempts=self.settings.attempts, queue=self.settings.queue
        )
        if not self.is_async:
            enter_job(job)
            return self.signature.call(job, positional, named)
        return self._call_async(job, positional, named)

    async def _call_async(self, job: LocalJob, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        enter_job(job)
        return await self.signature.call(job, args, kwargs)


class Prepared(Generic[P, R]):
    """A task with options of a send."""

    def __init__(self, task: Task[P, R], options: SendOptions) -> None:
        self._task = task
        self._options = cast("dict[str, Any]", options)

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Result[R]:
        """Send a job with these options. Raises as `Task.send`."""
        return await self._task._send(args, kwargs, self._options)  # noqa: SLF001 - a part of the task

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> BlockingResult[R]:
        """Send a job with these options from a thread, as `Task.send_sync`."""
        app = self._task.app
        return BlockingResult(app, app.run_sync(lambda: self._task._send(args, kwargs, self._options)))  # noqa: SLF001

    def message(self, *args: P.args, **kwargs: P.kwargs) -> TaskMessage:
        """Return a job as `send` would send it, as `Task.message`."""
        return self._task._message(args, kwargs, self._options)  # noqa: SLF001


class BlockingResult(Generic[R]):
    """The result of a job, for threads."""

    def __init__(self, app: App, result: Result[R]) -> None:
        self._app = app
        self._result = result

    @property
    def id(self) -> str:
        """ID of the job."""
        return self._result.id

    def get(self, timeout: float | None = None) -> R:
        """Wait for the result and return it. Raises as `Result.get`."""
        found: R = self._app.run_sync(lambda: self._result.get(timeout))
        return found


def _check_names(options: SendOptions) -> None:
    unknown = options.keys() - SEND_OPTIONS
    if unknown:
        raise TaskError(
            f"there is no option {min(unknown)!r} of a send; there are {', '.join(sorted(SEND_OPTIONS))}"
        )


def _schedule_of(priority: int | None, ttl_s: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if priority is not None:
        found["priority"] = priority
    if ttl_s is not None:
        found["ttl_ms"] = round(ttl_s * 1000)
    return found


def _schedule_from(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a send as `client.publish` takes them."""
    found = _schedule_of(options.get("priority"), seconds("ttl", options.get("ttl")))
    delay_s = seconds("delay", options.get("delay"))
    at = options.get("at")
    if delay_s is not None and at is not None:
        raise InvalidArgument("delay and at are both given; they are two ways to say the same")
    if delay_s:
        now_ms = time.time_ns() // 1_000_000
        found["deliver_at"] = now_ms + round(delay_s * 1000)
        if "ttl_ms" in found:  # counted from the send, as the delay
            found["expires_at"] = now_ms + found.pop("ttl_ms")
    if at is not None:
        found["deliver_at"] = epoch_ms("at", at)
    for name in ("key", "queue", "unique"):
        value = options.get(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise InvalidArgument(f"{name} is {value!r}; it must be text that is not empty")
    return found
