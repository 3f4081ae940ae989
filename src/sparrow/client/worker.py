"""A worker: a function that is called for each job of a queue, several at a time.

    @client.worker("emails", concurrency=8)
    async def handle(job):
        await send(job.value)

    await client.run_workers()

What becomes of a job is what becomes of its call: it returns, and the job is acknowledged; it raises, and the job is given back with the exception's text as
its error. `Reject` and `Retry` say more. What the function settled itself is left alone.

- The next job does not wait for the acknowledgement of the last one; an acknowledgement that fails is logged, and its message comes again.
- SystemExit has failed its job, too (else the message that raises it would come for ever), and is raised by `run_workers`; in a thread it is as any other.
- The lease is renewed while the function runs, so it may take longer than the lease. What waits in the prefetch is not renewed, and goes back in time.
- A plain function runs in a thread, with a `BlockingJob`. A thread cannot be interrupted: where its time is up its job is given back, and the thread is
  waited for before it gets another job.
- Stopping: nothing new is begun and what was not begun goes back; what runs may finish within the grace, and is then cancelled and released.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparrow.base.errors import InvalidArgument, NotLeased, SparrowError
from sparrow.client.blocking import BlockingJob, crossing_to
from sparrow.client.job import Job, LeasedRecord, delay_ms_of
from sparrow.client.options import QueueOptions
from sparrow.protocol.native.messages import SettleVerb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.client.consumer import Consumer
    from sparrow.client.queue import Queue, SettlementFailure

    Handler = Callable[[Any], object]
    AnyHandler = TypeVar("AnyHandler", bound=Handler)
    RetryDelay = float | Callable[[Any, BaseException], float | None] | None
    OpenQueue = Callable[..., Queue]

_logger = logging.getLogger("sparrow.worker")

PREFETCH_PER_CALL: Final = 4
_MIN_RENEWAL_S: Final = 0.01


class Reject(Exception):
    """Raised by a worker's function: the message is of no use, move it to the dead letters. The text is the reason."""


class Retry(Exception):
    """Raised by a worker's function: deliver the message again after `delay_s` seconds (None: as the worker, or the queue's policy, says)."""

    def __init__(self, text: str = "", *, delay_s: float | None = None) -> None:
        delay_ms_of(delay_s)
        super().__init__(text)
        self.delay_s = delay_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker works."""

    concurrency: int = 1
    """Calls at a time."""
    prefetch: int | None = None
    """Jobs here at a time, running or waiting; None: four for each call."""
    timeout_s: float | None = None
    """How long a call may take before its job is given back; None: as long as it likes."""
    retry_delay_s: RetryDelay = None
    """Seconds before a failed job is delivered again, or a function of the job and the exception that says so; None: the queue's backoff."""
    reject_on: tuple[type[BaseException], ...] = ()
    """Exceptions for which a job is rejected at once."""
    subscriber: str = ""
    create: bool = True

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidArgument(f"concurrency is {self.concurrency}; it must be 1 or more")
        if self.prefetch is not None and self.prefetch < self.concurrency:
            raise InvalidArgument(
                f"prefetch is {self.prefetch} and concurrency {self.concurrency}; with fewer jobs than calls some would never work"
            )
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise InvalidArgument(f"timeout_s is {self.timeout_s}; it must be greater than 0")
        classes: tuple[object, ...] = self.reject_on
        if not all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
            raise InvalidArgument(f"reject_on is {self.reject_on!r}; it must be classes of exceptions")
        if not callable(self.retry_delay_s):
            delay_ms_of(self.retry_delay_s)


class _ProgramEnds(Exception):
    """A function raised SystemExit: raised as that where the workers were begun, as in a task of its own it would stop the loop at once."""

    def __init__(self, end: SystemExit) -> None:
        super().__init__(end)
        self.end = end


