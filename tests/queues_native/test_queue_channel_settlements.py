"""Settlements through the native frontend: every operation by range, refusals without effect, and
the time of the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull, SparrowError
from sparrow.base.transport import write_pieces
from sparrow.broker.broker import Broker
from sparrow.frontends.native import connection
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.messages import SettleVerb
from tests.native_frontend.raw import Listener, OpenListener, RawClient
from tests.queues_native.raw_queues import (
    CHANNEL,
    QUEUE,
    acked,
    codes,
    leased,
    made,
    opened,
    pushed,
    settled,
    settlement,
    statistics,
)

ACK, NACK, REJECT, EXTEND, RETURN = SettleVerb


async def _holding(broker: Broker, client: RawClient, records: int, **policy: object) -> None:
    """Make a queue whose records are all leased by the client's channel, which pulls."""
    await made(broker, *[b"%d" % n for n in range(records)], **policy)
    await opened(client, push=False)
    held = 0
    while held < records:
        held += len(await leased(client, records, wait_ms=10_000))


def _tick(broker: Broker, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    broker.parts.queue_registry.get(QUEUE).tick()


# ── what the verbs do ─────────────────────────────────────────────────────────────────────────────


async def test_records_are_acknowledged_by_range(broker: Broker, client: RawClient) -> None:
    await _holding(broker, client, 100)
    assert await settled(client, settlement(ACK, (0, 9), (20, 29), 50)) == []
    assert statistics(broker).leased == 79
    assert await settled(client, settlement(ACK, (10, 19), (30, 49), (51, 99))) == []
    assert statistics(broker).unfinished == 0


async def test_one_settle_carries_several_verbs(broker: Broker, client: RawClient) -> None:
    await _holding(broker, client, 10, dead_letter_topic=None)
    failures = await settled(
        client,
        settlement(ACK, (0, 3)),
        settlement(NACK, 4, delay_ms=60_000, text="Boom: no"),
        settlement(REJECT, 5, text="malformed"),
        settlement(EXTEND, 6, delay_ms=60_000),
        settlement(RETURN, (7, 9)),
    )
    assert failures == []
    seen = statistics(broker)
    assert (seen.acknowledged, seen.delayed, seen.dropped, seen.leased, seen.ready) == (4, 1, 1, 1, 3)


async def test_refused_delivery_comes_back_and_counts(broker: Broker, client: RawClient) -> None:
    await _holding(broker, client, 2)
    assert await settled(client, settlement(NACK, 0, delay_ms=0), settlement(RETURN, 1)) == []
    assert await leased(client, 10) == [(0, b"0", 2), (1, b"1", 1)]


async def test_a_delayed_record_comes_back_in_its_time(
    timed_broker: Broker, open_listener: OpenListener, clock: ManualClock
) -> None:
    client = await (await open_listener(timed_broker)).client()
    await _holding(timed_broker, client, 1)
    assert await settled(client, settlement(NACK, 0, delay_ms=5000)) == []
    _tick(timed_broker, clock, 4.9)
    assert await leased(client) == []
    _tick(timed_broker, clock, 0.2)
    assert await leased(client) == [(0, b"0", 2)]


async def test_an_extended_lease_lasts_longer(
    timed_broker: Broker, open_listener: OpenListener, clock: ManualClock
) -> None:
    client = await (await open_listener(timed_broker)).client()
    await _holding(timed_broker, client, 2, lease_ms=5000)
    _tick(timed_broker, clock, 4)
    assert await settled(client, settlement(EXTEND, 0), settlement(EXTEND, 1, delay_ms=1500)) == []
    _tick(timed_broker, clock, 2)
    assert await leased(client) == [(1, b"1", 2)]
    await acked(client, 0)


# ── what has no effect ────────────────────────────────────────────────────────────────────────────


async def test_a_failure_names_its_settlement_and_range_and_the_others_hold(
    broker: Broker, client: RawClient
) -> None:
    await _holding(broker, client, 10)
    failures = await settled(
        client, settlement(ACK, 0, (8, 12), 1), settlement(ACK, 2), settlement(ACK, 3, 3)
    )
    assert codes(failures) == [(0, 1, "NOT_LEASED"), (2, 1, "NOT_LEASED")]
    assert all(each.text and not each.retriable for each in failures)
    assert statistics(broker).leased == 6  # 8 and 9 are still leased


async def test_lease_of_another_consumer_cannot_be_settled(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await _holding(broker, client, 3)
    other = await listener.client()
    await opened(other, push=False)
    for verb in SettleVerb:
        assert codes(await settled(other, settlement(verb, (0, 2)))) == [(0, 0, "LEASED_BY_ANOTHER")]
    assert statistics(broker).leased == 3
    await acked(client, (0, 2))


async def test_settled_record_cannot_be_settled_again(broker: Broker, client: RawClient) -> None:
    await _holding(broker, client, 3)
    await acked(client, (0, 2))
    for verb in SettleVerb:
        failures = await settled(client, settlement(verb, (0, 2)), settlement(verb, 1))
        assert codes(failures) == [(0, 0, "NOT_LEASED"), (1, 0, "NOT_LEASED")]
    assert statistics(broker).acknowledged == 3


async def test_a_lease_that_ended_cannot_be_settled_though_the_client_did_not_know(
    timed_broker: Broker, open_listener: OpenListener, clock: ManualClock
) -> None:
    client = await (await open_listener(timed_broker)).client()
    await _holding(timed_broker, client, 2, lease_ms=5000)
    clock.advance(5.1)  # nothing has looked at the clock since
    assert codes(await settled(client, settlement(ACK, 0), settlement(ACK, (0, 1)))) == [
        (0, 0, "LEASE_EXPIRED"),
        (1, 0, "LEASE_EXPIRED"),
    ]
    assert await leased(client) == [(0, b"0", 2), (1, b"1", 2)]


NONSENSE = [
    settlement(ACK, (1, 0)),
    settlement(ACK, (-5, 1)),
    settlement(ACK, (0, 2**63 - 1)),
    settlement(ACK, (0, 2**64 - 1)),
    settlement(ACK, (-(2**63), 2**63 - 1)),
    settlement(ACK, 0, topic="other"),
    settlement(ACK, 0, topic=""),
    settlement(ACK, 0, partition=9),
    settlement(ACK, 0, partition=-1),
    settlement(77, 0),
    settlement(-1, 0),
]


async def test_nonsense_is_a_failure_without_effect(broker: Broker, client: RawClient) -> None:
    await _holding(broker, client, 2)
    for nonsense in NONSENSE:
        (failure,) = await settled(client, nonsense)
        assert failure.code in ("NOT_LEASED", "INVALID_ARGUMENT"), nonsense
        assert statistics(broker).leased == 2
    await acked(client, (0, 1))


@pytest.mark.parametrize("verb", [NACK, EXTEND])
async def test_a_delay_without_sense_is_bounded(broker: Broker, client: RawClient, verb: SettleVerb) -> None:
    await _holding(broker, client, 3, backoff_ms=60_000)
    for offset, delay_ms in enumerate((-(2**63), 2**63 - 1, 2**64 - 1)):
        assert await settled(client, settlement(verb, offset, delay_ms=delay_ms)) == []
    assert statistics(broker).unfinished == 3
    assert await client.nothing_comes()


async def test_an_error_text_of_any_length_is_taken(broker: Broker, client: RawClient) -> None:
    await _holding(broker, client, 1)
    assert await settled(client, settlement(NACK, 0, text="\U0001f4a5" * 60_000)) == []
    assert await leased(client) == [(0, b"0", 2)]


async def test_an_empty_settle_gets_a_response(broker: Broker, client: RawClient) -> None:
    await _holding(broker, client, 1)
    assert await settled(client) == []
    assert await settled(client, settlement(ACK)) == []
    assert statistics(broker).leased == 1


# ── when it is answered ───────────────────────────────────────────────────────────────────────────


class _SlowStore:
    """Lets writes of the states of queues pass on command."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: SparrowError | None = None
        self.is_open = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        store = broker.parts.queue_registry._store
        append = store.append_then

        async def slow(writes: Any, then: Callable[[SparrowError | None], None]) -> None:
            await self.is_open.wait()
            if self.error is not None:
                then(self.error)
            else:
                append(writes, then)

        def append_slowly(writes: Any, then: Callable[[SparrowError | None], None]) -> None:
            self._tasks.append(asyncio.create_task(slow(writes, then)))

        monkeypatch.setattr(store, "append_then", append_slowly)


async def test_settled_comes_when_it_is_on_stable_storage(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _holding(broker, client, 2)
    store = _SlowStore(broker, monkeypatch)
    client.send(m.Settle(1, [settlement(ACK, 0)]), CHANNEL)
    # fails, but is known to fail only with the first
    client.send(m.Settle(2, [settlement(ACK, 0)]), CHANNEL)
    assert await client.nothing_comes()
    store.is_open.set()
    assert await client.expect(m.Settled, CHANNEL) == m.Settled(1)
    assert (await client.expect(m.Settled, CHANNEL)).ref == 2


async def test_the_response_and_the_record_that_it_makes_room_for_are_one_write(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(broker, b"0", b"1", b"2")
    await opened(client, prefetch=1, credit=3)
    assert len(await pushed(client, 1)) == 1
    writes: list[int] = []

    def noted(transport: asyncio.Transport, pieces: Any) -> None:
        writes.append(len(pieces))
        write_pieces(transport, pieces)

    monkeypatch.setattr(connection, "write_pieces", noted)
    for offset in range(2):
        assert await settled(client, settlement(ACK, offset)) == []
        assert [record[0] for record in await pushed(client, 1)] == [offset + 1]
    assert len(writes) == 2
    assert await settled(client, settlement(ACK, 2)) == []  # nothing follows, and it comes at once
    assert len(writes) == 3


async def test_when_it_cannot_be_persisted_the_client_gets_the_error(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _holding(broker, client, 3)
    store = _SlowStore(broker, monkeypatch)
    store.error = DiskFull("no room")
    store.is_open.set()
    failures = await settled(client, settlement(ACK, 0, 1), settlement(ACK, 2))
    assert codes(failures) == [(0, 0, "DISK_FULL"), (0, 1, "DISK_FULL"), (1, 0, "DISK_FULL")]
    assert all(each.retriable for each in failures)


async def test_close_comes_behind_the_responses(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _holding(broker, client, 3)
    store = _SlowStore(broker, monkeypatch)
    client.send(m.Settle(1, [settlement(ACK, 0)]), CHANNEL)
    client.send(m.Close(), CHANNEL)
    assert await client.nothing_comes()
    store.is_open.set()
    assert await client.expect(m.Settled, CHANNEL) == m.Settled(1)
    await client.expect(m.Closed, CHANNEL)
    assert (statistics(broker).acknowledged, statistics(broker).ready) == (1, 2)


async def test_thousands_of_settles_in_one_write_all_get_responses(broker: Broker, client: RawClient) -> None:
    count = 5000
    await _holding(broker, client, count, max_leased=count)
    for ref in range(count):
        client.connection.send(m.Settle(ref, [settlement(ACK, ref)]), CHANNEL)
    client.writer.writelines(client.connection.data_to_send())
    answers = [await client.expect(m.Settled, CHANNEL) for _ in range(count)]
    assert sorted(answer.ref for answer in answers) == list(range(count))
    assert not any(answer.failures for answer in answers)
    assert statistics(broker).unfinished == 0


async def test_a_settle_of_thousands_of_ranges_lets_other_tasks_run(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    count = 10_000
    await _holding(broker, client, count, max_leased=count)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.get_running_loop().create_task(others())
    failures = await settled(client, settlement(ACK, *range(count - 1, -1, -1)))
    counting.cancel()
    assert failures == []
    assert turns > 15
    assert statistics(broker).unfinished == 0


async def test_thousands_of_failures_are_reported_by_their_codes(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, max_frame_bytes=400_000)
    client = await listener.client()
    await _holding(broker, client, 1)
    failures = await settled(client, settlement(ACK, *range(5000, 15_000)))
    assert codes(failures) == [(0, n, "NOT_LEASED") for n in range(10_000)]
    assert failures[0].text


async def test_a_connection_with_too_much_unsettled_is_not_read_from(
    broker: Broker, open_listener: OpenListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = await open_listener(broker, max_unsettled_ranges=50)
    client = await listener.client()
    await _holding(broker, client, 100)
    store = _SlowStore(broker, monkeypatch)
    (session,) = listener.frontend.open_connections
    client.send(m.Settle(1, [settlement(ACK, *range(60))]), CHANNEL)
    async with asyncio.timeout(10):
        while not session.is_paused_by_us:
            await asyncio.sleep(0)
    client.send(m.Settle(2, [settlement(ACK, *range(60, 100))]), CHANNEL)
    store.is_open.set()
    assert {(await client.expect(m.Settled, CHANNEL)).ref for _ in range(2)} == {1, 2}
    assert not session.is_paused_by_us
    assert statistics(broker).unfinished == 0


async def test_settlements_that_came_before_the_connection_was_lost_hold(
    broker: Broker, client: RawClient
) -> None:
    await _holding(broker, client, 2000, max_leased=2000)
    client.send(m.Settle(1, [settlement(ACK, *range(2000))]), CHANNEL)
    client.close()
    async with asyncio.timeout(10):
        while statistics(broker).acknowledged < 2000:
            await asyncio.sleep(0)


async def test_a_settle_waits_for_a_queue_that_is_being_changed(broker: Broker, client: RawClient) -> None:
    await _holding(broker, client, 2)
    changing = asyncio.get_running_loop().create_task(broker.queues.configure(QUEUE, {"order": "key"}))
    client.send(m.Settle(1, [settlement(ACK, (0, 1))]), CHANNEL)
    assert await client.expect(m.Settled, CHANNEL) == m.Settled(1)
    await changing
    assert statistics(broker).unfinished == 0
