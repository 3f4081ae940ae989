"""Metadata in all versions, and the advertised addresses."""

from __future__ import annotations

import socket
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v10.request import MetadataRequestTopic as TopicOfVersion10
from kio.schema.metadata.v13.request import MetadataRequestTopic

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, request
from tests.kafka_frontend.requests import metadata


def asked(*names: str, create: bool = True) -> Any:
    return metadata(13, *names, create=create)


EVERYTHING = request(3, 13, topics=None)
NOTHING = request(3, 13, topics=())


def by_id(topic_id: uuid.UUID) -> Any:
    return request(3, 13, topics=(MetadataRequestTopic(topic_id=topic_id, name=None),))


def test_a_topic_that_is_asked_for_is_made_with_four_partitions(raw: RawClient, topic: str) -> None:
    (found,) = raw.call(asked(topic)).topics
    assert (found.error_code, found.name, len(found.partitions)) == (ErrorCode.none, topic, 4)
    assert found.topic_id is not None
    assert {each.leader_id for each in found.partitions} == {1}
    assert all(each.replica_nodes == each.isr_nodes == (1,) for each in found.partitions)


def test_a_topic_is_not_made_when_the_client_does_not_want_that(raw: RawClient, topic: str) -> None:
    (found,) = raw.call(asked(topic, create=False)).topics
    assert found.error_code is ErrorCode.unknown_topic_or_partition
    assert topic not in {each.name for each in raw.call(EVERYTHING).topics}


def test_a_topic_is_not_made_when_the_broker_does_not_want_that(topic: str) -> None:
    with sparrow.testing.broker(auto_create_topics=False) as broker, RawClient(broker.kafka) as raw:
        (found,) = raw.call(asked(topic)).topics
        assert found.error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "a/b", "a\0b"])
def test_a_name_that_is_none_makes_no_topic(raw: RawClient, name: str) -> None:
    before = raw.call(EVERYTHING).topics
    (found,) = raw.call(asked(name)).topics
    assert (found.error_code, found.name) == (ErrorCode.invalid_topic_exception, name)
    assert len(raw.call(EVERYTHING).topics) == len(before)


def test_topics_are_found_by_id(raw: RawClient, topic: str) -> None:
    topic_id = raw.call(asked(topic)).topics[0].topic_id
    assert raw.call(by_id(topic_id)).topics[0].name == topic
    (found,) = raw.call(by_id(uuid.uuid4())).topics
    assert (found.error_code, found.name, found.partitions) == (ErrorCode.unknown_topic_id, None, ())


@pytest.mark.parametrize("named", [None, "t"])
@pytest.mark.parametrize("identified", [None, uuid.UUID(int=7)])
def test_before_version_12_ids_and_null_names_are_refused_with_a_name_that_is_text(
    raw: RawClient, named: str | None, identified: uuid.UUID | None
) -> None:
    wanted = TopicOfVersion10(topic_id=identified, name=named)
    (found,) = raw.call(request(3, 10, topics=(wanted,))).topics
    is_plain = named is not None and identified is None
    assert found.name == (named or "")
    assert found.error_code is (ErrorCode.none if is_plain else ErrorCode.invalid_request)


def test_many_topics_are_made_at_once_and_answered_in_the_order_of_the_request(
    raw: RawClient, topic: str
) -> None:
    names = [f"{topic}-{n % 150}" for n in range(300)]
    found = raw.call(asked(*names, "a b", topic)).topics
    assert [each.name for each in found] == [*names[:150], "a b", topic]
    assert {len(each.partitions) for each in found if each.name != "a b"} == {4}


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_the_broker_and_the_topic(
    broker: RunningBroker, raw: RawClient, topic: str, version: int
) -> None:
    raw.call(asked(topic))
    response = raw.call(request(3, version, topics=() if version == 0 else None))
    (node,) = response.brokers
    assert f"{node.host}:{node.port}" == broker.kafka
    assert topic in {each.name for each in response.topics}
    if version >= 1:
        assert raw.call(request(3, version, topics=())).topics == ()
        assert response.controller_id == node.node_id


def test_a_name_that_is_asked_twice_is_answered_once(raw: RawClient, topic: str) -> None:
    assert len(raw.call(asked(topic, topic)).topics) == 1


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_localhost_works_for_both_families(broker: RunningBroker, family: socket.AddressFamily) -> None:
    if family is socket.AF_INET6:
        try:
            socket.create_server(("::1", 0), family=family).close()
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
    port = int(broker.kafka.rpartition(":")[2])
    host = "127.0.0.1" if family is socket.AF_INET else "::1"
    with RawClient(f"[{host}]:{port}") as raw:
        (node,) = raw.call(NOTHING).brokers
        assert (node.host, node.port) == ("localhost", port)


def test_a_listener_advertises_the_configured_address() -> None:
    with (
        sparrow.testing.broker(kafka_advertised="broker.example:19092") as broker,
        RawClient(broker.kafka) as raw,
    ):
        (node,) = raw.call(NOTHING).brokers
        assert (node.host, node.port) == ("broker.example", 19092)


def test_listeners_for_other_networks_have_addresses_of_their_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    others = [
        {"name": "docker", "host": "127.0.0.1", "port": port, "advertised": "host.docker.internal:9999"}
    ]
    with sparrow.testing.broker(kafka_listeners=others) as broker:
        with RawClient(broker.kafka) as raw:
            assert raw.call(NOTHING).brokers[0].host == "localhost"
        with RawClient(f"127.0.0.1:{port}") as raw:
            (node,) = raw.call(NOTHING).brokers
            assert (node.host, node.port) == ("host.docker.internal", 9999)


def test_the_address_of_a_listener_is_advertised_by_default() -> None:
    with sparrow.testing.broker(kafka_host="127.0.0.1") as broker, RawClient(broker.kafka) as raw:
        assert raw.call(NOTHING).brokers[0].host == "127.0.0.1"


def test_the_frontend_can_be_off() -> None:
    with sparrow.testing.broker(kafka_port="off") as broker:
        assert broker.kafka == ""
