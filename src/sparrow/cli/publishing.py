"""Publishing many messages while keeping count of what became of each.

Deliveries are looked at in the order of the input, so a failure is named by its line. What waits is bounded by the producer's
room (`max_pending_bytes`), whatever the length of the input.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow.base.errors import BadInput, SparrowError, UnknownPartition
from sparrow.client.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.cli.ndjson import Headers, Outgoing
    from sparrow.client.delivery import Delivery
    from sparrow.client.producer import Producer

_SHOWN_FAILURES = 5
_OWN_FAULTS = (BadInput, UnknownPartition)
"""Errors of one message; the next one may do better."""


@dataclass(slots=True)
class Tally:
    """What became of the messages of one run."""

    started_at: float = field(default_factory=time.monotonic)
    read: int = 0
    acknowledged: int = 0
    failed: int = 0
    failures: list[tuple[int, SparrowError]] = field(default_factory=list)
    """The first few, each with the number of its message, counted from 1."""

    def fail(self, number: int, error: SparrowError) -> None:
        """Message `number` did not arrive."""
        self.failed += 1
        if len(self.failures) < _SHOWN_FAILURES:
            self.failures.append((number, error))

    @property
    def unknown(self) -> int:
        """Messages that were sent and of which nothing was heard: they may have arrived."""
        return self.read - self.acknowledged - self.failed


class Publication:
    """Sends messages to one topic and counts. `key`, `headers` and `partition` go with every plain line, `schedule` with every message."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        tally: Tally,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._tally = tally
        self._key = key
        self._headers = headers
        self._partition = partition
        self._schedule = schedule or Schedule()
        self._pending: deque[tuple[int, Delivery]] = deque()

    async def send_values(self, values: Iterable[bytes]) -> None:
        """Publish plain values, one message each; waits only for room.

        Raises:
            SparrowError: the producer takes nothing more.
        """
        send, topic, key, headers, partition = (
            self._producer.send,
            self._topic,
            self._key,
            self._headers or None,
            self._partition,
        )
        add, tally, schedule = self._pending.append, self._tally, self._schedule
        for value in values:
            tally.read += 1
            try:
                delivery = await send(topic, value, key=key, headers=headers, partition=partition, **schedule)
                add((tally.read, delivery))
            except _OWN_FAULTS as error:
                tally.fail(tally.read, error)
            except BaseException:
                tally.read -= 1  # it was not sent
                raise
        self.settle_done()

    async def send(self, message: Outgoing) -> None:
        """Publish one message that says more than its value; what it leaves out comes from the defaults."""
        self._tally.read += 1
        try:
            delivery = await self._producer.send(
                self._topic,
                message.value,
                key=self._key if message.key is None else message.key,
                headers=(*self._headers, *message.headers) or None,
                partition=self._partition if message.partition is None else message.partition,
                timestamp_ms=message.timestamp_ms,
                **self._schedule,
            )
            self._pending.append((self._tally.read, delivery))
        except _OWN_FAULTS as error:
            self._tally.fail(self._tally.read, error)
        except BaseException:
            self._tally.read -= 1  # it was not sent
            raise

    async def finish(self) -> None:
        """Wait until it is known what became of every message."""
        while self._pending:
            number, delivery = self._pending.popleft()
            try:
                await delivery
                self._tally.acknowledged += 1
            except SparrowError as error:
                self._tally.fail(number, error)

    def settle_done(self) -> None:
        """Count what is known by now."""
        pending, tally = self._pending, self._tally
        while pending and pending[0][1].done:
            number, delivery = pending.popleft()
            try:
                delivery.result()
                tally.acknowledged += 1
            except SparrowError as error:
                tally.fail(number, error)
