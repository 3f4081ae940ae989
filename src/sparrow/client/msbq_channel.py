"""Queues in the style of msbq: assert a queue, deliver to it, consume from it.

    channel = await client.channel()
    await channel.assert_queue("emails", type="P2P")
    await channel.deliver("emails", b"hello")
    async for message in channel.consume("emails"):
        ...

A queue is a topic of that name. `P2P`: each message goes to one of the consumers, which are a group
named after the queue. A message is finished when the next one is asked for, and goes to another
consumer if this one ends before (at least once); messages wait while there is no consumer.
`PUBSUB`: each channel gets every message from its `assert_queue` on. `durable=False` confirms a
delivery when it is in the page cache.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Protocol, Self

from sparrow.base.errors import InvalidArgument, SparrowError, TopicExists
from sparrow.client.options import SubscribeOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from types import TracebackType

    from sparrow.client.admin import Admin
    from sparrow.client.batch import RecordMetadata
    from sparrow.client.options import Acks, StartAt
    from sparrow.client.subscription import Subscription
    from sparrow.records.record import Record
    from sparrow.records.topic_partition import TopicPartition

QueueType = Literal["P2P", "PUBSUB"]

GROUP_PREFIX = "queue."
_COMMIT_INTERVAL_S = 1.0


class ChannelClient(Protocol):
    """The part of a client that a channel uses."""

    admin: Admin

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        acks: Acks = "all",
    ) -> RecordMetadata:
        """Publish one message."""
        ...

    def subscription(
        self,
        topics: Sequence[str],
        start: StartAt,
        options: SubscribeOptions,
        *,
        positions: dict[TopicPartition, int] | None = None,
    ) -> Subscription:
        """Return a subscription that is not started."""
        ...


class Channel:
    """Queues in the style of msbq, made by `client.channel()`. Loop thread only."""

    def __init__(self, client: ChannelClient) -> None:
        self._client = client
        self._queues: dict[str, tuple[QueueType, bool]] = {}
        self._start_offsets: dict[str, dict[TopicPartition, int]] = {}
        """Offsets at which a PUBSUB queue begins for this channel."""
        self._consuming: set[Subscription] = set()

    def __repr__(self) -> str:
        return f"<Channel of {self._client!r}>"

    async def assert_queue(
        self,
        name: str,
        *,
        type: QueueType = "P2P",  # noqa: A002 - msbq's own word
        durable: bool = True,
        partitions: int = -1,
    ) -> None:
        """Create the queue if it is missing, and use it on this channel.

        Args:
            partitions: the number of consumers of a P2P queue that can work at the same time;
                default: chosen by the broker.

        Raises:
            InvalidArgument: no such type.
            InvalidTopicName, NotAuthorized: the topic cannot be created.
        """
        if type not in {"P2P", "PUBSUB"}:
            raise InvalidArgument(f"type is {type!r}; a queue is 'P2P' or 'PUBSUB'")
        admin = self._client.admin
        config = {} if durable else {"durability": "page-cache"}
        with suppress(TopicExists):
            await admin.create_topic(name, partitions=partitions, config=config)
        if type == "PUBSUB" and name not in self._start_offsets:
            self._start_offsets[name] = {
                (name, end.partition): end.offset for end in await admin.offsets(name)
            }
        self._queues[name] = (type, durable)

    async def deliver(
        self,
        queue: str,
        body: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata:
        """Publish a message to a queue; it is stored when this returns.

        Raises:
            InvalidArgument: the queue was not asserted on this channel.
            SparrowError: as `client.publish`.
        """
        _, durable = self._asserted(queue)
        return await self._client.publish(queue, body, key=key, headers=headers, acks="all" if durable else 1)

    async def consume(self, queue: str) -> AsyncGenerator[Record, None]:
        """Yield the queue's messages, without end.

        Raises:
            InvalidArgument: the queue was not asserted on this channel.
            SparrowError: as a subscription.
        """
        subscription = self.subscription(queue)
        await subscription.start()
        self._consuming.add(subscription)
        try:
            async for message in subscription:
                yield message
        finally:
            self._consuming.discard(subscription)
            await subscription.abandon()

    async def close(self) -> None:
        """End all iterations of this channel."""
        for subscription in list(self._consuming):
            with suppress(SparrowError):
                await subscription.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _asserted(self, queue: str) -> tuple[QueueType, bool]:
        try:
            return self._queues[queue]
        except KeyError:
            raise InvalidArgument(
                f"queue {queue!r} was not asserted on this channel; call assert_queue first"
            ) from None

    def subscription(self, queue: str) -> Subscription:
        """Return the subscription that `consume` reads, not started.

        Raises:
            InvalidArgument: the queue was not asserted on this channel.
        """
        kind, _ = self._asserted(queue)
        if kind == "PUBSUB":
            return self._client.subscription(
                [queue], "end", SubscribeOptions(), positions=self._start_offsets[queue]
            )
        options = SubscribeOptions(
            group=GROUP_PREFIX + queue, commit="auto", auto_commit_interval_s=_COMMIT_INTERVAL_S
        )
        return self._client.subscription([queue], "beginning", options)
