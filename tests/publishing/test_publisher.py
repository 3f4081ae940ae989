"""Results of publishes, compared with the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import (
    InvalidTimestamp,
    InvalidTopicName,
    NotAuthorized,
    RecordTooLarge,
    SparrowError,
    UnknownPartition,
)
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import ANONYMOUS, SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.frontends.publisher import (
    Message,
    MessageColumns,
    Publisher,
    PublishResult,
    PublishTerms,
    Stored,
    make_runs,
)
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.partitioner import partition_for_key
from sparrow.records.record import Record, decode


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def publisher(broker: Broker) -> Publisher:
    return Publisher(broker)


async def stored(broker: Broker, topic: str) -> dict[tuple[int, int], Record]:
    """Return everything in the log, by partition and offset."""
    found: dict[tuple[int, int], Record] = {}
    for partition in range(len(broker.parts.topic_registry.get(topic).partitions)):
        offset = 0
        while True:
            (fetched,) = await broker.records.fetch(
                [FetchRequest(topic, partition, offset)], principal=SYSTEM
            )
            if fetched.chunk is None or not fetched.chunk.data:
                break
            records = [r for _, batch in split(fetched.chunk.data) for r in decode(batch)]
            found |= {(partition, record.offset): record for record in records}
            offset = records[-1].offset + 1
    return found


def placed(result: PublishResult) -> Stored:
    assert isinstance(result, Stored), result
    return result


async def test_each_message_is_where_its_result_says(broker: Broker, publisher: Publisher) -> None:
    messages = [
        Message(b"%d" % n, b"k%d" % (n % 7) if n % 3 else None, [("h", b"%d" % n)], timestamp_ms=1000 + n)
        for n in range(200)
    ]
    outcomes = await publisher.publish("t", messages, principal=ANONYMOUS)

    records = await stored(broker, "t")
    assert len(records) == len(messages)
    for message, result in zip(messages, outcomes, strict=True):
        at = placed(result)
        record = records[at.partition, at.offset]
        assert (record.value, record.key, record.headers) == (
            message.value,
            message.key,
            tuple(message.headers),
        )
        assert record.timestamp == at.timestamp_ms == message.timestamp_ms


async def test_equal_keys_go_where_kafka_clients_send_them_and_keep_their_order(
    broker: Broker, publisher: Publisher
) -> None:
    outcomes = await publisher.publish(
        "t", [Message(b"%d" % n, b"alice") for n in range(50)], principal=ANONYMOUS
    )

    places = [placed(result) for result in outcomes]
    assert {place.partition for place in places} == {partition_for_key(b"alice", 4)}
    assert [place.offset for place in places] == list(range(50))


async def test_messages_without_key_visit_all_partitions_call_by_call(publisher: Publisher) -> None:
    visited = set()
    for _ in range(4):
        outcomes = await publisher.publish("t", [Message(b"a"), Message(b"b")], principal=ANONYMOUS)
        partitions = {placed(result).partition for result in outcomes}
        assert len(partitions) == 1
        visited |= partitions
    assert visited == {0, 1, 2, 3}


async def test_a_message_that_no_batch_can_hold_is_refused_alone(
    broker: Broker, publisher: Publisher
) -> None:
    await broker.topics.create("t", 1, {"max.message.bytes": "1000"})

    outcomes = await publisher.publish(
        "t",
        [Message(b"a" * 600), Message(b"b" * 2000), Message(b"c" * 600), Message(b"d")],
        principal=ANONYMOUS,
    )

    assert isinstance(outcomes[1], RecordTooLarge)
    assert [placed(outcomes[n]).offset for n in (0, 2, 3)] == [0, 1, 2]
    assert [r.value for r in (await stored(broker, "t")).values()] == [b"a" * 600, b"c" * 600, b"d"]


@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    limit=st.integers(200, 600),
)
def test_batches_never_exceed_the_limit_and_hold_each_message_once_in_order(
    sizes: list[int], limit: int
) -> None:
    runs = make_runs(
        [Message(bytes(size), b"%d" % n) for n, size in enumerate(sizes)], PublishTerms(0, 1, 0, 1000, limit)
    )

    fits = [len(build_batch([bytes(size)], [b"%d" % n])) <= limit for n, size in enumerate(sizes)]
    refused = [place for run in runs if isinstance(run.data, SparrowError) for place in run.indexes]
    assert refused == [place for place, is_fit in enumerate(fits) if not is_fit]
    kept = [batch for run in runs if isinstance(run.data, bytes) for _, batch in split(run.data)]
    assert all(len(batch) <= limit for batch in kept)
    records = [record for batch in kept for record in decode(batch)]
    assert [(record.key, len(record.value or b"")) for record in records] == [
        (b"%d" % n, size) for n, size in enumerate(sizes) if fits[n]
    ]


@given(
    value=st.none() | st.binary(max_size=300),
    key=st.none() | st.binary(max_size=300),
    headers=st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), max_size=20), st.none() | st.binary(max_size=90))
    ),
)
def test_the_estimated_size_is_never_too_small(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    small = len(build_batch([None], None, None, 0))
    real = len(build_batch([value], [key], [headers], 0)) - small
    assert real <= MessageColumns.of([Message(value, key, headers)]).estimate_bytes()


async def test_a_wrong_timestamp_appends_nothing_at_all(broker: Broker, publisher: Publisher) -> None:
    with pytest.raises(InvalidTimestamp):
        await publisher.publish(
            "t", [Message(b"a", b"x"), Message(b"b", b"y", (), 1 << 63)], principal=ANONYMOUS
        )

    assert await stored(broker, "t") == {}


async def test_nothing_is_appended_without_the_right_to_write(broker: Broker, publisher: Publisher) -> None:
    await broker.topics.create("t", 1)
    rule = AclBinding(
        ResourceType.TOPIC, "t", PatternType.LITERAL, "User:root", "*", Operation.WRITE, Permission.ALLOW
    )
    await broker.acls.create([rule], principal=SYSTEM)

    with pytest.raises(NotAuthorized):
        await publisher.publish("t", [Message(b"a")], principal=Principal("eve"))
    assert await stored(broker, "t") == {}


async def test_a_partition_or_topic_that_cannot_be_is_refused_at_once(publisher: Publisher) -> None:
    with pytest.raises(UnknownPartition):
        await publisher.publish("t", [Message(b"a")], partition=4, principal=ANONYMOUS)
    with pytest.raises(InvalidTopicName):
        await publisher.publish("no/slash", [Message(b"a")], principal=ANONYMOUS)


async def test_a_message_without_key_on_a_compacted_topic_fails_its_partition_only(
    broker: Broker, publisher: Publisher
) -> None:
    await broker.topics.create("t", 2, {"cleanup.policy": "compact"})
    keyed = next(key for key in (b"a", b"b", b"c", b"d") if partition_for_key(key, 2) == 1)

    outcomes = await publisher.publish("t", [Message(b"x"), Message(b"y", keyed)], principal=ANONYMOUS)

    assert isinstance(outcomes[0], SparrowError)
    assert placed(outcomes[1]).partition == 1


async def test_columns_are_stored_as_the_same_messages_are(broker: Broker, publisher: Publisher) -> None:
    values = [b"%d" % n for n in range(30)]
    keys = [b"k%d" % (n % 3) if n % 2 else None for n in range(30)]
    await publisher.ensure("t", principal=ANONYMOUS)
    parts = publisher.begin("t", MessageColumns(values, keys), principal=ANONYMOUS)
    for part in parts:
        await part.published

    records = await stored(broker, "t")
    for part in parts:
        for place, result in part.results():
            at = placed(result)
            record = records[at.partition, at.offset]
            assert (record.value, record.key) == (values[place], keys[place])
    assert len(records) == 30


async def test_no_messages_are_no_work(publisher: Publisher) -> None:
    assert await publisher.publish("t", [], principal=ANONYMOUS) == []
