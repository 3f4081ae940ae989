"""Admission of connections: its rules, and thousands of silent connections at a real broker."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparrow.testing
from sparrow.base.errors import InvalidConfig, Overloaded
from sparrow.frontends.transport.admission import AddressLimits, Admission, ConnectionSlot, Strangers
from sparrow.server.config import load
from tests.kafka_frontend.raw import encode, request
from tests.memory.announcements import (
    ask_kafka,
    authorization,
    connect,
    log_in_to_kafka,
    native_hello,
)

USER, PASSWORD = "honest", "correct horse battery"
SILENT = 3_000
ATTACKER, OTHER = "127.0.0.2", "127.0.0.3"


class Listener:
    """An admission, and the connections that it closed."""

    def __init__(self, max_connections: int, max_strangers: int = 0, addresses: AddressLimits | None = None):
        self.refusals: Counter[str] = Counter()
        self.has_files = True
        self.closed: list[str] = []
        self.admission = Admission(
            addresses or AddressLimits(),
            max_connections=max_connections,
            max_strangers=max_strangers,
            has_files=lambda: self.has_files,
            refusals=self.refusals,
        )

    def connect(self, host: str, name: str = "") -> ConnectionSlot:
        return self.admission.admit(host, lambda: self.closed.append(name or host))


@pytest.fixture(autouse=True)
async def loop() -> None:
    """Provide a loop, as the summary of refusals needs a timer."""


# ── the rules ─────────────────────────────────────────────────────────────────────────────────────


async def test_strangers_leave_the_reserve_to_authenticated_clients() -> None:
    listener = Listener(1000)
    for number in range(700):
        listener.connect("10.0.0.1", f"stranger {number}")
    assert listener.admission.count == 500
    assert listener.closed == [f"stranger {number}" for number in range(200)]  # the oldest first
    for _ in range(500):
        listener.connect("10.0.0.2").settle()
    # each took the slot of a stranger until it logged in
    assert listener.admission.count == 1000 - 1
    assert listener.refusals["limit"] == 0


async def test_the_busiest_address_gives_way_not_the_honest_client() -> None:
    listener = Listener(1000, 300)
    honest = listener.connect("10.0.0.9", "honest")
    for number in range(5000):
        listener.connect(f"10.0.0.{number % 3}")
    assert "honest" not in listener.closed
    honest.settle()
    listener.connect("10.0.0.1")
    assert listener.admission.count == 301


async def test_an_authenticated_connection_is_never_closed_for_others() -> None:
    listener = Listener(100)
    for _ in range(100):
        listener.connect("10.0.0.1", "settled").settle()
    with pytest.raises(Overloaded, match="100 clients are connected, which is the limit"):
        listener.connect("10.0.0.2")
    assert listener.closed == []
    assert listener.refusals == Counter(limit=1)


async def test_a_full_listener_closes_a_stranger_for_a_new_connection() -> None:
    listener = Listener(100)
    for _ in range(99):
        listener.connect("10.0.0.1").settle()
    listener.connect("10.0.0.1", "silent")
    listener.connect("10.0.0.2").settle()
    assert listener.closed == ["silent"]
    assert listener.refusals == Counter(stranger=1)


async def test_without_open_files_strangers_give_way_first() -> None:
    listener = Listener(100)
    listener.connect("10.0.0.1", "silent")
    listener.has_files = False
    listener.connect("10.0.0.2").settle()
    assert listener.closed == ["silent"]
    with pytest.raises(Overloaded, match="ulimit"):
        listener.connect("10.0.0.3")
    assert listener.refusals == Counter(stranger=1, files=1)


async def test_one_address_has_its_limit_at_all_listeners_together() -> None:
    addresses = AddressLimits(3, {"10.0.0.7/32": 1, "10.1.0.0/16": 5, "10.1.0.9/32": 0})
    one, two = Listener(100, addresses=addresses), Listener(100, addresses=addresses)
    slots = [one.connect("10.0.0.1"), two.connect("10.0.0.1"), two.connect("10.0.0.1")]
    slots[0].settle()
    with pytest.raises(Overloaded, match=r"3 connections of 10\.0\.0\.1 .*max_connections_per_address"):
        one.connect("10.0.0.1")
    slots[0].release()
    slots[0].release()  # no effect
    one.connect("10.0.0.1")
    one.connect("10.0.0.7")
    with pytest.raises(Overloaded):
        two.connect("10.0.0.7")
    assert [addresses.limit_of(host) for host in ("10.1.2.3", "10.1.0.9", "::ffff:10.0.0.7", "a peer")] == [
        5,
        0,
        1,
        3,
    ]
    assert one.refusals + two.refusals == Counter(address=2)


async def test_ipv6_clients_are_counted_by_their_network() -> None:
    listener = Listener(100, addresses=AddressLimits(2))
    listener.connect("2001:db8::1")
    listener.connect("2001:db8::2")
    with pytest.raises(Overloaded):
        listener.connect("2001:db8::3")
    listener.connect("2001:db8:0:1::1")


async def test_refusals_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    addresses = AddressLimits(1)
    listener = Listener(100, addresses=addresses)
    listener.connect("10.0.0.1")
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            with contextlib.suppress(Overloaded):
                listener.connect("10.0.0.1")
        assert len(caplog.records) == 1
        addresses.summarize()
    assert "49 from 1 addresses; most, 49, from 10.0.0.1" in caplog.records[1].message


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3)), max_size=300))
def test_the_busiest_address_is_that_of_a_plain_count(acts: list[tuple[str, int]]) -> None:
    strangers, model = Strangers(), dict[str, list[ConnectionSlot]]()
    admission = Listener(1).admission
    for network, act in acts:
        mine = model.setdefault(network, [])
        if act:
            slot = ConnectionSlot(admission, network, lambda: None)
            strangers.add(slot)
            mine.append(slot)
        elif mine:
            strangers.discard(mine.pop(len(mine) // 2))
        assert len(strangers) == sum(map(len, model.values()))
        found = strangers.oldest_of_busiest()
        most = max(map(len, model.values()))
        assert (found is None) == (not most)
        if found is not None:
            assert len(model[found.network]) == most
            assert model[found.network][0] is found


def test_limits_of_addresses_are_read_with_their_faults() -> None:
    config, _ = load({"max_connections_overrides": ["10.0.0.7=50", "10.1.2.3/16=0"]}, {})
    assert config.max_connections_overrides == {"10.0.0.7/32": 50, "10.1.0.0/16": 0}
    for wrong in ("host=5", "10.0.0.1=-1", "10.0.0.1=x"):
        with pytest.raises(InvalidConfig, match="an address or network and a number from 0 to 1000000"):
            load({"max_connections_overrides": [wrong]}, {})


# ── real listeners ────────────────────────────────────────────────────────────────────────────────

_SEEDS = ("diy", "messagebroker", "mbus", "mbus_consumer", "msbq", "syncbrok")
_SEED_PORTS = {f"seeds_{name}_port": 0 for name in _SEEDS}


@pytest.fixture(scope="module")
def besieged() -> Iterator[sparrow.testing.Broker]:
    """Start a broker whose listeners together get more connections than they accept."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 8_000), hard), hard))
    with sparrow.testing.broker(
        process=True,
        users={USER: PASSWORD},
        super_users=USER,
        max_connections=400,
        max_connections_before_login=200,
        seeds_all=True,
        acl_default="allow",
        **_SEED_PORTS,
    ) as broker:
        yield broker


