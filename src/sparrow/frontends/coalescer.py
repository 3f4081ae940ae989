"""Coalescing of small publishes: single messages that many clients publish at the same time are
appended to the log together.

A batch and an append for each message would cost several times as much as the message. So single
messages wait until the current iteration of the event loop ends, and those of one principal to one
topic become one batch per partition. Results stay exact: each message gets its own. If an append is
refused, each of its messages is tried by itself, so that an invalid message does not affect others.
No message waits longer than the loop iteration in which it arrived.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import SparrowError
from sparrow.broker.publishes import ACKS_ALL
from sparrow.frontends.publisher import Message, PublishedPart, Publisher, make_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.publishes import Published
    from sparrow.frontends.publisher import PublishResult

MAX_COALESCED_BYTES: Final = 64 << 10
"""Larger messages are appended individually: for them the cost of an append is small."""


class _CoalesceKey(NamedTuple):
    """Attributes that messages must share to be appended together. `host` is the principal's
    address, as access rules may name it.
    """

    topic: str
    partition: int
    acks: int
    principal: Principal
    host: str


class _PendingMessage(NamedTuple):
    message: Message
    result: asyncio.Future[PublishResult]


class Coalescer(Publisher):
    """A `Publisher` that coalesces single messages. Loop thread only."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._pending_by_key: dict[_CoalesceKey, list[_PendingMessage]] = {}

    async def publish(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> list[PublishResult]:
        """Publish messages as `Publisher.publish` does. If the caller is cancelled, its message is
        stored nevertheless.
        """
        if len(messages) != 1 or _size_bytes(messages[0]) > MAX_COALESCED_BYTES:
            return await super().publish(topic, messages, partition=partition, acks=acks, principal=principal)
        await self.ensure(topic, principal=principal)
        loop = asyncio.get_running_loop()
        if not self._pending_by_key:
            loop.call_soon(self._flush)
        entry = _PendingMessage(messages[0], loop.create_future())
        self._pending_by_key.setdefault(
            _CoalesceKey(topic, partition, acks, principal, principal.host), []
        ).append(entry)
        return [await entry.result]

    def _flush(self) -> None:
        """Append what has come, together as far as it is accepted."""
        waiting = deque(self._pending_by_key.items())
        self._pending_by_key = {}
        while waiting:
            key, pending = waiting.popleft()
            try:
                terms = self.terms(key.topic, key.partition, principal=key.principal)
                for run in make_runs([entry.message for entry in pending], terms):
                    published = self.append(key.topic, run, key.acks, key.principal)
                    if len(run.indexes) > 1 and published.done() and published.exception() is not None:
                        waiting.extendleft((key, [pending[index]]) for index in reversed(run.indexes))
                    else:
                        part = PublishedPart(run.partition, run.indexes, run.timestamps, published)
                        published.add_done_callback(partial(_resolve, part, pending))
            except SparrowError as error:
                if len(pending) == 1:
                    _fail(pending, error)
                else:
                    waiting.extendleft((key, [entry]) for entry in reversed(pending))
            except Exception as error:  # noqa: BLE001 - a bug fails only these publishes
                _fail(pending, error)


def _size_bytes(message: Message) -> int:
    return len(message.value or b"") + len(message.key or b"")


def _resolve(
    part: PublishedPart, pending: list[_PendingMessage], published: asyncio.Future[Published]
) -> None:
    """Set the result of each message of a part; `published` is done."""
    failure = None if published.cancelled() else published.exception()
    if published.cancelled() or (failure is not None and not isinstance(failure, SparrowError)):
        _fail([pending[index] for index in part.indexes], failure or asyncio.CancelledError())
        return
    for index, outcome in part.results():
        result = pending[index].result
        if not result.done():
            result.set_result(outcome)


def _fail(pending: list[_PendingMessage], error: BaseException) -> None:
    for entry in pending:
        if not entry.result.done():
            entry.result.set_exception(error)
