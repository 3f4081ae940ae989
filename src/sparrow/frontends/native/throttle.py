"""Quotas at the native door: who exceeds one is not read from, or not delivered to, until its rate is down again.

What was published is confirmed all the same. While a connection is not read from, it gets a PING now and then, so that the client
knows that the broker is alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrow.broker.quotas.rules import QuotaKind

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.quotas.quotas import Quotas

SIGNS_OF_LIFE_PER_IDLE_TIMEOUT = 6
DEFAULT_SIGN_S = 10.0


class Throttle:
    """What one connection is held back for. Loop thread only.

    Args:
        hold, release: stop and resume reading.
        sign_of_life: tell the client something while it is not read from.
        idle_timeout_ms: what the client was told; 0 for none.
    """

    __slots__ = (
        "_deliver_from",
        "_hold",
        "_quotas",
        "_read_from",
        "_release",
        "_sign_interval_s",
        "_sign_of_life",
        "_timer",
    )

    def __init__(
        self,
        quotas: Quotas,
        hold: Callable[[], None],
        release: Callable[[], None],
        sign_of_life: Callable[[], None],
        idle_timeout_ms: int,
    ) -> None:
        self._quotas = quotas
        self._hold = hold
        self._release = release
        self._sign_of_life = sign_of_life
        self._sign_interval_s = idle_timeout_ms / 1000 / SIGNS_OF_LIFE_PER_IDLE_TIMEOUT or DEFAULT_SIGN_S
        self._read_from = 0.0
        self._deliver_from = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def published(self, principal: Principal, client: str, size_bytes: int) -> None:
        """Count what came in."""
        if not self._quotas.is_limited(QuotaKind.PRODUCE):
            return
        throttle_ms = self._quotas.record(QuotaKind.PRODUCE, principal, client, size_bytes)
        if throttle_ms:
            loop = asyncio.get_running_loop()
            self._read_from = max(self._read_from, loop.time() + throttle_ms / 1000)
            if self._timer is None:
                self._hold()
                self._wait(loop)

    def delivered(self, principal: Principal, client: str, size_bytes: int) -> None:
        """Count what went out."""
        if size_bytes and self._quotas.is_limited(QuotaKind.FETCH):
            throttle_ms = self._quotas.record(QuotaKind.FETCH, principal, client, size_bytes)
            self._deliver_from = asyncio.get_running_loop().time() + throttle_ms / 1000

    def may_deliver(self) -> bool:
        """Whether something may be delivered now."""
        return self._deliver_from <= asyncio.get_running_loop().time()

    async def wait_to_deliver(self) -> None:
        """Until something may be delivered."""
        if self._deliver_from:
            loop = asyncio.get_running_loop()
            while (left_s := self._deliver_from - loop.time()) > 0:  # noqa: ASYNC110 - it may be put off again
                await asyncio.sleep(left_s)

    def max_delivery_bytes(self, principal: Principal, client: str, wanted: int) -> int:
        """At most what the quota can ever allow at a time."""
        most = self._quotas.max_in_window(QuotaKind.FETCH, principal, client)
        return wanted if most is None else min(wanted, most)

    def close(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        left_s = self._read_from - loop.time()
        self._timer = loop.call_later(min(left_s, self._sign_interval_s), self._waited)

    def _waited(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._read_from <= loop.time():
            self._release()
            return
        self._sign_of_life()
        self._wait(loop)
