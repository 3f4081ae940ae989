"""Publishing one message at a time, for many clients at once: what is published within one turn of the loop goes to the log together.

A batch and an append for each message would cost several times what the message does. So single messages wait until the turn ends, and those of one principal to
one topic make one batch for each partition. The answers stay exact: each message has its own, and where an append is refused, each of its messages
is tried by itself, so that one that is wrong takes no other with it. Nothing waits longer than the turn of the loop that it came in.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import SparrowError
from sparrow.broker.partition import ACKS_ALL
from sparrow.frontends.publishing import Message, Publisher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.partition import Published
    from sparrow.frontends.publishing import Answer, Part

MAX_GATHERED_BYTES: Final = 64 << 10
"""Larger messages go by themselves: an append is cheap for them."""


class _Way(NamedTuple):
    """What messages must have in common to go together. The address of the principal counts, as rules may name it."""

    topic: str
    partition: int
    acks: int
    principal: Principal
    host: str


class _Call(NamedTuple):
    message: Message
    answered: asyncio.Future[Answer]


class GatheringPublisher(Publisher):
    """A `Publisher` that gathers single messages. Loop thread only."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._gathered: dict[_Way, list[_Call]] = {}

    async def publish(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> list[Answer]:
        """As `Publisher.publish`. A caller that is cancelled gets no answer; its message is stored all the same."""
        if len(messages) != 1 or _size_bytes(messages[0]) > MAX_GATHERED_BYTES:
            return await super().publish(topic, messages, partition=partition, acks=acks, principal=principal)
        await self.ensure(topic, principal=principal)
        loop = asyncio.get_running_loop()
        if not self._gathered:
            loop.call_soon(self._append_gathered)
        call = _Call(messages[0], loop.create_future())
        self._gathered.setdefault(_Way(topic, partition, acks, principal, principal.host), []).append(call)
        return [await call.answered]

    def _append_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for way, calls in gathered.items():
            try:
                self._append_together(way, calls)
            except Exception as error:  # noqa: BLE001 - a bug is told to those who wait, and to nobody else
                _fail(calls, error)

    def _append_together(self, way: _Way, calls: list[_Call]) -> None:
        try:
            parts = self._begin(way, calls)
        except SparrowError as error:
            if len(calls) == 1:
                _fail(calls, error)
            else:
                self._append_apart(way, calls)
            return
        for part in parts:
            if _is_refused(part) and len(part.places) > 1:
                self._append_apart(way, [calls[place] for place in part.places])
            else:
                part.published.add_done_callback(partial(_answer, part, calls))

    def _append_apart(self, way: _Way, calls: list[_Call]) -> None:
        """What was refused together, each by itself."""
        for call in calls:
            self._append_together(way, [call])

    def _begin(self, way: _Way, calls: list[_Call]) -> list[Part]:
        return self.begin(
            way.topic,
            [call.message for call in calls],
            partition=way.partition,
            acks=way.acks,
            principal=way.principal,
        )


def _size_bytes(message: Message) -> int:
    return len(message.value or b"") + len(message.key or b"")


def _is_refused(part: Part) -> bool:
    return part.published.done() and part.published.exception() is not None


def _answer(part: Part, calls: list[_Call], published: asyncio.Future[Published]) -> None:
    """Tell each its answer; the promise is settled."""
    failure = None if published.cancelled() else published.exception()
    if published.cancelled() or (failure is not None and not isinstance(failure, SparrowError)):
        _fail([calls[place] for place in part.places], failure or asyncio.CancelledError())
        return
    for place, answer in part.answers():
        answered = calls[place].answered
        if not answered.done():
            answered.set_result(answer)


def _fail(calls: list[_Call], error: BaseException) -> None:
    for call in calls:
        if not call.answered.done():
            call.answered.set_exception(error)
