"""Throttling of clients that exceed a quota (KIP-13, KIP-219): the response is sent at once and
says for how long the client is throttled, and no request of the connection is begun meanwhile.

A Fetch that exceeds its quota gets an empty response, as its records would exceed the limit at
once; it is not counted then. A ShareFetch gets the records that it has acquired and is throttled
afterwards.

`request_percentage` is measured as the time that the loop works on a client's requests; 100 is all
of the one thread. Waiting does not count.
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
    from sparrow.broker.quotas.service import QuotaService
    from sparrow.frontends.kafka.call import Call


def after_produce(call: Call, sizes: Callable[[], Iterable[int]]) -> int:
    """Count the bytes of a Produce. Return how long the client is throttled, in ms."""
    quotas = call.broker.quotas
    if not quotas.is_limited(QuotaKind.PRODUCE):
        return 0
    throttle_ms = quotas.record(QuotaKind.PRODUCE, call.principal, call.client_id, sum(sizes()))
    if throttle_ms:
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def after_fetch(call: Call, size_bytes: int) -> int:
    """Count the bytes of a Fetch. Return how long the client is throttled, in ms; if not 0, the
    response must be empty.
    """
    quotas = call.broker.quotas
    if not quotas.is_limited(QuotaKind.FETCH):
        return 0
    throttle_ms = quotas.record(QuotaKind.FETCH, call.principal, call.client_id, size_bytes)
    if throttle_ms:
        quotas.unrecord(QuotaKind.FETCH, call.principal, call.client_id, size_bytes)
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def after_share_fetch(call: Call, size_bytes: int) -> int:
    """Count the bytes of a ShareFetch. Return how long the client is throttled, in ms. The acquired
    records are sent nevertheless, as no other client could get them.
    """
    quotas = call.broker.quotas
    if not quotas.is_limited(QuotaKind.FETCH):
        return 0
    throttle_ms = quotas.record(QuotaKind.FETCH, call.principal, call.client_id, size_bytes)
    if throttle_ms:
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def max_fetch_bytes(call: Call, wanted: int) -> int:
    """Limit a fetch to what the client's quota can allow at a time; larger fetches would exceed the
    quota forever.
    """
    most = call.broker.quotas.max_in_window(QuotaKind.FETCH, call.principal, call.client_id)
    return wanted if most is None else min(wanted, most)


def counts_requests(quotas: QuotaService) -> bool:
    """Return True if the time of requests must be measured."""
    return quotas.is_limited(QuotaKind.REQUEST)


def timed(handler: Callable[[Any, Call], Any], request: Any, call: Call) -> Any:
    """Call the handler and count its time. The throttle time is set in a response message."""
    begun = perf_counter()
    result = handler(request, call)
    seconds = perf_counter() - begun
    if asyncio.iscoroutine(result):
        return _timed_to_the_end(result, seconds, call)
    throttle_ms = _after_request(call, seconds)
    return (
        result
        if result is None or isinstance(result, (list, asyncio.Future))
        else with_throttle_time(result, throttle_ms)
    )


async def _timed_to_the_end(coroutine: Coroutine[Any, Any, Any], seconds: float, call: Call) -> Any:
    steps = _Steps(coroutine, seconds)
    result = await steps
    throttle_ms = _after_request(call, steps.seconds)
    return result if result is None or isinstance(result, list) else with_throttle_time(result, throttle_ms)


def _after_request(call: Call, seconds: float) -> int:
    throttle_ms = call.broker.quotas.record(QuotaKind.REQUEST, call.principal, call.client_id, seconds * 100)
    if throttle_ms:
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def with_throttle_time(response: Any, throttle_ms: int) -> Any:
    """Return the response with at least this throttle time."""
    throttle_time = timedelta(milliseconds=throttle_ms)
    if throttle_ms == 0 or getattr(response, "throttle_time", throttle_time) >= throttle_time:
        return response
    return replace(response, throttle_time=throttle_time)


class _Steps(Awaitable[Any]):
    """Awaits a coroutine and measures the time of its steps, without its waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], seconds: float) -> None:
        self.seconds = seconds
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(self._coroutine.send, None)
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
            except BaseException as error:  # noqa: BLE001 - the coroutine handles cancellation, too
                step = partial(self._coroutine.throw, error)
            else:
                step = partial(self._coroutine.send, value)
