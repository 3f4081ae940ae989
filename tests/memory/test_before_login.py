"""Frames of the Kafka and the native listener before a login and after it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

import sparrow
import sparrow.testing
from sparrow.frontends.kafka.frame_receiver import SCRATCH_BYTES, FrameReceiver
from sparrow.protocol.native import messages as m
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import encode, request
from tests.memory.announcements import (
    BEFORE_LOGIN_BYTES,
    LOGIN,
    PASSWORD,
    USER,
    ask_kafka,
    connect,
    log_in_to_kafka,
)

CLIENT_ID = "a" * 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(super_users=USER, **LOGIN) as running:
        yield running


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_kafka_frame_has_16_KiB_before_the_login(broker: RunningBroker) -> None:
    with connect(broker.kafka, "127.0.0.1") as client:
        client.sendall(struct.pack(">i", BEFORE_LOGIN_BYTES + 1))
        assert is_closed(client)
    with connect(broker.kafka, "127.0.0.1") as client:
        client.sendall(encode(request(18, 0), client_id=CLIENT_ID))
        assert is_closed(client)


def test_a_large_kafka_frame_is_taken_after_the_login(broker: RunningBroker) -> None:
    with connect(broker.kafka, "127.0.0.1") as client:
        assert log_in_to_kafka(client) == 0
        response = ask_kafka(client, encode(request(18, 0), correlation_id=7, client_id=CLIENT_ID))
        assert struct.unpack_from(">ih", response) == (7, 0)


def test_a_native_frame_has_16_KiB_before_the_login(broker: RunningBroker) -> None:
    with connect(f"{broker.host}:{broker.port}", "127.0.0.1") as client:
        client.sendall(struct.pack(">IBBI", BEFORE_LOGIN_BYTES + 1, m.FrameType.HELLO, 0, 0))
        assert b"FRAME_TOO_LARGE" in client.recv(4096)
        assert is_closed(client)


async def test_a_large_native_frame_is_taken_after_the_login(broker: RunningBroker) -> None:
    url = broker.url.replace("://", f"://{USER}:{PASSWORD.replace(' ', '%20')}@")
    async with sparrow.connect(url) as client:
        await client.publish("large", bytes(900_000))


def test_eight_bytes_take_no_buffer(broker: RunningBroker) -> None:
    """A frame of 512 KiB was announced, and four bytes of it were sent."""
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    receiver = FrameReceiver(scratch, lambda _: None)
    receiver.buffer()[:8] = struct.pack(">i4x", 512 << 10)
    receiver.received(8, 100 << 20)
    assert (receiver.unfinished_bytes, receiver.received_bytes) == (512 << 10, 4)
    assert receiver._frame is not None
    assert len(receiver._frame) == 4
    receiver.may_grow = True
    assert len(receiver.buffer()) < 16 << 10
