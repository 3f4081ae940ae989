"""Deliveries a second that a queue's policy allows each subscriber."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.token_bucket import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.base.clock import Clock


class DeliveryRates:
    """The token buckets of a queue's subscribers. A new rate begins with a full bucket."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def allowance(self, subscriber: str, rate: float, limit: int) -> int:
        """Return how many deliveries to a subscriber may start now, at most `limit`.

        Args:
            rate: of the policy, not 0.
        """
        now_s = self._clock.monotonic()
        bucket = self._buckets.get(subscriber)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[subscriber] = TokenBucket(rate, now_s)
        return bucket.allowance(now_s, limit)

    def take(self, subscriber: str, count: int) -> None:
        """Count deliveries that start, of those that `allowance` has allowed."""
        self._buckets[subscriber].take(self._clock.monotonic(), count)

    def delays(self, subscribers: Iterable[str]) -> list[float]:
        """Return how long (s) those of these subscribers must wait that may start no delivery
        now.
        """
        now_s = self._clock.monotonic()
        waits = [self._buckets[name].wait_s(now_s) for name in subscribers if name in self._buckets]
        return [wait_s for wait_s in waits if wait_s > 0]
