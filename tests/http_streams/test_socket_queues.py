"""Subscriptions to queues over a WebSocket: leases come only with credit, and are settled or
released.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparrow.frontends.http.sockets import queue_channel
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from tests.http_frontend.conftest import Http
from tests.http_streams.conftest import DEADLINE_S, Socket, fill, socket_to

QUEUE = "work"


async def work(http: Http, *values: str, **policy: object) -> None:
    """Create a queue with these records."""
    await fill(http, QUEUE, *values)
    await http.broker.queues.create(QUEUE, policy=policy)


async def take(socket: Socket, **members: Any) -> dict[str, Any]:
    """Subscribe to the queue."""
    return await socket.ask("subscribe", "subscribed", **{"subscription": "q", "queue": QUEUE, **members})


def counts(http: Http) -> Any:
    return http.broker.queues.describe(QUEUE).statistics


async def until(http: Http, **wanted: int) -> None:
    """Wait until the statistics of the queue are these."""
    async with asyncio.timeout(DEADLINE_S):
        while {name: getattr(counts(http), name) for name in wanted} != wanted:
            await asyncio.sleep(0.001)


# ── leasing ───────────────────────────────────────────────────────────────────────────────────────


async def test_leased_record_has_fields_for_its_holder_alone(http: Http) -> None:
    await http.broker.topics.create(QUEUE)
    await http.broker.records.publish(QUEUE, 0, build_batch([b"a"], headers=[[("priority", b"7")]]))
    await http.broker.queues.create(QUEUE)
    async with socket_to(http.port) as socket:
        subscribed = await take(socket, credit=1, consumer="worker-1")
        assert (subscribed["consumer"], subscribed["lease_ms"]) == ("worker-1", 30_000)
        [record] = await socket.records(1)
        assert (record["value"], record["delivery_count"], record["priority"]) == ("a", 1, 7)
        assert record["leased_until_ms"] > http.broker.clock.wall_ms()


async def test_records_are_leased_only_with_credit(http: Http) -> None:
    await work(http, "a", "b", "c")
    async with socket_to(http.port) as socket:
        await take(socket)
        await socket.silence()
        assert counts(http).leased == 0
        await socket.send("credit", subscription="q", records=2)
        await socket.records(2)
        await socket.silence()
        assert (counts(http).leased, counts(http).ready) == (2, 1)


async def test_one_batch_of_many_records_is_leased_record_by_record(http: Http) -> None:
    await http.broker.topics.create(QUEUE)
    batch = build_batch([b"%d" % number for number in range(50)], compression=Compression.ZSTD)
    await http.broker.records.publish(QUEUE, 0, batch)
    await http.broker.queues.create(QUEUE)
    async with socket_to(http.port) as one, socket_to(http.port) as two:
        await take(one, credit=3)
        assert [record["value"] for record in await one.records(3)] == ["0", "1", "2"]
        await take(two, credit=2)
        assert [record["value"] for record in await two.records(2)] == ["3", "4"]


async def test_two_consumers_share_a_queue(http: Http) -> None:
    await work(http, *[str(number) for number in range(20)])
    async with socket_to(http.port) as one, socket_to(http.port) as two:
        await take(one, credit=10)
        await take(two, credit=10)
        found = [record["value"] for record in await one.records(10) + await two.records(10)]
    assert sorted(found, key=int) == [str(number) for number in range(20)]


async def test_each_subscriber_gets_every_record(http: Http) -> None:
    await work(http, "a", "b", subscribers=["mail", "search"])
    async with socket_to(http.port) as socket:
        for name in ("mail", "search"):
            await take(socket, subscription=name, subscriber=name, credit=10)
            assert [record["value"] for record in await socket.records(2)] == ["a", "b"]
        code = await socket.refused("subscribe", subscription="x", queue=QUEUE, subscriber="nobody")
        assert code == "INVALID_ARGUMENT"


async def test_consumer_may_create_its_queue(http: Http) -> None:
    async with socket_to(http.port) as socket:
        assert await socket.refused("subscribe", subscription="q", queue=QUEUE) == "UNKNOWN_QUEUE"
        await take(socket, create=True, credit=1)
        await fill(http, QUEUE, "a")
        assert (await socket.records(1))[0]["value"] == "a"


async def test_a_record_that_cannot_be_read_ends_in_the_dead_letters_and_holds_up_nobody(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrow.frontends.http.render_cache.MAX_PLAIN_BYTES", 50_000)
    await http.broker.topics.create(QUEUE)
    await http.broker.records.publish(QUEUE, 0, build_batch([bytes(100_000)], compression=Compression.ZSTD))
    await fill(http, QUEUE, "good")
    await http.broker.queues.create(QUEUE, policy={"delivery_limit": 1})
    async with socket_to(http.port) as socket:
        await take(socket, credit=2)
        assert (await socket.records(1))[0]["value"] == "good"
        await until(http, dead=1)


# ── settling ──────────────────────────────────────────────────────────────────────────────────────


async def leases(socket: Socket, count: int) -> list[str]:
    return [record["lease"] for record in await socket.records(count)]


async def test_acknowledged_record_is_done(http: Http) -> None:
    await work(http, "a", "b")
    async with socket_to(http.port) as socket:
        await take(socket, credit=2)
        response = await socket.ask("ack", "acked", id=5, subscription="q", leases=await leases(socket, 2))
        assert response == {"type": "acked", "id": 5, "subscription": "q"}
        assert (counts(http).leased, counts(http).ready) == (0, 0)


async def test_a_nack_comes_again_with_a_higher_count(http: Http) -> None:
    await work(http, "a", delivery_limit=2)
    async with socket_to(http.port) as socket:
        await take(socket, credit=1)
        [first] = await leases(socket, 1)
        await socket.ask("nack", "nacked", subscription="q", leases=[first], delay_ms=0, error="no luck")
        await socket.send("credit", subscription="q", records=5)
        [again] = await socket.records(1)
        assert again["delivery_count"] == 2
        await socket.ask("nack", "nacked", subscription="q", leases=[again["lease"]], error="still none")
        await until(http, dead=1)


async def test_a_delayed_nack_does_not_come_at_once(http: Http) -> None:
    await work(http, "a")
    async with socket_to(http.port) as socket:
        await take(socket, credit=5)
        nacked = await leases(socket, 1)
        await socket.ask("nack", "nacked", subscription="q", leases=nacked, delay_ms=600_000)
        await socket.silence()
        assert counts(http).delayed == 1


async def test_rejected_record_becomes_a_dead_letter(http: Http) -> None:
    await work(http, "a", delivery_limit=9)
    async with socket_to(http.port) as socket:
        await take(socket, credit=1)
        rejected = await leases(socket, 1)
        await socket.ask("reject", "rejected", subscription="q", leases=rejected, reason="cannot be parsed")
        await until(http, dead=1)


async def test_released_record_is_delivered_again_uncounted(http: Http) -> None:
    await work(http, "a")
    async with socket_to(http.port) as socket:
        await take(socket, credit=1)
        await socket.ask("release", "released", subscription="q", leases=await leases(socket, 1))
        await socket.send("credit", subscription="q", records=1)
        assert (await socket.records(1))[0]["delivery_count"] == 1


async def test_a_lease_may_be_extended(http: Http) -> None:
    await work(http, "a")
    async with socket_to(http.port) as socket:
        await take(socket, credit=1)
        held = await leases(socket, 1)
        await socket.ask("extend", "extended", subscription="q", leases=held, lease_ms=120_000)
        await socket.ask("ack", "acked", subscription="q", leases=held)


async def test_leases_that_ended_are_named_in_the_response(http: Http) -> None:
    await work(http, "a", "b")
    await fill(http, "other", "x")
    await http.broker.queues.create("other")
    async with socket_to(http.port) as socket:
        await take(socket, credit=2)
        one, two = await leases(socket, 2)
        await take(socket, subscription="o", queue="other", credit=1)
        [foreign] = await leases(socket, 1)
        await socket.ask("ack", "acked", subscription="q", leases=[one])
        response = await socket.ask("ack", "acked", subscription="q", leases=[one, "x", two, foreign])
        codes = {each["lease"]: each["error"]["code"] for each in response["failed"]}
        assert codes == {one: "NOT_LEASED", "x": "INVALID_ARGUMENT", foreign: "NOT_LEASED"}


async def test_a_lease_of_another_consumer_does_not_hold_here(http: Http) -> None:
    await work(http, "a", "b")
    async with socket_to(http.port) as one, socket_to(http.port) as two:
        await take(one)
        await take(two, credit=1)
        response = await one.ask("ack", "acked", subscription="q", leases=await leases(two, 1))
        assert response["failed"][0]["error"]["code"] == "LEASED_BY_ANOTHER"


async def test_thousands_of_leases_are_settled_in_one_frame(http: Http) -> None:
    await http.broker.topics.create(QUEUE)
    await http.broker.records.publish(QUEUE, 0, build_batch([b"x"] * 3000))
    await http.broker.queues.create(QUEUE, policy={"prefetch": 5000})
    async with socket_to(http.port) as socket:
        await take(socket, credit=3000)
        response = await socket.ask("ack", "acked", subscription="q", leases=await leases(socket, 3000))
        assert "failed" not in response
        assert counts(http).leased == 0


async def test_topics_have_nothing_to_acknowledge_and_queues_nothing_to_commit(http: Http) -> None:
    await work(http, "a")
    async with socket_to(http.port) as socket:
        await socket.ask("subscribe", "subscribed", subscription="t", topic=QUEUE)
        await socket.expect("assigned")
        assert await socket.refused("ack", subscription="t", leases=["x"]) == "INVALID_ARGUMENT"
        await take(socket)
        offsets = [{"topic": QUEUE, "partition": 0, "offset": 1}]
        assert await socket.refused("commit", subscription="q", offsets=offsets) == "INVALID_ARGUMENT"


# ── partings ──────────────────────────────────────────────────────────────────────────────────────


async def test_unsubscribing_releases_unsettled_records(http: Http) -> None:
    await work(http, "a", "b")
    async with socket_to(http.port) as socket:
        await take(socket, credit=2)
        first, _ = await leases(socket, 2)
        await socket.send("ack", id="late", subscription="q", leases=[first])
        await socket.send("unsubscribe", subscription="q")
        assert {(await socket.next())["type"] for _ in range(2)} == {"acked", "ended"}
        assert (counts(http).leased, counts(http).ready) == (0, 1)
        await take(socket, credit=2)
        assert (await socket.records(1))[0]["delivery_count"] == 1


async def test_orderly_goodbye_releases_unsettled_records(http: Http) -> None:
    await work(http, "a")
    async with socket_to(http.port) as socket:
        await take(socket, credit=1)
        await socket.records(1)
    await until(http, leased=0, ready=1)


@pytest.mark.parametrize("code", [None, 1011])
async def test_leases_of_a_lost_connection_are_kept_for_its_return(http: Http, code: int | None) -> None:
    await work(http, "a")
    async with socket_to(http.port) as socket:
        await take(socket, credit=1, consumer="worker-1")
        held = await leases(socket, 1)
        if code is None:
            socket.connection.transport.abort()
        else:
            await socket.connection.close(code)
        async with asyncio.timeout(DEADLINE_S):
            while http.frontend.connections:
                await asyncio.sleep(0)
    assert counts(http).leased == 1
    async with socket_to(http.port) as socket:
        await take(socket, consumer="worker-1")
        assert "failed" not in await socket.ask("ack", "acked", subscription="q", leases=held)


async def test_the_same_consumer_opened_elsewhere_ends_the_first(http: Http) -> None:
    await work(http, "a")
    async with socket_to(http.port) as one, socket_to(http.port) as two:
        await take(one, consumer="worker-1", credit=1)
        held = await leases(one, 1)
        await take(two, consumer="worker-1")
        assert (await one.expect("ended"))["error"]["code"] == "STALE_MEMBER"
        assert "failed" not in await two.ask("ack", "acked", subscription="q", leases=held)


async def test_a_queue_that_is_deleted_ends_its_subscriptions(http: Http) -> None:
    await work(http)
    async with socket_to(http.port) as socket:
        await take(socket, credit=1)
        await http.broker.queues.delete(QUEUE)
        assert (await socket.expect("ended"))["error"]["code"] == "UNKNOWN_QUEUE"


async def test_a_drain_keeps_leases_and_says_goodbye(http: Http) -> None:
    await work(http, "a")
    async with socket_to(http.port) as socket:
        await take(socket, credit=1)
        held = await leases(socket, 1)
        await socket.send("ack", subscription="q", leases=held)
        await socket.send("publish", topic=QUEUE, message={"value": "b"})
        await asyncio.sleep(0)
        draining = asyncio.create_task(http.frontend.drain(DEADLINE_S))
        assert await socket.closed() == 1001
        async with asyncio.timeout(DEADLINE_S / 2):
            await draining


@pytest.mark.slow
async def test_a_client_that_does_not_read_gets_no_more_leases_than_a_chunk(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_channel, "LEASE_BYTES", 50_000)
    await work(http, *["x" * 100_000] * 100, prefetch=1000)
    async with socket_to(http.port) as slow, socket_to(http.port) as quick:
        slow.connection.transport.pause_reading()
        await take_blindly(slow, credit=1000)
        await until_still(http)
        left = counts(http).ready
        assert left > 0
        await take(quick, credit=left)
        assert len(await quick.records(left)) == left
        slow.connection.transport.abort()


async def take_blindly(socket: Socket, credit: int) -> None:
    await socket.send("subscribe", subscription="q", queue=QUEUE, credit=credit)


async def until_still(http: Http) -> None:
    """Wait until nothing more is leased."""
    seen: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(seen) < 100 or len(set(seen[-100:])) > 1 or not seen[-1]:
            await asyncio.sleep(0.001)
            seen.append(counts(http).leased)
