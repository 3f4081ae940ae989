"""Records of published batches: refusals with their errors, and batches that take long to check."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from sparrow.base.errors import (
    Draining,
    InvalidRecord,
    InvalidTimestamp,
    OutOfOrderSequence,
    Overloaded,
    RecordTooLarge,
    UnknownTopic,
)
from sparrow.broker import record_checks
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.records.batch import parse_header, split
from sparrow.records.builder import CONTROL, TRANSACTIONAL, build_batch
from sparrow.records.compression import Compression
from sparrow.records.record import Record, decode
from tests.broker.batches import batch
from tests.records.malformed import CASES, NOW_MS, RIGHT, Case, batch_of, record, with_crc

CODECS = [codec.name.lower() for codec in Compression]
LARGE = record_checks.MAX_PLAIN_BYTES_ON_LOOP
EVERY_CODEC = pytest.mark.parametrize("codec", list(Compression), ids=CODECS)


async def records_of(broker: Broker, topic: str = "t") -> list[Record]:
    (result,) = await broker.records.fetch([FetchRequest(topic, 0, 0)])
    assert result.chunk is not None
    return [each for _, view in split(result.chunk.data) for each in decode(view)]


def large(count: int = 3, codec: int = Compression.ZSTD, **fields: int) -> bytes:
    """Return a batch that is checked in the thread: small, until it is decompressed."""
    return build_batch([bytes(LARGE)] * count, None, None, time.time_ns() // 1_000_000, codec, **fields)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@EVERY_CODEC
async def test_a_batch_with_a_right_crc_and_a_wrong_record_is_refused(
    broker: Broker, case: Case, codec: Compression
) -> None:
    await broker.topics.create("t", 1)
    data = batch_of(case.records, case.count, codec)
    with pytest.raises(
        InvalidRecord, match=rf"byte {case.at} of|follow the last|cannot be decompressed|empty"
    ) as failed:
        broker.records.publish("t", 0, data)
    if case.records and case.kind.name != "BATCH_REST":
        assert failed.value.record_indexes == (case.index,)
    assert broker.parts.topic_registry.get("t").partition(0).visible_end == 0


@pytest.mark.parametrize("name", RIGHT)
@EVERY_CODEC
async def test_a_batch_that_is_unusual_but_right_is_stored_as_it_is(
    broker: Broker, name: str, codec: Compression
) -> None:
    await broker.topics.create("t", 1)
    data = batch_of(RIGHT[name], 1, codec)
    await broker.records.publish("t", 0, data)
    (found,) = await records_of(broker)
    (sent,) = decode(data)
    assert (found.key, found.value, found.headers, found.timestamp) == (
        (sent.key, sent.value, sent.headers, sent.timestamp)
    )


@pytest.mark.parametrize("case", CASES[:3], ids=lambda case: case.name)
async def test_with_header_validation_records_are_not_looked_at(broker: Broker, case: Case) -> None:
    await broker.topics.create("t", 1, {"record.validation": "header"})
    await broker.records.publish("t", 0, batch_of(case.records, case.count))
    assert broker.parts.topic_registry.get("t").partition(0).visible_end == case.count


async def test_the_broker_has_a_default_for_its_topics_and_a_topic_its_own(tmp_path: Path) -> None:
    config = BrokerConfig(topic_defaults={"record.validation": "header"})
    async with Broker(tmp_path / "data", config=config) as broker:
        await broker.topics.create("header", 1)
        await broker.topics.create("full", 1, {"record.validation": "full"})
        await broker.records.publish("header", 0, batch_of(b"", 1))
        with pytest.raises(InvalidRecord):
            broker.records.publish("full", 0, batch_of(b"", 1))


@pytest.mark.parametrize("codec", list(Compression)[1:], ids=CODECS[1:])
async def test_records_that_cannot_be_decompressed_are_refused_for_good(
    broker: Broker, codec: Compression
) -> None:
    await broker.topics.create("t", 1)
    good = bytearray(build_batch([b"x" * 50, b"y" * 50], None, None, NOW_MS, codec))
    good[61:65] = b"\xff\xff\xff\xff"
    with pytest.raises(InvalidRecord, match=r"cannot be decompressed|have no"):
        broker.records.publish("t", 0, with_crc(good))


@pytest.mark.parametrize("codec", list(Compression)[1:], ids=CODECS[1:])
async def test_a_batch_that_becomes_too_large_is_refused_and_the_limit_is_the_topics(
    broker: Broker, codec: Compression
) -> None:
    await broker.topics.create("t", 1, {"record.validation.max.bytes": "1000"})
    with pytest.raises(RecordTooLarge, match="1000"):
        broker.records.publish("t", 0, build_batch([bytes(1000)], None, None, NOW_MS, codec))
    await broker.records.publish("t", 0, build_batch([bytes(900)], None, None, NOW_MS, codec))


@pytest.mark.parametrize("codec", list(Compression)[1:], ids=CODECS[1:])
async def test_a_bomb_is_refused_without_the_memory_that_it_would_become(
    broker: Broker, codec: Compression
) -> None:
    await broker.topics.create("t", 1, {"record.validation.max.bytes": str(2 << 20)})
    bomb = build_batch([bytes(20 << 20)], None, None, NOW_MS, codec)
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge, match=str(2 << 20)):
            await broker.records.publish("t", 0, bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(bomb) + (8 << 20)


async def test_each_record_has_to_be_of_the_time_that_the_topic_takes(broker: Broker) -> None:
    await broker.topics.create("t", 1, {"message.timestamp.before.max.ms": "60000"})
    now = time.time_ns() // 1_000_000
    times = [now, now - 3_600_000, -1, now, now + 7_200_000]
    data = batch_of(
        b"".join(record(n, timestamp=each - now) for n, each in enumerate(times)),
        5,
        base_timestamp=now,
        max_timestamp=now,  # which is wrong
    )
    with pytest.raises(InvalidTimestamp, match=r"before\.max\.ms") as failed:
        broker.records.publish("t", 0, data)
    assert failed.value.record_indexes == (1, 4)
    await broker.records.publish(
        "t", 0, batch_of(record(timestamp=-now - 1), 1, base_timestamp=now, max_timestamp=-1)
    )


async def test_the_greatest_timestamp_of_a_batch_is_mended_as_kafka_does(broker: Broker) -> None:
    await broker.topics.create("t", 1)
    data = batch_of(record(0, timestamp=5) + record(1, timestamp=3), 2, max_timestamp=0)
    await broker.records.publish("t", 0, data)
    (result,) = await broker.records.fetch([FetchRequest("t", 0, 0)])
    assert result.chunk is not None
    ((header, stored),) = split(result.chunk.data)
    assert header.max_timestamp == NOW_MS + 5
    assert stored[61:] == data[61:]


async def test_a_publisher_may_not_say_that_the_broker_stamped_the_time(broker: Broker) -> None:
    for kind in ("CreateTime", "LogAppendTime"):
        await broker.topics.create(kind, 1, {"message.timestamp.type": kind})
        with pytest.raises(InvalidTimestamp, match="CreateTime"):
            broker.records.publish(kind, 0, batch_of(record(), 1, attributes=0x08))


async def test_a_publisher_may_not_write_control_batches(broker: Broker) -> None:
    await broker.topics.create("t", 1)
    for attributes in (CONTROL, CONTROL | TRANSACTIONAL):
        with pytest.raises(InvalidRecord, match="control batch"):
            broker.records.publish(
                "t", 0, batch_of(record(), 1, attributes=attributes, producer_id=1, producer_epoch=0)
            )


async def test_a_batch_of_a_producer_has_a_sequence(broker: Broker) -> None:
    await broker.topics.create("t", 1)
    with pytest.raises(InvalidRecord, match="sequence"):
        broker.records.publish("t", 0, batch_of(record(), 1, producer_id=1, producer_epoch=0))


async def test_a_compacted_topic_names_the_records_without_a_key(broker: Broker) -> None:
    await broker.topics.create("t", 1, {"cleanup.policy": "compact"})
    keys = [b"k", None, b"k", None]
    for codec in Compression:
        with pytest.raises(InvalidRecord, match="every record needs a key") as failed:
            broker.records.publish("t", 0, build_batch([b"v"] * 4, keys, None, NOW_MS, codec))
        assert failed.value.record_indexes == (1, 3)


# ── batches that take long ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that checks in the thread wait for."""
    go_on = threading.Event()
    check = record_checks.check

    def waiting(work: record_checks.Work) -> object:
        assert go_on.wait(20)
        return check(work)

    monkeypatch.setattr(record_checks, "check", waiting)
    return go_on


