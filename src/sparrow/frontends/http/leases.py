"""Leases over HTTP: the tokens by which clients name their leases, and the consumers behind their
requests.

HTTP has no connection that is a consumer, so consumers are kept here, by (queue, id), as long as
requests name them. Any number of requests may share a consumer, also at the same time. Opening a
consumer is expensive, so it is kept for a while after its last request and closed when it holds
nothing. Its leases belong to its id, not to the object: closing it loses nothing, and a token that
a client kept over a restart of the broker still settles.

A token is not signed and grants no right: the broker checks the principal of each request. The
token names the delivery, so the token of a lease that ended does not settle a later one.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from sparrow.base.errors import (
    CorruptBatch,
    InvalidArgument,
    NotAuthorized,
    NotLeased,
    Overloaded,
    SparrowError,
)
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.leased_records import verb_for_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.broker.reading.fetch import ReadMemory

MAX_OPEN: Final = 10_000
"""Consumers that are kept open; beyond it the least recently used one is closed."""
IDLE_S: Final = 60.0
MAX_ID_CHARACTERS: Final = 200
"""Limit for the id of a consumer."""
MAX_TOKEN_CHARACTERS: Final = 4096
MAX_CONSUMERS_AT_ONCE: Final = 100
"""Consumers whose leases one request may settle: each may have to be opened first."""
MAX_SETTLEMENTS_PER_ITERATION: Final = 512
"""Settlements that a queue gets before other tasks run."""
RETRY_S: Final = 0.02
"""Delay before a settlement is repeated while the queue is being changed."""
MAX_RETRIES: Final = 250

Outcome = SparrowError | None


class LeaseToken(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One delivery of one record. `queue` has the low 32 bits of the queue's id, to recognize a
    token of another queue.
    """

    queue: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    consumer: str
    subscriber: str
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    offset: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    delivery: Annotated[int, msgspec.Meta(ge=1, le=255)]

    def settlement(self, verb: Verb, delay_ms: int, text: str) -> Settlement:
        """Return an operation on the record."""
        return Settlement(
            verb, self.topic, self.partition, self.offset, self.offset, delay_ms, text, self.delivery
        )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LeaseToken).decode


def token_text(token: LeaseToken) -> str:
    """Return the token as text for clients: ASCII letters, digits, `-` and `_`."""
    return urlsafe_b64encode(_encode(token)).rstrip(b"=").decode()


def parse_token(text: str) -> LeaseToken:
    """Parse the token of a client.

    Raises:
        InvalidArgument: the text is not a token.
    """
    whole = text[:MAX_TOKEN_CHARACTERS] + "=" * (-len(text) % 4)
    try:
        return _decode(urlsafe_b64decode(whole))
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidArgument(
            f"{text[:40]!r} is not a lease; send the `lease` that came with the message"
        ) from None


def queue_tag(consumer: QueueConsumer) -> int:
    """Return the bits of the queue's id that a token has."""
    return int.from_bytes(consumer.queue.definition.id.bytes[-4:])


class LeaseRequest(NamedTuple):
    """A request to lease records. `consumer` "" is the consumer that all requests of the principal
    share.
    """

    queue: str
    max_records: int
    max_bytes: int
    consumer: str = ""
    subscriber: str = ""
    client_name: str = ""


class SettleOptions(NamedTuple):
    """The operation on some leases of a queue, with its arguments."""

    queue: str
    verb: Verb
    delay_ms: int = -1
    text: str = ""
    client_name: str = ""


class _Entry:
    """An open consumer, the number of requests that use it now, and the time of the last one."""

    __slots__ = ("consumer", "used_at", "users")

    def __init__(self, consumer: QueueConsumer, now: float) -> None:
        self.consumer = consumer
        self.users = 0
        self.used_at = now


