"""Subscriptions: start positions, patterns, ways of reading, changes of the selection."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from sparrow.base.errors import ConnectionLost, CorruptBatch, InvalidArgument
from sparrow.client.client import Client
from sparrow.records.batch import parse_header
from sparrow.records.record import Record
from tests.client.conftest import OpenProxy
from tests.client.frontends import Frontend, client_of


async def fill(client: Client, topic: str, count: int, *, first: int = 0, batch_bytes: int = 500) -> None:
    """Publish messages 0, 1, 2 … to partition 0."""
    async with client.producer(batch_bytes=batch_bytes) as producer:
        for i in range(first, first + count):
            await producer.send(topic, b"%d" % i, partition=0, timestamp_ms=1_700_000_000_000 + i * 1000)


def numbers(messages: list[Record]) -> list[int]:
    return [int(m.value or b"-1") for m in messages]


async def read(client: Client, topic: str, count: int, **options: Any) -> list[int]:
    found: list[Record] = []
    async with client.subscribe(topic, **options) as sub, asyncio.timeout(5):
        async for message in sub:
            found.append(message)
            if len(found) == count:
                break
    return numbers(found)


@pytest.mark.parametrize(
    ("start", "first"),
    [("beginning", 0), (7, 7), (datetime.fromtimestamp(1_700_000_005, UTC), 5)],
    ids=["beginning", "offset", "time"],
)
@pytest.mark.parametrize("mode", ["push", "pull"])
async def test_reading_starts_at_the_given_position(
    client: Client, start: Any, first: int, mode: str
) -> None:
    await fill(client, "t", 20)
    assert await read(client, "t", 20 - first, start=start, mode=mode) == list(range(first, 20))


async def test_reading_from_the_end_gets_messages_published_after_subscribing(
    client: Client,
) -> None:
    await fill(client, "t", 5)
    async with client.subscribe("t") as sub, asyncio.timeout(5):
        await fill(client, "t", 3, first=5)
        assert numbers([await anext(aiter(sub)) for _ in range(3)]) == [5, 6, 7]


async def test_the_ways_of_taking_messages_share_one_position(client: Client) -> None:
    await fill(client, "t", 100, batch_bytes=700)
    taken: list[Record] = []
    async with client.subscribe("t", start="beginning", prefetch_bytes=300) as sub, asyncio.timeout(5):
        async for message in sub:
            taken.append(message)
            if len(taken) == 3:
                break
        taken += await sub.pull(4)
        async for batch in sub.batches():
            taken += batch
            break
        async for message in sub:
            taken.append(message)
            if len(taken) % 7 == 0:
                break
        assert sub.positions["t", 0] == len(taken)
        while len(taken) < 100:
            taken += await sub.pull(9)
    assert numbers(taken) == list(range(100))


async def test_pull_keeps_surplus_messages_for_the_next_one(client: Client) -> None:
    await fill(client, "t", 10, batch_bytes=100_000)
    async with client.subscribe("t", start="beginning", mode="pull") as sub:
        assert numbers(await sub.pull(4, wait_s=5)) == [0, 1, 2, 3]
        assert numbers(await sub.pull(4, wait_s=0)) == [4, 5, 6, 7]
        assert numbers(await sub.pull(4, wait_s=0)) == [8, 9]


@pytest.mark.parametrize("mode", ["push", "pull"])
async def test_a_pull_returns_nothing_after_its_wait(client: Client, mode: str) -> None:
    await fill(client, "t", 1)
    loop = asyncio.get_running_loop()
    async with client.subscribe("t", mode=mode) as sub:
        begun = loop.time()
        assert await sub.pull(10, wait_s=0.05) == []
        assert 0.04 < loop.time() - begun < 2
        assert await sub.pull(10, wait_s=0) == []


@pytest.mark.parametrize("mode", ["push", "pull"])
async def test_a_pull_ends_its_wait_when_a_message_comes(client: Client, mode: str) -> None:
    async with client.subscribe("t", mode=mode) as sub, asyncio.timeout(5):
        pulling = asyncio.ensure_future(sub.pull(10, wait_s=60))
        await asyncio.sleep(0.01)
        await fill(client, "t", 1)
        assert numbers(await pulling) == [0]


async def test_a_pull_that_was_cancelled_loses_nothing(client: Client) -> None:
    async with client.subscribe("t", mode="pull") as sub, asyncio.timeout(5):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sub.pull(10, wait_s=0.2), 0.01)
        await fill(client, "t", 5)
        taken: list[Record] = []
        while len(taken) < 5:
            taken += await sub.pull(10, wait_s=1)
    assert numbers(taken) == list(range(5))


@pytest.mark.parametrize("arguments", [{"max_messages": 0}, {"wait_s": -1}])
async def test_a_pull_that_makes_no_sense_is_refused(client: Client, arguments: dict[str, Any]) -> None:
    async with client.subscribe("t") as sub:
        with pytest.raises(InvalidArgument, match="pull of"):
            await sub.pull(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start": "middle"}, "start is 'middle'"),
        ({"start": -1}, "start is -1"),
        ({"start": datetime(2024, 1, 1)}, "without zone"),  # noqa: DTZ001 - that is the point
        ({"commit": "auto"}, "needs a group"),
        ({"mode": "shove"}, "mode is 'shove'"),
        ({"prefetch_bytes": 0}, "prefetch_bytes is 0"),
        ({"topics": ()}, "at least one topic"),
        ({"topics": ("",)}, "empty name"),
    ],
)
async def test_a_subscription_that_makes_no_sense_is_refused(
    client: Client, arguments: dict[str, Any], words: str
) -> None:
    topics = arguments.pop("topics", ("t",))
    with pytest.raises(InvalidArgument, match=words):
        client.subscribe(*topics, **arguments)


async def test_a_pattern_takes_topics_that_come_later_from_their_beginning(client: Client) -> None:
    await fill(client, "orders.a", 1)
    async with client.subscribe("orders.*") as sub, asyncio.timeout(5):
        assert {topic for topic, _ in sub.assignment} == {"orders.a"}
        await fill(client, "orders.b", 2)
        await fill(client, "other", 2)
        await fill(client, "orders.a", 1, first=1)
        found = [await anext(aiter(sub)) for _ in range(3)]
    assert sorted((m.topic, int(m.value or b"")) for m in found) == [
        ("orders.a", 1),
        ("orders.b", 0),
        ("orders.b", 1),
    ]


async def test_a_pattern_that_matches_nothing_yet_can_be_subscribed_to(client: Client) -> None:
    async with client.subscribe("none.?") as sub, asyncio.timeout(5):
        assert sub.assignment == []
        await fill(client, "none.1", 1)
        assert numbers([await anext(aiter(sub))]) == [0]


async def test_topics_are_added_and_dropped_on_a_live_subscription(client: Client) -> None:
    await fill(client, "a", 3)
    await fill(client, "b", 3)
    async with client.subscribe("a", start="beginning") as sub, asyncio.timeout(5):
        assert numbers(await sub.pull(3)) == [0, 1, 2]
        await sub.add("b", start=1)
        assert [(m.topic, m.value) for m in await sub.pull(3, wait_s=5)] == [("b", b"1"), ("b", b"2")]
        await sub.drop("a")
        while any(topic == "a" for topic, _ in sub.assignment):
            await asyncio.sleep(0.001)
        await fill(client, "a", 1, first=3)
        await fill(client, "b", 1, first=3)
        assert [(m.topic, m.value) for m in await sub.pull(10, wait_s=5)] == [("b", b"3")]
        assert sub.topics == ["b"]
        with pytest.raises(InvalidArgument, match="'a' is not subscribed to; subscribed are b"):
            await sub.drop("a")


async def test_refused_addition_changes_nothing(client: Client) -> None:
    async with client.subscribe("t") as sub:
        with pytest.raises(Exception, match="topic name"):
            await sub.add("../x")
        assert sub.topics == ["t"]


async def test_callbacks_tell_what_is_assigned_and_revoked(client: Client) -> None:
    reported: list[Any] = []
    await client.admin.create_topic("t", partitions=2)
    await fill(client, "t", 3)

    async def revoked(partitions: list[Any], reason: str) -> None:
        reported.append(("revoked", sorted(partitions), reason))

    async with (
        client.subscribe("t", on_assigned=lambda p: reported.append(sorted(p)), on_revoked=revoked),
        asyncio.timeout(5),
    ):
        while not reported:
            await asyncio.sleep(0.001)
        await client.admin.delete_topic("t")
        while len(reported) < 2:
            await asyncio.sleep(0.001)
    assert reported == [[("t", 0, 3), ("t", 1, 0)], ("revoked", [("t", 0), ("t", 1)], "UNKNOWN_TOPIC")]


async def test_a_callback_that_fails_is_logged_and_reading_goes_on(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, "t", 2)

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    assert await read(client, "t", 2, start="beginning", on_assigned=fail) == [0, 1]
    assert "callback" in caplog.text


async def test_a_gap_that_retention_made_is_reported_and_reading_continues_behind_it(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, "t", 10)
    await client.admin.delete_records("t", {0: 6})
    reported: list[str] = []
    options: dict[str, Any] = {"start": 2, "on_revoked": lambda _, reason: reported.append(reason)}
    assert await read(client, "t", 4, **options) == [6, 7, 8, 9]
    assert "OFFSET_OUT_OF_RANGE" in reported
    assert "OFFSET_OUT_OF_RANGE" in caplog.text


async def test_no_more_than_the_prefetch_waits_and_it_is_asked_for_again_when_taken(
    client: Client, frontend: Frontend
) -> None:
    await client.admin.create_topic("t", partitions=1)
    async with client.producer(batch_bytes=1000) as producer:
        for i in range(1000):
            await producer.send("t", b"%0100d" % i)
    async with client.subscribe("t", start="beginning", prefetch_bytes=10_000) as sub, asyncio.timeout(5):
        await asyncio.sleep(0.05)
        assert 5_000 <= sub.buffer.queued_bytes <= 20_000
        taken = 0
        async for batch in sub.batches():
            taken += len(batch)
            assert sub.buffer.queued_bytes <= 20_000
            if taken == 1000:
                break


async def test_a_slow_subscription_stalls_no_other_on_the_same_connection(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1)
    async with client.producer(batch_bytes=1000) as producer:
        for i in range(500):
            await producer.send("t", b"%0100d" % i)
    async with (
        client.subscribe("t", start="beginning", prefetch_bytes=2_000) as slow,
        client.subscribe("t", start="beginning") as fast,
        asyncio.timeout(5),
    ):
        await anext(aiter(slow))
        taken = 0
        async for batch in fast.batches():
            taken += len(batch)
            if taken == 500:
                break
        assert len(await slow.pull(10_000)) < 100


async def test_iteration_ends_when_the_subscription_is_closed_by_another_task(client: Client) -> None:
    sub = await client.subscribe("t").start()
    found: list[Record] = []

    async def iterate() -> None:
        async for message in sub:
            found.append(message)

    iterating = asyncio.ensure_future(iterate())
    await fill(client, "t", 1)
    async with asyncio.timeout(5):
        while not found:
            await asyncio.sleep(0.001)
        await sub.close()
        await iterating
    with pytest.raises(ConnectionLost, match="closed"):
        await sub.pull()


async def test_a_batch_that_is_corrupt_is_an_error_and_not_a_gap(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, "t", 3, batch_bytes=100_000)
    sub = client.subscribe("t", start="beginning")
    deliver = sub.buffer.deliver

    def damaged(key: Any, offset: int, next_offset: int, batches: memoryview) -> None:
        data = bytearray(batches)
        data[-1] ^= 1
        assert parse_header(data).record_count == 3
        deliver(key, offset, next_offset, memoryview(bytes(data)))

    monkeypatch.setattr(sub.buffer, "deliver", damaged)
    async with sub, asyncio.timeout(5):
        for _ in range(2):
            with pytest.raises(CorruptBatch):
                await anext(aiter(sub))


async def test_a_message_is_the_record_that_was_written(client: Client) -> None:
    placed = await client.publish("t", b"v", key=b"k", headers={"h": b"1"})
    async with client.subscribe("t", start="beginning") as sub, asyncio.timeout(5):
        message = await anext(aiter(sub))
    assert (message.partition, message.offset, message.timestamp) == (
        placed.partition,
        placed.offset,
        placed.timestamp,
    )


# ── lost connections ──────────────────────────────────────────────────────────────────────────────


async def test_topics_and_partitions_made_while_there_was_no_connection_are_read_from_their_beginning(
    frontend: Frontend, open_proxy: OpenProxy, client: Client
) -> None:
    proxy = await open_proxy()
    await client.admin.create_topic("o.a", partitions=1)
    async with client_of(proxy.url) as other, other.subscribe("o.*") as sub, asyncio.timeout(5):
        assert sub.assignment == [("o.a", 0)]
        proxy.is_refusing = True
        proxy.cut()
        await client.admin.add_partitions("o.a", 2)
        await client.publish("o.a", b"0", partition=0)
        await client.publish("o.a", b"1", partition=1)
        await client.publish("o.b", b"2", partition=0)
        proxy.is_refusing = False
        found = [await anext(aiter(sub)) for _ in range(3)]
        assert sorted(numbers(found)) == [0, 1, 2]
        await sub.drop("o.*")
        while sub.assignment:
            await asyncio.sleep(0.001)


async def test_changes_made_without_a_connection_hold_on_the_next(
    frontend: Frontend, open_proxy: OpenProxy, client: Client
) -> None:
    proxy = await open_proxy()
    await fill(client, "b", 2)
    async with client_of(proxy.url) as other, other.subscribe("a", "c") as sub, asyncio.timeout(5):
        proxy.is_refusing = True
        proxy.cut()
        changes = [
            asyncio.ensure_future(sub.add("b", start="beginning")),
            asyncio.ensure_future(sub.drop("c")),
        ]
        await asyncio.sleep(0.02)
        proxy.is_refusing = False
        await asyncio.gather(*changes)
        assert numbers(await sub.pull(2, wait_s=5)) == [0, 1]
        while {topic for topic, _ in sub.assignment} != {"a", "b"}:
            await asyncio.sleep(0.001)
