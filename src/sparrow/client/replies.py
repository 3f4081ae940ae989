"""Requests over a queue: a message to it, and the reply of the job on a topic of this client.

    answer = await client.request("prices", b"pen", timeout_s=5)

    async for job in queue:                       # a worker
        await job.reply(price_of(job.value))
        await job.ack()

The topic `replies.ID` is created with the first request, and deleted when the client is closed.
The topic of a client that crashed is empty after an hour. A request expires with its timeout: no
worker begins a job whose reply nobody waits for. Replies come at least once, as jobs do; only the
first is seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.clock import SystemClock
from sparrow.base.errors import InvalidArgument, SparrowError, TimedOut
from sparrow.base.ids import uuid7
from sparrow.client.reply_target import CORRELATION_ID, PREFIX, REPLY_TO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparrow.client.admin import Admin
    from sparrow.client.subscription import Subscription
    from sparrow.records.record import Record

_RETENTION_MS: Final = 3_600_000

_logger = logging.getLogger("sparrow.client")


class Replies:
    """The requests of a client that wait for their replies. Loop thread only."""

    def __init__(self, admin: Admin, subscribe: Callable[..., Subscription]) -> None:
        self._admin = admin
        self._subscribe = subscribe
        self.topic = f"{PREFIX}{uuid7(SystemClock().wall_ms())}"
        self._number = 0
        self._waiting: dict[bytes, asyncio.Future[Record]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def request(
        self,
        publish: Callable[..., Any],
        value: bytes | None,
        timeout_s: float,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None,
        options: dict[str, Any],
    ) -> Record:
        """Publish a request, and wait for its reply. See `Client.request`."""
        if not timeout_s > 0:
            raise InvalidArgument(f"timeout_s is {timeout_s}; it must be greater than 0")
        await self._started()
        self._number += 1
        name = b"%d" % self._number
        future = self._waiting[name] = asyncio.get_running_loop().create_future()
        given = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        options.setdefault("ttl_ms", max(1, round(timeout_s * 1000)))
        try:
            async with asyncio.timeout(timeout_s) as limit:
                all_headers = [*given, (REPLY_TO, self.topic.encode()), (CORRELATION_ID, name)]
                await publish(value, headers=all_headers, **options)
                reply: Record = await future
                return reply
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(
                f"no reply within {timeout_s:g} s; a worker is at it, or the request expired before one began"
            ) from None
        finally:
            self._waiting.pop(name, None)

    async def close(self) -> None:
        """Stop reading, and delete the topic."""
        for task in (self._starting, self._reading):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._starting is not None:
            with suppress(SparrowError):
                await self._admin.delete_topic(self.topic)

    async def _started(self) -> None:
        """Create the topic and begin to read, once."""
        task = self._starting
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._starting = asyncio.get_running_loop().create_task(self._start())
        await asyncio.shield(task)
        if self._reading is not None and self._reading.done():
            self._starting = None
            self._reading.result()

    async def _start(self) -> None:
        await self._admin.create_topic(
            self.topic, partitions=1, config={"retention.ms": _RETENTION_MS, "segment.ms": _RETENTION_MS}
        )
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self._reading.add_done_callback(_seen)

    async def _read(self) -> None:
        async with self._subscribe(self.topic, start="beginning") as messages:
            async for record in messages:
                future = self._waiting.get(dict(record.headers).get(CORRELATION_ID) or b"")
                if future is not None and not future.done():
                    future.set_result(record)


def _seen(task: asyncio.Task[None]) -> None:
    """Log why no more replies are read; requests that wait run into their timeouts."""
    if not task.cancelled() and task.exception() is not None:
        _logger.warning("replies are not read any more: %s", task.exception())
