"""The worker of one queue of an app: runs each job's task, keeps results, and decides what follows
a failure.

It is the client's worker (`client/worker.py`: slots, leases, signals, log lines), with tasks in
place of a function:

- A job whose arguments do not fit, or whose result JSON cannot carry, is rejected at once: another
  attempt would not help. A task that is unknown here is tried again: a newer worker may know it
  during a deployment.
- Retries, delays and limits are those of the task. A final failure is first kept as the job's
  result, where there is one, then the job becomes a dead letter.
- A result is on stable storage before its job is acknowledged.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.errors import SparrowError
from sparrow.base.units import format_duration
from sparrow.client.attempts import Attempts, Outlook
from sparrow.client.worker import Reject, Retry, Worker, WorkerOptions
from sparrow.records.wellknown import PARENT_ID
from sparrow.tasks.calls import InOwnContext
from sparrow.tasks.errors import (
    ArgumentsMisfit,
    ParentFailed,
    TimeLimitExceeded,
    UnencodableResult,
    UnknownTask,
)
from sparrow.tasks.hard_limits import HardLimit, HardLimits
from sparrow.tasks.jobs import TaskJob, enter_job
from sparrow.tasks.results import JobOutcome, Result
from sparrow.tasks.signature import result_as_json
from sparrow.tasks.wire import CONTEXT, FILL, IGNORE, PARENTS_FAILED, TASK, all_of, header_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from sparrow.client.job import LeasedRecord
    from sparrow.client.settlements import Part, SettlementKey
    from sparrow.tasks.connection import Connection
    from sparrow.tasks.interface import AnyTask, App
    from sparrow.tasks.process_pool import ProcessPool

_FINAL: Final = (ArgumentsMisfit, UnencodableResult, ParentFailed, Reject)
_UNKNOWN_DELAY_S: Final = 5.0
_UNKNOWN_ATTEMPTS: Final = 5
_LAST_WAIT_S: Final = 1.0
"""The time that a call has to end after the cancellation at its hard limit."""


class Executors:
    """Threads and processes of one worker process, for all its queues."""

    def __init__(
        self,
        threads: ThreadPoolExecutor,
        processes: ProcessPool,
        slots: asyncio.Semaphore | None,
        on_stuck: Callable[[str], None],
    ) -> None:
        """Combine them. `slots` limits the running jobs of all queues together; `on_stuck` is
        called when a call cannot be ended: the process must be replaced.
        """
        self.threads = threads
        self.processes = processes
        self.slots = slots
        self.on_stuck = on_stuck
        self.limits = HardLimits()


class Counts:
    """Numbers of one worker process, for its health and metrics."""

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.rejected = 0
        self.running = 0


class TaskWorker(Worker):
    """The worker of one queue. Loop thread only."""

    def __init__(  # noqa: PLR0917 - the parts of one process
        self,
        app: App,
        connection: Connection,
        queue: str,
        options: WorkerOptions,
        executors: Executors,
        counts: Counts,
        *,
        has_delays: bool = True,
    ) -> None:
        """Create a worker. `has_delays` False: a failed job is tried again at once, for tests."""
        super().__init__(connection.client.queue_with, queue, self._handle, options)
        self._app = app
        self._connection = connection
        self._executors = executors
        self._counts = counts
        self._has_delays = has_delays
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_flows = queue == app.flows
        self._limit = 0
        """The queue's delivery limit, once it is known."""
        self._run = self._with_middleware()
        self._unsent: set[asyncio.Task[None]] = set()

    def _job_maker(self, loop: asyncio.AbstractEventLoop) -> Callable[..., LeasedRecord]:
        self._loop = loop
        return TaskJob

    def _with_middleware(self) -> Callable[[TaskJob], Awaitable[Any]]:
        call: Callable[[TaskJob], Awaitable[Any]] = self._run_task
        for layer in reversed(self._app.middlewares):
            call = functools.partial(layer, call_next=call)
        return call

    # ── one job ───────────────────────────────────────────────────────────────────────────────────

    async def _handle(self, job: TaskJob) -> None:
        slots = self._executors.slots
        if slots is None:
            await self._handled(job)
        else:
            async with slots:
                await self._handled(job)

    async def _handled(self, job: TaskJob) -> None:
        counts = self._counts
        counts.running += 1
        try:
            assert self._loop is not None
            job.begin(self._loop, self._report_progress, self._result_of)
            await InOwnContext(self._in_context, job)
            counts.done += 1
        finally:
            counts.running -= 1

    async def _in_context(self, job: TaskJob) -> None:
        task = self._app.tasks.get(job.task)
        try:
            if task is None:
                raise self._unknown(job)  # noqa: TRY301 - its failure is kept as any other
            job.attempts = task.settings.attempts
            enter_job(job)
            context = header_of(job.record.headers, CONTEXT)
            if context is not None:
                self._app.enter_context(context)
            value = await self._run(job)
            if job.is_settled:
                return
            if task.settings.results or self._is_step(job):
                raw = (
                    value if isinstance(value, msgspec.Raw) else msgspec.Raw(result_as_json(task.name, value))
                )
                outcome = JobOutcome("done", task=task.name, result=raw, attempt=job.delivery_count)
                await (await self._connection.publish_outcome(job.id, outcome))
        except Exception as error:
            await self._keep_failure(job, task, error)
            raise

    async def _run_task(self, job: TaskJob) -> Any:
        task = self._app.tasks[job.task]
        value = job.record.value
        if self._is_step(job):
            value = await self._filled(job)
        options = task.settings
        if options.executor == "process":
            return await self._executors.processes.run(
                task, job, value, keeps_result=options.results or self._is_flows
            )
        args, kwargs = task.signature.decode(value)
        if not task.is_async:
            return await self._in_thread(task, job, args, kwargs)
        if options.hard_timeout_s is not None:
            return await self._in_task(task, job, args, kwargs)
        if options.timeout_s is None:
            return await task.signature.call(job, args, kwargs)
        limit = asyncio.timeout(options.timeout_s)
        try:
            async with limit:
                return await task.signature.call(job, args, kwargs)
        except TimeoutError:
            if limit.expired():
                raise _too_long(options.timeout_s) from None
            raise

    async def _in_thread(
        self, task: AnyTask, job: TaskJob, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a plain function in a thread. When its time is up the job is nacked; the slot waits
        for the thread, which cannot be interrupted, up to the hard limit.
        """
        assert self._loop is not None
        options = task.settings
        run = copy_context().run
        future = self._loop.run_in_executor(
            self._executors.threads, run, _outcome_of, task.signature.call, job, args, kwargs
        )
        try:
            soft_s, hard_s = options.timeout_s, options.hard_timeout_s
            await asyncio.wait([future], timeout=hard_s if soft_s is None else soft_s)
            if not future.done():
                await self._give_up(task, job, _hard_limit(hard_s) if soft_s is None else _too_long(soft_s))
                if soft_s is not None:
                    await asyncio.wait([future], timeout=None if hard_s is None else hard_s - soft_s)
                if not future.done():
                    self._executors.on_stuck(_stuck_text(job, hard_s, "runs in a thread"))
                return None
        finally:
            future.cancel()
        returned, failure = future.result()
        if failure is not None:
            raise failure
        return returned

    async def _in_task(
        self, task: AnyTask, job: TaskJob, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run an async function with a hard limit, in an asyncio task of its own: one that ignores
        its cancellation can be left behind.
        """
        assert self._loop is not None
        options = task.settings
        soft_s, hard_s = options.timeout_s, options.hard_timeout_s
        assert hard_s is not None
        call = self._loop.create_task(_awaited_outcome(task.signature.call(job, args, kwargs)))
        limit = HardLimit(self, job, call, time.monotonic() + hard_s)
        limits = self._executors.limits
        limits.add(limit)
        is_cancelled = False
        try:
            await asyncio.wait([call], timeout=hard_s if soft_s is None else soft_s)
            if not call.done() and soft_s is not None:
                is_cancelled = call.cancel()
                await asyncio.wait([call], timeout=max(0.0, limit.ends_at - time.monotonic()))
        except asyncio.CancelledError:  # the worker ends
            call.cancel()
            await asyncio.wait([call], timeout=max(_LAST_WAIT_S, limit.ends_at - time.monotonic()))
            if not call.done():
                self._executors.on_stuck(_stuck_text(job, hard_s, "ignores its cancellation"))
            if not call.done() or call.cancelled():
                raise
        finally:
            is_mine = limits.discard(limit)
        if not is_mine:
            await self._loop.create_future()  # the watchdog settles the job, and ends the process
        if not call.done():
            await self._end_hard(task, job, call, hard_s)
            return None
        if is_cancelled and call.cancelled():
            assert soft_s is not None
            raise _too_long(soft_s)
        returned, failure = call.result()
        if failure is not None:
            raise failure
        return returned

    async def _end_hard(self, task: AnyTask, job: TaskJob, call: asyncio.Task[Any], hard_s: float) -> None:
        """Nack a job at its hard limit and cancel its call, once more if it was cancelled before.
        If the call does not end at that, the process is to be replaced.
        """
        call.cancel()
        try:
            await self._give_up(task, job, _hard_limit(hard_s))
            await asyncio.wait([call], timeout=_LAST_WAIT_S)
        finally:
            if not call.done():
                self._executors.on_stuck(_stuck_text(job, hard_s, "ignores its cancellation"))

    async def _give_up(self, task: AnyTask, job: TaskJob, error: TimeLimitExceeded) -> None:
        """Let an attempt fail while its call still runs."""
        await self._keep_failure(job, task, error)
        self._failed(job, error)

    def fail_blocked(self, job: TaskJob, error: TimeLimitExceeded) -> tuple[JobOutcome | None, Part | None]:
        """Log the failure of a job that blocks the event loop. Return the outcome to keep first,
        and the settlement, for another connection to make; None for what is not to be done. Any
        thread.
        """
        if job.is_settled:
            return None, None
        outcome = self._final_outcome(job, self._app.tasks.get(job.task), error)
        key = self._judge(job, error)
        if key is None:
            return outcome, None
        offset = job.record.offset
        return outcome, (job.lease.key_of(key, offset, offset), offset, offset, None)

    def unconfirmed(self) -> tuple[str, list[Part]] | None:
        """Return the ID of this worker's consumer, and settlements that the broker has not
        confirmed; None if it has no leases. Any thread, while that of the loop is blocked.
        """
        consumer = self._consumer
        if consumer is None or consumer.failure is not None:
            return None
        return consumer.consumer_id, consumer.unconfirmed()

    # ── compositions ──────────────────────────────────────────────────────────────────────────────

    def _is_step(self, job: TaskJob) -> bool:
        """Return True if the job is a step of a composition: it has an ID that others wait for."""
        return self._is_flows and bool(job.message_id)

    async def _filled(self, job: TaskJob) -> bytes:
        """Return the arguments of a step, with the results of the steps before it.

        Raises:
            ParentFailed: one of them failed, and the step does not ignore it.
        """
        headers = job.record.headers
        value = job.record.value or b"{}"
        parents = all_of(headers, PARENT_ID)
        if not parents:
            return value
        ignores = header_of(headers, PARENTS_FAILED) == IGNORE
        outcomes = await self._outcomes_of(parents)
        raws: list[msgspec.Raw] = []
        for parent, outcome in zip(parents, outcomes, strict=True):
            if outcome is not None and outcome.state == "done":
                raws.append(outcome.result)
            elif ignores:
                raws.append(msgspec.Raw(b"null"))
            else:
                raise ParentFailed(_why_not(parent, outcome))
        job.parents = [msgspec.json.decode(raw) for raw in raws]
        fill = header_of(headers, FILL)
        if fill is None:
            return value
        name, is_list = fill.removesuffix(b"[]").decode(), fill.endswith(b"[]")
        filled: dict[str, Any] = {name: raws if is_list else raws[0]}
        filled.update(msgspec.json.decode(value, type=dict[str, msgspec.Raw]))
        return msgspec.json.encode(filled)

    async def _outcomes_of(self, parents: Sequence[str]) -> list[JobOutcome | None]:
        """Return the final outcomes of jobs that are finished; None for those that left none."""
        reader = await self._connection.reader()
        found: list[JobOutcome | None] = []
        for parent in parents:
            outcome = reader.known(parent)
            if outcome is None or not outcome.is_final:
                outcome = None if await reader.is_absent(parent) else reader.known(parent)
            found.append(outcome)
        return found

    # ── failures ──────────────────────────────────────────────────────────────────────────────────

    def _unknown(self, job: TaskJob) -> UnknownTask:
        known = ", ".join(sorted(map(repr, self._app.tasks))) or "none"
        if not header_of(job.record.headers, TASK):
            return UnknownTask(
                f"the message names no task: it has no header {TASK!r}; the app {self._app.name!r} has the "
                f"tasks {known}"
            )
        return UnknownTask(
            f"the app {self._app.name!r} has no task {job.task!r}, it has {known}; the sender's version may "
            "be newer than this worker, or the task was renamed"
        )

    def _options_of(self, job: LeasedRecord) -> Any:
        task = self._app.tasks.get(job.task) if isinstance(job, TaskJob) else None
        return None if task is None else task.settings

    def _gives_up(self, job: LeasedRecord, error: BaseException) -> bool:
        options = self._options_of(job)
        if isinstance(error, _FINAL):
            return True
        if options is None:
            return job.delivery_count >= (self._limit or _UNKNOWN_ATTEMPTS)
        return isinstance(error, options.reject_on) or job.delivery_count >= options.attempts

    def _delay_s(self, job: LeasedRecord, error: BaseException) -> float | None:  # noqa: ARG002 - the same for all errors
        if not self._has_delays:
            return 0.0
        options = self._options_of(job)
        if options is None:
            return _UNKNOWN_DELAY_S
        delay_s: float = options.delay_after(job.delivery_count, random.uniform(-1, 1))  # noqa: S311 - no secret
        return delay_s

    async def _keep_failure(self, job: TaskJob, task: AnyTask | None, error: Exception) -> None:
        """Keep the failure as the job's result, if it is the last one."""
        outcome = self._final_outcome(job, task, error)
        if outcome is not None:
            await (await self._connection.publish_outcome(job.id, outcome))

    def _final_outcome(self, job: TaskJob, task: AnyTask | None, error: Exception) -> JobOutcome | None:
        """Count a failure. Return the result that the job has with it, if it is the last one."""
        self._counts.failed += 1
        is_kept = self._is_step(job) or (task is not None and task.settings.results)
        if not is_kept or job.is_settled or not self._is_last(job, error):
            return None
        text = str(error) if isinstance(error, (Reject, *_FINAL)) else f"{type(error).__name__}: {error}"
        return JobOutcome("failed", task=job.task, error=text[:10_000], attempt=job.delivery_count)

    def _is_last(self, job: TaskJob, error: BaseException) -> bool:
        if isinstance(error, Retry):
            return bool(job.attempts) and job.delivery_count >= job.attempts
        return self._gives_up(job, error)

    def _judge(self, job: LeasedRecord, error: BaseException) -> SettlementKey | None:
        if isinstance(error, Retry) and isinstance(job, TaskJob) and self._is_last(job, error):
            error = Reject(str(error) or "Retry, and this was the last attempt")
        elif isinstance(error, (*_FINAL, UnknownTask)) and self._gives_up(job, error):
            error = Reject(str(error))  # the text says it all, a traceback would add nothing
        if self._gives_up(job, error):
            self._counts.rejected += 1
        return super()._judge(job, error)

    def _new_attempts(self, policy: Mapping[str, Any]) -> Attempts:
        self._limit = policy.get("delivery_limit", 0)
        return TaskAttempts(self.queue_name, policy)

    # ── progress ──────────────────────────────────────────────────────────────────────────────────

    def _result_of(self, job_id: str) -> Result[Any]:
        return Result(job_id, "", self._connection.reader)

    def _report_progress(self, job: TaskJob, fraction: float, text: str) -> None:
        task = self._app.tasks.get(job.task)
        if task is None or not (task.settings.results or self._is_step(job)) or self._loop is None:
            return
        outcome = JobOutcome(
            "running", task=job.task, fraction=fraction, text=text, attempt=job.delivery_count
        )
        sending = self._loop.create_task(self._publish_quietly(job.id, outcome))
        self._unsent.add(sending)
        sending.add_done_callback(self._unsent.discard)

    async def _publish_quietly(self, job_id: str, outcome: JobOutcome) -> None:
        with suppress(SparrowError):  # progress is a courtesy; the job goes on
            await (await self._connection.publish_outcome(job_id, outcome))


class TaskAttempts(Attempts):
    """Words of log lines: the number of the attempt by the task's own limit."""

    def failed(self, job: LeasedRecord, delay_s: float | None) -> Outlook:
        attempts = getattr(job, "attempts", 0)
        count = job.delivery_count
        fields: dict[str, object] = {"attempt": count, "attempts": attempts or None, "delay_s": delay_s}
        when = f"next in {format_duration(round((delay_s or 0) * 1000))}" if delay_s else "next at once"
        which = f"attempt {count} of {attempts}" if attempts else f"attempt {count}"
        return Outlook(f"{which}, {when}", False, False, fields)

    def rejected(self, job: LeasedRecord) -> Outlook:
        attempts = getattr(job, "attempts", 0)
        count = job.delivery_count
        which = f"attempt {count} of {attempts}" if attempts else f"attempt {count}"
        fields: dict[str, object] = {"attempt": count, "attempts": attempts or None}
        topic = self.dead_letters
        if topic is None:
            return Outlook(f"{which}, gave up: dropped, the queue has no dead letters", True, True, fields)
        fields["dead_letters"] = topic
        return Outlook(f"{which}, gave up: dead letter in {topic!r}", True, True, fields)


def _too_long(timeout_s: float) -> TimeLimitExceeded:
    return TimeLimitExceeded(f"the task did not end within its timeout of {timeout_s:g} s")


def _hard_limit(hard_s: float | None) -> TimeLimitExceeded:
    return TimeLimitExceeded(f"the task did not end within its hard_timeout of {hard_s:g} s")


def _stuck_text(job: TaskJob, hard_s: float | None, why: str) -> str:
    return (
        f"the task {job.task!r} {why} for more than its hard_timeout of {hard_s:g} s (job {job.id}, attempt "
        f"{job.delivery_count})"
    )


def _why_not(parent: str, outcome: JobOutcome | None) -> str:
    if outcome is None:
        return (
            f"the step before it, job {parent}, left no result: it is a dead letter, expired, or was purged"
        )
    reason = outcome.error
    if reason.startswith("the step before it"):
        return reason
    return f"the step before it, {outcome.task!r} (job {parent}), failed: {reason}"


def _outcome_of(
    call: Callable[..., Any], job: TaskJob, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """Return the result and the exception of a call. A future cannot carry StopIteration."""
    try:
        return call(job, args, kwargs), None
    except BaseException as error:  # noqa: BLE001 - it is raised where the job is
        return None, error


async def _awaited_outcome(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Return the result and the exception of a call. SystemExit raised in a task of its own would
    stop the loop at once.
    """
    try:
        return await awaitable, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised where the job is
        return None, error