class Worker:
    """One function on one queue; it may run again after it has ended. Loop thread only."""

    def __init__(self, open_queue: OpenQueue, queue: str, handler: Handler, options: WorkerOptions) -> None:
        self.queue_name = queue
        self.options = options
        self._open_queue = open_queue
        self._handler = handler
        self._is_async = _is_async(handler)
        self._queue: Queue | None = None
        self._running: dict[LeasedRecord, None] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._runners: list[asyncio.Task[None]] = []
        self._renewal: asyncio.TimerHandle | None = None
        self._consumer: Consumer | None = None
        self._is_stopping = False

    # ── its life ──────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Forget an earlier `stop`; `run` is to follow."""
        self._is_stopping = False

    async def run(self) -> None:
        """Work until `stop`. When it is cancelled, what runs is cancelled and released.

        Raises:
            SparrowError: the queue cannot be had, or not any more.
        """
        options = self.options
        loop = asyncio.get_running_loop()
        self._queue = queue = self._open_queue(
            self.queue_name,
            QueueOptions(
                prefetch=options.prefetch or options.concurrency * PREFETCH_PER_CALL,
                subscriber=options.subscriber,
                create=options.create,
            ),
            on_failure=self._settlement_failed,
            make_job=Job if self._is_async else functools.partial(BlockingJob, crossing_to(loop)),
        )
        try:
            self._consumer = await queue.prefetcher()
            if not self._is_async:
                self._threads = ThreadPoolExecutor(options.concurrency, f"sparrow worker {self.queue_name}")
            self._renew_again()
            _log(logging.INFO, "working", queue=self.queue_name, concurrency=options.concurrency)
            self._runners = [loop.create_task(self._take_jobs(queue)) for _ in range(options.concurrency)]
            await _all_or_first_failure(self._runners)
        finally:
            await self._end(queue)

    def stop(self) -> None:
        """Begin nothing new; `run` ends when what runs has finished."""
        self._is_stopping = True
        if self._queue is not None:
            self._queue.stop()

    def cancel(self) -> None:
        """Do not wait for what runs any longer."""
        for runner in self._runners:
            runner.cancel()

    async def _end(self, queue: Queue) -> None:
        self.cancel()
        await _ended(self._runners)
        if self._renewal is not None:
            self._renewal.cancel()
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
                await self._work_at(job)
            finally:
                del running[job]

    async def _work_at(self, job: LeasedRecord) -> None:
        try:
            if self.options.timeout_s is None and self._is_async:
                await self._handler(job)  # type: ignore[misc]  # it is async
            else:
                await self._call(job, self.options.timeout_s)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                _give_back(job)
                raise
            self._failed(job, error)  # the function cancelled itself
        except (KeyboardInterrupt, GeneratorExit):
            raise  # not the function's doing
        except BaseException as error:  # noqa: BLE001 - a failed call never ends the worker
            self._failed(job, error)
            if isinstance(error, SystemExit):
                raise _ProgramEnds(error) from None
        else:
            self._say(job, job.lease.ack_key)

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
            future.cancel()  # if the worker ends first, nobody waits for it any more
        answer, error = future.result()
        if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
            self._failed(job, error)  # they end a thread, not the program
            return
        if error is not None:
            raise error
        if inspect.isawaitable(answer):
            await _within(timeout_s, answer)

    def _say(self, job: LeasedRecord, key: Any) -> None:
        """Settle a job, unless its function did."""
        if job.is_settled:
            return
        try:
            job.settle(key, None)
        except SparrowError as error:
            self._not_settled(job.topic, job.partition, job.offset, error)

    def _failed(self, job: LeasedRecord, error: BaseException) -> None:
        """The call raised."""
        if job.is_settled:
            _log(
                logging.WARNING,
                "call failed after it settled its job",
                job,
                error=_text_of(error),
                cause=error,
            )
        elif isinstance(error, (Reject, *self.options.reject_on)):
            reason = _message_of(error) if isinstance(error, Reject) else _text_of(error)
            _log(
                logging.WARNING,
                "job rejected",
                job,
                reason=reason,
                cause=None if isinstance(error, Reject) else error,
            )
            self._say(job, job.reject_key(reason))
        elif isinstance(error, Retry):
            delay_s = self._delay_s(job, error) if error.delay_s is None else error.delay_s
            _log(logging.INFO, "job to be retried", job, delay_s=delay_s, error=_message_of(error))
            self._say(job, job.nack_key(delay_s, _message_of(error)))
        else:
            delay_s = self._delay_s(job, error)
            _log(logging.WARNING, "job failed", job, error=_text_of(error), delay_s=delay_s, cause=error)
            self._say(job, job.nack_key(delay_s, _text_of(error)))

    def _delay_s(self, job: LeasedRecord, error: BaseException) -> float | None:
        delay = self.options.retry_delay_s
        if not callable(delay):
            return delay
        try:
            delay_s = delay(job, error)
            delay_ms_of(delay_s)
        except Exception as wrong:  # noqa: BLE001 - the job is given back all the same
            _log(logging.ERROR, "retry_delay_s failed; the queue's backoff is used", job, cause=wrong)
            return None
        return delay_s

    # ── leases ────────────────────────────────────────────────────────────────────────────────────

    def _renew_again(self) -> None:
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
                    pass  # the queue is over; `run` tells
        self._renew_again()

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


