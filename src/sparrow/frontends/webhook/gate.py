"""The limits of an endpoint: how many deliveries may start now, by its concurrency, its rate, the
pause that it asked for, and its circuit breaker. Pure.

If an endpoint asks for a pause (Retry-After), all deliveries to it pause, not one record only.
Afterwards its concurrency is halved, and each accepted delivery raises it again a little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.token_bucket import TokenBucket
from sparrow.frontends.webhook.breaker import Breaker

if TYPE_CHECKING:
    from sparrow.broker.webhooks.endpoint import EndpointSettings


class DeliveryGate:
    """The limits of one endpoint. Times are monotonic seconds."""

    def __init__(self, settings: EndpointSettings, now_s: float) -> None:
        self._concurrency = settings.concurrency
        self._limit = float(settings.concurrency)
        self._bucket = TokenBucket(settings.rate, now_s)
        self._paused_until_s = now_s
        self.breaker = Breaker(settings.pause_after)

    def room(self, now_s: float, in_flight: int) -> int:
        """Return how many deliveries may start now."""
        if self.shut_s(now_s) > 0:
            return 0
        if self.breaker.is_open:
            return 0 if in_flight else self._bucket.allowance(now_s, 1)
        return self._bucket.allowance(now_s, max(0, self.limit - in_flight))

    @property
    def limit(self) -> int:
        """The current limit of concurrent deliveries."""
        return max(1, int(self._limit))

    def shut_s(self, now_s: float) -> float:
        """Return how long nothing may start, regardless of other events; 0: the gate is open."""
        until_s = self._paused_until_s
        if self.breaker.probe_at_s is not None:
            until_s = max(until_s, self.breaker.probe_at_s)
        return max(0.0, until_s - now_s)

    def wait_s(self, now_s: float) -> float:
        """Return how long until a delivery may start, if there is room for it."""
        return max(self.shut_s(now_s), self._bucket.wait_s(now_s))

    def is_paused(self, now_s: float) -> bool:
        """Return True during a pause that the endpoint asked for."""
        return self._paused_until_s > now_s

    def started(self, now_s: float) -> None:
        self._bucket.take(now_s)

    def pause(self, now_s: float, seconds: float) -> None:
        """Pause at the request of the endpoint, and halve the concurrency."""
        self._paused_until_s = max(self._paused_until_s, now_s + seconds)
        self._limit = max(1.0, self._limit / 2)

    def succeeded(self) -> bool:
        """Count an accepted delivery. Return True if the endpoint was failing until now."""
        if self._limit < self._concurrency:
            self._limit = min(self._concurrency, self._limit + 1 / self._limit)
        return self.breaker.succeeded()
