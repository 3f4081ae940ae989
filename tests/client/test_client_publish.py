"""Publishing: single messages, streams, and every outcome of a message."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import (
    ConnectionLost,
    DiskFull,
    InvalidArgument,
    InvalidTopicName,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    RecordTooLarge,
    SparrowError,
    TimedOut,
    UnknownPartition,
    UnknownTopic,
)
from sparrow.broker.config import BrokerConfig
from sparrow.client.client import Client
from sparrow.client.options import ProducerOptions
from sparrow.client.producer import Producer
from sparrow.client.refusals import Refusals
from sparrow.client.url import Address
from sparrow.frontends.native.limits import NativeLimits
from sparrow.records.batch import parse_header
from sparrow.records.partitioner import partition_for_key
from sparrow.records.record import Record
from tests.client.conftest import OpenProxy
from tests.client.frontends import Frontend, client_of, everything, open_session


async def test_publish_returns_where_the_message_went(client: Client) -> None:
    first = await client.publish("t", b"one", partition=2, timestamp_ms=1_700_000_000_000)
    second = await client.publish("t", b"two", partition=2)
    assert (first.topic, first.partition, first.offset, first.timestamp) == ("t", 2, 0, 1_700_000_000_000)
    assert (second.partition, second.offset) == (2, 1)


async def test_a_message_comes_back_with_key_headers_and_time(client: Client) -> None:
    await client.publish("t", None, key=b"k", headers={"a": b"1", "b": None}, timestamp_ms=1_700_000_000_000)
    (message,) = await everything(client, "t", 1)
    assert message == Record(
        "t", partition_for_key(b"k", 4), 0, 1_700_000_000_000, b"k", None, (("a", b"1"), ("b", None))
    )


async def test_headers_may_repeat_when_given_as_pairs(client: Client) -> None:
    await client.publish("t", b"", headers=[("parent-id", b"1"), ("parent-id", b"2")])
    (message,) = await everything(client, "t", 1)
    assert message.headers == (("parent-id", b"1"), ("parent-id", b"2"))


async def test_other_bytes_like_values_are_copied(client: Client) -> None:
    value = bytearray(b"before")
    async with client.producer(linger_ms=50) as producer:
        await producer.send("t", value, key=memoryview(b"k"))  # type: ignore[arg-type]
        value[:] = b"after!"
    (message,) = await everything(client, "t", 1)
    assert (message.value, message.key) == (b"before", b"k")


@pytest.mark.parametrize("acks", ["all", 1, "1", -1])
async def test_publish_with_acks_returns_the_offset(client: Client, acks: Any) -> None:
    assert (await client.publish("t", b"x", acks=acks, partition=0)).offset == 0


async def test_publish_with_acks_0_writes_and_learns_nothing(client: Client) -> None:
    assert (await client.publish("t", b"x", acks=0, partition=0)).offset == -1
    assert [m.value for m in await everything(client, "t", 1)] == [b"x"]


async def test_the_append_time_is_returned_where_the_topic_stamps_it(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    placed = await client.publish("t", b"x", timestamp_ms=1)
    (message,) = await everything(client, "t", 1)
    assert placed.timestamp == message.timestamp > 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"value": "text"}, "value of a message is str, it must be bytes; encode it first"),
        ({"value": b"", "key": "text"}, "key of a message is str"),
        ({"value": b"", "headers": {"a": "text"}}, "header of a message is str"),
        ({"value": b"", "headers": {1: b""}}, "name of a header is int"),
        ({"value": b"", "headers": [("a",)]}, "headers must be a mapping"),
        ({"value": b"", "headers": {"\ud800": b""}}, "which UTF-8 cannot write"),
        ({"value": b"", "timestamp_ms": -1}, "timestamp_ms is -1"),
        ({"value": b"", "timestamp_ms": 1.5}, "timestamp_ms is 1.5"),
        ({"value": b"", "acks": "some"}, "acks is 'some'"),
    ],
)
async def test_a_message_that_is_none_is_refused_in_words_and_leaves_no_trace(
    client: Client, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        await client.publish("t", **arguments)
    async with client.producer() as producer:
        if "acks" not in arguments:
            with pytest.raises(InvalidArgument, match=words):
                producer.send_nowait("t", **arguments)
        assert producer.pending_bytes == 0


async def test_a_partition_that_does_not_exist_is_named(client: Client) -> None:
    with pytest.raises(UnknownPartition, match="'t' has no partition 7; it has 4"):
        await client.publish("t", b"", partition=7)


async def test_an_invalid_topic_name_is_refused_by_the_broker(client: Client) -> None:
    with pytest.raises(InvalidTopicName):
        await client.publish("../etc", b"")
    assert (await client.publish("t", b"x", partition=0)).offset == 0


async def test_a_missing_topic_fails_where_topics_are_not_created_by_themselves(tmp_path: Path) -> None:
    frontend = Frontend(tmp_path / "strict", BrokerConfig(auto_create_topics=False), NativeLimits())
    await frontend.start()
    async with client_of(frontend.url) as client:
        with pytest.raises(UnknownTopic):
            await client.publish("t", b"")
        async with client.producer() as producer:
            delivery = producer.send_nowait("t", b"")
            with pytest.raises(UnknownTopic):
                await delivery
            await client.admin.create_topic("t")
            assert (await (await producer.send("t", b"", partition=0))).offset == 0
    await frontend.stop()


async def test_tasks_that_publish_at_the_same_time_share_a_batch(client: Client, frontend: Frontend) -> None:
    await client.publish("t", b"first", partition=0)
    await asyncio.gather(*(client.publish("t", b"%d" % i, partition=0) for i in range(100)))
    batches = frontend.broker.parts.topic_registry.get("t").partition(0).log.headers(1)
    assert [header.record_count for header in batches] == [100]


async def test_equal_keys_go_to_one_partition_as_kafkas_clients_choose_it(client: Client) -> None:
    async with client.producer() as producer:
        for i in range(200):
            await producer.send("t", b"%d" % i, key=b"key%d" % (i % 10))
    for message in await everything(client, "t", 200):
        assert message.key is not None
        assert message.partition == partition_for_key(message.key, 4)


async def test_messages_without_a_key_fill_one_partition_at_a_time_and_all_of_them_evenly(
    client: Client,
) -> None:
    async with client.producer(batch_bytes=1000, linger_ms=1000) as producer:
        for i in range(800):
            await producer.send("t", b"%076d" % i)
    counts = Counter(m.partition for m in await everything(client, "t", 800))
    assert counts.total() == 800
    assert counts.keys() == {0, 1, 2, 3}
    # A batch has 13 messages, and up to four times as many while the broker is behind.
    assert max(counts.values()) - min(counts.values()) <= 4 * 13


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_each_compression_is_read_back(client: Client, compression: str) -> None:
    async with client.producer(compression=compression) as producer:
        for i in range(50):
            await producer.send("t", b"value" * 20 + b"%d" % i, partition=0)
    assert [m.value for m in await everything(client, "t", 50)] == [
        b"value" * 20 + b"%d" % i for i in range(50)
    ]


async def test_a_message_is_sent_when_it_has_lingered(client: Client) -> None:
    async with client.producer(linger_ms=20) as producer:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await (await producer.send("t", b"x"))
        assert loop.time() - begun > 0.018


async def test_a_full_batch_does_not_linger(client: Client) -> None:
    async with client.producer(linger_ms=60_000, batch_bytes=500) as producer, asyncio.timeout(5):
        delivery = await producer.send("t", b"x" * 500)
        assert (await delivery).offset == 0


async def test_flush_does_not_wait_for_the_linger(client: Client) -> None:
    async with client.producer(linger_ms=60_000) as producer, asyncio.timeout(5):
        delivery = await producer.send("t", b"x")
        assert not delivery.done
        with pytest.raises(InvalidArgument, match="no result yet"):
            delivery.result()
        await producer.flush()
        assert delivery.done
        assert delivery.result().offset == 0


@pytest.mark.parametrize("linger_ms", [0, 5])
async def test_messages_without_a_time_get_that_of_the_clock(frontend: Frontend, linger_ms: float) -> None:
    session = await open_session(frontend.url)
    client = Client(session)
    clock = ManualClock()
    async with Producer(session, ProducerOptions(linger_ms=linger_ms), clock=clock) as producer:
        placed = await (await producer.send("t", b"x"))
        clock.advance(2)
        later = await (await producer.send("t", b"x"))
    await client.close()
    assert (placed.timestamp, later.timestamp) == (1_700_000_000_000, 1_700_000_002_000)


async def test_cancelling_one_waiter_leaves_the_others_waiting(client: Client) -> None:
    async with client.producer(linger_ms=30) as producer:
        first, second = (
            await producer.send("t", b"1", partition=0),
            await producer.send("t", b"2", partition=0),
        )

        async def wait(delivery: Any) -> int:
            return (await delivery).offset  # type: ignore[no-any-return]

        impatient, patient, again = (asyncio.ensure_future(wait(d)) for d in (first, second, first))
        await asyncio.sleep(0)
        impatient.cancel()
        assert (await patient, await again) == (1, 0)
        assert impatient.cancelled()


async def test_send_nowait_works_before_the_partitions_are_known(client: Client) -> None:
    async with client.producer() as producer:
        deliveries = [producer.send_nowait("t", b"%d" % i, key=b"k") for i in range(10)]
        wrong = producer.send_nowait("t", b"", partition=9)
        assert [(await d).offset for d in deliveries] == list(range(10))
        with pytest.raises(UnknownPartition):
            await wrong
        await producer.flush()
        assert producer.pending_bytes == 0


async def test_a_record_larger_than_any_frame_is_refused_at_once(client: Client) -> None:
    with pytest.raises(RecordTooLarge, match="at most"):
        await client.publish("t", bytes(17 << 20))


async def test_batches_too_large_for_the_topic_are_split_and_keep_their_order(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1, config={"max.message.bytes": "600"})
    async with client.producer(batch_bytes=10_000) as producer:
        deliveries = [
            await producer.send("t", b"%04d" % i * 10, headers={"n": b"%d" % i}) for i in range(500)
        ]
        offsets = [(await d).offset for d in deliveries]
    assert offsets == list(range(500))
    found = await everything(client, "t", 500)
    assert [m.value for m in found] == [b"%04d" % i * 10 for i in range(500)]
    assert [m.headers for m in found] == [(("n", b"%d" % i),) for i in range(500)]


async def test_one_record_too_large_fails_alone_and_those_behind_it_arrive_in_order(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1, config={"max.message.bytes": "1000"})
    async with client.producer(batch_bytes=200, linger_ms=0) as producer:
        deliveries = []
        for i in range(60):
            value = b"x" * 2000 if i % 20 == 10 else b"%03d" % i * 30
            deliveries.append(await producer.send("t", value))
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        await producer.flush()
        assert producer.pending_bytes == 0
    assert [i for i, outcome in enumerate(outcomes) if isinstance(outcome, RecordTooLarge)] == [10, 30, 50]
    found = await everything(client, "t", 57)
    assert [m.value for m in found] == [b"%03d" % i * 30 for i in range(60) if i % 20 != 10]


async def test_flush_raises_a_failure_that_nobody_looked_at_once(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1, config={"max.message.bytes": "1000"})
    async with client.producer() as producer:
        await producer.send("t", b"x" * 2000)
        with pytest.raises(RecordTooLarge):
            await producer.flush()
        await producer.flush()
        seen = await producer.send("t", b"x" * 2000)
        with pytest.raises(RecordTooLarge):
            await seen
        await producer.flush()


async def test_leaving_the_block_raises_a_failure_that_nobody_looked_at(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1, config={"max.message.bytes": "1000"})
    with pytest.raises(RecordTooLarge):
        async with client.producer() as producer:
            await producer.send("t", b"x" * 2000)


async def test_an_error_in_the_block_is_the_one_that_is_seen(client: Client) -> None:
    await client.admin.create_topic("t", partitions=1, config={"max.message.bytes": "1000"})
    with pytest.raises(ZeroDivisionError):
        async with client.producer() as producer:
            await _fail(producer)


async def _fail(producer: Producer) -> None:
    await producer.send("t", b"x" * 2000)
    raise ZeroDivisionError


async def test_a_closed_producer_takes_nothing(client: Client) -> None:
    async with client.producer() as producer:
        await producer.send("t", b"x")
    with pytest.raises(ConnectionLost, match="closed"):
        await producer.send("t", b"x")
    with pytest.raises(ConnectionLost, match="closed"):
        producer.send_nowait("t", b"x")


async def test_topics_deleted_and_made_again_are_published_to(client: Client) -> None:
    async with client.producer() as producer:
        for _ in range(3):
            await (await producer.send("t", b"x", partition=0))
            await client.admin.delete_topic("t")
            with pytest.raises(UnknownTopic):
                await (await producer.send("t", b"x", partition=0))
        assert (await (await producer.send("t", b"x", partition=0))).offset == 0


async def test_new_partitions_are_used_when_the_metadata_is_refreshed(
    frontend: Frontend, client: Client
) -> None:
    await client.admin.create_topic("t", partitions=1)
    session = await open_session(frontend.url)
    options = ProducerOptions(delivery_timeout_s=1.0, metadata_refresh_s=0.05, linger_ms=0)
    async with Producer(session, options) as producer:
        await producer.send("t", b"x")
        await client.admin.add_partitions("t", 2)
        async with asyncio.timeout(5):
            while True:
                try:
                    placed = await (await producer.send("t", b"x", partition=1))
                except UnknownPartition:
                    await asyncio.sleep(0.01)
                else:
                    break
    await session.close()
    assert placed.partition == 1


# ── a broker that refuses for now ─────────────────────────────────────────────────────────────────


async def test_send_waits_for_room_while_the_broker_is_silent_and_memory_is_bounded(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with (
        client_of(proxy.url) as client,
        client.producer(max_pending_bytes=50_000, delivery_timeout_s=30) as producer,
    ):
        await (await producer.send("t", b"x"))
        proxy.is_silent = True
        sent = 0

        async def send_for_ever() -> None:
            nonlocal sent
            while True:
                await producer.send("t", b"x" * 1000)
                sent += 1

        sending = asyncio.ensure_future(send_for_ever())
        async with asyncio.timeout(5):
            while sent < 40:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert sent <= 51
        assert producer.pending_bytes <= 51_200
        with pytest.raises(Overloaded, match="max_pending_bytes"):
            producer.send_nowait("t", b"x")
        proxy.is_silent = False
        async with asyncio.timeout(5):
            while sent < 500:
                await asyncio.sleep(0.001)
        sending.cancel()


async def test_publisher_cancelled_in_the_iteration_that_makes_room_is_cancelled(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with client_of(proxy.url) as client, client.producer(max_pending_bytes=1000) as producer:
        await (await producer.send("t", b"x"))
        proxy.is_silent = True
        await producer.send("t", b"x" * 2000)
        waiting = asyncio.ensure_future(producer.send("t", b"y"))
        while not producer._room_waiters:
            await asyncio.sleep(0)
        ((room, room_bytes),) = producer._room_waiters
        pending_bytes = producer.pending_bytes
        producer._room_waiters.clear()
        producer._pending_bytes += room_bytes  # in the same way as when room is given
        room.set_result(None)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert producer.pending_bytes == pending_bytes
        proxy.is_silent = False


async def test_a_message_that_is_not_confirmed_in_time_times_out_and_those_after_it_arrive(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with client_of(proxy.url) as client, client.producer(delivery_timeout_s=0.2) as producer:
        await (await producer.send("t", b"first", partition=0))
        proxy.is_silent = True
        lost = [await producer.send("t", b"lost", partition=p) for p in (0, 1)]
        for delivery in lost:
            with pytest.raises(TimedOut, match="whether they were written is not known"):
                await delivery
        proxy.is_silent = False
        proxy.cut()
        after = [await (await producer.send("t", b"after", partition=p)) for p in (0, 0, 1)]
        found = await everything(client, "t", 4)
    assert [m.value for m in found if m.partition == 0 and m.value != b"lost"] == [
        b"first",
        b"after",
        b"after",
    ]
    assert len(after) == 3


async def test_messages_for_an_unreachable_broker_time_out_unwritten(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with (
        client_of(proxy.url, close_timeout_s=0.1) as client,
        client.producer(delivery_timeout_s=0.15) as producer,
    ):
        await (await producer.send("t", b"first"))
        proxy.is_refusing = True
        proxy.cut()
        await asyncio.sleep(0.02)
        delivery = await producer.send("t", b"lost")
        with pytest.raises(TimedOut, match="were not written"):
            await delivery


@pytest.mark.slow
async def test_waiting_for_room_ends_with_the_delivery_timeout(
    frontend: Frontend, open_proxy: OpenProxy
) -> None:
    proxy = await open_proxy()
    async with (
        client_of(proxy.url, close_timeout_s=0.1) as client,
        client.producer(delivery_timeout_s=0.3, max_pending_bytes=1000) as producer,
    ):
        await (await producer.send("t", b"first"))
        proxy.is_silent = True
        await producer.send("t", b"x" * 1000)
        with pytest.raises(TimedOut, match="no room"):
            async with asyncio.timeout(5):
                await asyncio.gather(*(producer.send("t", b"x" * 5000) for _ in range(3)))
        await asyncio.sleep(0.2)
        with pytest.raises(TimedOut):
            await producer.flush()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_refusals_before_and_after_the_write_lose_and_double_nothing(
    frontend: Frontend, client: Client, open_proxy: OpenProxy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker refuses at random, or writes and then reports a failure, over a connection that is
    cut at times.
    """
    await client.admin.create_topic("t", partitions=2, config={"max.message.bytes": "900"})
    dice = random.Random(seed)
    written: set[tuple[int, int, int]] = set()
    publish = frontend.broker.records.publish

    def sometimes(topic: str, partition: int, data: Any, **options: Any) -> Any:
        throw = dice.random()
        if throw < 0.05:
            raise DiskFull("no room for now")
        header = parse_header(data)
        batch = (partition, header.producer_id, header.base_sequence)
        if throw < 0.06 and batch not in written:
            raise OutOfOrderSequence("as if the state were lost")
        future = publish(topic, partition, data, **options)
        written.add(batch)
        if throw < 0.10:
            failed = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda _: failed.set_exception(TimedOut("written, but who knows")))
            return failed
        return future

    monkeypatch.setattr(frontend.broker.records, "publish", sometimes)
    proxy = await open_proxy(seed=seed, min_bytes=5_000, max_bytes=60_000)
    count = 1500
    async with client_of(proxy.url, connect_timeout_s=10) as shaken:
        async with shaken.producer(linger_ms=1, batch_bytes=1200) as producer:
            deliveries = []
            for i in range(count):
                value = b"x" * 1000 if i % 100 == 50 else b"%06d" % i
                deliveries.append(await producer.send("t", value, partition=i % 2))
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            assert producer.pending_bytes == 0
        proxy.never_cut()
    expected = [b"%06d" % i for i in range(count) if i % 100 != 50]
    assert [i for i, o in enumerate(outcomes) if isinstance(o, SparrowError)] == list(range(50, count, 100))
    found = await everything(client, "t", len(expected))
    assert Counter(m.value for m in found) == Counter(expected)
    for partition in range(2):
        values = [m.value for m in found if m.partition == partition]
        assert values == sorted(values)  # type: ignore[type-var]


