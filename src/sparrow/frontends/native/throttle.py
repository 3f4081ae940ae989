"""Quotas of native connections: reading from a client, or delivering to it, pauses while its rate
exceeds a quota.

Published batches are confirmed nevertheless. While reading is paused, the client gets a PING now
and then, so that it knows that the broker is alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.quotas.rules import QuotaKind

if TYPE_CHECKING:
    from sparrow.broker.quotas.service import QuotaService

PINGS_PER_IDLE_TIMEOUT = 6
DEFAULT_PING_INTERVAL_S = 10.0


class Throttle:
    """The throttle of one connection. Loop thread only.

    `principal` and `client` are set when the client has logged in. Nothing needs to be counted
    while `quotas.has_limits` is False.

    Args:
        pause, resume: pause and resume reading.
        ping: sends the client a frame while reading is paused.
        idle_timeout_ms: the idle timeout that the client knows; 0: none.
    """

    __slots__ = (
        "_deliver_from",
        "_pause",
        "_ping",
        "_ping_interval_s",
        "_read_from",
        "_resume",
        "_timer",
        "client",
        "principal",
        "quotas",
    )

    def __init__(
        self,
        quotas: QuotaService,
        pause: Callable[[], None],
        resume: Callable[[], None],
        ping: Callable[[], None],
        idle_timeout_ms: int,
    ) -> None:
        self.principal = ANONYMOUS
        self.client = ""
        self.quotas = quotas
        self._pause = pause
        self._resume = resume
        self._ping = ping
        self._ping_interval_s = idle_timeout_ms / 1000 / PINGS_PER_IDLE_TIMEOUT or DEFAULT_PING_INTERVAL_S
        self._read_from = 0.0
        self._deliver_from = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def published(self, size_bytes: int) -> None:
        """Count published bytes. Over the quota, reading pauses for a while."""
        throttle_ms = self.quotas.record(QuotaKind.PRODUCE, self.principal, self.client, size_bytes)
        if throttle_ms:
            loop = asyncio.get_running_loop()
            self._read_from = max(self._read_from, loop.time() + throttle_ms / 1000)
            if self._timer is None:
                self._pause()
                self._start_timer(loop)

    def delivered(self, size_bytes: int) -> None:
        """Count delivered bytes. Over the quota, `wait_to_deliver` waits."""
        throttle_ms = self.quotas.record(QuotaKind.FETCH, self.principal, self.client, size_bytes)
        if throttle_ms:
            self._deliver_from = asyncio.get_running_loop().time() + throttle_ms / 1000

    def may_deliver(self) -> bool:
        """Return True if the quota allows a delivery now."""
        return not self._deliver_from or self._deliver_from <= asyncio.get_running_loop().time()

    async def wait_to_deliver(self) -> None:
        """Wait until the quota allows a delivery."""
        if self._deliver_from:
            loop = asyncio.get_running_loop()
            while (left_s := self._deliver_from - loop.time()) > 0:  # noqa: ASYNC110 - it may be put off again
                await asyncio.sleep(left_s)

    def max_delivery_bytes(self, wanted: int) -> int:
        """Return `wanted`, or the most that the quota can ever allow at a time."""
        if not self.quotas.has_limits:
            return wanted
        limit = self.quotas.max_in_window(QuotaKind.FETCH, self.principal, self.client)
        return wanted if limit is None else min(wanted, limit)

    def close(self) -> None:
        """Stop the timer: the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        left_s = self._read_from - loop.time()
        self._timer = loop.call_later(min(left_s, self._ping_interval_s), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._read_from <= loop.time():
            self._resume()
            return
        self._ping()
        self._start_timer(loop)
