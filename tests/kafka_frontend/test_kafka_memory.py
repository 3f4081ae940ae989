"""Limits of the memory that clients can occupy, and of the time that they can delay others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

import sparrow.testing
from sparrow.broker.broker import Broker
from sparrow.frontends.kafka.context import Listener
from sparrow.frontends.kafka.fetch_sessions import NO_SESSION, FetchSessions, SessionPartition
from sparrow.frontends.kafka.frontend import KafkaFrontend
from sparrow.frontends.kafka.limits import KafkaLimits
from sparrow.records.builder import build_batch
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, encode, request
from tests.kafka_frontend.requests import fetch, make_topic, produce

LARGE = build_batch([bytes(900_000)])
SECONDS = 30


def long_poll(topic: str) -> Any:
    wanted = [{"partition": 0, "fetch_offset": 0}]
    return fetch(12, topic, wanted, session_epoch=-1, max_wait=timedelta(hours=1), min_bytes=1)


def offset_of(response: Any) -> int:
    found = response.responses[0].partition_responses[0]
    assert found.error_code is ErrorCode.none
    offset: int = found.base_offset
    return offset


# ── what comes in ─────────────────────────────────────────────────────────────────────────────────


def test_a_large_request_is_not_received_before_it_can_begin(
    raw: RawClient, broker: RunningBroker, topic: str
) -> None:
    make_topic(raw, topic)
    raw.send(long_poll(topic))
    raw.socket.settimeout(1)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 60 << 20:
            sent += raw.socket.send(struct.pack(">i", 60 << 20) if sent == 0 else bytes(1 << 20))
    assert sent < 60 << 20


def test_a_large_request_behind_a_long_poll_is_answered_after_it(
    raw: RawClient, broker: RunningBroker, topic: str
) -> None:
    make_topic(raw, topic)
    raw.send(long_poll(topic))
    sending = threading.Thread(target=raw.send, args=[produce(9, topic, [(1, LARGE)])])
    sending.start()
    with RawClient(broker.kafka) as other:
        assert offset_of(other.call(produce(9, topic, [(0, build_batch([b"x"]))]))) == 0
    assert raw.receive(1, 12).responses[0].partitions[0].error_code is ErrorCode.none
    assert offset_of(raw.receive(0, 9)) == 0
    sending.join()


def test_a_long_poll_takes_no_memory_from_producers(topic: str) -> None:
    with sparrow.testing.broker(receive_budget_bytes=1 << 20) as broker, RawClient(broker.kafka) as raw:
        make_topic(raw, topic)
        with RawClient(broker.kafka) as waiting:
            waiting.send(long_poll(topic))
            waiting.send_bytes(struct.pack(">i", 1 << 20) + bytes(200_000))
            for offset in range(3):
                assert offset_of(raw.call(produce(9, topic, [(1, LARGE)]))) == offset


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(struct.pack(">hhihi", 3, 1, 1, -1, 300_000) + bytes(600_000), id="topics"),
        pytest.param(struct.pack(">hhihhhii", 0, 3, 1, -1, -1, 1, 1, 60_000) + bytes(360_000), id="produce"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\x0f" + bytes(600_000), id="tags"),
    ],
)  # fmt: skip
def test_a_request_of_absurdly_many_elements_ends_the_connection(
    raw: RawClient, broker: RunningBroker, body: bytes
) -> None:
    raw.send_bytes(struct.pack(">i", len(body)) + body)
    assert raw.is_closed()
    with RawClient(broker.kafka) as other:
        assert other.call(request(18, 0)).error_code is ErrorCode.none


def test_a_request_of_very_many_elements_is_answered_as_any(raw: RawClient) -> None:
    body = struct.pack(">hhihi", 3, 1, 1, -1, 200_000) + bytes(400_000)
    raw.send_bytes(struct.pack(">i", len(body)) + body)
    assert len(raw.receive_frame()) > 4


# ── what goes out ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def frontend_and_port(tmp_path: Any) -> AsyncIterator[tuple[KafkaFrontend, int]]:
    limits = KafkaLimits(sweep_interval_ms=20, idle_timeout_ms=500, write_high_water_bytes=64 << 10)
    async with Broker(tmp_path / "data") as broker:
        frontend = KafkaFrontend(broker, limits=limits)
        port = await frontend.start(Listener("kafka", "127.0.0.1", 0))
        yield frontend, port
        await frontend.drain(1)


async def test_a_client_that_does_not_read_its_responses_is_closed(
    frontend_and_port: tuple[KafkaFrontend, int],
) -> None:
    frontend, port = frontend_and_port
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        asked = encode(request(18, 0), 1) * 100
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(ConnectionError):
                while True:
                    await loop.sock_sendall(client, asked)
    async with asyncio.timeout(SECONDS):
        while frontend.connections:
            await asyncio.sleep(0.01)


async def test_a_flood_of_requests_does_not_delay_others(
    frontend_and_port: tuple[KafkaFrontend, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    frontend, port = frontend_and_port
    turns = 0
    seen: list[int] = []
    begin = frontend.begin

    def begin_slowly(connection: Any, frame: Any) -> Any:
        time.sleep(0.001)
        seen.append(turns)
        return begin(connection, frame)

    monkeypatch.setitem(frontend.__dict__, "begin", begin_slowly)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode(request(18, 0), 1) * 300)
    while len(seen) < 300:
        turns += 1
        await asyncio.sleep(0)
    replies = [await reader.readexactly(int.from_bytes(await reader.readexactly(4))) for _ in seen]
    writer.close()
    assert len(replies) == 300
    assert max(Counter(seen).values()) < 100


def test_requests_sent_before_the_client_hung_up_are_done(
    raw: RawClient, broker: RunningBroker, topic: str
) -> None:
    make_topic(raw, topic)
    batch = build_batch([bytes(100) for _ in range(100)])
    with RawClient(broker.kafka) as hasty:
        hasty.send_bytes(encode(produce(9, topic, [(0, batch)], acks=0)) * 500)
    found = 0
    while found < 500 * 100:  # or the test's timeout
        found = (
            raw.call(fetch(12, topic, [{"partition": 0, "fetch_offset": 0}], session_epoch=-1))
            .responses[0]
            .partitions[0]
            .high_watermark
        )
    assert found == 500 * 100


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────


def test_sessions_have_so_many_partitions_and_no_more() -> None:
    def partitions(count: int) -> Any:
        return {("topic", n): SessionPartition(0, 1) for n in range(count)}

    sessions = FetchSessions(10, max_partitions=100)
    first = sessions.create(partitions(60), 0.0, uses_ids=False)
    assert first != NO_SESSION
    assert sessions.create(partitions(60), 1.0, uses_ids=False) == NO_SESSION
    assert sessions.create(partitions(40), 1.0, uses_ids=False) != NO_SESSION
    # A session that was not used for long is evicted.
    assert sessions.create(partitions(60), 500.0, uses_ids=False) != NO_SESSION
    assert sessions.find(first) is None
