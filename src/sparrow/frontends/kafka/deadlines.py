"""Requests with a timeout. Work that is late continues; the client gets REQUEST_TIMED_OUT."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final

from sparrow.base.errors import SparrowError, TimedOut
from sparrow.frontends.kafka.errors import DONE, RequestOutcome, RequestRefusal, outcome_of

_MIN_WAIT_S: Final = 1.0
"""Clients send 0 to begin without waiting; work that takes milliseconds is waited for nevertheless.
"""


_LATE: Final = outcome_of(TimedOut("the operation exceeded the request's timeout; it may still complete"))
_AT_ONCE: Final = 50
"""Concurrent operations: enough to share a commit, few enough not to block the loop."""


async def outcomes(timeout: timedelta, works: Sequence[Coroutine[Any, Any, object]]) -> list[RequestOutcome]:
    """Return the outcome of each operation, in order. Some run concurrently, so that their meta
    store entries share a commit.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(timeout.total_seconds(), _MIN_WAIT_S)
    ended: list[RequestOutcome] = []
    waiting = list(works)
    try:
        while waiting and (left := deadline - loop.time()) > 0:
            now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            ended += await _run(now, left)
    finally:
        for work in waiting:
            work.close()
    return ended + [_LATE] * len(waiting)


async def _run(works: Sequence[Coroutine[Any, Any, object]], seconds: float) -> list[RequestOutcome]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, timeout=seconds)
        return [_outcome(task) for task in tasks]
    finally:
        for task in tasks:
            task.cancel()  # the broker finishes what has begun


def _outcome(task: asyncio.Future[object]) -> RequestOutcome:
    if not task.done():
        return _LATE
    try:
        task.result()
    except (SparrowError, RequestRefusal) as error:
        return outcome_of(error)
    return DONE