class Consumers:
    """The open consumers of the frontend. Loop thread only.

    Args:
        max_open: number of consumers that are kept open.
        idle_s: time that a consumer without leases is kept after its last request.
    """

    def __init__(self, broker: Broker, *, max_open: int = MAX_OPEN, idle_s: float = IDLE_S) -> None:
        self._broker = broker
        self._max_open = max_open
        self._idle_s = idle_s
        self._entries: dict[tuple[str, str], _Entry] = {}
        """Open consumers, keyed by (queue, id), least recently used first."""

    def __len__(self) -> int:
        return len(self._entries)

    async def close(self) -> None:
        """Close all consumers; their records stay leased until their time."""
        entries, self._entries = self._entries, {}
        for entry in entries.values():
            entry.consumer.end(None)

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def lease(
        self, request: LeaseRequest, *, wait_ms: int, principal: Principal, memory: ReadMemory | None = None
    ) -> tuple[QueueConsumer, list[Leased]]:
        """Lease records. A call that is cancelled has leased nothing.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized, StaleMember, and what
            `QueueConsumer.lease` raises.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        consumer_id = request.consumer or shared_id(request.subscriber, principal)
        while True:
            entry = await self._entry(
                request.queue, consumer_id, request.subscriber, principal, request.client_name
            )
            left_ms = max(0, round((deadline - loop.time()) * 1000)) if wait_ms else 0
            entry.users += 1
            try:
                leased = await entry.consumer.lease(
                    request.max_records, max_bytes=request.max_bytes, wait_ms=left_ms, memory=memory
                )
            except NotAuthorized:
                if entry.consumer.is_open:
                    raise
                # The principal that opened the consumer lost the right. The next iteration checks
                # the right of this caller.
                continue
            finally:
                entry.users -= 1
                entry.used_at = self._now_s()
            await self._check_still(entry.consumer, leased, principal)
            return entry.consumer, leased

    async def _check_still(
        self, consumer: QueueConsumer, leased: Sequence[Leased], principal: Principal
    ) -> None:
        """Give nothing to a caller that lost its right while it waited, also through a consumer
        that another principal opened.

        Raises:
            NotAuthorized
        """
        try:
            self._broker.queues.require_consuming(consumer.queue_name, principal=principal)
        except SparrowError:
            await self.release(consumer, leased)
            raise

    async def release(self, consumer: QueueConsumer, leased: Sequence[Leased]) -> None:
        """Release leases that cannot be delivered: the records are ready again, and the delivery
        does not count.
        """
        await settle_all(
            consumer, [settlement for each in leased for settlement in each.settlements(Verb.RELEASE)]
        )

    async def refuse(self, consumer: QueueConsumer, leased: Leased, error: SparrowError) -> None:
        """Settle a lease that cannot be delivered by HTTP.

        A batch that cannot be read goes to the dead letters at once. One that is too large for HTTP
        counts as a failed delivery, and is retried after the time of a lease.
        """
        text = f"{error.code}: {error.text}"
        verb = Verb.NACK
        if isinstance(error, CorruptBatch):
            verb = verb_for_unreadable(error)
            self._broker.measures.corrupt_batches.met("queue", verb.name.lower(), error)
        await settle_all(consumer, leased.settlements(verb, leased.lease_ms, text))

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    async def settle(
        self, request: SettleOptions, leases: Sequence[str], *, principal: Principal
    ) -> list[Outcome]:
        """Settle leases by their tokens. Return for each lease None once it is on stable storage,
        or the error if it had no effect.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: the leases belong to too many consumers.
        """
        self._broker.queues.require_consuming(request.queue, principal=principal)
        by_consumer, outcomes = _group_by_consumer(leases)
        for (consumer_id, subscriber), tokens_by_index in by_consumer.items():
            try:
                entry = await self._entry(
                    request.queue, consumer_id, subscriber, principal, request.client_name
                )
                found = await self._settle_tokens(entry, request, list(tokens_by_index.values()))
            except InvalidArgument as error:  # no such consumer or subscriber can have leased it
                found = [error] * len(tokens_by_index)
            outcomes |= zip(tokens_by_index, found, strict=True)
        return [outcomes[index] for index in range(len(leases))]

    async def _settle_tokens(
        self, entry: _Entry, request: SettleOptions, tokens: Sequence[LeaseToken]
    ) -> list[Outcome]:
        tag = queue_tag(entry.consumer)
        settlements = [
            each.settlement(request.verb, request.delay_ms, request.text)
            for each in tokens
            if each.queue == tag
        ]
        entry.users += 1
        try:
            found = iter(await settle_all(entry.consumer, settlements))
        finally:
            entry.users -= 1
            entry.used_at = self._now_s()
        return [next(found) if each.queue == tag else of_another_queue(request.queue) for each in tokens]

    # ── the open consumers ────────────────────────────────────────────────────────────────────────

    async def _entry(
        self, queue: str, consumer_id: str, subscriber: str, principal: Principal, client_name: str
    ) -> _Entry:
        """Return the consumer of this id. Open it if necessary, for a caller that may consume the
        queue.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized
        """
        self._broker.queues.require_consuming(queue, principal=principal)
        key = (queue, consumer_id)
        entry = self._entries.get(key)
        if entry is None or not entry.consumer.is_open or entry.consumer.subscriber != subscriber:
            consumer = await self._broker.queues.open_consumer(
                queue,
                consumer_id=consumer_id,
                client_name=client_name,
                subscriber=subscriber,
                principal=principal,
            )
            entry = _Entry(consumer, self._now_s())
        self._entries.pop(key, None)
        self._entries[key] = entry  # move it behind those that have been unused for longer
        if len(self._entries) > self._max_open:
            self._forget_oldest(len(self._entries) - self._max_open, but=key)
        return entry

    def _now_s(self) -> float:
        return self._broker.clock.monotonic()

    def _forget_oldest(self, count: int, *, but: tuple[str, str]) -> None:
        unused = (key for key, entry in self._entries.items() if not entry.users and key != but)
        self._forget(list(islice(unused, count)))

    def sweep(self, now_s: float) -> None:
        """Close consumers that hold nothing and were not used lately. `now_s` is monotonic."""
        self._forget(
            [
                key
                for key, entry in self._entries.items()
                if not entry.users
                and (
                    not entry.consumer.is_open
                    or (now_s - entry.used_at >= self._idle_s and not entry.consumer.leased)
                )
            ]
        )

    def _forget(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            consumer = self._entries.pop(key).consumer
            if consumer.is_open:
                consumer.end(None)


def shared_id(subscriber: str, principal: Principal) -> str:
    """Return the id of the consumer that requests without one share; it is the same after a
    restart.
    """
    shared = f"http:{principal.name}" + (f":{subscriber}" if subscriber else "")
    if len(shared) <= MAX_ID_CHARACTERS and shared.isprintable():
        return shared
    return f"http:{hashlib.sha256(shared.encode('utf-8', 'surrogatepass')).hexdigest()}"


async def settle_all(consumer: QueueConsumer, settlements: Sequence[Settlement]) -> list[Outcome]:
    """Return the outcome of each settlement once all are on stable storage. They go to the queue in
    portions, so that other tasks can run, and wait for the disk together.

    Raises:
        UnknownQueue, StaleMember, NotAuthorized, Overloaded
    """
    pending: list[asyncio.Future[list[Outcome]]] = []
    for start in range(0, len(settlements), MAX_SETTLEMENTS_PER_ITERATION):
        if start:
            await asyncio.sleep(0)
        pending.append(await _submit(consumer, settlements[start : start + MAX_SETTLEMENTS_PER_ITERATION]))
    return [outcome for each in pending for outcome in await each]


async def _submit(
    consumer: QueueConsumer, settlements: Sequence[Settlement]
) -> asyncio.Future[list[Outcome]]:
    """Pass settlements to the queue; retry while the queue is being changed."""
    for _ in range(MAX_RETRIES):
        try:
            return consumer.settle(settlements)
        except Overloaded:
            await asyncio.sleep(RETRY_S)
    return consumer.settle(settlements)


def _group_by_consumer(
    leases: Sequence[str],
) -> tuple[dict[tuple[str, str], dict[int, LeaseToken]], dict[int, Outcome]]:
    """Return the tokens, by index, of each (consumer id, subscriber), and the errors of the others.

    Raises:
        InvalidArgument: they belong to too many consumers.
    """
    by_consumer: dict[tuple[str, str], dict[int, LeaseToken]] = {}
    wrong: dict[int, Outcome] = {}
    for index, text in enumerate(leases):
        try:
            token = parse_token(text)
            by_consumer.setdefault((token.consumer, token.subscriber), {})[index] = token
        except InvalidArgument as error:
            wrong[index] = error
    if len(by_consumer) > MAX_CONSUMERS_AT_ONCE:
        raise InvalidArgument(
            f"the leases are of {len(by_consumer)} consumers; settle those of at most "
            f"{MAX_CONSUMERS_AT_ONCE} at a time"
        )
    return by_consumer, wrong


def of_another_queue(queue: str) -> NotLeased:
    """Return the error for a token of another queue."""
    return NotLeased(f"the lease is of another queue than {queue!r}, or of one of that name that was deleted")
