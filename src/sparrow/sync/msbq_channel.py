"""Queues in the style of msbq, for threads. See `sparrow.client.msbq_channel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from sparrow.sync.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from sparrow.client.batch import RecordMetadata
    from sparrow.client.msbq_channel import Channel as AsyncChannel
    from sparrow.client.msbq_channel import QueueType
    from sparrow.records.record import Record
    from sparrow.sync.background import Background


class Channel:
    """Queues in the style of msbq, made by `client.channel()`."""

    def __init__(self, background: Background, channel: AsyncChannel) -> None:
        self._background = background
        self._channel = channel

    def __repr__(self) -> str:
        return f"<blocking {repr(self._channel)[1:]}"

    def assert_queue(
        self,
        name: str,
        *,
        type: QueueType = "P2P",  # noqa: A002 - msbq's own word
        durable: bool = True,
        partitions: int = -1,
    ) -> None:
        """Create the queue if it is missing, and use it on this channel."""
        self._background.run(
            self._channel.assert_queue(name, type=type, durable=durable, partitions=partitions)
        )

    def deliver(
        self,
        queue: str,
        body: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata:
        """Publish a message to a queue; it is stored when this returns."""
        return self._background.run(self._channel.deliver(queue, body, key=key, headers=headers))

    def consume(self, queue: str) -> Iterator[Record]:
        """Yield the queue's messages, without end."""
        subscription = self._channel.subscription(queue)
        reader = Subscription(self._background, subscription)
        try:
            yield from reader
        finally:
            self._background.run_last(subscription.abandon())

    def close(self) -> None:
        """End all iterations of this channel."""
        self._background.run_last(self._channel.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
