"""The subscription for threads.

Strategy: the background thread prefetches and decodes; a batch crosses at once and is handed out here, from the very iterator that the async
subscription keeps account of, so that `commit` knows what was handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from sparrow.client.intake import Key
    from sparrow.client.options import StartAt
    from sparrow.client.subscription import Subscription as AsyncSubscription
    from sparrow.records.record import Record
    from sparrow.sync.background import Background


class Subscription:
    """Made by `client.subscribe(…)`; use it as `with`. One thread reads at a time; any may close it."""

    def __init__(self, background: Background, subscription: AsyncSubscription) -> None:
        self._background = background
        self._subscription = subscription
        self._is_started = False

    def start(self) -> Self:
        """Subscribe; iterating does so, too. Raises as the async subscription's `start`."""
        if not self._is_started:
            self._background.run(self._subscription.start())
            self._is_started = True
        return self

    def close(self) -> None:
        """End the subscription; with automatic commits, everything that was handed out is committed."""
        if self._is_started:
            self._background.run(self._subscription.close())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._background.run(self._subscription.abandon())

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Record]:
        """Message by message, until the subscription is closed."""
        self.start()
        run, subscription = self._background.run, self._subscription
        intake = subscription.intake
        while run(subscription.advance()):
            for message in intake.rest:
                intake.last = message
                yield message

    def batches(self) -> Iterator[list[Record]]:
        """Lists of messages as they come, until the subscription is closed."""
        self.start()
        while batch := self._background.run(self._subscription.next_batch()):
            yield batch

    def pull(self, max_messages: int = 100, *, wait_s: float = 1.0) -> list[Record]:
        """At most `max_messages`, waiting at most `wait_s` for the first; [] is an answer."""
        self.start()
        return self._background.run(self._subscription.pull(max_messages, wait_s=wait_s))

    # ── offsets and changes ───────────────────────────────────────────────────────────────────────

    @property
    def assignment(self) -> list[Key]:
        """The partitions that are read now: (topic, partition)."""
        return self._background.run(self._assignment())

    @property
    def topics(self) -> list[str]:
        """The names and patterns subscribed to."""
        return self._subscription.topics

    def commit(self, message: Record | None = None) -> None:
        """Commit what was handed out so far, or up to `message`. Raises as the async subscription's `commit`."""
        self._background.run(self._subscription.commit(message))

    def add(self, *topics: str, start: StartAt = "end") -> None:
        """Read more topics or patterns."""
        self._background.run(self._subscription.add(*topics, start=start))

    def drop(self, *topics: str) -> None:
        """Read these names or patterns no more."""
        self._background.run(self._subscription.drop(*topics))

    async def _assignment(self) -> list[Key]:
        return self._subscription.assignment