def kafka_login(broker: sparrow.testing.Broker, source: str) -> socket.socket:
    client = connect(broker.kafka, source)
    assert log_in_to_kafka(client) == 0
    return client


def native_login(broker: sparrow.testing.Broker, source: str) -> socket.socket:
    client = connect(f"{broker.host}:{broker.port}", source)
    assert type(native_hello(client, user=USER, password=PASSWORD)[0].head).__name__ == "Welcome"
    return client


def http_login(broker: sparrow.testing.Broker, source: str) -> socket.socket:
    client = connect(broker.http.removeprefix("http://"), source)
    client.sendall(b"GET /docs HTTP/1.1\r\nHost: localhost\r\n" + authorization() + b"\r\n")
    assert client.recv(12) == b"HTTP/1.1 200"
    return client


def websocket_login(broker: sparrow.testing.Broker, source: str) -> socket.socket:
    client = connect(broker.http.removeprefix("http://"), source)
    client.sendall(
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        + authorization()
        + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert client.recv(12) == b"HTTP/1.1 101"
    return client


def syncbrok_request(broker: sparrow.testing.Broker, source: str) -> socket.socket:
    client = connect(":".join(map(str, broker.seeds["syncbrok"])), source)
    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.recv(8) == b"HTTP/1.1"
    return client


LOGINS = {
    "kafka": (lambda broker: broker.kafka, kafka_login),
    "native": (lambda broker: f"{broker.host}:{broker.port}", native_login),
    "http": (lambda broker: broker.http.removeprefix("http://"), http_login),
    "websocket": (lambda broker: broker.http.removeprefix("http://"), websocket_login),
    "syncbrok": (lambda broker: ":".join(map(str, broker.seeds["syncbrok"])), syncbrok_request),
}


@pytest.mark.parametrize("listener", list(LOGINS))
def test_thousands_of_silent_connections_of_one_address_do_not_prevent_logins(besieged, listener):
    address, login = LOGINS[listener]
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(contextlib.closing(login(besieged, OTHER)))
        for number in range(SILENT):
            stack.enter_context(contextlib.closing(connect(address(besieged), ATTACKER)))
            if number % 1000 == 500:
                stack.enter_context(contextlib.closing(login(besieged, OTHER)))
        stack.enter_context(contextlib.closing(login(besieged, OTHER)))
        stack.enter_context(contextlib.closing(login(besieged, ATTACKER)))
        before.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            assert before.recv(1 << 16) != b"", "a connection that had logged in was closed"
    text = metrics(besieged)
    frontend = "http" if listener == "websocket" else listener
    assert refused(text, frontend, "stranger") >= SILENT - 400
    assert refused(text, frontend, "limit") == 0


@pytest.mark.parametrize("name", ["diy_message_broker", "messagebroker", "mbus", "mbus_consumer", "msbq"])
def test_silent_connections_at_the_listeners_of_seed_systems_give_way(besieged, name):
    """Their clients cannot log in: silent ones are closed first."""
    address = ":".join(map(str, besieged.seeds[name]))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(connect(address, ATTACKER))) for _ in range(450)]
        clients[0].settimeout(30)
        with contextlib.suppress(ConnectionError):
            assert clients[0].recv(1) == b""
        deadline = time.monotonic() + 30  # the broker may still be accepting
        while refused(metrics(besieged), name, "stranger") < 450 - 400:
            assert time.monotonic() < deadline


