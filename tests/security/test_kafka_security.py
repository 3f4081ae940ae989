"""Kafka's own clients against SASL and TLS: each client, each mechanism, with and without TLS."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import admin as confluent_admin
from kafka.errors import KafkaError

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.security.certificates import Certificates, make_certificates

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGINS = {
    "users": {"ann": "pencil-2B, with = and ,"},
    "tokens": {"bob": "b-token"},
    "super_users": "ann;bob",
}
ANN = ("ann", "pencil-2B, with = and ,")


@dataclass(frozen=True)
class Access:
    """Options of a client to connect."""

    bootstrap: str
    login: tuple[str, str] | None = None
    mechanism: str = "PLAIN"
    ca: str | None = None
    certificate: tuple[str, str] | None = None

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.login else "") + ("SSL" if self.ca else "PLAINTEXT")

    @property
    def context(self) -> ssl.SSLContext | None:
        if self.ca is None:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate:
            context.load_cert_chain(*self.certificate)
        return context

    def of_confluent(self) -> dict[str, Any]:
        user, password = self.login or ("", "")
        options: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self.login:
            options |= {"sasl.mechanism": self.mechanism, "sasl.username": user, "sasl.password": password}
        if self.ca:
            options |= {"ssl.ca.location": self.ca}
        if self.certificate:
            options |= {
                "ssl.certificate.location": self.certificate[0],
                "ssl.key.location": self.certificate[1],
            }
        return options

    def of_python(self) -> dict[str, Any]:
        user, password = self.login or (None, None)
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.protocol,
            "ssl_context": self.context,
        }
        if self.login:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
        return options


def with_confluent(access: Access, topic: str) -> list[bytes]:
    producer = confluent_kafka.Producer(access.of_confluent() | {"linger.ms": 0})
    failed: list[Any] = []
    producer.produce(topic, b"one", partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert failed == [None]
    consumer = confluent_kafka.Consumer(access.of_confluent() | {"group.id": topic})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return [message.value()]
    finally:
        consumer.close()


def with_kafka_python(access: Access, topic: str) -> list[bytes]:
    producer = kafka.KafkaProducer(**access.of_python(), enable_idempotence=False)
    consumer = kafka.KafkaConsumer(**access.of_python(), group_id=None)
    try:
        producer.send(topic, b"one", partition=0).get(30)
        site = kafka.TopicPartition(topic, 0)
        consumer.assign([site])
        consumer.seek_to_beginning(site)
        return [record.value for records in consumer.poll(30_000).values() for record in records]
    finally:
        producer.close()
        consumer.close()


async def with_aiokafka(access: Access, topic: str) -> list[bytes]:
    async with aiokafka.AIOKafkaProducer(**access.of_python()) as producer:
        await producer.send_and_wait(topic, b"one", partition=0)
    async with aiokafka.AIOKafkaConsumer(**access.of_python()) as consumer:
        site = aiokafka.TopicPartition(topic, 0)
        consumer.assign([site])
        await consumer.seek_to_beginning(site)
        return [(await consumer.getone()).value]


async def round_trip(client: Callable[..., Any], access: Access, topic: str) -> list[bytes]:
    outcome = client(access, topic)
    values: list[bytes] = outcome if isinstance(outcome, list) else await outcome
    return values


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: Any) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def sasl_broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(**LOGINS) as broker:
        yield broker


@pytest.fixture(scope="module")
def sasl_tls_broker(certificates: Certificates) -> Iterator[RunningBroker]:
    server = certificates.server
    with sparrow.testing.broker(**LOGINS, tls_certificate=server.certificate, tls_key=server.key) as broker:
        yield broker


@pytest.fixture(scope="module")
def mutual_broker(certificates: Certificates) -> Iterator[RunningBroker]:
    """Yield a broker that accepts any certificate of its authority; only the client "billing" may
    do anything.
    """
    server = certificates.server
    with sparrow.testing.broker(
        tls_certificate=server.certificate,
        tls_key=server.key,
        tls_client_ca=certificates.ca,
        acl_default="deny",
        super_users=[f"User:{certificates.client_subject}"],
    ) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [with_confluent, with_kafka_python, with_aiokafka])
async def test_every_client_logs_in_by_every_mechanism(sasl_broker, sparrow_topic, client, mechanism):
    access = Access(sasl_broker.kafka, ANN, mechanism)
    assert await round_trip(client, access, sparrow_topic) == [b"one"]


@pytest.mark.parametrize("client", [with_confluent, with_kafka_python, with_aiokafka])
async def test_every_client_logs_in_over_tls(sasl_tls_broker, certificates, sparrow_topic, client):
    access = Access(sasl_tls_broker.kafka, ANN, "SCRAM-SHA-512", certificates.ca)
    assert await round_trip(client, access, sparrow_topic) == [b"one"]


@pytest.mark.parametrize("client", [with_confluent, with_kafka_python, with_aiokafka])
async def test_certificate_names_the_principal(mutual_broker, certificates, sparrow_topic, client):
    files = (certificates.client.certificate, certificates.client.key)
    access = Access(mutual_broker.kafka, ca=certificates.ca, certificate=files)
    assert await round_trip(client, access, sparrow_topic) == [b"one"]


def test_a_token_is_the_password_of_its_principal(sasl_broker):
    access = Access(sasl_broker.kafka, ("bob", "b-token"))
    assert confluent_admin.AdminClient(access.of_confluent()).list_topics(timeout=30).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_reports_the_wrong_password(sasl_broker, mechanism):
    errors: list[confluent_kafka.KafkaError] = []
    options = Access(sasl_broker.kafka, ("ann", "wrong"), mechanism).of_confluent()
    client = confluent_admin.AdminClient(options | {"error_cb": errors.append})
    while not any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors):
        client.poll(0.1)
    assert any("Authentication failed" in error.str() for error in errors)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_reports_the_wrong_password(sasl_broker, mechanism):
    access = Access(sasl_broker.kafka, ("ann", "wrong"), mechanism)
    with pytest.raises(KafkaError):
        kafka.KafkaConsumer(**access.of_python(), bootstrap_timeout_ms=300)


async def test_aiokafka_reports_the_wrong_password(sasl_broker):
    producer = aiokafka.AIOKafkaProducer(**Access(sasl_broker.kafka, ("ann", "wrong")).of_python())
    with pytest.raises(aiokafka.errors.KafkaError):
        await producer.start()
    await producer.stop()


def test_credentials_are_managed_by_kafkas_own_api(sasl_broker):
    """Set, describe, log in and delete (KIP-554), by librdkafka."""
    admin = confluent_admin.AdminClient(Access(sasl_broker.kafka, ANN).of_confluent())
    sha_512 = confluent_admin.ScramMechanism.SCRAM_SHA_512
    upsertion = confluent_admin.UserScramCredentialUpsertion(
        "dora", confluent_admin.ScramCredentialInfo(sha_512, 5000), b"pencil-2B", b"some salt"
    )
    too_few = confluent_admin.UserScramCredentialUpsertion(
        "eve", confluent_admin.ScramCredentialInfo(sha_512, 100), b"pencil-2B", b"some salt"
    )
    altered = admin.alter_user_scram_credentials([upsertion, too_few])
    assert altered["dora"].result(30) is None
    with pytest.raises(confluent_kafka.KafkaException, match="Too few iterations"):
        altered["eve"].result(30)
    (info,) = admin.describe_user_scram_credentials(["dora"])["dora"].result(30).scram_credential_infos
    assert (info.mechanism, info.iterations) == (sha_512, 5000)
    as_dora = Access(sasl_broker.kafka, ("dora", "pencil-2B"), "SCRAM-SHA-512")
    assert confluent_admin.AdminClient(as_dora.of_confluent()).list_topics(timeout=30).brokers
    deletion = confluent_admin.UserScramCredentialDeletion("dora", sha_512)
    assert admin.alter_user_scram_credentials([deletion])["dora"].result(30) is None
    with pytest.raises(confluent_kafka.KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["dora"])["dora"].result(30)


def test_sessions_that_end_are_renewed_by_librdkafka_while_it_works(sparrow_topic, caplog):
    """Sessions are renewed as in KIP-368."""
    caplog.set_level(logging.INFO, "sparrow.kafka")
    with sparrow.testing.broker(**LOGINS, kafka_max_session_ms="1s") as broker:
        producer = confluent_kafka.Producer(Access(broker.kafka, ANN, "SCRAM-SHA-256").of_confluent())
        failed: list[Any] = []
        while not _logged_in_again(caplog.messages):
            producer.produce(sparrow_topic, b"x", on_delivery=lambda error, _: failed.append(error))
            producer.flush(30)
            producer.poll(0.1)
        assert set(failed) == {None}
        assert not [message for message in caplog.messages if "closed:" in message]


def _logged_in_again(messages: list[str]) -> bool:
    connections = [message.split()[1] for message in messages if "logged in" in message]
    return len(connections) > len(set(connections))
