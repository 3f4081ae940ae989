"""A worker: a function that is called for each job of a queue, several at a time.

    @client.worker("emails", concurrency=8)
    async def handle(job):
        await send(job.value)

    await client.run_workers()

When the call returns, the job is acknowledged. When it raises, the job is nacked, with the
exception's text as its error. `Reject` and `Retry` ask for something else. A job that the function
settled itself is left alone.

- The next job does not wait for the acknowledgement of the last one. An acknowledgement that fails
  is logged, and its message comes again.
- SystemExit fails its job, too (otherwise the message that raises it would be delivered for ever),
  and is raised by `run_workers`; in a thread it is like any other exception.
- The lease is renewed while the function runs, so a call may take longer than the lease. Jobs that
  wait in the prefetch are not renewed, and are released in time.
- A plain function runs in a thread, with a `BlockingJob`. A thread cannot be interrupted: when its
  time is up its job is nacked, and the thread gets another job only after the call has returned.
- Stopping: no new job is started, and jobs that were not started are released. Running jobs may
  finish within the grace, and are then cancelled and released.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from sparrow.base.errors import InvalidArgument, NotLeased, SparrowError
from sparrow.client.attempts import Attempts, location_of
from sparrow.client.blocking_jobs import BlockingJob, bridge_to
from sparrow.client.handlers import check_handler
from sparrow.client.job import Job, LeasedRecord, delay_ms_of
from sparrow.client.options import QueueOptions
from sparrow.protocol.native.messages import SettleVerb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sparrow.client.attempts import Outlook
    from sparrow.client.consumer import Consumer
    from sparrow.client.queue import Queue, SettlementFailure
    from sparrow.client.settlements import SettlementKey

    Handler = Callable[[Any], object]
    AnyHandler = TypeVar("AnyHandler", bound=Handler)
    RetryDelay = float | Callable[[Any, BaseException], float | None] | None
    OpenQueue = Callable[..., Queue]

_logger = logging.getLogger("sparrow.worker")

PREFETCH_PER_CALL: Final = 4
_MIN_RENEWAL_S: Final = 0.01
_POLICY_WAIT_S: Final = 1.0
"""The longest time that the first job waits for the policy, which only log lines need."""
_POLICY_AGE_S: Final = 5.0
"""A policy that is known for longer is read again after a job has failed."""


class Reject(Exception):
    """Raised by a worker's function: the job is rejected and becomes a dead letter. The text is the
    reason.
    """


class Retry(Exception):
    """Raised by a worker's function: the job is delivered again after `delay_s` seconds (None: the
    delay of the worker's options, or the queue's backoff).
    """

    def __init__(self, text: str = "", *, delay_s: float | None = None) -> None:
        delay_ms_of(delay_s)
        super().__init__(text)
        self.delay_s = delay_s


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """Options of a worker."""

    concurrency: int = 1
    """Number of concurrent calls."""
    prefetch: int | None = None
    """Jobs that are here at a time, running or waiting; None: four for each call."""
    timeout_s: float | None = None
    """Limit of a call's duration, in seconds; after it the job is nacked. None: no limit."""
    retry_delay_s: RetryDelay = None
    """Seconds before a failed job is delivered again, or a function of the job and the exception
    that returns them; None: the queue's backoff.
    """
    reject_on: tuple[type[BaseException], ...] = ()
    """Exceptions for which a job is rejected at once."""
    subscriber: str = ""
    create: bool = True
    policy: Mapping[str, Any] | None = None
    """Settings by name that the queue must have."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidArgument(f"concurrency is {self.concurrency}; it must be 1 or more")
        if self.prefetch is not None and self.prefetch < self.concurrency:
            raise InvalidArgument(
                f"prefetch is {self.prefetch} and concurrency {self.concurrency}; with fewer jobs "
                "than calls some would never work"
            )
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise InvalidArgument(f"timeout_s is {self.timeout_s}; it must be greater than 0")
        classes: tuple[object, ...] = self.reject_on
        if not all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
            raise InvalidArgument(f"reject_on is {self.reject_on!r}; it must be classes of exceptions")
        if not callable(self.retry_delay_s):
            delay_ms_of(self.retry_delay_s)


class _ProgramEnds(Exception):
    """A function raised SystemExit. The workers' caller raises it, because raised in a task of its
    own it would stop the loop at once.
    """

    def __init__(self, end: SystemExit) -> None:
        super().__init__(end)
        self.end = end


class Worker:
    """One function on one queue; it may run again after it has ended. Loop thread only."""

    def __init__(
        self,
        open_queue: OpenQueue,
        queue: str,
        handler: Handler,
        options: WorkerOptions,
        *,
        check_process: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a worker that does not run. `check_process` raises in a child of the process that
        connected.
        """
        self.queue_name = queue
        self.options = options
        self._open_queue = open_queue
        self._check_process = check_process
        check_handler(handler)
        self._handler = handler
        self._is_async = _is_async(handler)
        self._queue: Queue | None = None
        self._running: dict[LeasedRecord, None] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._runners: list[asyncio.Task[None]] = []
        self._renewal: asyncio.TimerHandle | None = None
        self._consumer: Consumer | None = None
        self._is_stopping = False
        self._is_opening = False
        self._attempts = Attempts(queue, {})
        self._policy_read_at = 0.0
        self._policy_task: asyncio.Task[None] | None = None

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Forget an earlier `stop`, before `run`."""
        self._is_stopping = False

    async def run(self) -> None:
        """Work until `stop`. On cancellation, running jobs are cancelled and released.

        Raises:
            SparrowError: the queue cannot be consumed, or not any more.
        """
        options = self.options
        loop = asyncio.get_running_loop()
        self._queue = queue = self._open_queue(
            self.queue_name,
            QueueOptions(
                prefetch=options.prefetch or options.concurrency * PREFETCH_PER_CALL,
                subscriber=options.subscriber,
                create=options.create,
                policy=options.policy,
            ),
            on_failure=self._settlement_failed,
            make_job=self._job_maker(loop),
        )
        try:
            self._is_opening = True
            self._consumer = await queue.prefetcher()
            await asyncio.wait([self._read_policy(queue)], timeout=_POLICY_WAIT_S)
            self._is_opening = False
            if not self._is_async:
                self._threads = ThreadPoolExecutor(options.concurrency, f"sparrow worker {self.queue_name}")
            self._schedule_renewal()
            _log(logging.INFO, "working", queue=self.queue_name, concurrency=options.concurrency)
            self._runners = [loop.create_task(self._take_jobs(queue)) for _ in range(options.concurrency)]
            await _all_or_first_failure(self._runners)
        finally:
            await self._end(queue)

    def _read_policy(self, queue: Queue) -> asyncio.Task[None]:
        """Read the queue's policy in a task. It may fail: only log lines need it."""
        loop = asyncio.get_running_loop()
        self._policy_read_at = loop.time()
        self._policy_task = loop.create_task(self._read_policy_quietly(queue))
        return self._policy_task

    async def _read_policy_quietly(self, queue: Queue) -> None:
        with suppress(SparrowError):
            self._attempts = self._new_attempts((await queue.describe()).policy)

    def _new_attempts(self, policy: Mapping[str, Any]) -> Attempts:
        """Return what log lines say of attempts, by the queue's policy."""
        return Attempts(self.queue_name, policy)

    def _refresh_policy(self) -> None:
        """Read the policy again if it may have changed."""
        is_idle = self._policy_task is None or self._policy_task.done()
        if (
            is_idle
            and self._queue is not None
            and asyncio.get_running_loop().time() > self._policy_read_at + _POLICY_AGE_S
        ):
            self._read_policy(self._queue)

    def _job_maker(self, loop: asyncio.AbstractEventLoop) -> Callable[..., LeasedRecord]:
        if self._is_async:
            return Job
        return functools.partial(BlockingJob, bridge_to(loop, self._check_process))

    def stop(self) -> None:
        """Start no new job; `run` ends when the running ones have finished."""
        self._is_stopping = True
        if self._queue is not None:
            self._queue.stop()

    @property
    def is_opening(self) -> bool:
        """True while the queue is being opened, which may take long; no job runs yet."""
        return self._is_opening

    def cancel(self) -> None:
        """Cancel the running jobs."""
        for runner in self._runners:
            runner.cancel()

    async def _end(self, queue: Queue) -> None:
        self._is_opening = False
        self.cancel()
        await _ended(self._runners)
        if self._renewal is not None:
            self._renewal.cancel()
        if self._policy_task is not None:
            self._policy_task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._queue, self._runners, self._threads, self._renewal = None, [], None, None
        await queue.close()
        _log(logging.INFO, "stopped working", queue=self.queue_name)

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────

    async def _take_jobs(self, queue: Queue) -> None:
        running = self._running
        if self._is_stopping:
            return
        async for job in queue:
            running[job] = None
            try:
                await self._run_job(job)
            finally:
                del running[job]

    async def _run_job(self, job: LeasedRecord) -> None:
        try:
            if self.options.timeout_s is None and self._is_async:
                await self._handler(job)  # type: ignore[misc]  # it is async
            else:
                await self._call(job, self.options.timeout_s)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._release_job(job)
                raise
            self._failed(job, error)  # the function cancelled itself
        except (KeyboardInterrupt, GeneratorExit):
            raise  # not caused by the function
        except BaseException as error:  # noqa: BLE001 - a failed call never ends the worker
            self._failed(job, error)
            if isinstance(error, SystemExit):
                raise _ProgramEnds(error) from None
        else:
            self._settle(job, job.lease.ack_key)

    async def _call(self, job: LeasedRecord, timeout_s: float | None) -> None:
        if not self._is_async:
            await self._call_in_thread(job, timeout_s)
            return
        await _within(timeout_s, self._handler(job))  # type: ignore[arg-type]  # it is async

    async def _call_in_thread(self, job: LeasedRecord, timeout_s: float | None) -> None:
        assert self._threads is not None  # the function is a plain one
        call = functools.partial(contextvars.copy_context().run, _outcome_of, self._handler, job)
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            await asyncio.wait([future], timeout=timeout_s)
            if not future.done():
                self._failed(job, _too_long(timeout_s))
                await asyncio.wait([future])
                return
        finally:
            future.cancel()  # if the worker ends first, the result is not needed any more
        returned, error = future.result()
        if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
            self._failed(job, error)  # they end a thread, not the program
            return
        if error is not None:
            raise error
        if inspect.isawaitable(returned):
            await _within(timeout_s, returned)

    def _release_job(self, job: LeasedRecord) -> None:
        """Release a job because the worker ends; this was no attempt."""
        if job.is_settled:
            return
        with suppress(SparrowError):  # a queue that has ended released its jobs already
            job.release_quietly()
            _log(logging.INFO, "job released, as the worker ends; this delivery does not count", job)

    def _settle(self, job: LeasedRecord, key: Any) -> None:
        """Settle a job, unless its function did."""
        if job.is_settled:
            return
        try:
            job.settle(key, None)
        except SparrowError as error:
            self._not_settled(job.topic, job.partition, job.offset, error)

    def _failed(self, job: LeasedRecord, error: BaseException) -> None:
        """Settle and log a job whose call raised."""
        key = self._judge(job, error)
        if key is not None:
            self._refresh_policy()
            self._settle(job, key)

    def _judge(self, job: LeasedRecord, error: BaseException) -> SettlementKey | None:
        """Log the failure of a job, and return its settlement; None if it is settled."""
        if job.is_settled:
            _log(
                logging.WARNING,
                "call failed after it settled its job",
                job,
                error=_text_of(error),
                cause=error,
            )
            return None
        if isinstance(error, Reject) or self._gives_up(job, error):
            reason = _message_of(error) if isinstance(error, Reject) else _text_of(error)
            _log(
                logging.WARNING,
                "job rejected",
                job,
                outlook=self._attempts.rejected(job),
                reason=reason,
                cause=None if isinstance(error, Reject) else error,
            )
            return job.reject_key(reason)
        if isinstance(error, Retry):
            delay_s = self._delay_s(job, error) if error.delay_s is None else error.delay_s
            outlook = self._attempts.failed(job, delay_s)
            level = logging.ERROR if outlook.is_last else logging.INFO
            cause = error if outlook.is_last else None
            _log(level, "job to be retried", job, outlook=outlook, error=_message_of(error), cause=cause)
            return job.nack_key(delay_s, _message_of(error))
        delay_s = self._delay_s(job, error)
        self._log_failure(job, self._attempts.failed(job, delay_s), error)
        return job.nack_key(delay_s, _text_of(error))

    def _gives_up(self, job: LeasedRecord, error: BaseException) -> bool:  # noqa: ARG002 - tasks need the job
        """Return True if a job is rejected after this error."""
        return isinstance(error, self.options.reject_on)

    def _log_failure(self, job: LeasedRecord, outlook: Outlook, error: BaseException) -> None:
        """Log a failure in one line, with the whole traceback if no later attempt would show it."""
        level = logging.ERROR if outlook.is_last else logging.WARNING
        text = _text_of(error)
        if outlook.needs_traceback:
            _log(level, "job failed", job, outlook=outlook, error=text, cause=error)
        else:
            _log(level, "job failed", job, outlook=outlook, error=text, at=location_of(error))

    def _delay_s(self, job: LeasedRecord, error: BaseException) -> float | None:
        delay = self.options.retry_delay_s
        if not callable(delay):
            return delay
        try:
            delay_s = delay(job, error)
            delay_ms_of(delay_s)
        except Exception as wrong:  # noqa: BLE001 - the job is given back nevertheless
            _log(logging.ERROR, "retry_delay_s failed; the queue's backoff is used", job, cause=wrong)
            return None
        return delay_s

    # ── leases ────────────────────────────────────────────────────────────────────────────────────

    def _schedule_renewal(self) -> None:
        assert self._consumer is not None  # it runs
        interval_s = max(self._consumer.lease_s / 6, _MIN_RENEWAL_S)
        self._renewal = asyncio.get_running_loop().call_later(interval_s, self._renew)

    def _renew(self) -> None:
        """Extend leases of which a third has passed."""
        assert self._consumer is not None  # it runs
        limit = asyncio.get_running_loop().time() + self._consumer.lease_s * 2 / 3
        for job in self._running:
            if job.deadline <= limit and not job.is_settled:
                try:
                    job.lengthen(None, None)
                except NotLeased as error:
                    _log(logging.WARNING, "lease lost while the job was worked at", job, error=error.text)
                except SparrowError:
                    pass  # the queue has ended; `run` raises the error
        self._schedule_renewal()

    def _settlement_failed(self, failure: SettlementFailure) -> None:
        self._not_settled(failure.topic, failure.partition, failure.first, failure.error, failure.verb)

    def _not_settled(
        self, topic: str, partition: int, offset: int, error: SparrowError, verb: int = int(SettleVerb.ACK)
    ) -> None:
        _log(
            logging.WARNING,
            "what became of a job was not kept; it may come again",
            queue=self.queue_name,
            verb=SettleVerb(verb).name.lower(),
            topic=topic,
            partition=partition,
            offset=offset,
            error=f"{error.code}: {error.text}",
        )