@pytest.mark.parametrize("codec", list(Compression)[1:], ids=CODECS[1:])
async def test_a_batch_that_becomes_large_is_checked_in_a_thread_and_stored(
    broker: Broker, codec: Compression
) -> None:
    await broker.topics.create("t", 1)
    promise = broker.records.publish("t", 0, large(codec=codec))
    assert not promise.done()
    assert (await promise).last_offset == 2
    assert [len(each.value or b"") for each in await records_of(broker)] == [LARGE] * 3


async def test_a_large_batch_with_a_wrong_record_fails_its_promise(broker: Broker) -> None:
    await broker.topics.create("t", 1)
    records = record(0, value=(LARGE, bytes(LARGE))) + record(1, key=(-2, b""))
    with pytest.raises(InvalidRecord) as failed:
        await broker.records.publish("t", 0, batch_of(records, 2, Compression.ZSTD))
    assert failed.value.record_indexes == (1,)
    assert broker.parts.topic_registry.get("t").partition(0).visible_end == 0


async def test_batches_behind_a_large_one_wait_and_other_partitions_do_not(
    broker: Broker, held: threading.Event
) -> None:
    await broker.topics.create("t", 2)
    identity = await broker.records.open_producer()
    producer = {"producer_id": identity.producer_id, "producer_epoch": 0}
    reused = bytearray(large(base_sequence=0, **producer))
    first = broker.records.publish("t", 0, memoryview(reused))
    reused[:] = bytes(len(reused))  # the caller may reuse its buffer
    second = broker.records.publish("t", 0, batch(b"a", base_sequence=3, **producer))
    wrong = broker.records.publish("t", 0, batch(b"b", base_sequence=9, **producer))
    third = broker.records.publish("t", 0, batch(b"c", base_sequence=4, **producer))
    other = await broker.records.publish("t", 1, batch(b"d"))
    assert other.base_offset == 0
    assert not any(each.done() for each in (first, second, wrong, third))
    held.set()
    assert [(await each).base_offset for each in (first, second, third)] == [0, 3, 4]
    with pytest.raises(OutOfOrderSequence):
        await wrong


