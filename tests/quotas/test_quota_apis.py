"""DescribeClientQuotas, AlterClientQuotas, and throttled clients, through Kafka's protocol."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kio.schema.errors import ErrorCode

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.broker.batches import batch
from tests.kafka_frontend.raw import RawClient, encode, part, request

WAIT_S = 30
NOT_THROTTLED = timedelta()
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


class NamedClient(RawClient):
    """A raw client with a client id of its own, so that no other's bytes count for it."""

    client_id = ""

    def send(self, request: Any) -> int:
        self._correlation_id += 1
        self.socket.sendall(encode(request, self._correlation_id, self.client_id))
        return self._correlation_id


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture
def raw(broker: RunningBroker, sparrow_topic: str) -> Iterator[NamedClient]:
    with NamedClient(broker.kafka) as client:
        client.client_id = sparrow_topic
        yield client
    with RawClient(broker.kafka) as client:
        remove_all(client)


@pytest.fixture
def topic(sparrow_topic: str, broker: RunningBroker) -> str:
    with RawClient(broker.kafka) as client:
        kind = part(type(request(3, 12, topics=())), "topics")
        wanted = (kind(topic_id=None, name=sparrow_topic),)
        client.call(request(3, 12, topics=wanted, allow_auto_topic_creation=True))
    return sparrow_topic


def alter(
    entity: dict[str, str | None],
    values: dict[str, float | None],
    *,
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    return alter_several([(entity, values)], version=version, validate_only=validate_only)


def alter_several(
    changes: list[tuple[dict[str, str | None], dict[str, float | None]]],
    *,
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    entry = part(type(request(49, version, entries=(), validate_only=False)), "entries")
    named, op = part(entry, "entity"), part(entry, "ops")
    entries = tuple(
        entry(
            entity=tuple(named(entity_type=kind, entity_name=name) for kind, name in entity.items()),
            ops=tuple(op(key=k, value=v or 0.0, remove=v is None) for k, v in values.items()),
        )
        for entity, values in changes
    )
    return request(49, version, entries=entries, validate_only=validate_only)


def describe(*components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    kind = part(type(request(48, version, components=(), strict=False)), "components")
    return request(
        48,
        version,
        components=tuple(kind(entity_type=t, match_type=m, match=n) for t, m, n in components),
        strict=strict,
    )


def limits(response: Any) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    assert response.error_code == ErrorCode.none
    return {
        tuple((e.entity_type, e.entity_name) for e in entry.entity): {v.key: v.value for v in entry.values}
        for entry in response.entries
    }


def remove_all(client: RawClient) -> None:
    changes = [
        (dict(entity), dict.fromkeys(values)) for entity, values in limits(client.call(describe())).items()
    ]
    client.call(alter_several(changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [0, 1])
def test_each_version_sets_describes_and_removes(raw: NamedClient, version: int) -> None:
    changes: list[Any] = [
        ({"user": "alice", "client-id": None}, {PRODUCE: 1024.0, "request_percentage": 12.5}),
        ({"client-id": "app"}, {FETCH: 2048.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
    ]
    for validate_only in (True, False):
        response = raw.call(alter_several(changes, version=version, validate_only=validate_only))
        assert [entry.error_code for entry in response.entries] == [ErrorCode.none] * 3
        assert len(limits(raw.call(describe(version=version)))) == (0 if validate_only else 3)
    alice = (("client-id", None), ("user", "alice"))
    assert limits(raw.call(describe(("user", 0, "alice"), version=version))) == {
        alice: {PRODUCE: 1024.0, "request_percentage": 12.5}
    }
    assert set(limits(raw.call(describe(("client-id", 2, None), version=version)))) == {
        alice,
        (("client-id", "app"),),
    }
    strict = describe(("client-id", 2, None), strict=True, version=version)
    assert set(limits(raw.call(strict))) == {(("client-id", "app"),)}
    assert set(limits(raw.call(describe(("client-id", 1, None), version=version)))) == {alice}
    raw.call(alter({"user": "alice", "client-id": None}, {PRODUCE: None}, version=version))
    assert limits(raw.call(describe(("user", 0, "alice"), version=version)))[alice] == {
        "request_percentage": 12.5
    }
    remove_all(raw)
    assert limits(raw.call(describe(version=version))) == {}


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {PRODUCE: 1.0}),
        ({"user": ""}, {PRODUCE: 1.0}),
        ({"group": "g"}, {PRODUCE: 1.0}),
        ({"user": "a", "ip": "10.0.0.1"}, {PRODUCE: 1.0}),
        ({"ip": "no address"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"speed": 1.0}),
        ({"user": "a"}, {PRODUCE: -1.0}),
        ({"user": "a"}, {PRODUCE: 1.5}),
    ],
)
def test_a_wrong_change_fails_alone(raw: NamedClient, entity: Any, values: Any) -> None:
    good: Any = ({"user": "b"}, {PRODUCE: 1.0})
    response = raw.call(alter_several([(entity, values), good]))
    assert [entry.error_code for entry in response.entries] == [ErrorCode.invalid_request, ErrorCode.none]
    assert {e.entity_type: e.entity_name for e in response.entries[0].entity} == entity
    assert response.entries[0].error_message


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 7, None)], ErrorCode.invalid_request),
        ([("user", 0, None)], ErrorCode.invalid_request),
        ([("user", 2, "alice")], ErrorCode.invalid_request),
        ([("user", 2, None), ("user", 1, None)], ErrorCode.invalid_request),
        ([("group", 2, None)], ErrorCode.unsupported_version),
    ],
)
def test_a_wrong_filter_is_refused(raw: NamedClient, components: Any, code: ErrorCode) -> None:
    response = raw.call(describe(*components))
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message


