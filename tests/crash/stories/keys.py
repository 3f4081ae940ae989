"""Clients of the HTTP frontend who publish with idempotency keys, and ask again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator

from sparrow.broker.access.authz import ANONYMOUS
from sparrow.broker.broker import Broker
from sparrow.frontends.idempotent_publisher import IdempotentPublisher
from sparrow.frontends.publisher import Message, Publisher
from tests.crash.stories import Notes, records_of
from tests.http_idempotency.keyed import key_of, stored

_TOPIC = "keyed"


class Keys:
    """Publishes with keys: a client that asks again gets the first response; every message exists
    once.
    """

    name = "keys"

    def __init__(self) -> None:
        self.notes = Notes()

    async def live(self, broker: Broker) -> AsyncGenerator[None, Broker]:
        await broker.topics.create(_TOPIC, 2, {"max.message.bytes": "300"})
        for number in range(4):
            self.notes.add("asked", number)
            self.notes.add("done", (number, await _publish(broker, number)))
            if number == 1:
                broker = yield

    async def check(self, broker: Broker, notes: Notes) -> None:
        asked, done = notes.all("asked"), dict(notes.all("done"))
        async with asyncio.timeout(10):
            while broker.idempotency.is_walking:
                await asyncio.sleep(0.001)
        answers = {number: await _publish(broker, number) for number in asked}
        assert {number: answers[number] for number in done} == done
        found = Counter(each.value for each in await records_of(broker, _TOPIC))
        assert found == Counter(message.value for number in asked for message in _messages_of(number))


async def _publish(broker: Broker, number: int) -> list[object]:
    once = IdempotentPublisher(broker, Publisher(broker))
    messages = _messages_of(number)
    key = key_of(f"{number}", messages)
    return list(stored(await once.publish(key, _TOPIC, messages, principal=ANONYMOUS, acks=-1)))


def _messages_of(number: int) -> list[Message]:
    """Return the messages of one publish, more than a batch holds, with values of their own."""
    return [
        Message(b"%d-%d" % (number, n) + b"." * 60, b"k%d" % n if n % 2 else None)
        for n in range(1 + 2 * number)
    ]
