"""How many deliveries to an endpoint may begin now: its concurrency, its rate, the time that it asked for, and whether it is failing. Pure.

An endpoint that asks for time (Retry-After) gets it from all of us, not for one record only, and half as many deliveries at a time afterwards; each
accepted delivery brings a part of that back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.frontends.webhook.breaker import Breaker
from sparrow.frontends.webhook.pacing import Pace

if TYPE_CHECKING:
    from sparrow.broker.webhooks.endpoint import EndpointSettings


class Gate:
    """Times are monotonic seconds."""

    def __init__(self, settings: EndpointSettings, now_s: float) -> None:
        self._concurrency = settings.concurrency
        self._limit = float(settings.concurrency)
        self._pace = Pace(settings.rate, now_s)
        self._held_until_s = now_s
        self.breaker = Breaker(settings.pause_after)

    def room(self, now_s: float, in_flight: int) -> int:
        """How many deliveries may begin now."""
        if self.shut_s(now_s) > 0:
            return 0
        if self.breaker.is_open:
            return 0 if in_flight else self._pace.allowance(now_s, 1)
        return self._pace.allowance(now_s, max(0, self.limit - in_flight))

    @property
    def limit(self) -> int:
        """Deliveries at a time."""
        return max(1, int(self._limit))

    def shut_s(self, now_s: float) -> float:
        """For how long nothing may begin, whatever happens meanwhile; 0: not shut."""
        until_s = self._held_until_s
        if self.breaker.probe_at_s is not None:
            until_s = max(until_s, self.breaker.probe_at_s)
        return max(0.0, until_s - now_s)

    def wait_s(self, now_s: float) -> float:
        """Until one may begin, if there is room for it."""
        return max(self.shut_s(now_s), self._pace.wait_s(now_s))

    def is_held(self, now_s: float) -> bool:
        """Whether the endpoint asked for time that is not over."""
        return self._held_until_s > now_s

    def began(self, now_s: float) -> None:
        self._pace.take(now_s)

    def hold(self, now_s: float, seconds: float) -> None:
        """The endpoint asked for time."""
        self._held_until_s = max(self._held_until_s, now_s + seconds)
        self._limit = max(1.0, self._limit / 2)

    def succeeded(self) -> bool:
        """A delivery was accepted; whether the endpoint was failing until now."""
        if self._limit < self._concurrency:
            self._limit = min(self._concurrency, self._limit + 1 / self._limit)
        return self.breaker.succeeded()