def produce(topic: str, data: bytes, *, acks: int = 1, version: int = 9) -> Any:
    kind = part(type(request(0, version, acks=1, timeout=timedelta(seconds=30), topic_data=())), "topic_data")
    each = part(kind, "partition_data")
    topic_data = (kind(name=topic, partition_data=(each(index=0, records=data),)),)
    return request(0, version, acks=acks, timeout=timedelta(seconds=30), topic_data=topic_data)


def fetch(topic: str, offset: int = 0, *, version: int = 12, max_bytes: int = 1 << 20, **session: Any) -> Any:
    kind = part(type(request(1, version, **FETCHING, topics=(), forgotten_topics_data=())), "topics")
    each = part(kind, "partitions")
    wanted = each(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return request(
        1,
        version,
        **{**FETCHING, **session},
        topics=(kind(topic=topic, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


FETCHING: Any = {
    "replica_id": -1,
    "max_wait": timedelta(seconds=5),
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "isolation_level": 0,
    "rack_id": "",
}


def test_a_producer_over_its_quota_gets_the_delay_and_is_not_read_for_that_long(
    raw: NamedClient, topic: str
) -> None:
    data = batch(b"x" * 10_000)
    assert raw.call(produce(topic, data)).throttle_time == NOT_THROTTLED
    raw.call(alter({"client-id": raw.client_id}, {PRODUCE: 2_000.0}))
    throttle_s = 0.0
    while not throttle_s:
        response = raw.call(produce(topic, data))
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.none
        throttle_s = response.throttle_time.total_seconds()
    begun = time.monotonic()
    assert throttle_s < 10
    raw.call(request(18, 0))
    assert time.monotonic() - begun >= throttle_s * 0.9


@pytest.mark.slow
def test_a_producer_that_wants_no_response_is_not_read_either(raw: NamedClient, topic: str) -> None:
    raw.call(alter({"client-id": raw.client_id}, {PRODUCE: 2_000.0}))
    begun = time.monotonic()
    raw.send(produce(topic, batch(b"x" * 21_000), acks=0))
    raw.call(request(18, 0))
    assert time.monotonic() - begun >= 0.4


@pytest.mark.slow
def test_data_of_a_throttled_producer_does_not_fill_the_memory(raw: NamedClient, topic: str) -> None:
    raw.call(alter({"client-id": raw.client_id}, {PRODUCE: 1.0}))
    raw.send(produce(topic, batch(b"x" * 1_000), acks=0))
    big = produce(topic, batch(b"x" * 900_000), acks=0)
    raw.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        raw.socket.sendall(encode(big, 2, raw.client_id) * 60)


def test_others_are_not_throttled(raw: NamedClient, topic: str, broker: RunningBroker) -> None:
    raw.call(alter({"client-id": "somebody else"}, {PRODUCE: 10.0, FETCH: 10.0}))
    for _ in range(3):
        assert raw.call(produce(topic, batch(b"x" * 10_000))).throttle_time == NOT_THROTTLED
        assert raw.call(fetch(topic)).throttle_time == NOT_THROTTLED


def test_fetch_over_the_quota_returns_nothing_and_later_the_records(raw: NamedClient, topic: str) -> None:
    for _ in range(5):
        raw.call(produce(topic, batch(b"x" * 10_000)))
    raw.call(alter({"client-id": raw.client_id}, {FETCH: 31_000.0}))
    while (response := raw.call(fetch(topic, max_bytes=10_000))).throttle_time == NOT_THROTTLED:
        assert response.responses[0].partitions[0].records
    assert (response.error_code, response.responses) == (ErrorCode.none, ())
    raw.call(alter({"client-id": raw.client_id}, {FETCH: None}))
    assert len(raw.call(fetch(topic)).responses[0].partitions[0].records) >= 50_000


def test_no_fetch_brings_more_than_the_quota_can_ever_allow(raw: NamedClient, topic: str) -> None:
    for _ in range(5):
        raw.call(produce(topic, batch(b"x" * 10_000)))
    raw.call(alter({"client-id": raw.client_id}, {FETCH: 3_000.0}))
    response = raw.call(fetch(topic))
    assert response.throttle_time == NOT_THROTTLED
    assert 20_000 < len(response.responses[0].partitions[0].records) <= 30_000


@pytest.mark.slow
def test_a_throttled_fetch_leaves_its_session_as_it_was(raw: NamedClient, topic: str) -> None:
    raw.call(produce(topic, batch(b"x" * 1_000)))
    session = raw.call(fetch(topic, session_id=0, session_epoch=0)).session_id
    assert session
    raw.call(alter({"client-id": raw.client_id}, {FETCH: 100.0}))
    epoch = 1
    while (response := raw.call(fetch(topic, session_id=session, session_epoch=epoch))).responses:
        epoch += 1
    assert response.throttle_time > NOT_THROTTLED
    assert (response.session_id, response.error_code) == (session, ErrorCode.none)
    raw.call(alter({"client-id": raw.client_id}, {FETCH: None}))
    response = raw.call(fetch(topic, session_id=session, session_epoch=epoch + 1))
    assert response.responses[0].partitions[0].records


@pytest.mark.slow
def test_librdkafka_sees_that_it_is_throttled_and_loses_nothing(
    raw: NamedClient, topic: str, broker: RunningBroker
) -> None:
    raw.call(alter({"client-id": topic}, {PRODUCE: 60_000.0, FETCH: 60_000.0}))
    throttled: list[float] = []

    def statistics(text: str) -> None:
        for node in json.loads(text)["brokers"].values():
            throttled.append(node["throttle"]["max"])

    settings = {
        "bootstrap.servers": broker.kafka,
        "client.id": topic,
        "statistics.interval.ms": 100,
        "stats_cb": statistics,
    }
    failed: list[Any] = []
    producer = Producer({**settings, "linger.ms": 0, "batch.size": 20_000})
    for number in range(64):
        producer.produce(
            topic, b"%04d" % number + b"x" * 10_000, on_delivery=lambda error, _: failed.append(error)
        )
    assert producer.flush(WAIT_S) == 0
    assert failed == [None] * 64
    deadline = time.monotonic() + WAIT_S
    while not any(throttled) and time.monotonic() < deadline:
        producer.poll(0.1)
    assert any(throttled)
    throttled.clear()
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = []
    while len(seen) < 64 or not any(throttled):
        message = consumer.poll(0.1)
        if any(throttled):
            raw.call(alter({"client-id": topic}, {FETCH: None}))  # the rest would take ten seconds
        if message is not None:
            assert message.error() is None
            seen.append(message.value()[:4])
        assert time.monotonic() < deadline + WAIT_S
    assert seen == [b"%04d" % number for number in range(64)]
    consumer.close()


def test_a_client_over_its_share_of_the_brokers_time_is_throttled(raw: NamedClient, topic: str) -> None:
    raw.call(alter({"client-id": raw.client_id}, {"request_percentage": 0.001}))
    throttle_time = NOT_THROTTLED
    while throttle_time == NOT_THROTTLED:
        throttle_time = raw.call(request(60, 0)).throttle_time
    assert throttle_time <= timedelta(seconds=1)
    raw.call(alter({"client-id": raw.client_id}, {"request_percentage": None}))
    assert raw.call(produce(topic, batch(b"x"))).throttle_time == NOT_THROTTLED


@pytest.mark.slow
def test_only_the_work_on_a_request_is_counted_and_not_its_waits(raw: NamedClient, topic: str) -> None:
    raw.call(alter({"client-id": raw.client_id}, {"request_percentage": 3.0}))
    assert raw.call(fetch(topic, max_wait=timedelta(milliseconds=600))).throttle_time == NOT_THROTTLED