class WorkerSet:
    """All workers of a client. Loop thread only."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._tasks: dict[asyncio.Task[None], Worker] = {}

    def add(self, worker: Worker) -> None:
        """Add a worker, from the next `run` on."""
        self._workers.append(worker)

    async def run(self) -> None:
        """Run all workers until `stop`. When one fails, stop the others and raise its error.

        Raises:
            InvalidArgument: there are none, or they are running.
            SparrowError: the error that ended a worker.
        """
        if self._tasks:
            raise InvalidArgument("the workers of this client are running already")
        if not self._workers:
            raise InvalidArgument(
                "this client has no workers; declare functions with @client.worker(queue) first"
            )
        loop = asyncio.get_running_loop()
        for worker in self._workers:
            worker.begin()
        self._tasks = {loop.create_task(worker.run()): worker for worker in self._workers}
        tasks = list(self._tasks)
        try:
            await _all_or_first_failure(tasks)
        except _ProgramEnds as ends:
            raise ends.end from None
        finally:
            for task in tasks:
                task.cancel()
            await _ended(tasks)
            self._tasks = {}

    async def stop(self, grace_s: float) -> None:
        """Start no new jobs, wait at most `grace_s` for running ones, then cancel them. Return when
        all workers have ended.
        """
        check_grace("grace_s", grace_s)
        tasks = self._tasks
        if not tasks:
            return
        for task, worker in tasks.items():
            worker.stop()
            if worker.is_opening:
                task.cancel()
        await asyncio.wait(tasks, timeout=grace_s)
        self.cancel()
        await asyncio.wait(tasks)

    def cancel(self) -> None:
        """Cancel and release all running jobs."""
        for task, worker in self._tasks.items():
            # Two signals may arrive together: the task of the first may not have started.
            worker.stop()
            worker.cancel()
            task.cancel()


class Shutdown:
    """One run of workers that signals can end: after the first, running jobs may finish within a
    time; each further one cancels them. Loop thread only.
    """

    def __init__(self, workers: WorkerSet, timeout_s: float) -> None:
        check_grace("shutdown_timeout_s", timeout_s)
        self._workers = workers
        self._timeout_s = timeout_s
        self._stop_tasks: list[asyncio.Task[None]] = []

    @property
    def is_stopping(self) -> bool:
        """True from the first signal on."""
        return bool(self._stop_tasks)

    async def run(self) -> None:
        """Run the workers until they end, or a signal ends them. Raises as `WorkerSet.run`."""
        if self._stop_tasks:  # the signal came first
            return
        try:
            await self._workers.run()
        finally:
            for task in self._stop_tasks:
                task.cancel()

    def signalled(self, name: str) -> None:
        """Handle a signal of this name."""
        if not self._stop_tasks:
            _log(
                logging.INFO,
                "stopping: what runs may finish, another signal releases it at once",
                signal=name,
                shutdown_timeout_s=self._timeout_s,
            )
            stopping = self._workers.stop(self._timeout_s)
            self._stop_tasks.append(asyncio.get_running_loop().create_task(stopping))
        else:
            _log(logging.INFO, "stopping at once: what runs is released", signal=name)
            self._workers.cancel()


def check_grace(name: str, seconds: float) -> None:
    """Raise InvalidArgument unless `seconds` is 0 or more."""
    if not seconds >= 0:  # also refuses NaN
        raise InvalidArgument(f"{name} is {seconds}; it must be 0 or more")


async def _all_or_first_failure(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all tasks have ended, or one has failed; raise its error."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        if not task.cancelled():
            task.result()


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all tasks have ended, and mark their errors as seen: only the first failure is
    raised.
    """
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


