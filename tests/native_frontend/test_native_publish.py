"""Publishing through the native frontend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sparrow.protocol.native import messages as m
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from tests.native_frontend.raw import Listener, OpenListener, RawClient, batch_of, values_of
from tests.records import malformed

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker


async def _topic(client: RawClient, name: str = "orders", **config: str) -> None:
    await client.call("topic.create", name=name, partitions=1, config=config)


async def test_publish_is_confirmed_with_its_base_offset(client: RawClient) -> None:
    await _topic(client)
    opened = await client.open_producer()
    assert (opened.producer_id, opened.window_bytes) == (-1, 8 << 20)
    assert (await client.publish("orders", b"a", b"b")).base_offset == 0
    assert (await client.publish("orders", b"c")).base_offset == 2


async def test_an_idempotent_producer_gets_an_identity_and_resumes_it(client: RawClient) -> None:
    await _topic(client)
    opened = await client.open_producer(idempotent=True)
    batch = batch_of(
        b"a", producer_id=opened.producer_id, producer_epoch=opened.producer_epoch, base_sequence=0
    )
    client.send(m.Publish(1, "orders", 0), 1, batch)
    first = (await client.expect(m.Confirm, 1)).confirmations
    client.send(m.OpenProducer(True, opened.producer_id, opened.producer_epoch), 2)
    again = await client.expect(m.ProducerOpened, 2)
    assert again.producer_id == opened.producer_id
    client.send(m.Publish(1, "orders", 0), 2, batch)
    assert (await client.expect(m.Confirm, 2)).confirmations == first


async def test_an_unknown_identity_ends_the_channel_only(client: RawClient) -> None:
    client.send(m.OpenProducer(True, 12345, 0), 1)
    assert (await client.expect(m.Error, 1)).code == "UNKNOWN_PRODUCER"
    await client.open_producer(idempotent=True)


async def test_publishes_of_one_moment_are_confirmed_in_few_frames(client: RawClient) -> None:
    await _topic(client)
    await client.open_producer()
    for ref in range(100):
        client.send(m.Publish(ref, "orders", 0, 1), 1, batch_of(b"x"))
    frames = 0
    confirmed: list[m.Confirmation] = []
    while len(confirmed) < 100:
        confirmed += (await client.expect(m.Confirm, 1)).confirmations
        frames += 1
    assert [(c.ref, c.base_offset) for c in confirmed] == [(n, n) for n in range(100)]
    assert frames <= 5


async def test_acks_0_is_never_confirmed_and_arrives(client: RawClient) -> None:
    await _topic(client)
    await client.open_producer()
    client.send(m.Publish(1, "orders", 0, 0), 1, batch_of(b"a"))
    client.send(m.Publish(2, "nowhere/..", 0, 0), 1, batch_of(b"a"))
    client.send(m.Publish(3, "orders", 0, 1), 1, batch_of(b"b"))
    (confirmation,) = (await client.expect(m.Confirm, 1)).confirmations
    assert (confirmation.ref, confirmation.base_offset) == (3, 1)


async def test_a_failed_batch_fails_alone(client: RawClient) -> None:
    await _topic(client)
    await client.open_producer()
    wrong = bytearray(batch_of(b"abc"))
    wrong[-2] ^= 1
    client.send(m.Publish(1, "orders", 0), 1, bytes(wrong))
    client.send(m.Publish(2, "../etc", 0), 1, batch_of(b"a"))
    client.send(m.Publish(3, "orders", 77), 1, batch_of(b"a"))
    client.send(m.Publish(4, "orders", 0), 1, b"")
    client.send(m.Publish(5, "orders", 0), 1, batch_of(b"x" * 2_000_000))
    client.send(m.Publish(6, "orders", 0), 1, batch_of(b"good"))
    outcome: dict[int, m.Confirmation] = {}
    while len(outcome) < 6:
        outcome |= {c.ref: c for c in (await client.expect(m.Confirm, 1)).confirmations}
    codes = {ref: c.failure.code for ref, c in outcome.items() if c.failure}
    assert codes == {
        1: "CORRUPT_BATCH",
        2: "INVALID_TOPIC_NAME",
        3: "UNKNOWN_PARTITION",
        4: "INVALID_RECORD",
        5: "RECORD_TOO_LARGE",
    }
    assert outcome[6].base_offset == 0


async def test_a_batch_with_a_right_crc_and_a_wrong_record_fails_alone(client: RawClient) -> None:
    await _topic(client)
    await client.open_producer()
    large = malformed.record(0, value=(3 << 20, bytes(3 << 20)))
    batches = [
        malformed.batch_of(malformed.record(0, key=(-2, b"")), 1),
        malformed.batch_of(large + malformed.record(7), 2, Compression.ZSTD),
        malformed.batch_of(large, 1, Compression.ZSTD),
        batch_of(b"good"),
        build_batch([bytes(65 << 20)], compression=Compression.ZSTD),
    ]
    for ref, batch in enumerate(batches):
        client.send(m.Publish(ref, "orders", 0), 1, batch)
    outcome: dict[int, m.Confirmation] = {}
    while len(outcome) < len(batches):
        outcome |= {c.ref: c for c in (await client.expect(m.Confirm, 1)).confirmations}
    codes = {ref: c.failure.code for ref, c in outcome.items() if c.failure}
    assert codes == {0: "INVALID_RECORD", 1: "INVALID_RECORD", 4: "RECORD_TOO_LARGE"}
    assert [outcome[ref].base_offset for ref in (2, 3)] == [0, 1]


async def test_closing_a_producer_confirms_pending_publishes_first(client: RawClient) -> None:
    await _topic(client)
    await client.open_producer()
    client.send(m.Publish(1, "orders", 0), 1, batch_of(b"a"))
    client.send(m.Publish(2, "orders", 0, 0), 1, batch_of(b"b"))
    client.send(m.Close(), 1)
    assert [c.ref for c in (await client.expect(m.Confirm, 1)).confirmations] == [1]
    await client.expect(m.Closed, 1)
    await client.open_producer()


async def test_closing_while_opening_leaves_the_number_free(client: RawClient) -> None:
    client.send(m.OpenProducer(True), 1)
    client.send(m.Close(), 1)
    client.send(m.Subscribe([m.Selector("orders")]), 2)
    client.send(m.Close(), 2)
    heads = set()
    while len(heads & {(m.Closed, 1), (m.Closed, 2)}) < 2:
        event = await client.receive()
        heads.add((type(event.head), event.channel))
    await client.open_producer(idempotent=True)


async def test_goodbye_waits_for_the_confirmations(client: RawClient) -> None:
    await _topic(client)
    await client.open_producer()
    client.send(m.Publish(1, "orders", 0), 1, batch_of(b"a"))
    client.send(m.Goodbye())
    assert (await client.expect(m.Confirm, 1)).confirmations[0].base_offset == 0
    await client.expect(m.Goodbye)
    assert await client.at_eof()


async def test_a_window_that_is_exceeded_stops_reading_until_the_disk_has_followed(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, window_bytes=3000)
    client = await listener.client()
    await _topic(client)
    await client.open_producer()
    pending: list[asyncio.Future[object]] = []
    publish = broker.records.publish

    def slow_disk(*args: object, **options: object) -> asyncio.Future[object]:
        publish(*args, **options)  # type: ignore[arg-type]
        pending.append(asyncio.get_running_loop().create_future())
        return pending[-1]

    broker.records.publish = slow_disk  # type: ignore[method-assign, assignment]
    for ref in range(3):
        client.send(m.Publish(ref, "orders", 0), 1, batch_of(bytes(1000)))
        await client.writer.drain()
        while len(pending) <= min(ref, 1):
            await asyncio.sleep(0)
    (session,) = listener.frontend.open_connections
    assert session.is_paused_by_us
    await asyncio.sleep(0.01)
    assert len(pending) == 2
    pending[0].set_result(_published(0))
    while len(pending) < 3:
        await asyncio.sleep(0)
    for future in pending[1:]:
        future.set_result(_published(1))
    refs: list[int] = []
    while len(refs) < 3:
        refs += [c.ref for c in (await client.expect(m.Confirm, 1)).confirmations]
    assert refs == [0, 1, 2]
    assert session._unconfirmed_bytes == 0
    assert not session.is_paused_by_us


def _published(offset: int) -> object:
    from sparrow.broker.publishes import Published

    return Published(offset, offset)


async def test_records_of_a_lost_publisher_stay(listener: Listener, client: RawClient) -> None:
    await _topic(client)
    await client.open_producer()
    client.send(m.Publish(1, "orders", 0), 1, batch_of(b"a"))
    await client.writer.drain()
    client.writer.transport.abort()
    other = await listener.client()
    await other.subscribe("orders", credit_bytes=1000)
    await other.expect(m.Assigned, 2)
    assert await other.deliveries(1) == [b"a"]


async def test_a_batch_that_may_be_published_fits_into_a_deliver(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, max_frame_bytes=100_000)
    client = await listener.client()
    topic = "t" * 249
    await _topic(client, topic, **{"max.message.bytes": "1000000"})
    await client.open_producer()
    room = client.connection.max_batch_bytes
    largest = batch_of(bytes(room - len(batch_of(bytes(room - 100))) + room - 100))
    assert len(largest) == room
    client.send(m.Publish(1, topic, 0), 1, largest)
    assert (await client.expect(m.Confirm, 1)).confirmations[0].failure is None
    client.send(m.Publish(2, topic, 0), 1, largest + b"x")
    failure = (await client.expect(m.Confirm, 1)).confirmations[0].failure
    assert failure
    assert failure.code == "RECORD_TOO_LARGE"
    await client.subscribe(topic, credit_bytes=1)
    await client.expect(m.Assigned, 2)
    await client.expect(m.Deliver, 2)
    assert values_of(client.batches) == values_of(largest)


async def test_failures_that_do_not_fit_into_one_frame_come_in_more(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, max_frame_bytes=1 << 16)
    client = await listener.client()
    await client.open_producer()
    for ref in range(300):
        client.connection.send(m.Publish(ref, "t" * 249, 0), 1, batch_of(b"a"))
    client.send_raw(b"".join(client.connection.data_to_send()))
    refs: list[int] = []
    while len(refs) < 300:
        refs += [c.ref for c in (await client.expect(m.Confirm, 1)).confirmations]
    assert refs == list(range(300))
