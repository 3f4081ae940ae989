"""Jobs as tasks see them."""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Final

from sparrow.client.job import Job
from sparrow.tasks.errors import TaskError
from sparrow.tasks.wire import TASK, TASK_ID, header_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from sparrow.client.lease import Lease
    from sparrow.client.settlements import SettlementKey
    from sparrow.records.record import Record
    from sparrow.tasks.results import Result

    Report = Callable[["TaskJob", float, str], None]

_CURRENT: Final[ContextVar[TaskJob | LocalJob | None]] = ContextVar("sparrow_task_job", default=None)


def current_job() -> TaskJob | LocalJob:
    """Return the job of the task that calls this, also from functions that it calls.

    Raises:
        LookupError: no task runs here.
    """
    job = _CURRENT.get()
    if job is None:
        raise LookupError("no task runs here; current_job() is for functions that a task calls")
    return job


def job_of(context: Context) -> TaskJob | LocalJob | None:
    """Return the current job of a context. Any thread."""
    return context.get(_CURRENT)


def enter_job(job: TaskJob | LocalJob) -> None:
    """Make a job the current one of this context."""
    _CURRENT.set(job)


class TaskJob(Job):
    """A job of a task. The worker settles it: a task returns, or raises."""

    __slots__ = ("_loop", "_report", "attempts", "id", "parents", "result_of", "task")

    def __init__(self, lease: Lease, record: Record, delivery_count: int) -> None:
        super().__init__(lease, record, delivery_count)
        self.id = ""
        """ID of the job, the same in each attempt."""
        self.task = ""
        """Name of the task."""
        self.attempts = 0
        """Number of attempts at most; 0: no limit."""
        self.parents: Sequence[Any] = ()
        """Results of the steps before this one, in a composition."""
        self.result_of: Callable[[str], Result[Any]] | None = None
        self._report: Report | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self.delivery_count

    @property
    def result(self) -> Result[Any]:
        """The result of this job, as its sender sees it."""
        if self.result_of is None:
            raise LookupError("the job has not begun; its result is known to the task that runs")
        return self.result_of(self.id)

    def begin(
        self, loop: asyncio.AbstractEventLoop, report: Report, result_of: Callable[[str], Result[Any]]
    ) -> None:
        """Read task and ID, and set what methods need."""
        headers = self.record.headers
        self.task = (header_of(headers, TASK) or b"").decode(errors="replace")
        given = header_of(headers, TASK_ID)
        self.id = given.decode(errors="replace") if given else f"{self.topic}-{self.partition}-{self.offset}"
        self._loop = loop
        self._report = report
        self.result_of = result_of

    def progress(self, fraction: float, text: str = "") -> None:
        """Report progress, 0 to 1, with a text for people, without waiting. Any thread.

        It is kept with the result, if the task has `results=True`, and is nowhere else.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"the progress is {fraction}; it must be from 0 to 1")
        if self._report is None or self._loop is None:
            return
        if self._is_on(self._loop):
            self._report(self, fraction, text)
        else:
            self._loop.call_soon_threadsafe(self._report, self, fraction, text)

    # An async task awaits these, as those of any job. A plain one runs in a thread of the worker,
    # where they wait by themselves.

    def ack(self) -> Any:
        """Acknowledge the job before the task ends."""
        return self._settled(self.lease.ack_key)

    def extend(self, seconds: float | None = None) -> Any:
        """Let the lease end `seconds` from now; the worker renews it anyway."""
        return self._crossing(lambda: super(TaskJob, self).extend(seconds))

    def reply(
        self,
        value: bytes | None,
        *,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
    ) -> Any:
        """Reply to the request that the job is (`Client.request`). Raises as `Job.reply`."""
        return self._crossing(lambda: self._publish_reply(value, headers))

    def _settled(self, key: SettlementKey) -> Any:
        return self._crossing(lambda: super(TaskJob, self)._settled(key))

    def _crossing(self, begin: Callable[[], Awaitable[Any]]) -> Any:
        """Begin something on the loop: return what is to be awaited there, or, in another thread,
        its result.
        """
        loop = self._loop
        if loop is None or self._is_on(loop):
            return begin()

        async def begun() -> Any:
            return await begin()

        return asyncio.run_coroutine_threadsafe(begun(), loop).result()

    @staticmethod
    def _is_on(loop: asyncio.AbstractEventLoop) -> bool:
        try:
            return asyncio.get_running_loop() is loop
        except RuntimeError:
            return False

    @property
    def log_fields(self) -> dict[str, object]:
        return {"task": self.task, "id": self.id, **super().log_fields}


class LocalJob:
    """The job of a task that is called in place (`task.call`), or runs in a process of its own."""

    def __init__(
        self,
        task: str,
        job_id: str,
        *,
        attempt: int = 1,
        attempts: int = 1,
        queue: str = "",
        parents: Sequence[Any] = (),
        report: Callable[[float, str], None] | None = None,
    ) -> None:
        self.task = task
        self.id = job_id
        self.attempt = self.delivery_count = attempt
        self.attempts = attempts
        self.queue = queue
        self.parents = parents
        self.reports: list[tuple[float, str]] = []
        """Progress that was reported, as far as nobody else gets it."""
        self.replies: list[bytes | None] = []
        """Replies of a task that is called in place."""
        self._report = report

    def reply(
        self,
        value: bytes | None,
        *,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,  # noqa: ARG002 - as of a job
    ) -> Any:
        """Keep the reply, as nobody waits for it here.

        Raises:
            TaskError: the task runs in a process of its own, which has no connection.
        """
        if self._report is not None:
            raise TaskError(
                f"the task {self.task!r} cannot reply: it runs in a process of its own, which has no "
                'connection to the broker; declare it without executor="process"'
            )
        self.replies.append(value)
        return _Replied()

    def progress(self, fraction: float, text: str = "") -> None:
        """Report progress, 0 to 1, with a text for people."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"the progress is {fraction}; it must be from 0 to 1")
        if self._report is None:
            self.reports.append((fraction, text))
        else:
            self._report(fraction, text)


class _Replied:
    """The end of a reply: an async task awaits it, a plain one ignores it."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield
