"""FETCH: records of a partition by offset, and the errors for offsets outside of it."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.authz import Principal
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import Listener, OpenListener, RawClient, batch_of, values_of

if TYPE_CHECKING:
    from pathlib import Path


async def filled(broker: Broker, topic: str, *batches: list[bytes]) -> None:
    if broker.parts.topic_registry.find(topic) is None:
        await broker.topics.create(topic, 1)
    for values in batches:
        await broker.records.publish(topic, 0, batch_of(*values), acks=1)


async def fetch(client: RawClient, topic: str = "orders", **wanted: Any) -> m.Fetched:
    client.send(m.Fetch(7, topic, **{"topic_id": "", "partition": 0, "offset": 0, **wanted}))
    response = await client.expect(m.Fetched)
    assert response.ref == 7
    return response


async def test_a_fetch_gives_the_batches_as_they_lie_in_the_log(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a", b"b"], [b"c"], [b"d", b"e"])
    head = await fetch(client)
    chunk = broker.parts.topic_registry.get("orders").partitions[0].log.read_nowait(0, 1 << 20)
    assert chunk is not None
    assert client.batches == bytes(chunk.data)
    assert head == m.Fetched(7, None, 5, 0, 5, 5, [])


async def test_the_batch_that_holds_the_offset_comes_first_and_whole(
    broker: Broker, client: RawClient
) -> None:
    await filled(broker, "orders", [b"a", b"b"], [b"c", b"d"], [b"e"])
    head = await fetch(client, offset=3, max_bytes=1)
    assert values_of(client.batches) == [b"c", b"d"]
    assert values_of(client.batches, 3) == [b"d"]
    assert head.next_offset == 4


async def test_at_the_end_there_is_nothing_and_that_is_no_failure(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a"])
    assert await fetch(client, offset=1) == m.Fetched(7, None, 1, 0, 1, 1, [])
    assert client.batches == b""


async def test_fetches_under_way_are_answered_in_the_order_of_asking(
    broker: Broker, client: RawClient
) -> None:
    await filled(broker, "orders", *[[b"%d" % number] for number in range(20)])
    for offset in reversed(range(20)):
        client.send(m.Fetch(offset, "orders", "", 0, offset, 1))
    for offset in reversed(range(20)):
        head = await client.expect(m.Fetched)
        assert head.ref == offset
        assert values_of(client.batches) == [b"%d" % offset]


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        ({"topic": "none"}, "UNKNOWN_TOPIC", "none"),
        ({"partition": 1}, "UNKNOWN_PARTITION", "0 to 0"),
        ({"partition": -1}, "UNKNOWN_PARTITION", "-1"),
        ({"offset": 9}, "OFFSET_OUT_OF_RANGE", "0 to 1 .*; 9"),
        ({"offset": -1}, "INVALID_ARGUMENT", "offset -1"),
        ({"max_bytes": 0}, "INVALID_ARGUMENT", "max_bytes 0"),
        ({"wait_ms": -5}, "INVALID_ARGUMENT", "wait_ms -5"),
        ({"isolation": "serializable"}, "INVALID_ARGUMENT", "read_committed"),
        ({"topic_id": "x" * 200}, "INVALID_ARGUMENT", "no UUID"),
    ],
)
async def test_wrong_fetch_fails_alone(
    broker: Broker, client: RawClient, wanted: dict[str, Any], code: str, text: str
) -> None:
    await filled(broker, "orders", [b"a"])
    head = await fetch(client, **wanted)
    assert head.failure is not None
    assert head.failure.code == code
    with pytest.raises(InvalidArgument, match=text):
        raise InvalidArgument(head.failure.text)
    assert (await fetch(client)).next_offset == 1


async def test_an_offset_outside_of_the_log_is_refused_with_where_it_is(
    broker: Broker, client: RawClient
) -> None:
    await filled(broker, "orders", [b"a"], [b"b"], [b"c"])
    await broker.topics.delete_records("orders", {0: 2})
    head = await fetch(client, offset=1)
    assert (head.start_offset, head.end_offset, head.stable_offset) == (2, 3, 3)
    assert head.failure is not None
    assert head.failure.code == "OFFSET_OUT_OF_RANGE"


async def test_a_topic_that_was_made_again_is_another_by_its_id(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"old"])
    before = str(broker.parts.topic_registry.get("orders").id)
    assert (await fetch(client, topic_id=before)).failure is None
    await broker.topics.delete("orders")
    await filled(broker, "orders", [b"new"])
    after = str(broker.parts.topic_registry.get("orders").id)
    head = await fetch(client, topic_id=before)
    assert head.failure is not None
    assert head.failure.code == "UNKNOWN_TOPIC_ID"
    assert before in head.failure.text
    assert after in head.failure.text
    assert client.batches == b""
    assert (await fetch(client, topic_id=after)).failure is None
    assert (await fetch(client)).failure is None


async def test_a_fetch_waits_for_the_first_record(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a"])
    client.send(m.Fetch(1, "orders", "", 0, 1, wait_ms=5000))
    assert await client.nothing_comes()
    await filled(broker, "orders", [b"b"])
    head = await client.expect(m.Fetched)
    assert (head.next_offset, values_of(client.batches)) == (2, [b"b"])


async def test_a_fetch_that_waits_ends_with_nothing_when_its_time_is_over(
    broker: Broker, client: RawClient
) -> None:
    await filled(broker, "orders", [b"a"])
    assert (await fetch(client, offset=1, wait_ms=10)).next_offset == 1


async def test_a_fetch_that_waits_learns_that_its_topic_is_gone(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a"])
    client.send(m.Fetch(1, "orders", "", 0, 1, wait_ms=5000))
    assert await client.nothing_comes()
    await broker.topics.delete("orders")
    head = await client.expect(m.Fetched)
    assert head.failure is not None
    assert head.failure.code == "UNKNOWN_TOPIC"


async def test_a_draining_broker_lets_no_client_wait(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await filled(broker, "orders", [b"a"])
    client.send(m.Fetch(1, "orders", "", 0, 1, wait_ms=5000))
    client.send(m.Fetch(2, "orders", "", 0, 1, wait_ms=5000))
    client.send(
        m.Request(3, "topic.watch", {"topics": ["orders"], "known": {"orders": {0: 1}}, "wait_ms": 5000})
    )
    assert await client.nothing_comes()
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    heads = [(await client.receive()).head for _ in range(4)]
    assert {type(head) for head in heads} == {m.Goodbye, m.Fetched, m.Response}
    client.send(m.Goodbye())
    async with asyncio.timeout(4):
        await draining


@pytest.mark.slow
async def test_a_client_that_has_nothing_open_does_not_hold_up_a_drain(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await filled(broker, "orders", [b"a"])
    await fetch(client)
    async with asyncio.timeout(4):
        await listener.frontend.drain(60)


@pytest.mark.slow
async def test_a_client_with_a_pending_response_is_waited_for(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, write_high_water_bytes=10_000)
    await filled(broker, "orders", *[[bytes(1_000_000)]] * 20)
    client = await listener.client()
    for offset in range(20):
        client.send(m.Fetch(offset, "orders", "", 0, offset, 1))
    draining = asyncio.ensure_future(listener.frontend.drain(60))
    await asyncio.wait([draining], timeout=0.6)
    heads = [(await client.receive()).head for _ in range(21)]
    assert [head.ref for head in heads if isinstance(head, m.Fetched)] == list(range(20))
    client.send(m.Goodbye())
    async with asyncio.timeout(4):
        await draining


async def test_a_goodbye_ends_the_wait_and_the_answer_still_comes(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a"])
    client.send(m.Fetch(1, "orders", "", 0, 1, wait_ms=5000))
    client.send(m.Goodbye())
    async with asyncio.timeout(4):
        assert (await client.expect(m.Fetched)).next_offset == 1
        await client.expect(m.Goodbye)


async def test_a_lost_client_leaves_nothing_behind(broker: Broker, listener: Listener) -> None:
    await filled(broker, "orders", [b"a"])
    client = await listener.client()
    for ref in range(10):
        client.send(m.Fetch(ref, "orders", "", 0, 1, wait_ms=5000))
    assert await client.nothing_comes()
    client.close()
    async with asyncio.timeout(5):
        while (
            listener.frontend.connections or broker.parts.topic_registry.get("orders").partitions[0]._waiters
        ):
            await asyncio.sleep(0)


async def test_a_client_that_asks_much_and_reads_nothing_gets_little(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, write_high_water_bytes=10_000)
    size = 1_000_000
    await filled(broker, "orders", *[[bytes(size)]] * 40)
    client = await listener.client()
    for offset in range(40):
        client.send(m.Fetch(offset, "orders", "", 0, offset, size))
    other = await listener.client()
    partition = broker.parts.topic_registry.get("orders").partitions[0]
    for _ in range(20):
        await other.call("topic.list")
    (session,) = (s for s in listener.frontend.open_connections if s._fetches is not None)
    assert session.unsent_bytes < 2 * size
    assert partition.bytes_out < 12 * size  # the rest is in the kernel's buffers
    for offset in range(40):
        head = await client.expect(m.Fetched)
        assert (head.ref, head.next_offset) == (offset, offset + 1)
    assert partition.records_out == 40


async def test_more_fetches_than_may_wait_are_not_read_before_others_are_answered(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, max_waiting_work=10)
    await filled(broker, "orders", [b"a"])
    client = await listener.client()
    for ref in range(500):
        client.send(m.Fetch(ref, "orders", "", 0, 0))
    assert [(await client.expect(m.Fetched)).ref for _ in range(500)] == list(range(500))


async def test_a_batch_that_fits_into_no_frame_is_reported(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, max_frame_bytes=10_000)
    await filled(broker, "orders", [bytes(20_000)], [b"small"])
    client = await listener.client()
    head = await fetch(client)
    assert head.failure is not None
    assert head.failure.code == "RECORD_TOO_LARGE"
    assert (await fetch(client, offset=1)).failure is None


async def test_the_frontend_gives_at_most_its_own_limit(broker: Broker, open_listener: OpenListener) -> None:
    listener = await open_listener(broker, max_fetch_bytes=2_500)
    await filled(broker, "orders", *[[bytes(1000)]] * 5)
    client = await listener.client()
    assert (await fetch(client, max_bytes=1 << 30)).next_offset == 2


class ByName:
    """Accepts every client under the name in its credentials."""

    def authenticate(self, credentials: Any, peer: str) -> Principal:
        return Principal(credentials["name"])


async def test_a_client_that_may_not_read_a_topic_gets_nothing_of_it(
    tmp_path: Path, open_listener: OpenListener
) -> None:
    config = BrokerConfig(super_users=frozenset({"User:root"}), allow_unnamed_resources=False)
    async with Broker(tmp_path / "locked", config=config) as broker:
        root = Principal("root")
        await broker.topics.create("orders", 1, principal=root)
        await broker.records.publish("orders", 0, batch_of(b"secret"), principal=root)
        listener = await open_listener(broker, ByName())
        nobody = await listener.client(credentials={"name": "nobody"})
        for wanted in ({}, {"offset": 99}, {"topic_id": str(uuid.uuid4())}):
            head = await fetch(nobody, **wanted)
            assert head.failure is not None
            assert head.failure.code == "NOT_AUTHORIZED"
            assert (head.start_offset, head.end_offset, nobody.batches) == (-1, -1, b"")
        assert (await fetch(await listener.client(credentials={"name": "root"}))).failure is None
        await listener.close()


@pytest.mark.slow
async def test_a_reader_over_its_quota_gets_its_next_fetch_later(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker)
    entity = (("client-id", "fast"),)
    await broker.quotas.alter([QuotaChange(entity, (("consumer_byte_rate", 20_000.0),))])
    await filled(broker, "orders", *[[bytes(20_000)]] * 12)
    client, other = await listener.client(client_name="fast"), await listener.client(client_name="other")
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for offset in range(12):
        client.send(m.Fetch(offset, "orders", "", 0, offset, 1))
    assert (await fetch(other, offset=11)).failure is None
    for offset in range(12):
        assert (await client.expect(m.Fetched)).ref == offset
    assert loop.time() - begun > 0.5


async def test_fetches_count_bytes_and_requests(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await filled(broker, "orders", [b"a", b"b"], [b"c"])
    await fetch(client)
    await fetch(client, topic="none")
    partition = broker.parts.topic_registry.get("orders").partitions[0]
    assert (partition.records_out, partition.bytes_out) == (3, partition.log.size_bytes)
    measures = listener.frontend.measures
    assert (measures.times_of("FETCH").count, measures.failures["FETCH"]) == (2, 1)
