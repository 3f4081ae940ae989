"""Jobs that come later, that fail, and that no worker can handle."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

from sparrow.client import Message, Producer
from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories.queues import (
    ACK,
    NACK,
    REJECT,
    RELEASE,
    DeadLetter,
    Due,
    beyond_limit,
    early,
    wrong_ends,
)
from tests.crash.loads.queues import Workers
from tests.crash.publisher import number_of, read_all

_LIMIT = 4
_DELAY_MS = 300


class FailingJobs(Workers):
    """The delivery limit is exact, no job comes before its time, and unprocessable jobs become dead
    letters, once.

    Of eight jobs one fails each time, one is rejected, one is released once, two come later; the
    others are acknowledged.
    """

    name = "failing"
    policy: ClassVar[dict[str, object]] = {"delivery_limit": _LIMIT, "backoff_ms": 20}
    lease_s: ClassVar[float] = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[int, Due] = {}
        self._given_back: set[int] = set()
        self._dead: list[DeadLetter] = []

    async def publish(self, producer: Producer, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.send_noted(number)
            delay_ms = _DELAY_MS if number % 8 in {3, 4} else None
            if delay_ms is not None:
                delay_s = delay_ms / 1000
                self._due[number] = Due(time.monotonic() + delay_s, time.time() + delay_s)
            await producer.send(self.name, b"%d" % number, delay_ms=delay_ms)

    def outcome(self, number: int) -> str:
        part = number % 8
        if part == 2 and number not in self._given_back:
            self._given_back.add(number)
            return RELEASE
        return {0: NACK, 1: REJECT}.get(part, ACK)

    async def check(self, broker: RunningBroker) -> None:
        self._dead = [_letter(each) for each in await read_all(broker.url, f"{self.name}.dead")]
        await super().check(broker)

    def breaches(self) -> list[str]:
        return (
            wrong_ends(self.history, self._dead, limit=_LIMIT, lease_s=self.lease_s)
            + beyond_limit(self.history, _LIMIT)
            + early(self.history, self._due)
        )


def _letter(message: Message) -> DeadLetter:
    headers = {name: (value or b"").decode() for name, value in message.headers}
    return DeadLetter(
        number_of(message), headers["dead-letter-reason"], int(headers["dead-letter-delivery-count"])
    )
