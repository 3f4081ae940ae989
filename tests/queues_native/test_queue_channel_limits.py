"""Limits of a queue channel: nonsense, silence, floods, records that do not fit."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from sparrow.broker.broker import Broker
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.frames import encode_frame
from sparrow.protocol.native.messages import FrameType, SettleVerb
from tests.native_frontend.raw import Listener, OpenListener, RawClient
from tests.queues_native.raw_queues import (
    CHANNEL,
    QUEUE,
    acked,
    filled,
    leased,
    made,
    opened,
    pushed,
    settled,
    settlement,
    statistics,
    until_scanned,
)

# ── nonsense ──────────────────────────────────────────────────────────────────────────────────────


async def test_an_opening_that_makes_no_sense_is_refused_on_its_channel(
    broker: Broker, client: RawClient
) -> None:
    await made(broker, b"a")
    nonsense: list[dict[str, Any]] = [
        {"credit": -1},
        {"prefetch": -1},
        {"max_deliver_bytes": 0},
        {"consumer_id": "x" * 1000},
        {"consumer_id": "line\nfeed"},
        {"subscriber": "nobody"},
    ]
    for fields in nonsense:
        client.send(m.OpenQueue(QUEUE, **fields), CHANNEL)
        assert (await client.expect(m.Error, CHANNEL)).code == "INVALID_ARGUMENT", fields
    await opened(client, credit=1)
    assert await pushed(client, 1) == [(0, b"a", 1)]


async def test_a_name_that_no_queue_can_have_makes_none(broker: Broker, client: RawClient) -> None:
    for queue in ("", "x" * 300, "no/such", "\0", ".."):
        client.send(m.OpenQueue(queue, create=True), CHANNEL)
        error = await client.expect(m.Error, CHANNEL)
        assert error.code in ("INVALID_TOPIC_NAME", "INVALID_ARGUMENT", "INVALID_GROUP_ID"), queue
    assert broker.queues.listing() == []


async def test_invalid_frame_ends_the_channel_and_keeps_its_leases(broker: Broker, client: RawClient) -> None:
    await made(broker, b"a", b"b")
    consumer_id = (await opened(client, push=False)).consumer_id
    await leased(client, 2)
    for head in (
        m.Lease(1, 0),
        m.Lease(1, -5),
        m.Lease(1, 1, max_bytes=0),
        m.Lease(1, 1, wait_ms=-1),
        m.QueueCredit(-1),
    ):
        client.send(head, CHANNEL)
        assert (await client.expect(m.Error, CHANNEL)).code == "INVALID_ARGUMENT", head
        await opened(client, push=False, consumer_id=consumer_id)
    await acked(client, (0, 1))


async def test_a_lease_on_a_channel_that_pushes_ends_it(broker: Broker, client: RawClient) -> None:
    await made(broker)
    await opened(client)
    client.send(m.Lease(1, 1), CHANNEL)
    error = await client.expect(m.Error, CHANNEL)
    assert "push=False" in error.text


async def test_two_leases_at_a_time_end_the_channel(broker: Broker, client: RawClient) -> None:
    await made(broker)
    await opened(client, push=False)
    client.send(m.Lease(1, 1, wait_ms=60_000), CHANNEL)
    client.send(m.Lease(2, 1, wait_ms=60_000), CHANNEL)
    error = await client.expect(m.Error, CHANNEL)
    assert "LEASE_DONE" in error.text
    await filled(broker, b"a")
    assert await client.nothing_comes()
    assert statistics(broker).leased == 0


MALFORMED = [
    (FrameType.SETTLE, b"\x92\x01\x01"),
    (FrameType.SETTLE, b"\x92\x01\x91\x94\x00\xa1q\x00\x91\x93\x01\x02\x03"),
    (FrameType.SETTLE, b"\x92\x01\x91\x94\x00\xa1q\x00\x91\x92\x01\xa1x"),
    (FrameType.SETTLE, b"\x92\x01\xdd\xff\xff\xff\xff"),
    (FrameType.SETTLE, b"\x92\x01" + bytes(300 << 10)),
    (FrameType.LEASE, b"\x91\x01"),
    (FrameType.QUEUE_CREDIT, b"\x90"),
    (FrameType.OPEN_QUEUE, b"\x91\xa1q"),
    (FrameType.LEASED, b"\x90"),
]


async def test_a_malformed_head_ends_its_connection_and_no_other(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker, b"a")
    await opened(client, credit=0)
    for kind, payload in MALFORMED:
        bad = await listener.client()
        await opened(bad, push=False)
        bad.send_raw(b"".join(encode_frame(kind, CHANNEL, payload, None, 1 << 30)))
        assert (await bad.expect(m.Error)).code in ("BAD_FRAME", "FRAME_TOO_LARGE"), payload[:40]
        assert await bad.at_eof()
    client.send(m.QueueCredit(1), CHANNEL)
    assert await pushed(client, 1) == [(0, b"a", 1)]


# ── who does not take what it asked for ───────────────────────────────────────────────────────────


async def test_for_a_client_that_does_not_read_only_so_much_is_leased(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, write_high_water_bytes=10_000)
    await made(broker)
    for _ in range(200):
        await filled(broker, bytes(100_000))
    await until_scanned(broker)
    deaf = await listener.client()
    deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
    sock: socket.socket = deaf.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    for channel in range(100, 120):
        deaf.send(m.OpenQueue(QUEUE, credit=1000, max_deliver_bytes=200_000), channel)
    (session,) = listener.frontend.open_connections
    async with asyncio.timeout(10):
        while session.can_write:
            await asyncio.sleep(0)
    hearing = await listener.client()
    await opened(hearing, credit=1000)
    await pushed(hearing, 100)
    assert session.unsent_bytes < 8 << 20


async def test_a_flood_of_channels_is_one_consumer_each_and_ends_with_the_connection(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await made(broker)
    for channel in range(1, 257):
        client.connection.send(m.OpenQueue(QUEUE, credit=10), channel)
    client.writer.writelines(client.connection.data_to_send())
    for _ in range(256):
        assert isinstance((await client.receive()).head, m.QueueOpened)
    assert len(statistics(broker).consumers) == 256
    client.close()
    async with asyncio.timeout(10):
        while statistics(broker).consumers:
            await asyncio.sleep(0)


async def test_deliveries_over_a_quota_come_later(broker: Broker, listener: Listener) -> None:
    """A quota of 10 KB/s is used up by 110 records of 1 KB, as it counts over eleven seconds."""
    change = QuotaChange((("client-id", "reader"),), (("consumer_byte_rate", 10_000.0),))
    assert await broker.quotas.alter([change]) == [None]
    await made(broker)
    for _ in range(11):
        await filled(broker, *[b"x" * 1000] * 10)
    await until_scanned(broker)
    reader = await listener.client(client_name="reader")
    await opened(reader, credit=1000)
    assert len(await pushed(reader, 110)) == 110
    await filled(broker, *[b"x" * 1000] * 10)
    assert await reader.nothing_comes()
    raised = QuotaChange((("client-id", "reader"),), (("consumer_byte_rate", 1e9),))
    assert await broker.quotas.alter([raised]) == [None]
    if statistics(broker).leased < 120:
        await pushed(reader, 10)
    assert statistics(broker).leased == 120


# ── what does not fit into a frame ────────────────────────────────────────────────────────────────


async def test_a_lease_that_does_not_fit_into_one_frame_comes_in_several(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, max_frame_bytes=20_000)
    client = await listener.client()
    await made(broker)
    for start in (0, 9):
        await filled(broker, *[bytes([start + n]) * 1000 for n in range(9)])
    await filled(broker, *[b"%d" % n for n in range(6000)])
    await until_scanned(broker)
    await opened(client, push=False)
    offsets: list[int] = []
    ref = 0
    while len(offsets) < 6018:
        ref += 1
        offsets += [offset for offset, _, _ in await leased(client, 6018, ref=ref, wait_ms=10_000)]
    assert offsets == list(range(6018))
    for start in range(18, 6018, 1000):  # every other one, so that the rest is many ranges
        await acked(client, *range(start, start + 1000, 2))
        assert await settled(client, settlement(SettleVerb.RETURN, *range(start + 1, start + 1000, 2))) == []
    again: list[int] = []
    while len(again) < 3000:
        ref += 1
        again += [offset for offset, _, _ in await leased(client, 6018, ref=ref, wait_ms=10_000)]
    assert again == list(range(19, 6018, 2))


async def test_a_record_that_fits_into_no_frame_fails_and_blocks_no_other(
    broker: Broker, open_listener: OpenListener
) -> None:
    listener = await open_listener(broker, max_frame_bytes=20_000)
    client = await listener.client()
    await made(broker, b"before", delivery_limit=1, dead_letter_topic=None)
    await filled(broker, bytes(50_000))
    await filled(broker, b"behind")
    await until_scanned(broker)
    await opened(client, credit=100)
    got = await pushed(client, 2)
    assert [value for _, value, _ in got] == [b"before", b"behind"]
    assert statistics(broker).dropped == 1
    assert statistics(broker).leased == 2