class Workers:
    """All workers of a client. Loop thread only."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def are_running(self) -> bool:
        return bool(self._tasks)

    def add(self, worker: Worker) -> None:
        """One more, from the next `run` on."""
        self._workers.append(worker)

    async def run(self) -> None:
        """Let all work until `stop`, or until one cannot: then the others stop, too, and its error is raised.

        Raises:
            InvalidArgument: there are none, or they are running.
            SparrowError: what ended a worker.
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
        tasks = self._tasks = [loop.create_task(worker.run()) for worker in self._workers]
        try:
            await _all_or_first_failure(tasks)
        except _ProgramEnds as ends:
            raise ends.end from None
        finally:
            for task in tasks:
                task.cancel()
            await _ended(tasks)
            self._tasks = []

    async def stop(self, grace_s: float) -> None:
        """Begin nothing new, wait at most so long for what runs, then cancel it. Returns when all have ended."""
        if grace_s < 0:
            raise InvalidArgument(f"grace_s is {grace_s}; it must be 0 or more")
        tasks = self._tasks
        if not tasks:
            return
        for worker in self._workers:
            worker.stop()
        await asyncio.wait(tasks, timeout=grace_s)
        for worker in self._workers:
            worker.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _all_or_first_failure(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all have ended, or one has failed: raises what it failed with."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        if not task.cancelled():
            task.result()


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all have ended, however; only the first failure is told."""
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


def _is_async(handler: Handler) -> bool:
    """Whether calling it gives something to await, as far as can be known."""
    function = handler
    while isinstance(function, functools.partial):
        function = function.func
    called = getattr(type(function), "__call__", None)  # noqa: B004 - its kind is asked for
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def _within(timeout_s: float | None, doing: Awaitable[object]) -> None:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            await doing
    except TimeoutError:
        if limit.expired():
            raise _too_long(timeout_s) from None
        raise


def _outcome_of(handler: Handler, job: LeasedRecord) -> tuple[object, BaseException | None]:
    """What a call returned, or raised: a future takes no StopIteration."""
    try:
        return handler(job), None
    except BaseException as error:  # noqa: BLE001 - it is raised where the job is
        return None, error


def _give_back(job: LeasedRecord) -> None:
    with suppress(SparrowError):  # if the queue is over, what it held went back with it
        job.give_back()


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
    **facts: object,
) -> None:
    """One line: what happened, and facts as name=value; the facts are in the record's `sparrow`, too."""
    if not _logger.isEnabledFor(level):
        return
    if job is not None:
        facts = {
            "queue": job.queue,
            "topic": job.topic,
            "partition": job.partition,
            "offset": job.offset,
            "delivery_count": job.delivery_count,
            **facts,
        }
    line = " ".join(f"{name}={value!r}" for name, value in facts.items())
    _logger.log(level, "%s: %s", event, line, exc_info=cause, extra={"sparrow": {"event": event, **facts}})