async def test_too_many_waiting_bytes_are_refused_and_accepted_batches_are_stored(
    broker: Broker, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t", 1)
    data = large()
    monkeypatch.setattr(record_checks, "MAX_WAITING_BYTES", 3 * len(data))
    taken = [broker.records.publish("t", 0, data) for _ in range(3)]
    with pytest.raises(Overloaded, match="try again"):
        broker.records.publish("t", 0, data)
    held.set()
    assert [(await each).base_offset for each in taken] == [0, 3, 6]
    assert (await broker.records.publish("t", 0, data)).base_offset == 9


async def test_deleting_a_topic_fails_its_waiting_publishes(broker: Broker, held: threading.Event) -> None:
    await broker.topics.create("t", 1)
    waiting = [broker.records.publish("t", 0, data) for data in (large(), batch(b"a"))]
    await broker.topics.delete("t")
    held.set()
    for each in waiting:
        with pytest.raises(UnknownTopic):
            await each


async def test_a_publisher_that_goes_away_leaves_the_others_alone(
    broker: Broker, held: threading.Event
) -> None:
    await broker.topics.create("t", 1)
    gone = broker.records.publish("t", 0, large())
    stays = broker.records.publish("t", 0, batch(b"a"))
    gone.cancel()
    held.set()
    assert (await stays).base_offset == 3


async def test_closing_the_broker_stores_waiting_publishes_and_accepts_no_more(
    tmp_path: Path, held: threading.Event
) -> None:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as broker:
        await broker.topics.create("t", 1)
        waiting = broker.records.publish("t", 0, large())
        closing = asyncio.create_task(broker.close())
        await asyncio.sleep(0)
        held.set()
        await closing
        assert (await waiting).last_offset == 2
        with pytest.raises(Draining):
            broker.records.publish("t", 0, large())


async def test_a_large_batch_gets_the_compression_of_its_topic(broker: Broker) -> None:
    await broker.topics.create("t", 1, {"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"})
    published = await broker.records.publish("t", 0, large())
    (result,) = await broker.records.fetch([FetchRequest("t", 0, 0)])
    assert result.chunk is not None
    header = parse_header(result.chunk.data)
    assert (header.compression, header.max_timestamp) == (Compression.LZ4, published.log_append_time_ms)
    assert len(await records_of(broker)) == 3


async def test_very_many_records_are_checked_in_the_thread(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t", 1)
    monkeypatch.setattr(record_checks, "MAX_RECORDS_ON_LOOP", 10)
    assert broker.records.publish("t", 0, batch(*[b""] * 10), acks=1).done()
    promise = broker.records.publish("t", 0, batch(*[b""] * 11), acks=1)
    assert not promise.done()
    assert (await promise).base_offset == 10


async def test_many_small_bombs_in_one_publish_do_not_hold_the_loop(broker: Broker) -> None:
    await broker.topics.create("t", 1)
    bomb = build_batch([bytes(LARGE - 100)], None, None, NOW_MS, Compression.ZSTD)
    promise = broker.records.publish("t", 0, bomb * 20)
    assert not promise.done()
    assert (await promise).last_offset == 19