async def test_giving_up_at_a_full_disk_says_so_and_that_nothing_was_written(
    frontend: Frontend, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise DiskFull("the device has 3 MiB left")

    async with client.producer(delivery_timeout_s=2) as producer:
        await (await producer.send("t", b"first"))
        monkeypatch.setattr(frontend.broker.records, "publish", full)
        delivery = await producer.send("t", b"second")
        with pytest.raises(
            TimedOut, match=r"were not written; the broker says: the device has 3 MiB left \(DISK_FULL\)"
        ):
            await delivery


async def test_a_full_disk_is_reported_at_once_and_once_and_again_after_it_passed(
    frontend: Frontend, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, is_full, reported = frontend.broker.records.publish, True, []

    def full_or_not(*args: Any, **options: Any) -> Any:
        if is_full:
            raise DiskFull("the device has 3 MiB left")
        return publish(*args, **options)

    monkeypatch.setattr(frontend.broker.records, "publish", full_or_not)
    async with client.producer(delivery_timeout_s=60, on_refused=reported.append) as producer:
        for _ in range(2):
            reported.clear()
            is_full = True
            deliveries = [await producer.send("t", b"x", partition=0) for _ in range(3)]
            async with asyncio.timeout(20):
                while not reported:
                    await asyncio.sleep(0.01)
            assert [(type(each), each.text) for each in reported] == [(DiskFull, "the device has 3 MiB left")]
            is_full = False
            await asyncio.gather(*deliveries)
            assert len(reported) == 1


async def test_a_full_disk_without_a_callback_is_logged_and_so_is_its_end(
    frontend: Frontend, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish, is_full = frontend.broker.records.publish, True

    def full_or_not(*args: Any, **options: Any) -> Any:
        if is_full:
            raise DiskFull("the device has 3 MiB left")
        return publish(*args, **options)

    monkeypatch.setattr(frontend.broker.records, "publish", full_or_not)
    async with client.producer(delivery_timeout_s=60) as producer:
        delivery = await producer.send("t", b"x")
        async with asyncio.timeout(20):
            while not caplog.messages:
                await asyncio.sleep(0.01)
        address = client.address
        said = (
            f"the broker at {address} takes no messages for now: "
            "the device has 3 MiB left (DISK_FULL); trying for 60 s"
        )
        assert caplog.messages == [said]
        is_full = False
        await delivery
    assert caplog.messages == [said, f"the broker at {address} takes messages again"]


def test_passing_refusals_are_reported_when_they_last_and_a_failing_callback_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[str] = []

    def report(error: SparrowError) -> None:
        reported.append(error.code)
        raise RuntimeError("the callback's own fault")

    refusals = Refusals(Address("h", 1, has_tls=False), ProducerOptions(on_refused=report))
    refusals.refused(Overloaded("busy"), 100.0)
    refusals.refused(Overloaded("busy"), 104.9)
    assert reported == []
    refusals.refused(Overloaded("busy"), 105.0)
    refusals.refused(Overloaded("busy"), 106.0)
    assert reported == ["OVERLOADED"]
    assert refusals.last is not None
    refusals.ended()
    assert refusals.last is None
    refusals.refused(Overloaded("busy"), 107.0)
    assert reported == ["OVERLOADED"]
    refusals.refused(DiskFull("full"), 107.1)
    assert reported == ["OVERLOADED", "DISK_FULL"]
    assert "on_refused of a producer failed" in caplog.text


async def test_a_batch_that_the_next_message_does_not_fit_in_does_not_linger(client: Client) -> None:
    async with client.producer(linger_ms=60_000, batch_bytes=500) as producer, asyncio.timeout(5):
        first = await producer.send("t", b"x" * 300, partition=0)
        second = await producer.send("t", b"x" * 300, partition=0)
        assert (await first).offset == 0
        assert not second.done
        await producer.flush()


async def test_a_batch_that_no_frame_takes_is_split_here(tmp_path: Path) -> None:
    limits = NativeLimits(max_frame_bytes=70_000)
    frontend = Frontend(tmp_path / "narrow", BrokerConfig(default_partitions=1), limits)
    await frontend.start()
    async with (
        client_of(frontend.url) as client,
        client.producer(batch_bytes=1 << 20, linger_ms=60_000) as producer,
    ):
        deliveries = [producer.send_nowait("t", b"%d" % i * 1000) for i in range(200)]
        with pytest.raises(RecordTooLarge):
            await producer.send("t", bytes(69_000))
        await producer.flush()
        assert [(await d).offset for d in deliveries] == list(range(200))
    await frontend.stop()


async def test_a_broker_that_lost_its_directory_is_gone_on_with_under_a_new_identity(tmp_path: Path) -> None:
    frontend = Frontend(tmp_path / "first", BrokerConfig(default_partitions=1), NativeLimits())
    await frontend.start()
    async with client_of(frontend.url) as client, client.producer(linger_ms=0) as producer:
        await asyncio.gather(*[await producer.send("t", b"%d" % i) for i in range(3)])
        await frontend.stop()
        other = Frontend(tmp_path / "second", BrokerConfig(default_partitions=1), NativeLimits())
        other.port = frontend.port
        await other.start()
        await client.admin.create_topic("t")
        deliveries = [await producer.send("t", b"%d" % i) for i in range(3)]
        assert [(await d).offset for d in deliveries] == [0, 1, 2]
    await other.stop()


async def test_a_producer_that_was_fenced_says_so_from_then_on(
    client: Client, frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.admin.create_topic("t")

    def fence(*_: Any, **__: Any) -> Any:
        raise ProducerFenced("another one has this identity now")

    monkeypatch.setattr(frontend.broker.records, "publish", fence)
    producer = await client.producer().start()
    first = await producer.send("t", b"x")
    with pytest.raises(ProducerFenced):
        await first
    with pytest.raises(ProducerFenced):
        await producer.send("t", b"x")
    await producer.close()


async def test_the_shared_producer_is_opened_again_after_it_failed(
    client: Client, frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.admin.create_topic("t")

    def fence(*_: Any, **__: Any) -> Any:
        raise ProducerFenced("another one has this identity now")

    with monkeypatch.context() as patch:
        patch.setattr(frontend.broker.records, "publish", fence)
        with pytest.raises(ProducerFenced):
            await client.publish("t", b"x")
    assert (await client.publish("t", b"x", partition=0)).offset == 0
