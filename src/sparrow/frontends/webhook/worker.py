"""Delivers the records of a queue to one endpoint: leases them, POSTs them side by side, and says what became of each.

    queue ──lease──▶ in hand ──gate──▶ under way ──answer──▶ acknowledged, or back with a delay
                        └── the gate is shut: given back, uncounted ──▶ queue

Decisions:
- Records are leased a little ahead of what is under way, the more the quicker the endpoint answers, so that a lease (which is on stable storage before it is handed out)
  never makes a quick endpoint wait. What was leased ahead and cannot be sent soon goes back and has lost nothing.
- A record that is tried counts. Two exceptions: a probe of a failing endpoint that was not even connected to (so a host that is down costs no record its deliveries), and
  what a stop, an end of the endpoint (410) or a crash of the broker interrupted. After a crash the consumer comes back under its old name and takes back what it had.
- While a record is in hand its lease is extended, however long the endpoint takes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

from sparrow.base.errors import BadInput, SparrowError
from sparrow.broker.queues.settlement import Settlement, Verb
from sparrow.broker.webhooks.description import DELIVERING, FAILING, HELD
from sparrow.frontends.leased_records import Handed, is_compressed, parts_of, read_leased
from sparrow.frontends.webhook.answers import Answer, Outcome, judge
from sparrow.frontends.webhook.formats import Delivery, HttpHeaders, render
from sparrow.frontends.webhook.gate import Gate
from sparrow.frontends.webhook.memory import OF_ENDPOINT_BYTES, Memory, size_of
from sparrow.frontends.webhook.settling import Settler
from sparrow.frontends.webhook.signing import Signer, id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from sparrow.base.clock import Clock
    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased
    from sparrow.broker.webhooks.description import EndpointStatistics
    from sparrow.broker.webhooks.endpoint import Endpoint

_LOG = logging.getLogger(__name__)

LEASE_WAIT_MS: Final = 30_000
LEASE_BYTES: Final = 4 << 20
"""Of what one lease brings; at least one record."""
_AHEAD_S: Final = 0.03
"""So much time's deliveries are leased ahead …"""
_MOST_AHEAD: Final = 4
"""… but at most so many times what may be under way at a time."""
_RATE_AHEAD_S: Final = 0.1
_EXTENSIONS: Final = 3
"""So often in the time of a lease it is extended."""
_MEAN_SHARE: Final = 0.1
_LONGEST_NAME: Final = 150


class Poster(Protocol):
    """What sends; see `poster.Poster`."""

    async def post(
        self,
        url: str,
        headers: HttpHeaders,
        body: bytes,
        *,
        own: HttpHeaders,
        timeout_s: float,
        is_trusted: bool,
        who: Hashable,
    ) -> Answer | Outcome:
        """POST, and what came back."""
        ...


@dataclass(slots=True, eq=False)
class _Item:
    """A record in hand, and until when (monotonic seconds) it is leased."""

    handed: Handed
    leased_until_s: float
    size_bytes: int
    is_probe: bool = False

    def settlement(self, verb: Verb, delay_ms: int = -1, text: str = "") -> Settlement:
        record = self.handed.record
        return Settlement(
            verb,
            record.topic,
            record.partition,
            record.offset,
            record.offset,
            delay_ms,
            text,
            self.handed.delivery_count,
        )


def _consumer_id(name: str) -> str:
    """The same at each start, so that what the last consumer of this name had is found again. Ids are shorter than names may be."""
    return f"webhook/{name if len(name) <= _LONGEST_NAME else sha256(name.encode()).hexdigest()}"


