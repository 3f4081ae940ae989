"""Publishing: accepted and refused batches, and the meaning of a result."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from sparrow.base.errors import (
    CorruptBatch,
    InvalidArgument,
    InvalidRecord,
    InvalidTimestamp,
    NotAuthorized,
    OutOfOrderSequence,
    RecordTooLarge,
    UnknownProducer,
    UnsupportedCompression,
)
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.records.batch import CRC_START, split
from sparrow.records.builder import build_batch
from sparrow.records.record import decode
from tests.broker.batches import batch, values


async def everything(broker: Broker, topic: str = "orders", offset: int = 0) -> list[bytes | None]:
    (result,) = await broker.records.fetch([FetchRequest(topic, 0, offset)])
    assert result.error is None
    assert result.chunk is not None
    return values(result.chunk.data, offset)


def with_crc(data: bytes) -> bytes:
    import google_crc32c

    crc = google_crc32c.value(data[CRC_START:])
    return data[:17] + crc.to_bytes(4, "big") + data[CRC_START:]


@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_batches_get_consecutive_offsets_whatever_the_acks(broker: Broker, acks: int) -> None:
    await broker.topics.create("orders")
    first = await broker.records.publish("orders", 0, batch(b"a", b"b"), acks=acks)
    second = await broker.records.publish("orders", 0, batch(b"c"), acks=acks)
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    assert await everything(broker) == [b"a", b"b", b"c"]


async def test_acks_all_waits_for_stable_storage(broker: Broker) -> None:
    await broker.topics.create("orders")
    await broker.records.publish("orders", 0, batch(b"a"), acks=-1)
    assert broker.parts.topic_registry.get("orders").partition(0).log.durable_offset == 1


async def test_a_topic_may_lower_acks_all_to_the_page_cache(broker: Broker) -> None:
    await broker.topics.create("orders", 1, {"durability": "page-cache"})
    assert broker.records.publish("orders", 0, batch(b"a"), acks=-1).done()


async def test_a_wrong_crc_is_refused_and_nothing_is_appended(broker: Broker) -> None:
    await broker.topics.create("orders")
    data = bytearray(batch(b"a"))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        broker.records.publish("orders", 0, bytes(data))
    with pytest.raises(CorruptBatch):
        broker.records.publish("orders", 0, batch(b"a")[:-1])
    with pytest.raises(InvalidRecord):
        broker.records.publish("orders", 0, b"")
    assert await everything(broker) == []


async def test_batches_are_appended_all_or_none(broker: Broker) -> None:
    await broker.topics.create("orders")
    bad = bytearray(batch(b"b"))
    bad[-1] ^= 1
    with pytest.raises(CorruptBatch):
        broker.records.publish("orders", 0, batch(b"a") + bytes(bad))
    published = await broker.records.publish("orders", 0, batch(b"a") + batch(b"b", b"c"))
    assert (published.base_offset, published.last_offset) == (0, 2)


async def test_a_batch_over_max_message_bytes_is_refused_with_both_sizes(broker: Broker) -> None:
    await broker.topics.create("orders", 1, {"max.message.bytes": "1000"})
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes of the topic is 1000"):
        broker.records.publish("orders", 0, batch(b"x" * 1000))


async def test_control_batches_and_record_counts_that_lie_are_refused(broker: Broker) -> None:
    await broker.topics.create("orders")
    data = batch(b"a", b"b")
    control = with_crc(data[:21] + b"\x00\x20" + data[23:])
    with pytest.raises(InvalidRecord, match="control"):
        broker.records.publish("orders", 0, control)
    lying = with_crc(data[:57] + (3).to_bytes(4, "big") + data[61:])
    with pytest.raises(InvalidRecord, match="3 records"):
        broker.records.publish("orders", 0, lying)
    unknown = with_crc(data[:21] + b"\x00\x07" + data[23:])
    with pytest.raises(UnsupportedCompression):
        broker.records.publish("orders", 0, unknown)


async def test_a_record_from_the_far_future_is_refused(broker: Broker) -> None:
    await broker.topics.create("orders", 1, {"message.timestamp.before.max.ms": "1000"})
    now_ms = time.time_ns() // 1_000_000
    with pytest.raises(InvalidTimestamp, match=r"after\.max\.ms"):
        broker.records.publish("orders", 0, batch(b"x", timestamp_ms=now_ms + 7_200_000))
    with pytest.raises(InvalidTimestamp, match=r"before\.max\.ms"):
        broker.records.publish("orders", 0, batch(b"x", timestamp_ms=now_ms - 60_000))


async def test_log_append_time_is_stamped_and_returned(broker: Broker) -> None:
    await broker.topics.create("orders", 1, {"message.timestamp.type": "LogAppendTime"})
    published = await broker.records.publish("orders", 0, batch(b"a", b"b", timestamp_ms=1))
    (result,) = await broker.records.fetch([FetchRequest("orders", 0, 0)])
    assert result.chunk is not None
    records = decode(result.chunk.data)
    assert {r.timestamp for r in records} == {published.log_append_time_ms}
    assert published.log_append_time_ms > 1_700_000_000_000


@pytest.mark.parametrize(
    ("name", "code"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)]
)
async def test_a_topic_with_its_own_compression_recompresses(broker: Broker, name: str, code: int) -> None:
    await broker.topics.create("orders", 1, {"compression.type": name})
    await broker.records.publish("orders", 0, batch(b"a" * 1000, b"b" * 1000))
    (result,) = await broker.records.fetch([FetchRequest("orders", 0, 0)])
    assert result.chunk is not None
    ((header, _),) = split(result.chunk.data)
    assert header.compression == code
    assert values(result.chunk.data) == [b"a" * 1000, b"b" * 1000]


async def test_a_compacted_topic_refuses_records_without_a_key(broker: Broker) -> None:
    await broker.topics.create("orders", 1, {"cleanup.policy": "compact"})
    with pytest.raises(InvalidRecord, match="needs a key"):
        broker.records.publish("orders", 0, build_batch([b"a", b"b"], keys=[b"k", None], timestamps=[1, 1]))
    await broker.records.publish("orders", 0, batch(b"a", key=b"k"))


async def test_a_batch_sent_again_gets_the_first_result(broker: Broker) -> None:
    await broker.topics.create("orders")
    identity = await broker.records.open_producer()
    fields = {"producer_id": identity.producer_id, "producer_epoch": identity.epoch}
    one = batch(b"a", b"b", base_sequence=0, **fields)
    first = await broker.records.publish("orders", 0, one)
    await broker.records.publish("orders", 0, batch(b"c", base_sequence=2, **fields))
    assert await broker.records.publish("orders", 0, one) == first
    assert await everything(broker) == [b"a", b"b", b"c"]
    with pytest.raises(OutOfOrderSequence):
        broker.records.publish("orders", 0, batch(b"x", base_sequence=9, **fields))


async def test_a_batch_sent_again_is_recognised_after_a_restart(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("orders")
        identity = await broker.records.open_producer()
        one = batch(b"a", producer_id=identity.producer_id, producer_epoch=0, base_sequence=0)
        first = await broker.records.publish("orders", 0, one)
    async with Broker(tmp_path / "d") as broker:
        assert broker.records.resume_producer(identity.producer_id, identity.epoch) == identity
        assert await broker.records.publish("orders", 0, one) == first
        assert await everything(broker) == [b"a"]


async def test_a_batch_sent_again_gets_the_first_append_time_after_a_restart_too(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("orders", 1, {"message.timestamp.type": "LogAppendTime"})
        identity = await broker.records.open_producer()
        one = batch(b"a", producer_id=identity.producer_id, producer_epoch=0, base_sequence=0)
        first = await broker.records.publish("orders", 0, one)
        await asyncio.sleep(0.005)
        assert await broker.records.publish("orders", 0, one) == first
        assert first.log_append_time_ms > 0
    async with Broker(tmp_path / "d") as broker:
        assert await broker.records.publish("orders", 0, one) == first


async def test_producer_ids_never_repeat_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    seen = set()
    for _ in range(3):
        async with Broker(tmp_path / "d") as broker:
            seen |= {(await broker.records.open_producer()).producer_id for _ in range(3)}
            with pytest.raises(UnknownProducer):
                broker.records.resume_producer(10**9, 0)
    assert len(seen) == 9


class OnlyReaders:
    """An authorizer that allows only describing and reading."""

    def allows(self, principal: Principal, operation: Operation, kind: ResourceType, resource: str) -> bool:
        return principal == Principal("root") or operation in (Operation.DESCRIBE, Operation.READ)


async def test_the_authorizer_is_asked_by_every_operation(tmp_path: Path) -> None:
    root = Principal("root")
    async with Broker(tmp_path / "d", authorizer=OnlyReaders()) as broker:
        await broker.topics.create("orders", principal=root)
        assert broker.topics.describe("orders", principal=ANONYMOUS).name == "orders"
        with pytest.raises(NotAuthorized, match="not allowed to Write Topic 'orders'"):
            broker.records.publish("orders", 0, batch(b"x"))
        with pytest.raises(NotAuthorized):
            await broker.topics.create("other")
        with pytest.raises(NotAuthorized):
            await broker.topics.ensure("other")
        with pytest.raises(NotAuthorized):
            await broker.topics.delete("orders")
        with pytest.raises(NotAuthorized):
            await broker.topics.configure("orders", {})
        with pytest.raises(NotAuthorized):
            await broker.topics.add_partitions("orders", 9)
        with pytest.raises(NotAuthorized):
            await broker.topics.delete_records("orders", {0: 0})


async def test_acks_that_do_not_exist_are_refused(broker: Broker) -> None:
    await broker.topics.create("orders")
    with pytest.raises(InvalidArgument, match="acks 2"):
        broker.records.publish("orders", 0, batch(b"a"), acks=2)
    assert await everything(broker) == []


async def test_a_batch_that_grows_over_max_message_bytes_by_recompression_is_refused(broker: Broker) -> None:
    config = {"compression.type": "uncompressed", "max.message.bytes": "1000"}
    await broker.topics.create("orders", 1, config)
    small = build_batch([b"x" * 50_000], timestamps=[time.time_ns() // 1_000_000], compression=4)
    assert len(small) < 1000
    with pytest.raises(RecordTooLarge):
        broker.records.publish("orders", 0, small)
    assert await everything(broker) == []


async def test_a_batch_of_old_records_sent_again_after_a_crash_is_recognised_after_housekeeping_too(
    tmp_path: Path,
) -> None:
    config = BrokerConfig(retention_check_interval_ms=1 << 40)
    async with Broker(tmp_path / "d", config=config) as broker:
        await broker.topics.create("orders", 1, {"retention.ms": "-1"})
        identity = await broker.records.open_producer()
        old = batch(b"a", timestamp_ms=1, producer_id=identity.producer_id, producer_epoch=0, base_sequence=0)
        first = await broker.records.publish("orders", 0, old)
        shutil.copytree(tmp_path / "d", tmp_path / "crashed")
    async with Broker(tmp_path / "crashed", config=config) as broker:
        await broker._maintenance.walk()
        assert await broker.records.publish("orders", 0, old) == first
        assert await everything(broker) == [b"a"]
