"""What users of the Python clients see when something is denied, and when a rule lets them in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import aiokafka
import pytest
from aiokafka import errors as aio
from confluent_kafka import Consumer, KafkaError
from kafka import KafkaConsumer, KafkaProducer
from kafka import errors as kp

import sparrow.sync
import sparrow.testing
from sparrow.client.results import AccessRule
from sparrow.testing.running import RunningBroker
from tests.acls.logins import TOKENS, confluent, kafka_python

WAIT_S = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    options: Any = {
        "tokens": TOKENS,
        "super_users": "User:root",
        "acl_default": "deny",
        "default_partitions": 1,
        "topics": [{"name": "orders", "partitions": 1}],
    }
    with sparrow.testing.broker(**options) as running:
        with sparrow.sync.connect(running.url, token=TOKENS["root"]) as root:
            root.publish("orders", b"first")
            root.admin.create_access_rules(
                [
                    AccessRule("Topic", "ord", "User:alice", "Read", pattern_type="Prefixed"),
                    AccessRule("Topic", "orders", "User:writer", "Write", host="127.0.0.1"),
                    AccessRule("Topic", "orders", "User:writer", "Write", host="::1"),
                    AccessRule("Group", "billing", "User:alice", "Read", pattern_type="Prefixed"),
                ]
            )
        yield running


def aiokafka_login(broker: RunningBroker, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": TOKENS[user],
    }


async def test_aiokafka_is_refused_or_served(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # it logs what it is refused, too
    async with asyncio.timeout(WAIT_S):
        async with aiokafka.AIOKafkaProducer(**aiokafka_login(broker, "writer")) as producer:
            assert (await producer.send_and_wait("orders", b"second")).offset >= 1
        async with aiokafka.AIOKafkaProducer(**aiokafka_login(broker, "alice")) as producer:
            with pytest.raises(aio.TopicAuthorizationFailedError):
                await producer.send_and_wait("orders", b"third")
        login = {**aiokafka_login(broker, "alice"), "auto_offset_reset": "earliest"}
        async with aiokafka.AIOKafkaConsumer("orders", group_id="billing-aio", **login) as consumer:
            assert (await consumer.getone()).value == b"first"
            await consumer.commit()
        consumer = aiokafka.AIOKafkaConsumer("orders", group_id="other", **login)
        try:
            with pytest.raises(aio.GroupAuthorizationFailedError):
                await consumer.start()
        finally:
            await consumer.stop()


@pytest.mark.slow
def test_kafka_python_is_refused_or_served(broker: RunningBroker) -> None:
    producer = KafkaProducer(**kafka_python(broker.kafka, "writer"))
    assert producer.send("orders", b"fourth").get(WAIT_S).offset >= 1
    producer.close()
    producer = KafkaProducer(**kafka_python(broker.kafka, "alice"), enable_idempotence=False)
    with pytest.raises(kp.TopicAuthorizationFailedError):
        producer.send("orders", b"fifth").get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        "orders", **kafka_python(broker.kafka, "alice"), group_id="other", auto_offset_reset="earliest"
    )
    with pytest.raises(kp.GroupAuthorizationFailedError):
        consumer.poll(WAIT_S * 1000)
    consumer.close()


@pytest.mark.parametrize(
    ("user", "topic", "group", "refused"),
    [
        ("alice", "orders", "other", KafkaError.GROUP_AUTHORIZATION_FAILED),
        ("writer", "orders", "billing", KafkaError.GROUP_AUTHORIZATION_FAILED),
        ("alice", "secret", "billing", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("alice", "orders", "billing", None),
    ],
)
def test_librdkafka_is_refused_or_served(
    broker: RunningBroker, user: str, topic: str, group: str, refused: int | None
) -> None:
    consumer = Consumer(confluent(broker.kafka, user, **{"group.id": group, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    message = None
    for _ in range(WAIT_S):
        message = consumer.poll(1.0)
        if message is not None:
            break
    assert message is not None
    if refused is None:
        assert message.error() is None
    else:
        assert message.error().code() == refused
    consumer.close()


@pytest.mark.slow
def test_who_may_not_write_anywhere_is_no_idempotent_producer(broker: RunningBroker) -> None:
    from confluent_kafka import KafkaException, Producer

    told: list[KafkaError] = []
    settings = {"enable.idempotence": True, "error_cb": told.append, "message.timeout.ms": 20_000}
    producer = Producer(confluent(broker.kafka, "alice", **settings))
    failed: list[Any] = []
    try:
        producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error))
        while not failed:
            producer.poll(0.1)
    except KafkaException as fatal:
        failed.append(fatal.args[0])
    assert failed[0] is not None
    assert {each.code() for each in (*told, failed[0])} & {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
