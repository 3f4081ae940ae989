"""The subscription for threads.

Strategy: the background thread prefetches and decodes. A batch crosses as a whole and is handed out
here, from the same iterator that the async subscription tracks, so that `commit` knows which
records were handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from sparrow.client.subscription import Subscription as AsyncSubscription
from sparrow.sync.part import BlockingPart, blocking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from sparrow.records.record import Record
    from sparrow.records.topic_partition import TopicPartition
    from sparrow.sync.background import Background


class Subscription(BlockingPart[AsyncSubscription]):
    """Records of topics and patterns, made by `client.subscribe(…)`; use it as `with`. One thread
    reads at a time; any may close it.
    """

    def __init__(self, background: Background, subscription: AsyncSubscription) -> None:
        super().__init__(background, subscription)
        self._is_started = False

    def start(self) -> Self:
        """Subscribe; iterating does so, too. Raises as the async subscription's `start`."""
        self._background.check_process()
        if not self._is_started:
            self._background.run(self._inner.start())
            self._is_started = True
        return self

    def close(self) -> None:
        """End the subscription. With automatic commits, everything that was handed out is
        committed.
        """
        if self._is_started:
            self._background.run_last(self._inner.close())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._background.run_last(self._inner.abandon())

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Record]:
        """Yield messages until the subscription is closed."""
        self.start()
        run, subscription = self._background.run, self._inner
        buffer = subscription.buffer
        while run(subscription.advance()):
            for message in buffer.rest:
                buffer.last = message
                yield message

    def batches(self) -> Iterator[list[Record]]:
        """Yield lists of messages as they arrive, until the subscription is closed."""
        self.start()
        while batch := self._background.run(self._inner.next_batch()):
            yield batch

    def pull(self, max_messages: int = 100, *, wait_s: float = 1.0) -> list[Record]:
        """Return at most `max_messages`, waiting at most `wait_s` seconds for the first; [] if none
        came.
        """
        self.start()
        return self._background.run(self._inner.pull(max_messages, wait_s=wait_s))

    # ── offsets and changes ───────────────────────────────────────────────────────────────────────

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now: (topic, partition)."""
        return self._background.run(self._assignment())

    @property
    def topics(self) -> list[str]:
        """The names and patterns subscribed to."""
        return self._inner.topics

    @property
    def skipped_batches(self) -> int:
        """Number of unreadable batches that were skipped (`on_corrupt="skip"`)."""
        return self._inner.skipped_batches

    commit = blocking(AsyncSubscription.commit)
    add = blocking(AsyncSubscription.add)
    drop = blocking(AsyncSubscription.drop)

    async def _assignment(self) -> list[TopicPartition]:
        return self._inner.assignment
