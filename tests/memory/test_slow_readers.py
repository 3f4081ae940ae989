"""Clients that ask for much and read nothing: memory stays within `send_budget`, and others
continue to read.

The full size: `SPARROW_TEST_SLOW_READERS=150 pytest tests/memory/test_slow_readers.py -n 0`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import pytest

import sparrow.testing
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection, Role
from sparrow.records.builder import build_batch
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, encode
from tests.kafka_frontend.requests import fetch, make_topic, produce
from tests.memory.announcements import closing
from tests.memory.test_announced_frames import allow_open_files, rss, settled_rss

READERS = int(os.environ.get("SPARROW_TEST_SLOW_READERS", "60"))
PIPELINED = 5
BUDGET_BYTES = 32 << 20
CONSTANT_BYTES = 24 << 20
"""Memory of the broker besides the budget: connections, requests, records being read."""
RENDERING_BYTES = 64 << 20
"""The same where records become JSON: in six threads, with 16 MiB of them kept for others."""
RECORDS, RECORD_BYTES = 64, 900_000
WAIT_S = 60.0


def slow_socket(host: str, port: int) -> socket.socket:
    """Return a connection whose kernel buffers little of what is not read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(WAIT_S)
    client.connect((host, port))
    return client


def kafka(broker: RunningBroker) -> socket.socket:
    host, _, port = broker.kafka.rpartition(":")
    client = slow_socket("127.0.0.1" if host == "localhost" else host, int(port))
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}]
    client.sendall(b"".join(encode(fetch(12, "t", wanted, session_epoch=-1), n) for n in range(PIPELINED)))
    return client


def native(broker: RunningBroker, *heads: m.Head) -> socket.socket:
    client = slow_socket(broker.host, broker.port)
    connection = Connection(Role.CLIENT)
    connection.send(m.Hello("sparrow", 1, 1, "tests", "1"))
    client.sendall(b"".join(connection.data_to_send()))
    events: list[Any] = []
    while not events:
        connection.receive_data(client.recv(4096))
        events = connection.events()
    for number, head in enumerate(heads, 1):
        connection.send(head, 0 if isinstance(head, m.Fetch) else number)
    client.sendall(b"".join(connection.data_to_send()))
    return client


def native_fetch(broker: RunningBroker) -> socket.socket:
    return native(broker, *(m.Fetch(n, "t", "", 0, 0, 16 << 20) for n in range(1, PIPELINED + 1)))


def native_subscription(broker: RunningBroker) -> socket.socket:
    selector = m.Selector("t", start=m.Start("beginning"))
    head = m.Subscribe([selector], credit_bytes=1 << 40, max_deliver_bytes=16 << 20)
    return native(broker, *[head] * PIPELINED)


def http(path: str, headers: bytes = b"", *, times: int = 1) -> Callable[[RunningBroker], socket.socket]:
    def open_one(broker: RunningBroker) -> socket.socket:
        host, _, port = broker.http.removeprefix("http://").rpartition(":")
        client = slow_socket(host, int(port))
        client.sendall((b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n" % (path.encode(), headers)) * times)
        return client

    return open_one


def web_socket(broker: RunningBroker) -> socket.socket:
    upgrade = (
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Version: 13\r\n"
    )
    client = http("/v1/ws", upgrade)(broker)
    assert client.recv(2048).startswith(b"HTTP/1.1 101")
    for number in range(PIPELINED):
        frame = {"type": "subscribe", "subscription": f"s{number}", "topic": "t", "from": "beginning"}
        text = json.dumps({**frame, "credit": 1 << 40}).encode()
        client.sendall(struct.pack(">BBH", 0x81, 0xFE, len(text)) + bytes(4) + text)
    return client


@dataclass(frozen=True)
class Case:
    name: str
    open: Callable[[RunningBroker], socket.socket]
    constant_bytes: int = CONSTANT_BYTES


CASES = [
    Case("kafka", kafka),
    Case("native fetch", native_fetch),
    Case("native subscription", native_subscription),
    Case("http pages", http("/v1/topics/t/messages?max_bytes=16000000", times=PIPELINED), RENDERING_BYTES),
    Case("http stream", http("/v1/topics/t/stream?from=beginning"), RENDERING_BYTES),
    Case("websocket", web_socket, RENDERING_BYTES),
]


class HonestReader:
    """Reads the whole topic over and over in a thread."""

    def __init__(self, broker: RunningBroker) -> None:
        self._client = RawClient(broker.kafka)
        self.rounds = 0
        self.error: BaseException | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._is_over:
                offset = 0
                while offset < RECORDS:
                    wanted = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 4 << 20}]
                    response = self._client.call(fetch(12, "t", wanted, session_epoch=-1))
                    offset += len(response.responses[0].partitions[0].records) // RECORD_BYTES
                self.rounds += 1
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(WAIT_S)
        self._client.socket.close()

    def goes_on(self, rounds: int) -> bool:
        """Wait until it has read the topic this many more times."""
        until, deadline = self.rounds + rounds, time.monotonic() + WAIT_S
        while self.rounds < until and self.error is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.rounds >= until


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda each: each.name)
def test_memory_stays_within_the_budget_and_others_go_on(
    case: Case, record_property: pytest.RecordProperty
) -> None:
    allow_open_files(READERS + 500)
    with sparrow.testing.broker(process=True, send_budget_bytes=BUDGET_BYTES, default_partitions=1) as broker:
        fill(broker)
        with closing([case.open(broker)]):  # load what this listener loads
            time.sleep(0.5)
        with HonestReader(broker) as honest:
            assert honest.goes_on(2)
            before = settled_peak(broker, 1.0)
            clients: list[socket.socket] = []
            with closing(clients):
                clients += [case.open(broker) for _ in range(READERS)]
                peak = settled_peak(broker, 3.0)
                assert honest.goes_on(2), honest.error
                peak = max(peak, rss(broker))
            assert honest.error is None
        after = settled_rss(broker)
        figures = f"{before >> 20} MiB, {peak >> 20} MiB with {READERS} slow readers, {after >> 20} MiB after"
        record_property("rss", figures)
        print(f"\n{case.name}: {figures}")
        assert peak - before < BUDGET_BYTES + case.constant_bytes, figures


def fill(broker: RunningBroker) -> None:
    batch = build_batch([os.urandom(RECORD_BYTES)])
    with RawClient(broker.kafka) as client:
        make_topic(client, "t")
        for _ in range(RECORDS):
            client.call(produce(9, "t", [(0, batch)]))


def settled_peak(broker: RunningBroker, seconds: float) -> int:
    """Return the largest memory of the broker meanwhile."""
    deadline, most = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        most = max(most, rss(broker))
        time.sleep(0.02)
    return most
