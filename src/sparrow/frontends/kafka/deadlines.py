"""Work that a client waits for so long and no longer. What is late goes on; the client hears REQUEST_TIMED_OUT."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final

from sparrow.base.errors import SparrowError, TimedOut
from sparrow.frontends.kafka.refusals import DONE, Outcome, Refusal, outcome_of

_LEAST_S: Final = 1.0
"""Clients send 0 to say "begin, I do not wait"; what takes milliseconds is waited for all the same."""


_LATE: Final = outcome_of(TimedOut("it is not done within the request's timeout; it may be done later"))
_AT_ONCE: Final = 50
"""Works that run at the same time: enough to share a commit, few enough not to hold up the loop."""


async def outcomes(timeout: timedelta, works: Sequence[Coroutine[Any, Any, object]]) -> list[Outcome]:
    """How each of several works ended, in order. Some run at the same time, so that their facts share a commit."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(timeout.total_seconds(), _LEAST_S)
    ended: list[Outcome] = []
    waiting = list(works)
    try:
        while waiting and (left := deadline - loop.time()) > 0:
            now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            ended += await _run(now, left)
    finally:
        for work in waiting:
            work.close()
    return ended + [_LATE] * len(waiting)


async def _run(works: Sequence[Coroutine[Any, Any, object]], seconds: float) -> list[Outcome]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, timeout=seconds)
        return [_outcome(task) for task in tasks]
    finally:
        for task in tasks:
            task.cancel()  # the broker carries out what has begun


def _outcome(task: asyncio.Future[object]) -> Outcome:
    if not task.done():
        return _LATE
    try:
        task.result()
    except (SparrowError, Refusal) as error:
        return outcome_of(error)
    return DONE