def test_one_address_gets_no_more_than_its_limit_and_others_are_not_hindered():
    with (
        sparrow.testing.broker(
            max_connections_per_address=20, max_connections_overrides={"127.0.0.1": 0}, acl_default="allow"
        ) as broker,
        contextlib.ExitStack() as stack,
    ):
        metrics(broker, logs_in=False)  # the libraries of the HTTP listener are loaded
        ask = encode(request(18, 0))
        clients = [
            stack.enter_context(contextlib.closing(connect(broker.kafka, ATTACKER))) for _ in range(20)
        ]
        for client in clients:
            ask_kafka(client, ask)
        refused_one = stack.enter_context(contextlib.closing(connect(broker.kafka, ATTACKER)))
        with contextlib.suppress(ConnectionError):
            assert refused_one.recv(1) == b""
        native = stack.enter_context(contextlib.closing(connect(f"{broker.host}:{broker.port}", ATTACKER)))
        assert "max_connections_per_address" in native_hello(native)[0].head.text
        http = stack.enter_context(contextlib.closing(connect(broker.http.removeprefix("http://"), ATTACKER)))
        assert b" 503 " in http.recv(1 << 16)
        ask_kafka(stack.enter_context(contextlib.closing(connect(broker.kafka, OTHER))), ask)
        for _ in range(30):
            ask_kafka(stack.enter_context(contextlib.closing(connect(broker.kafka, "127.0.0.1"))), ask)
        clients[0].close()
        text = metrics(broker, logs_in=False)
        assert [refused(text, frontend, "address") for frontend in ("kafka", "native", "http")] == [1, 1, 1]


def metrics(broker: sparrow.testing.Broker, *, logs_in: bool = True) -> str:
    with contextlib.closing(connect(broker.http.removeprefix("http://"), "127.0.0.1")) as client:
        login = authorization() if logs_in else b""
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + login + b"\r\n")
        return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


def refused(text: str, frontend: str, reason: str) -> int:
    wanted = f'sparrow_refused_connections_total{{door="{frontend}",reason="{reason}"}} '
    return int(float(text.partition(wanted)[2].partition("\n")[0]))
