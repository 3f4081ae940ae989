"""Bad input at the native frontend: its sender gets a typed error or a clean close, and no other
client notices.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import Listener, OpenListener, RawClient, batch_of

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff" * 100, "FRAME_TOO_LARGE"),
        (b"\0" * 100, "BAD_FRAME"),
        (b"\0\0\0\x06\x77\0\0\0\0\0", "BAD_FRAME"),
        (b"\0\0\0\x06\x03\0\0\0\0\0", "BAD_FRAME"),
    ],
)
async def test_a_stranger_gets_an_error_and_is_disconnected(
    listener: Listener, client: RawClient, data: bytes, code: str
) -> None:
    stranger = await listener.silent_client()
    stranger.connection.send(m.Hello("sparrow", 1, 1))  # so that the answer is legal; not written
    stranger.connection.data_to_send()
    stranger.send_raw(data)
    assert (await stranger.expect(m.Error)).code == code
    assert await stranger.at_eof()
    await client.call("broker.describe")


async def test_an_unknown_version_is_reported(listener: Listener) -> None:
    stranger = await listener.silent_client()
    stranger.send(m.Hello("sparrow", 7, 9))
    error = await stranger.expect(m.Error)
    assert error.code == "UNSUPPORTED_VERSION"
    assert await stranger.at_eof()


async def test_an_oversized_frame_is_refused_at_its_length_and_the_error_is_read(
    open_listener: OpenListener, broker: Broker
) -> None:
    listener = await open_listener(broker, max_frame_bytes=100_000)
    client = await listener.client()
    await client.open_producer()
    client.send_raw((5_000_000).to_bytes(4, "big"))
    # The client continues to send; a reset would discard the broker's last frame.
    client.send_raw(bytes(5_000_000))
    assert (await client.expect(m.Error)).code == "FRAME_TOO_LARGE"
    assert await client.at_eof()


async def test_a_truncated_frame_is_dropped_whole(broker: Broker, listener: Listener) -> None:
    await broker.topics.create("orders", 1)
    client = await listener.client()
    await client.open_producer()
    client.connection.send(m.Publish(1, "orders", 0), 1, batch_of(b"never"))
    frame = b"".join(client.connection.data_to_send())
    client.send_raw(frame[:-1])
    client.writer.write_eof()
    assert await client.at_eof()
    assert broker.topics.describe("orders").partitions[0].end_offset == 0


async def test_garbage_after_good_frames_loses_none_of_them(broker: Broker, listener: Listener) -> None:
    await broker.topics.create("orders", 1)
    client = await listener.client()
    await client.open_producer()
    client.connection.send(m.Publish(1, "orders", 0), 1, batch_of(b"kept"))
    client.send_raw(b"".join(client.connection.data_to_send()) + b"\xff" * 50)
    assert (await client.expect(m.Error)).code == "FRAME_TOO_LARGE"
    assert broker.topics.describe("orders").partitions[0].end_offset == 1


async def test_random_bytes_from_many_never_stop_the_broker(listener: Listener, client: RawClient) -> None:
    dice = random.Random(7)
    for _ in range(100):
        stranger = await listener.silent_client()
        stranger.send_raw(dice.randbytes(dice.randrange(1, 300)))
        stranger.close()
    for _ in range(100):
        friend = await listener.client()
        frame = bytearray(_publish(friend))
        frame[dice.randrange(4, len(frame))] ^= 1 << dice.randrange(8)
        friend.send_raw(bytes(frame))
        friend.close()
    await client.call("broker.describe")


def _publish(client: RawClient) -> bytes:
    client.connection.send(m.OpenProducer(idempotent=False), 1)
    return b"".join(client.connection.data_to_send())


async def test_one_channel_too_many_is_refused_and_the_others_work(
    open_listener: OpenListener, broker: Broker
) -> None:
    listener = await open_listener(broker, max_channels=2)
    client = await listener.client()
    assert client.connection.max_channels == 2
    await client.open_producer(channel=1)
    await client.open_producer(channel=2)
    client.connection.max_channels = 3
    client.send(m.OpenProducer(idempotent=False), 3)
    assert (await client.expect(m.Error, 3)).code == "OVERLOADED"
    await broker.topics.create("orders", 1)
    assert (await client.publish("orders", b"a")).base_offset == 0


async def test_a_frame_before_welcome_is_a_violation(listener: Listener) -> None:
    client = await listener.silent_client()
    client.send(m.Hello("sparrow", 1, 1))
    client.send_raw(b"\0\0\0\x08\x03\0\0\0\0\0\x91\x01" * 2)
    # Both in one chunk: the broker may or may not have welcomed before it reads the pings.
    assert isinstance((await client.receive()).head, m.Error | m.Welcome)


async def test_frames_for_a_channel_that_just_ended_are_ignored(broker: Broker, client: RawClient) -> None:
    await broker.topics.create("orders", 1)
    await client.subscribe("orders", credit_bytes=1)
    await client.expect(m.Assigned, 2)
    client.send(m.Credit(-1), 2)
    client.send(m.Credit(5), 2)
    client.send(m.Commit(1, []), 2)
    client.send(m.Close(), 2)
    assert (await client.expect(m.Error, 2)).code == "INVALID_ARGUMENT"
    await client.subscribe("orders", credit_bytes=1)


async def test_error_that_quotes_its_input_is_cut_and_reported(client: RawClient) -> None:
    client.send(m.Subscribe([m.Selector("orders")], isolation="\0" * 5_000_000), 2)
    error = await client.expect(m.Error, 2)
    assert error.code == "INVALID_ARGUMENT"
    assert len(error.text) < 3000