class Worker:
    """One life of an endpoint: from when its consumer is opened to when the definition changes. Loop thread only.

    Args:
        gone: told when the endpoint answered that it is gone.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        broker: Broker,
        poster: Poster,
        *,
        memory: Memory,
        statistics: EndpointStatistics,
        gone: Callable[[str], None],
    ) -> None:
        self.endpoint = endpoint
        self._settings = endpoint.settings
        self._broker = broker
        self._clock: Clock = broker.clock
        self._poster = poster
        self._memory = memory
        self._held_bytes = 0
        self._statistics = statistics
        self._gone = gone
        self._signer = Signer(endpoint.secrets)
        self._own_headers = list(endpoint.settings.headers)
        self._gate = Gate(endpoint.settings, self._clock.monotonic())
        self._in_hand: deque[_Item] = deque()
        self._under_way: dict[asyncio.Task[None], _Item] = {}
        self._room = asyncio.Event()
        """Something changed on which depends how much is leased."""
        self._starting: asyncio.TimerHandle | None = None
        self._mean_s = 0.1
        """How long an attempt takes."""
        self._is_over = False
        self._consumer: QueueConsumer | None = None
        self._settler: Settler | None = None

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Deliver until cancelled; call `stop` in any case.

        Raises:
            NotAuthorized: the owner may not read any more. UnknownQueue, InvalidArgument, StaleMember: there is nothing to take from for it.
            StorageFailed, DiskFull
        """
        self._consumer = await self._open()
        self._settler = Settler(self._consumer)
        self._show_state()
        keeping = asyncio.create_task(self._keep_leases())
        try:
            while True:
                await self._lease()
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def _open(self) -> QueueConsumer:
        """The consumer. What it had when the broker crashed is given back, and comes again at once."""
        first = await self._open_once()
        if not first.leased:
            return first
        await first.close(give_back=True)
        return await self._open_once()

    async def _open_once(self) -> QueueConsumer:
        queue = self._broker.queues.registry.get(self.endpoint.queue)
        subscriber = self.endpoint.name if queue.definition.policy.subscribers else ""
        return await self._broker.queues.open_consumer(
            self.endpoint.queue,
            consumer_id=_consumer_id(self.endpoint.name),
            client_name="webhook",
            subscriber=subscriber,
            principal=self.endpoint.owner,
        )

    async def stop(self, timeout_s: float) -> None:
        """Begin nothing more; wait for what is under way, and give back what does not end in time, uncounted."""
        self._is_over = True
        if self._starting is not None:
            self._starting.cancel()
        self._give_back()
        if self._under_way and timeout_s > 0:
            await asyncio.wait(set(self._under_way), timeout=timeout_s)
        for task in list(self._under_way):
            task.cancel()
        if self._under_way:
            await asyncio.wait(set(self._under_way))
        if self._settler is not None and self._consumer is not None:
            try:
                async with asyncio.timeout(max(timeout_s, 1.0)):
                    await self._settler.settled()
                    await self._consumer.close(give_back=True)
            except (SparrowError, TimeoutError) as error:
                _LOG.warning(
                    "webhook %s of queue %r: what it had is given back when its leases end: %s",
                    self.endpoint.name,
                    self.endpoint.queue,
                    error,
                )
            self._settler.close()

    def poke(self) -> None:
        """Somebody says that the endpoint is well: try at once."""
        self._gate = Gate(self._settings, self._clock.monotonic())
        self._changed()

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def _lease(self) -> None:
        """Lease what may be sent soon, or wait until something may."""
        assert self._consumer is not None
        self._room.clear()
        now_s = self._clock.monotonic()
        self._show_state()
        wanted = self._wanted(now_s)
        if wanted <= 0:
            await self._wait_for_room(self._gate.wait_s(now_s))
            return
        leased = await self._consumer.lease(
            wanted, max_bytes=LEASE_BYTES, wait_ms=LEASE_WAIT_MS, memory=self._memory
        )
        for each in leased:
            await self._take(each)
        self._start()

    def _wanted(self, now_s: float) -> int:
        """How many records to lease now."""
        if self._is_over or (self._held_bytes and not self._has_memory()):
            return 0
        gate, in_flight = self._gate, len(self._under_way)
        if not self._has_memory():
            return min(1, gate.room(now_s, in_flight))
        if gate.breaker.is_open or gate.shut_s(now_s) > 0:
            return 0 if self._in_hand else min(1, gate.room(now_s, in_flight))
        limit = gate.limit
        ahead = min(_MOST_AHEAD * limit, int(limit * _AHEAD_S / max(self._mean_s, 1e-4)))
        wanted = limit + ahead - in_flight - len(self._in_hand)
        if self._settings.rate:
            soon = gate.room(now_s, in_flight) + int(self._settings.rate * _RATE_AHEAD_S)
            wanted = min(wanted, soon - len(self._in_hand))
        return wanted

    def _has_memory(self) -> bool:
        return self._held_bytes < OF_ENDPOINT_BYTES and self._memory.room_bytes > 0

    async def _wait_for_room(self, seconds: float) -> None:
        """Until something ended or (where time alone opens the gate) so long."""
        try:
            async with asyncio.timeout(seconds if seconds > 0 else None):
                await self._room.wait()
        except TimeoutError:
            return

    async def _take(self, leased: Leased) -> None:
        """What a lease brought is in hand."""
        assert self._settler is not None
        until_s = self._clock.monotonic() + leased.lease_ms / 1000
        if not is_compressed(leased):
            await self._take_part(leased, until_s)
            return
        # A batch at a time: each may become a hundred times what it is.
        for part in parts_of(leased):
            if self._held_bytes and not self._has_memory():
                self._say(part, Verb.RETURN)
                self._statistics.returned += part.records
            elif self._clock.monotonic() < until_s:
                async with self._memory.unpacking:
                    await self._take_part(part, until_s)
                self._start()

    async def _take_part(self, leased: Leased, until_s: float) -> None:
        assert self._settler is not None
        try:
            found = await read_leased(leased)
        except BadInput as error:
            parts = parts_of(leased)
            if len(parts) > 1:  # what is wrong with one of them is not the others' fault
                for part in parts:
                    await self._take_part(part, until_s)
                return
            self._say(leased, Verb.NACK, error.text)
            self._failed(f"records cannot be read: {error.text}")
            return
        for first, last, count in found.missing:
            self._settler.add(
                Settlement(Verb.ACK, leased.topic, leased.partition, first, last, delivery=count)
            )
        for handed in found.records:
            size_bytes = size_of(handed.record)
            self._hold(size_bytes)
            self._in_hand.append(_Item(handed, until_s, size_bytes))

    def _say(self, leased: Leased, verb: Verb, text: str = "") -> None:
        """The same of all records of a lease."""
        assert self._settler is not None
        for first, last, count in leased.ranges:
            delay_ms = self._delay_ms(count) if verb is Verb.NACK else -1
            self._settler.add(
                Settlement(verb, leased.topic, leased.partition, first, last, delay_ms, text, count)
            )

    def _hold(self, size_bytes: int) -> None:
        """So much more (or less) is in hand or under way."""
        self._held_bytes += size_bytes
        self._memory.hold(size_bytes)

    async def _keep_leases(self) -> None:
        """Extend what is in hand and under way before its lease ends."""
        assert self._settler is not None
        assert self._consumer is not None
        while True:
            lease_s = self._consumer.lease_ms / 1000
            await asyncio.sleep(lease_s / _EXTENSIONS)
            now_s = self._clock.monotonic()
            for item in (*self._under_way.values(), *self._in_hand):
                if item.leased_until_s - now_s < lease_s * (1 - 0.5 / _EXTENSIONS):
                    self._settler.add(item.settlement(Verb.EXTEND))
                    item.leased_until_s = now_s + lease_s

    def _give_back(self) -> None:
        """What is in hand is not sent now."""
        if self._settler is None:
            return
        for item in self._in_hand:
            self._settler.add(item.settlement(Verb.RETURN))
            self._statistics.returned += 1
            self._hold(-item.size_bytes)
        self._in_hand.clear()

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        """Send of what is in hand what may be sent now; come again when more may."""
        self._starting = None
        if self._is_over:
            self._give_back()
            return
        now_s = self._clock.monotonic()
        gate = self._gate
        while self._in_hand and gate.room(now_s, len(self._under_way)) > 0:
            self._send(self._in_hand.popleft(), now_s)
        if not self._in_hand:
            return
        if gate.shut_s(now_s) > 0 or gate.breaker.is_open:
            self._give_back()
            return
        wait_s = gate.wait_s(now_s)
        if wait_s > 0:
            self._starting = asyncio.get_running_loop().call_later(wait_s, self._start)

    def _send(self, item: _Item, now_s: float) -> None:
        self._gate.began(now_s)
        item.is_probe = self._gate.breaker.is_open
        task = asyncio.create_task(self._attempt(item))
        self._under_way[task] = item
        self._statistics.in_flight = len(self._under_way)
        task.add_done_callback(self._ended)

    async def _attempt(self, item: _Item) -> None:
        """One POST, and what it means."""
        endpoint, record = self.endpoint, item.handed.record
        message_id = id_of(record, endpoint.queue)
        delivery = Delivery(record, endpoint.queue, endpoint.name, item.handed.delivery_count, message_id)
        began_s, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        try:
            payload = render(delivery, self._settings.format)
            headers = [
                ("Content-Type", payload.content_type),
                *payload.headers,
                *self._signer.headers(message_id, payload.body, now_ms),
            ]
            answer = await self._poster.post(
                self._settings.url,
                headers,
                payload.body,
                own=self._own_headers,
                timeout_s=self._settings.timeout_ms / 1000,
                is_trusted=endpoint.is_trusted,
                who=endpoint.key,
            )
        except Exception as error:  # noqa: BLE001 - a bug: the record must not stay leased for ever, nor the endpoint stop
            _LOG.exception("webhook %s of queue %r: a delivery failed", endpoint.name, endpoint.queue)
            answer = Outcome(text=f"the broker failed: {type(error).__name__}")
        if isinstance(answer, Answer):
            answer = judge(answer, self._settings.accepts, now_ms)
        self._measured(self._clock.monotonic() - began_s)
        self._finish(item, answer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        item = self._under_way.pop(task)
        self._hold(-item.size_bytes)
        self._statistics.in_flight = len(self._under_way)
        if task.cancelled() and self._settler is not None:
            self._settler.add(item.settlement(Verb.RETURN))
            self._statistics.returned += 1
        elif (
            not task.cancelled() and task.exception() is not None
        ):  # a bug; the record comes again when its lease ends
            _LOG.error("a delivery of queue %r failed", self.endpoint.queue, exc_info=task.exception())
        self._changed()

    def _measured(self, seconds: float) -> None:
        self._mean_s += (seconds - self._mean_s) * _MEAN_SHARE
        self._statistics.seconds += seconds

    def _changed(self) -> None:
        """Look again what may be sent and leased."""
        self._room.set()
        if self._starting is not None:
            self._starting.cancel()
        self._start()

    # ── what an answer means ──────────────────────────────────────────────────────────────────────

    def _finish(self, item: _Item, outcome: Outcome) -> None:
        assert self._settler is not None
        statistics = self._statistics
        statistics.attempts += 1
        if outcome.is_accepted:
            self._settler.add(item.settlement(Verb.ACK))
            self._accepted()
            return
        statistics.failed += 1
        self._failed(outcome.text)
        now_s = self._clock.monotonic()
        if self._gate.breaker.failed(now_s, is_probe=item.is_probe):
            statistics.pauses += 1
            _LOG.warning(
                "webhook %s of queue %r is failing (%s) and is paused; it is probed from now on",
                self.endpoint.name,
                self.endpoint.queue,
                outcome.text,
            )
        if outcome.retry_after_s:
            statistics.throttled += 1
            self._gate.hold(now_s, outcome.retry_after_s)
        statistics.consecutive_failures = self._gate.breaker.failures
        self._settler.add(self._verdict(item, outcome))
        self._show_state()
        if outcome.is_gone:
            self._is_over = True
            self._gone(outcome.text)

    def _verdict(self, item: _Item, outcome: Outcome) -> Settlement:
        """What becomes of a record that was not accepted."""
        if outcome.is_gone or (item.is_probe and not outcome.was_reached):
            self._statistics.returned += 1
            return item.settlement(Verb.RETURN)
        return item.settlement(
            Verb.NACK, self._delay_ms(item.handed.delivery_count, outcome.retry_after_s), outcome.text
        )

    def _delay_ms(self, deliveries: int, retry_after_s: float = 0.0) -> int:
        """How long a record waits after its delivery of this number; -1: as the queue's policy says."""
        if retry_after_s:
            return round(retry_after_s * 1000)
        assert self._consumer is not None
        if self._settings.backoff_ms is None and self._consumer.queue.definition.policy.backoff_ms:
            return -1
        return self._settings.backoff_after(deliveries, random.uniform(-1, 1))  # noqa: S311 - no secret

    def _accepted(self) -> None:
        statistics = self._statistics
        statistics.delivered += 1
        statistics.consecutive_failures = 0
        statistics.last_success_ms = self._clock.wall_ms()
        if self._gate.succeeded():
            self._show_state()
            _LOG.info("webhook %s of queue %r accepts again", self.endpoint.name, self.endpoint.queue)

    def _failed(self, text: str) -> None:
        self._statistics.last_error = text
        self._statistics.last_error_ms = self._clock.wall_ms()

    def _show_state(self) -> None:
        statistics, now_s = self._statistics, self._clock.monotonic()
        statistics.state = DELIVERING
        statistics.until_ms = -1
        if self._gate.breaker.is_open:
            statistics.state = FAILING
        elif self._gate.is_held(now_s):
            statistics.state = HELD
        shut_s = self._gate.shut_s(now_s)
        if shut_s > 0:
            statistics.until_ms = self._clock.wall_ms() + round(shut_s * 1000)
