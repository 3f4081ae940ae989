"""Leases over HTTP: the tokens by which clients name what they hold, and the consumers behind their requests.

HTTP has no connection that is a consumer, so a consumer lives here, under (queue, id), as long as requests name it. Any number of requests may share one,
one after the other or at once. It is kept for a while after the last of them, because to open one costs, and forgotten when it holds nothing; what it has leased
belongs to its id, not to the object, so that nothing is lost by forgetting it, and a token that a client kept over a restart of the broker still settles.

A token is not signed and gives no right: each request is checked by the broker for whoever makes it. It names the delivery, too: the token of a lease that
ended does not settle one that followed.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from sparrow.base.errors import InvalidArgument, NotAuthorized, NotLeased, Overloaded, SparrowError
from sparrow.broker.queues.settlement import Settlement, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased

MAX_OPEN: Final = 10_000
"""Consumers that are kept; of more the longest unused is forgotten."""
IDLE_S: Final = 60.0
MAX_ID_CHARACTERS: Final = 200
"""Of a consumer."""
MAX_TOKEN_CHARACTERS: Final = 4096
MAX_CONSUMERS_AT_ONCE: Final = 100
"""Whose leases one request settles: each may have to be opened first."""
MAX_SETTLEMENTS_PER_TURN: Final = 512
"""Settlements that a queue gets between two turns of the loop."""
RETRY_S: Final = 0.02
"""How soon a queue is asked again that is being changed."""
MAX_RETRIES: Final = 250

Outcome = SparrowError | None


class LeaseToken(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One delivery of one record. `queue`: the low bits of the queue's id, so that a token of another queue is seen."""

    queue: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    consumer: str
    subscriber: str
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    offset: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    delivery: Annotated[int, msgspec.Meta(ge=1, le=255)]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LeaseToken).decode


def token_text(token: LeaseToken) -> str:
    """The token as clients get it: letters, digits, `-` and `_`."""
    return urlsafe_b64encode(_encode(token)).rstrip(b"=").decode()


def parse_token(text: str) -> LeaseToken:
    """The token that a client gave back.

    Raises:
        InvalidArgument: it is none.
    """
    whole = text[:MAX_TOKEN_CHARACTERS] + "=" * (-len(text) % 4)
    try:
        return _decode(urlsafe_b64decode(whole))
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidArgument(
            f"{text[:40]!r} is no lease: send back the text that stood under `lease` when the message was leased"
        ) from None


def queue_mark(consumer: QueueConsumer) -> int:
    """What a token says of its queue."""
    return int.from_bytes(consumer.queue.definition.id.bytes[-4:])


class LeaseRequest(NamedTuple):
    """What a client asks for. `consumer` "": the one that all requests of its principal share."""

    queue: str
    max_records: int
    max_bytes: int
    consumer: str = ""
    subscriber: str = ""
    client_name: str = ""


class Settling(NamedTuple):
    """What is to become of leases."""

    queue: str
    verb: Verb
    delay_ms: int = -1
    text: str = ""
    client_name: str = ""


class _Entry:
    """A consumer that is open, how many requests use it now, and when the last one came."""

    __slots__ = ("consumer", "used_at", "users")

    def __init__(self, consumer: QueueConsumer, now: float) -> None:
        self.consumer = consumer
        self.users = 0
        self.used_at = now


