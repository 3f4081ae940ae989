"""Errors that users of the Python clients get for denied operations, and rules that allow them."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
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
from sparrow.base.errors import NotAuthorized
from sparrow.cli import main
from sparrow.client.results import AccessRule
from sparrow.testing.running_broker import RunningBroker
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
    caplog.set_level(logging.CRITICAL)  # also logs the refusals
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
@pytest.mark.parametrize("user", ["nobody", "alice"])
def test_the_error_of_a_refused_idempotent_producer_names_the_topic(broker: RunningBroker, user: str) -> None:
    """The error names the topic for which the right is missing, not IdempotentWrite on the
    cluster.
    """
    from confluent_kafka import KafkaException, Producer

    told: list[KafkaError] = []
    settings = {"enable.idempotence": True, "error_cb": told.append, "message.timeout.ms": 20_000}
    producer = Producer(confluent(broker.kafka, user, **settings))
    failed: list[Any] = []
    try:
        producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error))
        while not failed:
            producer.poll(0.1)
    except KafkaException as fatal:
        failed.append(fatal.args[0])
    assert failed[0] is not None
    codes = {each.code() for each in (*told, failed[0])}
    assert KafkaError.TOPIC_AUTHORIZATION_FAILED in codes
    assert KafkaError.CLUSTER_AUTHORIZATION_FAILED not in codes


@pytest.mark.parametrize("user", ["nobody", "alice"])
def test_the_error_of_kafka_python_with_idempotence_names_the_topic(broker: RunningBroker, user: str) -> None:
    producer = KafkaProducer(**kafka_python(broker.kafka, user), enable_idempotence=True)
    with pytest.raises(kp.TopicAuthorizationFailedError, match="orders"):
        producer.send("orders", b"fifth").get(WAIT_S)
    producer.close()


def missing_write(user: str) -> str:
    return f"User:{user} is not allowed to Write Topic 'orders'"


@pytest.mark.parametrize("user", ["nobody", "alice"])
def test_the_error_of_native_clients_names_the_topic(broker: RunningBroker, user: str) -> None:
    with sparrow.sync.connect(broker.url, token=TOKENS[user]) as client:
        with pytest.raises(NotAuthorized) as caught:
            client.publish("orders", b"x")
        assert missing_write(user) in caught.value.text
        with client.producer() as producer:
            with pytest.raises(NotAuthorized) as refused:
                producer.send("orders", b"x").result(WAIT_S)
            assert missing_write(user) in refused.value.text


@pytest.mark.parametrize("user", ["nobody", "alice"])
def test_the_error_of_the_command_line_names_the_topic(
    broker: RunningBroker, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["publish", "orders", "x", "y", "--url", broker.url, "--token", TOKENS[user]])
    said = capsys.readouterr().err
    assert code == 77
    assert missing_write(user) in said
    assert "IdempotentWrite" not in said


@pytest.mark.parametrize("user", ["nobody", "alice"])
def test_the_error_of_http_names_the_topic(broker: RunningBroker, user: str) -> None:
    request = urllib.request.Request(
        f"{broker.http}/v1/topics/orders/messages",
        data=b'{"messages": [{"value": "x"}]}',
        headers={"Authorization": f"Bearer {TOKENS[user]}", "Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 403
    assert missing_write(user) in json.loads(caught.value.read())["detail"]
