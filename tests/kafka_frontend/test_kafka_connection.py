"""Connections with valid and invalid bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
from datetime import timedelta

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest as ApiVersionsRequest0
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode

import sparrow.testing
from sparrow.frontends.kafka.apis import APIS
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, decode, encode, request
from tests.kafka_frontend.requests import fetch, make_topic

ALL_TOPICS = request(3, 13, topics=None)
VERSIONS = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def is_alive(broker: RunningBroker) -> bool:
    with RawClient(broker.kafka) as client:
        return bool(client.call(VERSIONS).error_code is ErrorCode.none)


def test_every_key_is_advertised_with_its_versions(raw: RawClient) -> None:
    found = {each.api_key: (each.min_version, each.max_version) for each in raw.call(VERSIONS).api_keys}
    assert found == {
        key: (api.first if api.advertised_from is None else api.advertised_from, api.last)
        for key, api in APIS.items()
    }


def test_telemetry_is_not_advertised(raw: RawClient) -> None:
    # librdkafka sends metrics by default if it sees one of the two keys.
    assert not {71, 72} & {each.api_key for each in raw.call(VERSIONS).api_keys}


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(raw: RawClient, version: int) -> None:
    raw.send_bytes(frame(struct.pack(">hhih", 18, version, 5, -1) + b"\x00 whatever follows"))
    correlation_id, body = decode(18, 0, raw.receive_frame())
    assert correlation_id == 5
    assert body.error_code is ErrorCode.unsupported_version
    own = next(each for each in body.api_keys if each.api_key == 18)
    assert (own.min_version, own.max_version) == (0, 4)
    assert raw.call(VERSIONS).error_code is ErrorCode.none


def test_a_client_may_ask_for_versions_in_version_0(raw: RawClient) -> None:
    assert raw.call(ApiVersionsRequest0()).error_code is ErrorCode.none


@pytest.mark.parametrize(("version", "least"), [(3, 1), (4, 0)])
def test_features_have_levels_that_the_version_of_the_client_can_bear(
    raw: RawClient, version: int, least: int
) -> None:
    # Java clients before 3.9, which use version 3, end their thread if a lowest level is 0
    # (KAFKA-17011).
    asked = request(18, version, client_software_name="apache-kafka-java", client_software_version="3.4.1")
    levels = {each.name: each.min_version for each in raw.call(asked).supported_features}
    by_protocol = dict.fromkeys(("group.version", "share.version", "transaction.version"), least)
    assert levels == {**by_protocol, "metadata.version": 7}


def test_a_software_name_that_is_none_is_refused(raw: RawClient) -> None:
    bad = ApiVersionsRequest(client_software_name="-no name-", client_software_version="1")
    assert raw.call(bad).error_code is ErrorCode.invalid_request


def test_requests_are_answered_in_order(raw: RawClient) -> None:
    sent = [raw.send(VERSIONS if n % 2 else ALL_TOPICS) for n in range(100)]
    answered = [int.from_bytes(raw.receive_frame()[:4]) for _ in sent]
    assert answered == sent


def test_a_request_may_come_byte_by_byte(raw: RawClient) -> None:
    raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in encode(VERSIONS, 1) + encode(VERSIONS, 2):
        raw.send_bytes(bytes((byte,)))
    assert [int.from_bytes(raw.receive_frame()[:4]) for _ in range(2)] == [1, 2]


def test_many_requests_may_come_in_one_piece(raw: RawClient) -> None:
    raw.send_bytes(b"".join(encode(VERSIONS, n) for n in range(500)))
    assert [int.from_bytes(raw.receive_frame()[:4]) for _ in range(500)] == list(range(500))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative length"),
        pytest.param(struct.pack(">i", (1 << 31) - 1), id="absurd length"),
        pytest.param(struct.pack(">i", (100 << 20) + 1), id="one byte more than allowed"),
        pytest.param(frame(b""), id="no header"),
        pytest.param(frame(b"\x00\x12\x00"), id="half a header"),
        pytest.param(frame(struct.pack(">hhih", 999, 0, 1, -1)), id="unknown key"),
        pytest.param(frame(struct.pack(">hhih", -3, 0, 1, -1)), id="negative key"),
        pytest.param(frame(struct.pack(">hhih", 3, 99, 1, -1)), id="unknown version"),
        pytest.param(frame(struct.pack(">hhih", 3, -1, 1, -1)), id="negative version"),
        pytest.param(frame(struct.pack(">hhih", 3, 0, 1, 30000)), id="client id beyond the end"),
        pytest.param(frame(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe" + bytes(4)), id="bad client id"),
        pytest.param(frame(struct.pack(">hhihi", 3, 1, 1, -1, 0x7FFFFFFF)), id="absurd count"),
        pytest.param(frame(struct.pack(">hhihi", 3, 1, 1, -1, -7)), id="negative count"),
        pytest.param(frame(struct.pack(">hhihih", 3, 1, 1, -1, 1, 5) + b"ab"), id="truncated"),
        pytest.param(frame(struct.pack(">hhihih", 3, 1, 1, -1, 1, 2) + b"\xff\xfe"), id="topic no UTF-8"),
        pytest.param(frame(struct.pack(">hhih", 3, 13, 1, -1) + b"\xff" * 12), id="endless varint"),
        pytest.param(frame(struct.pack(">hhih", 3, 13, 1, -1) + b"\x01\x00\xff\xff\xff\x07"), id="long tag"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_request_end_the_connection_alone(
    broker: RunningBroker, raw: RawClient, data: bytes
) -> None:
    raw.send_bytes(data)
    assert raw.is_closed()
    assert is_alive(broker)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 400 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"\x15\x03\x01\x00\x02"),
    ],
    ids=["HTTP", "TLS"],
)
def test_a_client_of_another_protocol_gets_a_reply_in_it_and_is_disconnected(
    broker: RunningBroker, raw: RawClient, data: bytes, words: bytes
) -> None:
    raw.send_bytes(data)
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := raw.socket.recv(1000):
            received += piece
    assert received.startswith(words)
    assert is_alive(broker)


def test_requests_before_bad_bytes_are_answered(raw: RawClient) -> None:
    raw.send_bytes(encode(VERSIONS, 1) + frame(b"\x00"))
    assert int.from_bytes(raw.receive_frame()[:4]) == 1
    assert raw.is_closed()


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    with sparrow.testing.broker(kafka_port=0) as broker, RawClient(broker.kafka) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.socket.settimeout(1)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 200 << 20:
                sent += raw.socket.send(encode(VERSIONS, 1) * 100)
        assert sent < 200 << 20
        assert is_alive(broker)


def test_the_broker_stops_while_clients_wait(topic: str) -> None:
    with sparrow.testing.broker(default_partitions=1) as broker, RawClient(broker.kafka) as raw:
        topic_id = make_topic(raw, topic)
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        raw.send(fetch(17, topic_id, [partition], max_wait=timedelta(hours=1), min_bytes=1))
        broker.stop()
        response = raw.receive(1, 17)
        assert response.responses[0].partitions[0].error_code is ErrorCode.none
        assert raw.is_closed()


def test_connections_beyond_the_limit_are_refused() -> None:
    with sparrow.testing.broker(max_connections=2) as broker:
        with RawClient(broker.kafka) as one, RawClient(broker.kafka) as two:
            # Each sends a request before the next one connects: a client without a request is
            # closed first.
            for client in (one, two):
                assert client.call(VERSIONS).error_code is ErrorCode.none
            with RawClient(broker.kafka) as three:
                assert three.is_closed()
            assert one.call(VERSIONS).error_code is two.call(VERSIONS).error_code is ErrorCode.none
        assert is_alive(broker)
