"""A run that publishes many messages and counts their outcomes.

Deliveries are looked at in the order of the input, so a failure is named by its line. Waiting
messages have a limit of memory, the producer's room (`max_pending_bytes`), whatever the length of
the input.
"""

from __future__ import annotations

import re
import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct, field

from sparrow.base.errors import BadInput, SparrowError, UnknownPartition
from sparrow.client.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.cli.ndjson import Headers, MessageToPublish
    from sparrow.client.batch import Delivery
    from sparrow.client.producer import Producer

MAX_REASONS = 5
MAX_RANGES = 10
_NUMBER = re.compile(r"\d+")
_OWN_FAULTS = (BadInput, UnknownPartition)
"""Errors of one message; the next one may succeed."""


class PublishFailure(Struct):
    """Messages that failed for one reason: their numbers as ranges, both ends included, as far as
    they are remembered.
    """

    error: SparrowError
    """The error of the first of them."""
    count: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Add a message by its number."""
        self.count += 1
        if self.ranges and self.ranges[-1][1] == number - 1:
            self.ranges[-1] = (self.ranges[-1][0], number)
        elif len(self.ranges) < MAX_RANGES:
            self.ranges.append((number, number))

    def sentence(self) -> str:
        """Return "messages 1-3, 7 were not published: …"."""
        numbers = [f"{first}" if first == last else f"{first}-{last}" for first, last in self.ranges]
        missing = self.count - sum(last - first + 1 for first, last in self.ranges)
        more = f" and {missing} more" if missing else ""
        subject, verb = ("message", "was") if self.count == 1 else ("messages", "were")
        return f"{subject} {', '.join(numbers)}{more} {verb} not published: {self.error.text}"


class PublishTally(Struct):
    """Outcomes of the messages of one run."""

    started_at: float = field(default_factory=time.monotonic)
    read: int = 0
    acknowledged: int = 0
    failed: int = 0
    failures: dict[str, PublishFailure] = field(default_factory=dict)
    """Failures by reason, in the order in which they occurred; only the first few reasons. Messages
    are counted from 1.
    """

    def fail(self, number: int, error: SparrowError) -> None:
        """Count message `number` as failed."""
        self.failed += 1
        reason = _reason(error)
        if reason not in self.failures and len(self.failures) < MAX_REASONS:
            self.failures[reason] = PublishFailure(error)
        if reason in self.failures:
            self.failures[reason].add(number)

    @property
    def unexplained(self) -> int:
        """Return the number of messages that failed for reasons that are not remembered."""
        return self.failed - sum(each.count for each in self.failures.values())

    @property
    def unknown(self) -> int:
        """Return the number of messages that were sent without a response: they may have
        arrived.
        """
        return self.read - self.acknowledged - self.failed


def _reason(error: SparrowError) -> str:
    """Return the text of an error without its numbers, which is what errors of different messages
    have in common.
    """
    return f"{error.code} {_NUMBER.sub('0', error.text)}"


class Publication:
    """Sends messages to one topic and counts. `key`, `headers` and `partition` apply to every plain
    line, `schedule` to every message.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        tally: PublishTally,
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

    async def send(self, message: MessageToPublish) -> None:
        """Publish one message with its own settings; those that it leaves out come from the
        defaults.
        """
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
        """Wait until the outcome of every message is known."""
        while self._pending:
            number, delivery = self._pending.popleft()
            try:
                await delivery
                self._tally.acknowledged += 1
            except SparrowError as error:
                self._tally.fail(number, error)

    def settle_done(self) -> None:
        """Count the outcomes that are known by now."""
        pending, tally = self._pending, self._tally
        while pending and pending[0][1].done:
            number, delivery = pending.popleft()
            try:
                delivery.result()
                tally.acknowledged += 1
            except SparrowError as error:
                tally.fail(number, error)
