"""Single messages that are appended together: each gets the result that it would get alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import (
    InvalidRecord,
    InvalidTimestamp,
    NotAuthorized,
    RecordTooLarge,
    SparrowError,
    StorageFailed,
    UnknownPartition,
)
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import ANONYMOUS, SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.frontends.coalescer import MAX_COALESCED_BYTES, Coalescer
from sparrow.frontends.publisher import Message, PublishResult, Stored
from sparrow.records.batch import split
from sparrow.records.record import Record, decode

ALICE, BOB = Principal("alice", host="10.0.0.1"), Principal("bob", host="10.0.0.2")


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", config=BrokerConfig(default_partitions=1)) as running:
        yield running


@pytest.fixture
def publisher(broker: Broker) -> Coalescer:
    return Coalescer(broker)


async def batches(broker: Broker, topic: str, partition: int = 0) -> list[list[Record]]:
    found: list[list[Record]] = []
    offset = 0
    while True:
        (fetched,) = await broker.records.fetch([FetchRequest(topic, partition, offset)], principal=SYSTEM)
        if fetched.chunk is None or not fetched.chunk.data:
            return found
        found += [decode(batch) for _, batch in split(fetched.chunk.data)]
        offset = fetched.chunk.next_offset


async def publish(
    publisher: Coalescer,
    *messages: Message,
    topic: str = "t",
    who: Principal = ANONYMOUS,
    acks: int = -1,
) -> list[PublishResult | BaseException]:
    """Publish each message by a call of its own, concurrently."""
    calls = [publisher.publish(topic, [message], principal=who, acks=acks) for message in messages]
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [each if isinstance(each, BaseException) else each[0] for each in results]


async def test_messages_of_one_loop_iteration_are_one_batch(broker: Broker, publisher: Coalescer) -> None:
    await broker.topics.create("t")
    results = await publish(publisher, *(Message(b"%d" % number) for number in range(50)))
    (batch,) = await batches(broker, "t")
    assert [record.value for record in batch] == [b"%d" % number for number in range(50)]
    assert results == [Stored(0, record.offset, record.timestamp) for record in batch]


async def test_a_message_that_is_refused_takes_no_other_with_it(broker: Broker, publisher: Coalescer) -> None:
    await broker.topics.create("t", config={"cleanup.policy": "compact", "max.message.bytes": "1000"})
    good = [Message(b"a", b"k"), Message(b"b", b"k"), Message(b"c", b"k")]
    bad = [Message(b"no key"), Message(b"x" * 2000, b"k"), Message(b"x", b"k", timestamp_ms=1 << 63)]
    results = await publish(publisher, good[0], bad[0], good[1], bad[1], bad[2], good[2])
    assert [type(each) for each in results] == [
        Stored,
        InvalidRecord,
        Stored,
        RecordTooLarge,
        InvalidTimestamp,
        Stored,
    ]
    stored = [record for batch in await batches(broker, "t") for record in batch]
    assert {record.offset: record.value for record in stored} == {
        each.offset: message.value
        for message, each in zip([good[0], None, good[1], None, None, good[2]], results, strict=True)
        if isinstance(each, Stored) and message is not None
    }


async def test_rights_are_those_of_each_caller(broker: Broker, publisher: Coalescer) -> None:
    await broker.topics.create("t")
    rule = AclBinding(
        ResourceType.TOPIC,
        "t",
        PatternType.LITERAL,
        "User:alice",
        "10.0.0.1",
        Operation.WRITE,
        Permission.ALLOW,
    )
    assert await broker.acls.create([rule], principal=SYSTEM) == [None]
    elsewhere = Principal("alice", host="10.9.9.9")
    results = await asyncio.gather(
        *(publish(publisher, Message(who.host.encode()), who=who) for who in (ALICE, BOB, elsewhere, ALICE))
    )
    assert [type(each[0]) for each in results] == [Stored, NotAuthorized, NotAuthorized, Stored]
    assert [r.value for batch in await batches(broker, "t") for r in batch] == [b"10.0.0.1", b"10.0.0.1"]


async def test_topics_are_made_and_partitions_checked(publisher: Coalescer) -> None:
    assert await publish(publisher, Message(b"a"), Message(b"b"), topic="new") != []
    with pytest.raises(UnknownPartition):
        await publisher.publish("new", [Message(b"a")], partition=7, principal=ANONYMOUS)


async def test_large_messages_and_lists_go_by_themselves(broker: Broker, publisher: Coalescer) -> None:
    await broker.topics.create("t")
    large = Message(bytes(MAX_COALESCED_BYTES + 1))
    results = await asyncio.gather(
        publisher.publish("t", [large], principal=ANONYMOUS),
        publisher.publish("t", [Message(b"a"), Message(b"b")], principal=ANONYMOUS),
        publisher.publish("t", [], principal=ANONYMOUS),
    )
    assert [len(each) for each in results] == [1, 2, 0]
    assert [len(batch) for batch in await batches(broker, "t")] == [1, 2]


async def test_a_cancelled_caller_does_not_affect_others(broker: Broker, publisher: Coalescer) -> None:
    await broker.topics.create("t")
    calls = [
        asyncio.ensure_future(publisher.publish("t", [Message(b"%d" % n)], principal=ANONYMOUS))
        for n in range(3)
    ]
    while not publisher._pending_by_key:
        await asyncio.sleep(0)
    calls[1].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert [r.value for batch in await batches(broker, "t") for r in batch] == [b"0", b"1", b"2"]


async def test_a_failure_of_the_disk_fails_all(
    broker: Broker, publisher: Coalescer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t")
    failure: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(broker.records, "publish", lambda *_, **__: failure)
    asyncio.get_running_loop().call_later(0.01, failure.set_exception, StorageFailed("the disk is gone"))
    results = await publish(publisher, Message(b"a"), Message(b"b"))
    assert [type(each) for each in results] == [StorageFailed, StorageFailed]


async def test_a_bug_fails_the_waiting_callers(
    broker: Broker, publisher: Coalescer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(broker.records, "publish", broken)
    results = await publish(publisher, Message(b"a"), Message(b"b"))
    assert [type(each) for each in results] == [ZeroDivisionError, ZeroDivisionError]


MESSAGES = st.builds(
    Message,
    st.one_of(st.none(), st.binary(max_size=30), st.just(bytes(2000))),
    st.one_of(st.none(), st.binary(max_size=3)),
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2),
    st.sampled_from([-1, -1, -1, 0, 17, 1 << 61, 1 << 63]),
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    turns=st.lists(st.lists(st.tuples(MESSAGES, st.sampled_from([-1, 1])), max_size=12), max_size=4),
    policy=st.sampled_from(["delete", "compact"]),
)
async def test_results_are_those_of_the_log(
    turns: list[list[tuple[Message, int]]], policy: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with Broker(tmp_path_factory.mktemp("gathered")) as broker:
        publisher = Coalescer(broker)
        await broker.topics.create("t", 3, {"cleanup.policy": policy, "max.message.bytes": "1000"})
        expected: dict[tuple[int, int], Message] = {}
        for turn in turns:
            calls = [publisher.publish("t", [m], acks=acks, principal=ANONYMOUS) for m, acks in turn]
            for (message, _), result in zip(
                turn, await asyncio.gather(*calls, return_exceptions=True), strict=True
            ):
                told = result if isinstance(result, BaseException) else result[0]
                if isinstance(told, Stored):
                    expected[told.partition, told.offset] = message
                else:
                    assert isinstance(told, SparrowError)
                    assert _is_wrong(message, policy), (message, told)
        found = {
            (partition, record.offset): record
            for partition in range(3)
            for batch in await batches(broker, "t", partition)
            for record in batch
        }
        assert found.keys() == expected.keys()
        for place, message in expected.items():
            record = found[place]
            assert (record.key, record.value, list(record.headers)) == (
                message.key,
                message.value,
                list(message.headers),
            )


def _is_wrong(message: Message, policy: str) -> bool:
    return (
        len(message.value or b"") > 900
        or message.timestamp_ms > 1 << 60
        or (policy == "compact" and message.key is None)
    )
