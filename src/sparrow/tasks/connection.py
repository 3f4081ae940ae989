"""The broker as an app uses it on one event loop: client, producer, queues that are known to exist,
results.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from sparrow.base.errors import Overloaded
from sparrow.client.options import SubscribeOptions
from sparrow.tasks.results import JobOutcome, ResultReader, encode_outcome, ensure_topic
from sparrow.tasks.wire import TASK_ID, IdSource, header_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from sparrow.client.batch import Delivery
    from sparrow.client.client import Client
    from sparrow.client.policy import Policy
    from sparrow.client.producer import Producer
    from sparrow.tasks.wire import Header

T = TypeVar("T")

_LOOK_UP_S: Final = 10.0
"""The longest time in which the job of an earlier send is looked up."""


class TaskMessage(Struct, kw_only=True):
    """A job that is ready to be sent."""

    id: str
    task: str
    queue: str
    value: bytes
    key: bytes | None = None
    headers: list[Header] = []
    schedule: dict[str, Any] = {}
    """Options of `client.publish`: delay_ms, priority, …"""
    unique: str | None = None
    """Nothing is sent if a message with the same text was sent within `unique_for_s`."""
    unique_for_s: float | None = None
    """Seconds; None: as long as the broker remembers."""


class Connection:
    """A client of an app. Loop thread only."""

    def __init__(
        self,
        client: Client,
        policy_of: Callable[[str], Policy | None],
        results_topic: str,
        results_ttl_ms: int,
        *,
        owns_client: bool,
    ) -> None:
        """Wrap a client. `policy_of` returns the settings that a queue must have."""
        self.client = client
        self.ids = IdSource()
        self._policy_of = policy_of
        self._results_topic = results_topic
        self._results_ttl_ms = results_ttl_ms
        self._owns_client = owns_client
        self._topics: dict[str, str] = {}
        self._lookups: dict[str, asyncio.Task[Any]] = {}
        self._producer: Producer | None = None
        self._reader: ResultReader | None = None

    async def close(self) -> None:
        """Close what was opened here, and the client if it was connected for the app."""
        if self._reader is not None:
            await self._reader.close()
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()
        if self._owns_client:
            await self.client.close()

    async def abandon(self) -> None:
        """Close without waiting long, after an error."""
        if self._reader is not None:
            await self._reader.close()
        if self._producer is not None:
            await self._producer.abandon()
        if self._owns_client:
            await self.client.abandon()

    async def _once(self, what: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something once, for all callers that wait for it; again after a failure."""
        task = self._lookups.get(what)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._lookups[what] = asyncio.get_running_loop().create_task(make())
            task.add_done_callback(_mark_seen)
        result: T = await asyncio.shield(task)
        return result

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    async def topic(self, queue: str) -> str:
        """Return the topic of a queue; create the queue, with its policy, if it is missing."""
        topic = self._topics.get(queue)
        if topic is None:
            topic = self._topics[queue] = await self._once(f"queue {queue}", lambda: self._find(queue))
        return topic

    async def _find(self, queue: str) -> str:
        return await self.client.queue(queue, policy=self._policy_of(queue)).topic()

    async def producer(self) -> Producer:
        """Return the producer of all sends."""
        if self._producer is None or self._producer.failure is not None:
            self._lookups.pop("producer", None) if self._producer is not None else None
            self._producer = await self._once("producer", self._start_producer)
        return self._producer

    async def _start_producer(self) -> Producer:
        return await self.client.producer(linger_ms=0).start()

    async def send(self, message: TaskMessage) -> Delivery:
        """Send a job; the delivery is done when it is on stable storage."""
        topic = self._topics.get(message.queue) or await self.topic(message.queue)
        producer = self._producer
        if producer is None or producer.failure is not None:
            producer = await self.producer()
        return await producer.send(
            topic, message.value, key=message.key, headers=message.headers, **message.schedule
        )

    async def send_unique(self, message: TaskMessage) -> str:
        """Send a job with `unique`, unless one was sent in its time; return the ID of the first."""
        assert message.unique is not None
        topic = await self.topic(message.queue)
        published = await self.client.publish_once(
            topic,
            message.value,
            once=f"{message.task}\0{message.unique}",
            window_s=message.unique_for_s,
            key=message.key,
            headers=message.headers,
            **message.schedule,
        )
        if not published.is_repeat:
            return message.id
        return await self._id_at(topic, published.partition, published.offset)

    async def _id_at(self, topic: str, partition: int, offset: int) -> str:
        """Return the ID of the job at a position; the position, if the job is not in the log."""
        options = SubscribeOptions(mode="pull")
        subscription = self.client.subscription(
            (topic,), "end", options, positions={(topic, partition): offset}
        )
        async with subscription:
            deadline = asyncio.get_running_loop().time() + _LOOK_UP_S
            while asyncio.get_running_loop().time() < deadline:
                for record in await subscription.pull(1, wait_s=0.5):
                    if (record.partition, record.offset) == (partition, offset):
                        return (header_of(record.headers, TASK_ID) or b"").decode(errors="replace")
                    if record.partition == partition and record.offset > offset:
                        return f"{topic}-{partition}-{offset}"
        return f"{topic}-{partition}-{offset}"

    async def send_all(self, messages: Iterable[TaskMessage]) -> list[Delivery]:
        """Send jobs as one stream, in order; yield to other tasks from time to time."""
        producer = await self.producer()
        deliveries: list[Delivery] = []
        queue = topic = ""
        for number, message in enumerate(messages):
            if message.queue != queue:
                queue, topic = message.queue, await self.topic(message.queue)
            if number & 255 == 255:
                await asyncio.sleep(0)
            try:
                delivery = producer.send_nowait(
                    topic, message.value, key=message.key, headers=message.headers, **message.schedule
                )
            except Overloaded:
                delivery = await producer.send(
                    topic, message.value, key=message.key, headers=message.headers, **message.schedule
                )
            deliveries.append(delivery)
        return deliveries

    async def send_values(
        self,
        queue: str,
        values: Iterable[bytes],
        key: bytes | None,
        headers: Sequence[Header],
        schedule: dict[str, Any],
    ) -> tuple[str, list[Delivery]]:
        """Send jobs that differ in their arguments alone. Return the topic, and the deliveries."""
        producer = await self.producer()
        topic = await self.topic(queue)
        send = producer.alike(topic, key=key, headers=headers, **schedule)
        deliveries: list[Delivery] = []
        for number, value in enumerate(values):
            if not number & 255:
                await asyncio.sleep(0)
                await producer.room()
            try:
                deliveries.append(send(value))
            except Overloaded:
                await producer.room()
                deliveries.append(send(value))
        return topic, deliveries

    # ── results ───────────────────────────────────────────────────────────────────────────────────

    async def _ensure_results(self) -> None:
        await ensure_topic(self.client, self._results_topic, self._results_ttl_ms)

    async def publish_outcome(self, job_id: str, outcome: JobOutcome) -> Delivery:
        """Publish the outcome of a job; the delivery is done when it is on stable storage."""
        if "results" not in self._topics:
            await self._once("results", self._ensure_results)
            self._topics["results"] = self._results_topic
        producer = await self.producer()
        return await producer.send(self._results_topic, encode_outcome(outcome), key=job_id.encode())

    async def reader(self) -> ResultReader:
        """Return the reader of results."""
        if self._reader is None:
            await self._once("results", self._ensure_results)
            if self._reader is None:
                self._reader = ResultReader(self.client, self._results_topic)
        return self._reader


def _mark_seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