def _is_async(handler: Handler) -> bool:
    """Return True if a call returns an awaitable, as far as that can be known before."""
    function = handler
    while isinstance(function, functools.partial):
        function = function.func
    called = getattr(type(function), "__call__", None)  # noqa: B004 - its kind is asked for
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def _within(timeout_s: float | None, coroutine: Awaitable[object]) -> None:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            await coroutine
    except TimeoutError:
        if limit.expired():
            raise _too_long(timeout_s) from None
        raise


def _outcome_of(handler: Handler, job: LeasedRecord) -> tuple[object, BaseException | None]:
    """Return the result and the exception of a call. A future cannot carry StopIteration."""
    try:
        return handler(job), None
    except BaseException as error:  # noqa: BLE001 - it is raised where the job is
        return None, error


def _too_long(timeout_s: float | None) -> TimeoutError:
    return TimeoutError(f"the function did not return within {timeout_s:g} s")


def _text_of(error: BaseException) -> str:
    text = _message_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as wrong:  # noqa: BLE001 - the error's own text is at fault
        return f"(its text cannot be had: {type(wrong).__name__})"


def _log(
    level: int,
    event: str,
    job: LeasedRecord | None = None,
    *,
    cause: BaseException | None = None,
    outlook: Outlook | None = None,
    **fields: object,
) -> None:
    """Log one line: the event, the outlook, and fields as name=value. The fields are also in the
    log record's attribute `sparrow`.
    """
    if not _logger.isEnabledFor(level):
        return
    if job is not None:
        fields = {**job.log_fields, **fields}
    line = " ".join(f"{name}={value!r}" for name, value in fields.items())
    text = event if outlook is None else f"{event}, {outlook.text}"
    more = {} if outlook is None else outlook.fields
    extra = {"sparrow": {"event": event, **fields, **more}}
    _logger.log(level, "%s: %s", text, line, exc_info=cause, extra=extra)