class Consumers:
    """The consumers of the door. Loop thread only.

    Args:
        max_open: how many are kept open.
        idle_s: how long one is kept after its last request, while it holds nothing.
    """

    def __init__(self, broker: Broker, *, max_open: int = MAX_OPEN, idle_s: float = IDLE_S) -> None:
        self._broker = broker
        self._max_open = max_open
        self._idle_s = idle_s
        self._entries: dict[tuple[str, str], _Entry] = {}
        """By queue and id, the longest unused first."""

    def __len__(self) -> int:
        return len(self._entries)

    async def close(self) -> None:
        """Forget all; what they hold stays leased until its time."""
        entries, self._entries = self._entries, {}
        for entry in entries.values():
            entry.consumer.end(None)

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def lease(
        self, asked: LeaseRequest, *, wait_ms: int, principal: Principal
    ) -> tuple[QueueConsumer, list[Leased]]:
        """Lease records; may be cancelled at any time, and then has leased nothing.

        Raises:
            UnknownQueue, InvalidArgument, NotAuthorized, StaleMember, and what `QueueConsumer.lease` raises.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        consumer_id = asked.consumer or shared_id(asked.subscriber, principal)
        while True:
            entry = await self._entry(
                asked.queue, consumer_id, asked.subscriber, principal, asked.client_name
            )
            left_ms = max(0, round((deadline - loop.time()) * 1000)) if wait_ms else 0
            entry.users += 1
            try:
                leased = await entry.consumer.lease(
                    asked.max_records, max_bytes=asked.max_bytes, wait_ms=left_ms
                )
            except NotAuthorized:
                if entry.consumer.is_open:
                    raise
                continue  # whoever opened it lost the right; whether this caller has it, the next turn finds out
            finally:
                entry.users -= 1
                entry.used_at = self._now_s()
            await self._check_still(entry.consumer, leased, principal)
            return entry.consumer, leased

    async def _check_still(
        self, consumer: QueueConsumer, leased: Sequence[Leased], principal: Principal
    ) -> None:
        """A caller that lost its right while it waited gets nothing, also by a consumer that another opened.

        Raises:
            NotAuthorized
        """
        try:
            self._broker.queues.require_consuming(consumer.queue_name, principal=principal)
        except SparrowError:
            await self.give_back(consumer, leased)
            raise

    async def give_back(self, consumer: QueueConsumer, leased: Sequence[Leased]) -> None:
        """What was leased and cannot be delivered is ready again, and the delivery does not count."""
        settlements = [
            Settlement(Verb.RETURN, each.topic, each.partition, first, last, delivery=count)
            for each in leased
            for first, last, count in each.ranges
        ]
        if settlements:
            await self._settle_on(consumer, settlements)

    async def refuse(self, consumer: QueueConsumer, leased: Leased, error: SparrowError) -> None:
        """What cannot be delivered by HTTP counts as a delivery that failed, and is tried again after a lease's time."""
        text = f"{error.code}: {error.text}"
        settlements = [
            Settlement(Verb.NACK, leased.topic, leased.partition, first, last, leased.lease_ms, text, count)
            for first, last, count in leased.ranges
        ]
        await self._settle_on(consumer, settlements)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    async def settle(self, wanted: Settling, leases: Sequence[str], *, principal: Principal) -> list[Outcome]:
        """Settle leases by their tokens; for each None, when it is on stable storage, or why it had no effect.

        Raises:
            UnknownQueue, NotAuthorized
            InvalidArgument: they are of too many consumers.
        """
        self._broker.queues.require_consuming(wanted.queue, principal=principal)
        by_consumer, outcomes = _sorted_out(leases)
        for (consumer_id, subscriber), held in by_consumer.items():
            try:
                entry = await self._entry(
                    wanted.queue, consumer_id, subscriber, principal, wanted.client_name
                )
                found = await self._settle_tokens(entry, wanted, list(held.values()))
            except InvalidArgument as error:  # no such consumer or subscriber can have leased it
                found = [error] * len(held)
            outcomes |= zip(held, found, strict=True)
        return [outcomes[place] for place in range(len(leases))]

    async def _settle_tokens(
        self, entry: _Entry, wanted: Settling, tokens: Sequence[LeaseToken]
    ) -> list[Outcome]:
        mark = queue_mark(entry.consumer)
        settlements = [
            Settlement(
                wanted.verb,
                each.topic,
                each.partition,
                each.offset,
                each.offset,
                wanted.delay_ms,
                wanted.text,
                each.delivery,
            )
            for each in tokens
            if each.queue == mark
        ]
        entry.users += 1
        try:
            found = iter(await self._settle_on(entry.consumer, settlements))
        finally:
            entry.users -= 1
            entry.used_at = self._now_s()
        return [next(found) if each.queue == mark else of_another_queue(wanted.queue) for each in tokens]

    async def _settle_on(self, consumer: QueueConsumer, settlements: Sequence[Settlement]) -> list[Outcome]:
        """So many at a time that nobody holds up the loop; all wait for the disk together."""
        answers: list[asyncio.Future[list[Outcome]]] = []
        for start in range(0, len(settlements), MAX_SETTLEMENTS_PER_TURN):
            if start:
                await asyncio.sleep(0)
            answers.append(await handed_over(consumer, settlements[start : start + MAX_SETTLEMENTS_PER_TURN]))
        return [outcome for answer in answers for outcome in await answer]

    # ── which are open ────────────────────────────────────────────────────────────────────────────

    async def _entry(
        self, queue: str, consumer_id: str, subscriber: str, principal: Principal, client_name: str
    ) -> _Entry:
        """The consumer of this id; opened if it is not, for a caller that may take from the queue.

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
        self._entries[key] = entry  # behind those that were not asked for since
        if len(self._entries) > self._max_open:
            self._forget_oldest(len(self._entries) - self._max_open, but=key)
        return entry

    def _now_s(self) -> float:
        return self._broker.clock.monotonic()

    def _forget_oldest(self, count: int, *, but: tuple[str, str]) -> None:
        unused = (key for key, entry in self._entries.items() if not entry.users and key != but)
        self._forget(list(islice(unused, count)))

    def sweep(self, now_s: float) -> None:
        """Forget those that hold nothing and were not asked for lately. `now_s`: monotonic."""
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
    """The id of the consumer that requests without one share: the same after a restart."""
    shared = f"http:{principal.name}" + (f":{subscriber}" if subscriber else "")
    if len(shared) <= MAX_ID_CHARACTERS and shared.isprintable():
        return shared
    return f"http:{hashlib.sha256(shared.encode('utf-8', 'surrogatepass')).hexdigest()}"


async def handed_over(
    consumer: QueueConsumer, settlements: Sequence[Settlement]
) -> asyncio.Future[list[Outcome]]:
    """The settlements are the queue's; one that is being changed is asked again.

    Raises:
        UnknownQueue, StaleMember, NotAuthorized, Overloaded
    """
    for _ in range(MAX_RETRIES):
        try:
            return consumer.settle(settlements)
        except Overloaded:
            await asyncio.sleep(RETRY_S)
    return consumer.settle(settlements)


def _sorted_out(
    leases: Sequence[str],
) -> tuple[dict[tuple[str, str], dict[int, LeaseToken]], dict[int, Outcome]]:
    """The tokens (by their places) of each consumer id and subscriber, and what is wrong with the others.

    Raises:
        InvalidArgument: they are of too many consumers.
    """
    by_consumer: dict[tuple[str, str], dict[int, LeaseToken]] = {}
    wrong: dict[int, Outcome] = {}
    for place, text in enumerate(leases):
        try:
            token = parse_token(text)
            by_consumer.setdefault((token.consumer, token.subscriber), {})[place] = token
        except InvalidArgument as error:
            wrong[place] = error
    if len(by_consumer) > MAX_CONSUMERS_AT_ONCE:
        raise InvalidArgument(
            f"the leases are of {len(by_consumer)} consumers; settle those of at most {MAX_CONSUMERS_AT_ONCE} at a time"
        )
    return by_consumer, wrong


def of_another_queue(queue: str) -> NotLeased:
    """The error for a token that is not of the queue."""
    return NotLeased(f"the lease is of another queue than {queue!r}, or of one of that name that was deleted")
