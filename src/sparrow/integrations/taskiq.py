"""A broker and a result backend for taskiq.

    broker = SparrowBroker("sparrow://127.0.0.1:9094", "emails").with_result_backend(
        SparrowResultBackend("sparrow://127.0.0.1:9094")
    )

A task is a job of the queue. Labels of a task become delivery options: `delay` (seconds), and
`priority` (0 to 9). taskiq acknowledges when the result is stored; the lease is extended until
then. A message that cannot be read becomes a dead letter, and a task that this worker does not know
is delivered again, up to the queue's delivery limit: another worker may know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.client.client import Client, connect
from sparrow.integrations.lease_keeper import LeaseKeeper
from sparrow.integrations.result_topic import KEPT_MS, ResultTopic

try:
    from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage, TaskiqResult
    from taskiq.depends.progress_tracker import TaskProgress
    from taskiq.exceptions import ResultGetError
    from taskiq.serializers import JSONSerializer
except ImportError as error:
    raise ImportError("sparrow.integrations.taskiq needs taskiq; install it: pip install taskiq") from error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sparrow.client.job import Job
    from sparrow.client.policy import Policy
    from sparrow.client.queue import Queue

_Result = TypeVar("_Result")
_RESULT, _PROGRESS = "result", "progress"


class SparrowBroker(AsyncBroker):
    """A broker of taskiq on a queue.

    Args:
        url: of the Sparrow broker.
        queue: the queue, which is made if it is missing.
        policy: settings of the queue, such as {"lease": "1m", "delivery_limit": 3}.
        prefetch: the most jobs that a worker process holds.
        options: of `sparrow.connect`, such as `token`.
    """

    def __init__(
        self,
        url: str,
        queue: str = "taskiq",
        *,
        policy: Policy | None = None,
        prefetch: int = 100,
        **options: Any,
    ) -> None:
        super().__init__()
        self._url = url
        self._name = queue
        self._policy = policy
        self._prefetch = prefetch
        self._options = options
        self._client: Client | None = None
        self._queue: Queue | None = None
        self._keeper = LeaseKeeper()

    async def startup(self) -> None:
        """Connect, and make the queue."""
        self._client = await connect(self._url, **self._options)
        self._queue = self._client.queue(self._name, prefetch=self._prefetch, policy=self._policy)
        await self._client.admin.ensure_queue(self._name, policy=self._policy)
        self._keeper.start()
        await super().startup()

    async def shutdown(self) -> None:
        """Release the jobs that were not worked on, and disconnect."""
        await super().shutdown()
        await self._keeper.stop()
        if self._client is not None:
            await self._client.close()
            self._client = self._queue = None

    def _opened(self) -> Queue:
        if self._queue is None:
            raise RuntimeError("the broker is not started; await broker.startup() before a task is sent")
        return self._queue

    async def kick(self, message: BrokerMessage) -> None:
        """Publish a task."""
        delay, priority = message.labels.get("delay"), message.labels.get("priority")
        await self._opened().publish(
            message.message,
            headers=(("task-id", message.task_id.encode()), ("task-name", message.task_name.encode())),
            delay_ms=None if delay is None else round(float(delay) * 1000),
            priority=None if priority is None else int(priority),
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield the tasks of the queue."""
        async for job in self._opened():
            problem = self._problem(job)
            if problem == "":
                self._keeper.keep(job)
                yield AckableMessage(data=job.value or b"", ack=job.ack)
            elif self._is_unknown(problem):
                job.nack_nowait(error=problem)
            else:
                job.reject_nowait(problem)

    def _problem(self, job: Job) -> str:
        """Return why a job cannot be worked on here; "" if it can."""
        try:
            name = self.formatter.loads(job.value or b"").task_name
        except Exception as error:  # noqa: BLE001 - whatever a formatter raises
            return f"the message is no task of taskiq: {error}"
        return (
            "" if self.find_task(name) is not None else f"no task {name!r} in this worker; import its module"
        )

    @staticmethod
    def _is_unknown(problem: str) -> bool:
        return problem.startswith("no task ")


class SparrowResultBackend(AsyncResultBackend[_Result]):
    """Results of taskiq in a topic.

    Args:
        url: of the Sparrow broker.
        topic: the topic, which is made if it is missing.
        keep_ms: time for which a new topic keeps results.
        options: of `sparrow.connect`, such as `token`.
    """

    def __init__(
        self, url: str, topic: str = "taskiq-results", *, keep_ms: int = KEPT_MS, **options: Any
    ) -> None:
        self._url = url
        self._topic = topic
        self._keep_ms = keep_ms
        self._options = options
        self._serializer = JSONSerializer()
        self._client: Client | None = None
        self._results: ResultTopic | None = None

    async def startup(self) -> None:
        """Connect."""
        self._client = await connect(self._url, **self._options)
        self._results = ResultTopic(self._client, self._topic, keep_ms=self._keep_ms)

    async def shutdown(self) -> None:
        """Disconnect."""
        if self._results is not None:
            await self._results.close()
        if self._client is not None:
            await self._client.close()
            self._client = self._results = None

    def _opened(self) -> ResultTopic:
        if self._results is None:
            raise RuntimeError("the result backend is not started; await broker.startup() first")
        return self._results

    async def set_result(self, task_id: str, result: TaskiqResult[_Result]) -> None:
        """Store the result of a task."""
        data = self._serializer.dumpb(result.model_dump(mode="json"))
        await self._opened().put(f"{task_id}/{_RESULT}", data)

    async def is_result_ready(self, task_id: str) -> bool:
        """Return True if the task is done."""
        return await self._opened().get(f"{task_id}/{_RESULT}") is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[_Result]:
        """Return the result of a task.

        Raises:
            ResultGetError: there is none, or not yet, or it is older than the topic keeps.
        """
        data = await self._opened().get(f"{task_id}/{_RESULT}")
        if data is None:
            raise ResultGetError
        result: TaskiqResult[_Result] = TaskiqResult.model_validate(self._serializer.loadb(data))
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Store the progress of a task."""
        await self._opened().put(
            f"{task_id}/{_PROGRESS}", self._serializer.dumpb(progress.model_dump(mode="json"))
        )

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return the progress of a task, or None."""
        data = await self._opened().get(f"{task_id}/{_PROGRESS}")
        return None if data is None else TaskProgress.model_validate(self._serializer.loadb(data))
