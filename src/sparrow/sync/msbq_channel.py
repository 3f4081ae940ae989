"""Queues in the style of msbq, for threads. See `sparrow.client.msbq_channel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from sparrow.client.msbq_channel import Channel as AsyncChannel
from sparrow.sync.part import BlockingPart, blocking
from sparrow.sync.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from sparrow.records.record import Record


class Channel(BlockingPart[AsyncChannel]):
    """Queues in the style of msbq, made by `client.channel()`."""

    assert_queue = blocking(AsyncChannel.assert_queue)
    deliver = blocking(AsyncChannel.deliver)

    def consume(self, queue: str) -> Iterator[Record]:
        """Yield the queue's messages, without end."""
        subscription = self._inner.subscription(queue)
        reader = Subscription(self._background, subscription)
        try:
            yield from reader
        finally:
            self._background.run_last(subscription.abandon())

    def close(self) -> None:
        """End all iterations of this channel."""
        self._background.run_last(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
