"""Delivers the records of a queue to one endpoint: leases them, POSTs them concurrently, and
settles them.

    queue ──lease──▶ in hand ──gate──▶ under way ──response──▶ acknowledged, or nacked with a delay
                        └── the gate is shut: released, uncounted ──▶ queue

Decisions:
- Records are leased a little ahead of the running requests, further ahead if the endpoint responds
  quickly. So a lease (which is on stable storage before it is used) never makes a quick endpoint
  wait. Records that were leased ahead and cannot be sent soon are released uncounted.
- Every attempt counts, with two exceptions. The first is a probe of a failing endpoint that could
  not be connected to, so that a host that is down costs no record its deliveries. The second is an
  attempt that was interrupted by a stop, by the end of the endpoint (410) or by a crash of the
  broker. After a crash the consumer comes back with its old id and releases its leases.
- While a record is in hand its lease is extended, however long the endpoint takes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.broker.webhooks.description import DELIVERING, FAILING, HELD
from sparrow.frontends.leased_records import (
    DeliveredRecord,
    is_compressed,
    read_leased,
    settle_unreadable,
    split_by_batch,
)
from sparrow.frontends.webhook.formats import render
from sparrow.frontends.webhook.gate import DeliveryGate
from sparrow.frontends.webhook.memory import OF_ENDPOINT_BYTES, LeaseMemory, RecordMemory, size_of
from sparrow.frontends.webhook.payload import HttpHeaders, WebhookDelivery
from sparrow.frontends.webhook.responses import DeliveryOutcome, EndpointResponse, judge
from sparrow.frontends.webhook.settler import Settler
from sparrow.frontends.webhook.signer import Signer, id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from sparrow.base.clock import Clock
    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.broker.webhooks.endpoint import Endpoint
    from sparrow.model.webhooks import WebhookStatistics

_LOG = logging.getLogger(__name__)

LEASE_WAIT_MS: Final = 30_000
LEASE_BYTES: Final = 4 << 20
"""Limit of one lease; it has at least one record."""
_AHEAD_S: Final = 0.03
"""Records for this time are leased ahead …"""
_MAX_AHEAD: Final = 4
"""… but at most this multiple of the concurrency."""
_RATE_AHEAD_S: Final = 0.1
_EXTENSIONS: Final = 3
"""Number of extensions during the time of a lease."""
_MEAN_SHARE: Final = 0.1
_MAX_NAME: Final = 150


class RequestSender(Protocol):
    """Sends requests; see `poster.Poster`."""

    async def post(
        self,
        url: str,
        headers: HttpHeaders,
        body: bytes,
        *,
        own: HttpHeaders,
        timeout_s: float,
        is_trusted: bool,
        owner: Hashable,
    ) -> EndpointResponse | DeliveryOutcome:
        """Send a POST request and return the response."""
        ...


class _Item(Struct, eq=False):
    """A record in hand, with the end of its lease in monotonic seconds."""

    handed: DeliveredRecord
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
    """Return a consumer id that is the same at each start, so that the leases of the last consumer
    are found again. Ids are shorter than names may be.
    """
    return f"webhook/{name if len(name) <= _MAX_NAME else sha256(name.encode()).hexdigest()}"


class EndpointWorker:
    """Delivers to one endpoint from the opening of its consumer to a change of the definition. Loop
    thread only.

    Args:
        gone: called when the endpoint responded that it is gone.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        broker: Broker,
        poster: RequestSender,
        *,
        memory: RecordMemory,
        statistics: WebhookStatistics,
        gone: Callable[[str], None],
    ) -> None:
        self.endpoint = endpoint
        self._settings = endpoint.settings
        self._broker = broker
        self._clock: Clock = broker.clock
        self._poster = poster
        self._memory = memory
        self._memory_bytes = 0
        self._statistics = statistics
        self._gone = gone
        self._signer = Signer(endpoint.secrets)
        self._own_headers = list(endpoint.settings.headers)
        self._gate = DeliveryGate(endpoint.settings, self._clock.monotonic())
        self._in_hand: deque[_Item] = deque()
        self._under_way: dict[asyncio.Task[None], _Item] = {}
        self._room = asyncio.Event()
        """Set when the number of records to lease may have changed."""
        self._starting: asyncio.TimerHandle | None = None
        self._mean_s = 0.1
        """Mean duration of an attempt."""
        self._is_closed = False
        self._consumer: QueueConsumer | None = None
        self._settler: Settler | None = None

    # ── life cycle ────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Deliver until cancelled. The caller must call `stop` afterwards.

        Raises:
            NotAuthorized: the owner may not read any more. UnknownQueue, InvalidArgument,
                StaleMember: the queue or its subscriber does not exist. StorageFailed, DiskFull
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
        """Return the consumer. Leases from before a crash of the broker are released, so that the
        records are delivered at once.
        """
        first = await self._open_once()
        if not first.leased:
            return first
        await first.close(release=True)
        return await self._open_once()

    async def _open_once(self) -> QueueConsumer:
        has_subscribers = bool(self._broker.queues.subscribers_of(self.endpoint.queue))
        return await self._broker.queues.open_consumer(
            self.endpoint.queue,
            consumer_id=_consumer_id(self.endpoint.name),
            client_name="webhook",
            subscriber=self.endpoint.name if has_subscribers else "",
            principal=self.endpoint.owner,
        )

    async def stop(self, timeout_s: float) -> None:
        """Start nothing more, wait for running requests, and release uncounted what does not end in
        time.
        """
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
        self._release_in_hand()
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
                    await self._consumer.close(release=True)
            except (SparrowError, TimeoutError) as error:
                _LOG.warning(
                    "webhook %s of queue %r: its records are ready again when their leases end: %s",
                    self.endpoint.name,
                    self.endpoint.queue,
                    error,
                )
            self._settler.close()

    def retry_now(self) -> None:
        """Try the endpoint now: a user says that it works again."""
        self._gate = DeliveryGate(self._settings, self._clock.monotonic())
        self._changed()

    # ── lease ─────────────────────────────────────────────────────────────────────────────────────

    async def _lease(self) -> None:
        """Lease records that may be sent soon, or wait until there may be some."""
        assert self._consumer is not None
        self._room.clear()
        now_s = self._clock.monotonic()
        self._show_state()
        wanted = self._wanted(now_s)
        if wanted <= 0:
            await self._wait_for_room(self._gate.wait_s(now_s))
            return
        memory = LeaseMemory(self._memory)
        try:
            leased = await self._consumer.lease(
                wanted, max_bytes=LEASE_BYTES, wait_ms=LEASE_WAIT_MS, memory=memory
            )
        finally:
            memory.give_back()
        for each in leased:
            await self._take(each)
        self._start()

    def _wanted(self, now_s: float) -> int:
        """Return how many records to lease now."""
        if self._is_closed or (self._memory_bytes and not self._has_memory()):
            return 0
        gate, in_flight = self._gate, len(self._under_way)
        if not self._has_memory():
            return min(1, gate.room(now_s, in_flight))
        if gate.breaker.is_open or gate.shut_s(now_s) > 0:
            return 0 if self._in_hand else min(1, gate.room(now_s, in_flight))
        limit = gate.limit
        ahead = min(_MAX_AHEAD * limit, int(limit * _AHEAD_S / max(self._mean_s, 1e-4)))
        wanted = limit + ahead - in_flight - len(self._in_hand)
        if self._settings.rate:
            soon = gate.room(now_s, in_flight) + int(self._settings.rate * _RATE_AHEAD_S)
            wanted = min(wanted, soon - len(self._in_hand))
        return wanted

    def _has_memory(self) -> bool:
        return self._memory_bytes < OF_ENDPOINT_BYTES and self._memory.room_bytes > 0

    async def _wait_for_room(self, seconds: float) -> None:
        """Wait until a request ended or, if only time opens the gate, for `seconds`."""
        try:
            async with asyncio.timeout(seconds if seconds > 0 else None):
                await self._room.wait()
        except TimeoutError:
            return

    async def _take(self, leased: Leased) -> None:
        """Take the records of a lease in hand."""
        assert self._settler is not None
        until_s = self._clock.monotonic() + leased.lease_ms / 1000
        if not is_compressed(leased):
            await self._take_part(leased, until_s)
            return
        # One batch at a time: each may become a hundred times larger.
        for part in split_by_batch(leased):
            if self._memory_bytes and not self._has_memory():
                self._settle_all(part, Verb.RELEASE)
                self._statistics.returned += part.records
            elif self._clock.monotonic() < until_s:
                async with self._memory.unpacking:
                    await self._take_part(part, until_s)
                self._start()

    async def _take_part(self, leased: Leased, until_s: float) -> None:
        assert self._settler is not None
        found = await read_leased(leased)
        for each in settle_unreadable(
            leased, found.unreadable, self._broker.measures.corrupt_batches, self._delay_ms
        ):
            self._settler.add(each)
        if found.unreadable:
            self._failed(f"records cannot be read: {found.unreadable[0].error.text}")
        for each in leased.settlements(Verb.ACK, ranges=found.missing):
            self._settler.add(each)
        for handed in found.records:
            size_bytes = size_of(handed.record)
            self._count_memory(size_bytes)
            self._in_hand.append(_Item(handed, until_s, size_bytes))

    def _settle_all(self, leased: Leased, verb: Verb, text: str = "") -> None:
        """Settle all records of a lease in the same way."""
        assert self._settler is not None
        for first, last, count in leased.ranges:
            delay_ms = self._delay_ms(count) if verb is Verb.NACK else -1
            self._settler.add(
                Settlement(verb, leased.topic, leased.partition, first, last, delay_ms, text, count)
            )

    def _count_memory(self, size_bytes: int) -> None:
        """Change the count of bytes in hand and under way."""
        self._memory_bytes += size_bytes
        self._memory.use(size_bytes)

    async def _keep_leases(self) -> None:
        """Extend the leases of records in hand and under way before they end."""
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

    def _release_in_hand(self) -> None:
        """Release the records in hand."""
        if self._settler is None:
            return
        for item in self._in_hand:
            self._settler.add(item.settlement(Verb.RELEASE))
            self._statistics.returned += 1
            self._count_memory(-item.size_bytes)
        self._in_hand.clear()

    # ── send ──────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        """Send the records in hand that may be sent now, and schedule the next call."""
        self._starting = None
        if self._is_closed:
            self._release_in_hand()
            return
        now_s = self._clock.monotonic()
        gate = self._gate
        while self._in_hand and gate.room(now_s, len(self._under_way)) > 0:
            self._send(self._in_hand.popleft(), now_s)
        if not self._in_hand:
            return
        if gate.shut_s(now_s) > 0 or gate.breaker.is_open:
            self._release_in_hand()
            return
        wait_s = gate.wait_s(now_s)
        if wait_s > 0:
            self._starting = asyncio.get_running_loop().call_later(wait_s, self._start)

    def _send(self, item: _Item, now_s: float) -> None:
        self._gate.started(now_s)
        item.is_probe = self._gate.breaker.is_open
        task = asyncio.create_task(self._attempt(item))
        self._under_way[task] = item
        self._statistics.in_flight = len(self._under_way)
        task.add_done_callback(self._ended)

    async def _attempt(self, item: _Item) -> None:
        """Send one request and settle its record."""
        endpoint, record = self.endpoint, item.handed.record
        message_id = id_of(record, endpoint.queue)
        delivery = WebhookDelivery(
            record, endpoint.queue, endpoint.name, item.handed.delivery_count, message_id
        )
        started_s, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        try:
            payload = render(delivery, self._settings.format)
            headers = [
                ("Content-Type", payload.content_type),
                *payload.headers,
                *self._signer.headers(message_id, payload.body, now_ms),
            ]
            response = await self._poster.post(
                self._settings.url,
                headers,
                payload.body,
                own=self._own_headers,
                timeout_s=self._settings.timeout_ms / 1000,
                is_trusted=endpoint.is_trusted,
                owner=endpoint.key,
            )
        except Exception as error:  # noqa: BLE001 - a bug: the record must not stay leased for ever, nor the endpoint stop
            _LOG.exception("webhook %s of queue %r: a delivery failed", endpoint.name, endpoint.queue)
            response = DeliveryOutcome(text=f"the broker failed: {type(error).__name__}")
        if isinstance(response, EndpointResponse):
            response = judge(response, self._settings.accepts, now_ms)
        self._measured(self._clock.monotonic() - started_s)
        self._finish(item, response)

    def _ended(self, task: asyncio.Task[None]) -> None:
        item = self._under_way.pop(task)
        self._count_memory(-item.size_bytes)
        self._statistics.in_flight = len(self._under_way)
        if task.cancelled() and self._settler is not None:
            self._settler.add(item.settlement(Verb.RELEASE))
            self._statistics.returned += 1
        elif (
            not task.cancelled() and task.exception() is not None
        ):  # a bug; the record is delivered again when its lease ends
            _LOG.error("a delivery of queue %r failed", self.endpoint.queue, exc_info=task.exception())
        self._changed()

    def _measured(self, seconds: float) -> None:
        self._mean_s += (seconds - self._mean_s) * _MEAN_SHARE
        self._statistics.seconds += seconds

    def _changed(self) -> None:
        """Check again what may be sent and leased."""
        self._room.set()
        if self._starting is not None:
            self._starting.cancel()
        self._start()

    # ── outcomes ──────────────────────────────────────────────────────────────────────────────────

    def _finish(self, item: _Item, outcome: DeliveryOutcome) -> None:
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
            self._gate.pause(now_s, outcome.retry_after_s)
        statistics.consecutive_failures = self._gate.breaker.failures
        self._settler.add(self._verdict(item, outcome))
        self._show_state()
        if outcome.is_gone:
            self._is_closed = True
            self._gone(outcome.text)

    def _verdict(self, item: _Item, outcome: DeliveryOutcome) -> Settlement:
        """Return the settlement of a record that was not accepted."""
        if outcome.is_gone or (item.is_probe and not outcome.was_reached):
            self._statistics.returned += 1
            return item.settlement(Verb.RELEASE)
        return item.settlement(
            Verb.NACK, self._delay_ms(item.handed.delivery_count, outcome.retry_after_s), outcome.text
        )

    def _delay_ms(self, deliveries: int, retry_after_s: float = 0.0) -> int:
        """Return the delay before the next delivery of a record; -1: the delay of the queue's
        policy.
        """
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
        elif self._gate.is_paused(now_s):
            statistics.state = HELD
        shut_s = self._gate.shut_s(now_s)
        if shut_s > 0:
            statistics.until_ms = self._clock.wall_ms() + round(shut_s * 1000)
