"""Holding back clients that exceed a quota (KIP-13, KIP-219): the answer goes out at once and tells for how long, and nothing more is
taken from the connection meanwhile.

A Fetch that exceeds its quota is answered empty, as what it read would be over the limit at once; it is not counted then. A ShareFetch gets
what it has acquired, and is held back afterwards.

`request_percentage` is measured as the time that the loop works on a client's requests, of 100 for the one thread that it has. Waiting
does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from sparrow.broker.quotas.rules import QuotaKind

if TYPE_CHECKING:
    from sparrow.broker.quotas.quotas import Quotas
    from sparrow.frontends.kafka.dispatch import Call


def after_produce(call: Call, sizes: Callable[[], Iterable[int]]) -> int:
    """Count the bytes of a Produce; how many milliseconds the client is held back."""
    quotas = call.broker.quotas
    if not quotas.is_limited(QuotaKind.PRODUCE):
        return 0
    throttle_ms = quotas.record(QuotaKind.PRODUCE, call.principal, call.client_id, sum(sizes()))
    if throttle_ms:
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def after_fetch(call: Call, size_bytes: int) -> int:
    """Count the bytes of a Fetch; if not 0, it is to be answered empty, and the client is held back for so many milliseconds."""
    quotas = call.broker.quotas
    if not quotas.is_limited(QuotaKind.FETCH):
        return 0
    throttle_ms = quotas.record(QuotaKind.FETCH, call.principal, call.client_id, size_bytes)
    if throttle_ms:
        quotas.unrecord(QuotaKind.FETCH, call.principal, call.client_id, size_bytes)
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def after_share_fetch(call: Call, size_bytes: int) -> int:
    """Count the bytes of a ShareFetch; how many milliseconds the client is held back. What it acquired goes out all the same: nobody
    else could have it."""
    quotas = call.broker.quotas
    if not quotas.is_limited(QuotaKind.FETCH):
        return 0
    throttle_ms = quotas.record(QuotaKind.FETCH, call.principal, call.client_id, size_bytes)
    if throttle_ms:
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def max_fetch_bytes(call: Call, wanted: int) -> int:
    """At most what the client's quota can ever allow at a time; else its fetches would be over the limit for ever."""
    most = call.broker.quotas.max_in_window(QuotaKind.FETCH, call.principal, call.client_id)
    return wanted if most is None else min(wanted, most)


def counts_requests(quotas: Quotas) -> bool:
    """Whether the time of requests has to be measured at all."""
    return quotas.is_limited(QuotaKind.REQUEST)


def timed(handler: Callable[[Any, Call], Any], request: Any, call: Call) -> Any:
    """What the handler answers, with its time counted; an answer that is a message says how long the client is held back."""
    begun = perf_counter()
    answer = handler(request, call)
    seconds = perf_counter() - begun
    if asyncio.iscoroutine(answer):
        return _timed_to_the_end(answer, seconds, call)
    throttle_ms = _after_request(call, seconds)
    return (
        answer if answer is None or isinstance(answer, (list, asyncio.Future)) else told(answer, throttle_ms)
    )


async def _timed_to_the_end(working: Coroutine[Any, Any, Any], seconds: float, call: Call) -> Any:
    steps = _Steps(working, seconds)
    answer = await steps
    throttle_ms = _after_request(call, steps.seconds)
    return answer if answer is None or isinstance(answer, list) else told(answer, throttle_ms)


def _after_request(call: Call, seconds: float) -> int:
    throttle_ms = call.broker.quotas.record(QuotaKind.REQUEST, call.principal, call.client_id, seconds * 100)
    if throttle_ms:
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def told(response: Any, throttle_ms: int) -> Any:
    """The response, saying how long the client is held back; the longest time counts."""
    throttle_time = timedelta(milliseconds=throttle_ms)
    if throttle_ms == 0 or getattr(response, "throttle_time", throttle_time) >= throttle_time:
        return response
    return replace(response, throttle_time=throttle_time)


class _Steps(Awaitable[Any]):
    """A coroutine whose steps are timed, and its waits are not."""

    def __init__(self, working: Coroutine[Any, Any, Any], seconds: float) -> None:
        self.seconds = seconds
        self._working = working

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(self._working.send, None)
        while True:
            begun = perf_counter()
            try:
                waited = step()
            except StopIteration as done:
                return done.value
            finally:
                self.seconds += perf_counter() - begun
            try:
                value = yield waited
            except BaseException as error:  # noqa: BLE001 - a cancellation, too, is the coroutine's matter
                step = partial(self._working.throw, error)
            else:
                step = partial(self._working.send, value)
