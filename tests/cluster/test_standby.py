"""A standby sends clients to the owner, whatever they ask, and also those that know no other
address.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import sparrow
import sparrow.sync
from sparrow.base.errors import NotAuthenticated
from sparrow.cli import main
from sparrow.model.access import AccessRule
from sparrow.spark.wire.connection import open_connection
from sparrow.spark.wire.target import Target
from tests.cluster.brokers import BrokerProcess
from tests.cluster.pair import Load, Pair, answers, ask, free_port, judge, make_topic
from tests.cluster.postgres_server import PostgresServer
from tests.security.certificates import make_certificates

WAIT_S = 60
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Pair]:
    """Yield two brokers, of which b stands by and goes on standing by."""
    pytest.importorskip("asyncpg")
    directory = tmp_path_factory.mktemp("pair")
    pair = Pair(directory, postgres.create("standby"), f"file://{directory}/objects")
    asyncio.run(make_topic(pair.url))
    owner = AdminClient({"bootstrap.servers": f"127.0.0.1:{pair.ports['a']}"})
    pair.brokers["a"].wait_for(lambda: len(owner.list_topics(timeout=WAIT_S).brokers) == 2, WAIT_S)
    yield pair
    pair.end()


@pytest.fixture
def standby(pair: Pair) -> str:
    """Return the bootstrap server of clients that know the standby alone."""
    return f"127.0.0.1:{pair.ports['b']}"


def produce(topic: str, value: bytes, **options: object) -> object:
    """Produce one message by librdkafka; return its error."""
    found: list[object] = []
    producer = Producer({"message.timeout.ms": WAIT_S * 1000, **options})
    producer.produce(topic, value, on_delivery=lambda error, _: found.append(error))
    assert producer.flush(WAIT_S) == 0
    return found[0]


def read(topic: str, count: int, **options: object) -> list[bytes]:
    """Read messages by a group of librdkafka, and commit."""
    consumer = Consumer({"group.id": "readers", "auto.offset.reset": "earliest", **options})
    consumer.subscribe([topic])
    found: list[bytes] = []
    for _ in range(WAIT_S):
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
        if len(found) >= count:
            break
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_librdkafka_is_sent_to_the_owner_for_everything(pair: Pair, standby: str) -> None:
    bootstrap = {"bootstrap.servers": standby}
    admin = AdminClient(bootstrap)
    found = admin.list_topics(timeout=WAIT_S)
    owner = next(node.id for node in found.brokers.values() if node.port == pair.ports["a"])
    assert {node.port for node in found.brokers.values()} == set(pair.ports.values())
    assert found.controller_id == owner
    assert {each.leader for each in found.topics["orders"].partitions.values()} == {owner}
    (made,) = admin.create_topics([NewTopic("made", 2)]).values()
    made.result(WAIT_S)
    configs = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "orders")])
    (described,) = configs.values()
    assert "retention.ms" in described.result(WAIT_S)
    assert produce("made", b"plain", **bootstrap) is None
    assert produce("made", b"once", **bootstrap, **{"enable.idempotence": True}) is None
    assert produce("created-by-use", b"x", **bootstrap) is None
    producer = Producer({**bootstrap, "transactional.id": "t"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("made", b"in a transaction")
    producer.commit_transaction(WAIT_S)
    assert sorted(read("made", 3, **bootstrap)) == [b"in a transaction", b"once", b"plain"]
    assert "readers" in {each.group_id for each in groups(admin)}
    assert read("created-by-use", 1, **bootstrap) == [b"x"]


def groups(admin: AdminClient) -> list[object]:
    listed = admin.list_consumer_groups(request_timeout=WAIT_S).result(WAIT_S)
    assert not listed.errors, "a standby has no groups, and that is no error"
    return list(listed.valid)


def test_kafka_python_is_sent_to_the_owner(standby: str) -> None:
    name = f"topic-{uuid.uuid4()}"
    admin = kafka.KafkaAdminClient(bootstrap_servers=standby)
    admin.create_topics([kafka.admin.NewTopic(name, 1, 1)])
    admin.close()
    producer = kafka.KafkaProducer(bootstrap_servers=standby)
    assert producer.send(name, b"v").get(WAIT_S).offset == 0
    producer.close()
    consumer = kafka.KafkaConsumer(
        name, bootstrap_servers=standby, group_id="kp", auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
    )  # fmt: skip
    assert next(iter(consumer)).value == b"v"
    consumer.close()


def test_native_clients_follow_the_address_of_the_owner(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sparrow://127.0.0.1:{pair.native_ports['b']}"
    owner = f"127.0.0.1:{pair.native_ports['a']}"

    async def publish() -> str:
        async with sparrow.connect(url) as client:
            await client.admin.create_topic("native", partitions=1)
            await client.publish("native", b"v")
            return str(client._session.address)

    assert asyncio.run(publish()) == owner
    with sparrow.sync.connect(url) as client:
        assert "native" in {topic.name for topic in client.admin.list_topics()}
    connection = open_connection(Target(url))
    assert str(connection.address) == owner
    connection.close()
    assert main(["topic", "list", "--url", url]) == 0
    assert "native" in capsys.readouterr().out


def test_streams_over_http_are_redirected(pair: Pair) -> None:
    owner, standby = (f"http://127.0.0.1:{pair.http_ports[name]}" for name in ("a", "b"))
    body = ["-X", "POST", "-H", "content-type: application/json", "-d", '{"messages": [{"value": "v"}]}']
    status, shown = ask(f"{standby}/v1/topics/orders/messages", "-L", *body)
    assert status in (200, 201), shown
    asked = f"{standby}/v1/topics/orders/stream?from=beginning"
    status, shown = ask(asked, "-o", "/dev/null", "-w", "%{redirect_url} %{http_code}")
    assert (status, shown.split()[0]) == (307, asked.replace(standby, owner))
    status, shown = ask(f"{standby}/readyz")
    assert (status, json.loads(shown)["status"]) == (503, "not ready")
    upgrade = ["-H", "connection: upgrade", "-H", "upgrade: websocket", "-o", "/dev/null"]
    assert ask(f"{standby}/v1/ws", *upgrade, "-w", "%{http_code}")[0] == 307


def test_listeners_for_clients_of_other_brokers_are_closed_at_a_standby(
    tmp_path: Path, ledger_url: str
) -> None:
    ports = {name: free_port() for name in "ab"}
    environment = {"SPARROW_SEEDS_MBUS_PORT": str(ports["a"])}
    pair = Pair(tmp_path, ledger_url, f"file://{tmp_path}/objects", environment, has_standby=False)
    try:
        assert answers(ports["a"])
        environment["SPARROW_SEEDS_MBUS_PORT"] = str(ports["b"])
        pair.start("b")
        pair.wait_for_standby("b")
        assert not answers(ports["b"])
        pair.fail_over(BrokerProcess.kill)
        assert answers(ports["b"])
    finally:
        pair.end()


def test_a_client_that_knows_the_old_owner_alone_finds_the_new_one(tmp_path: Path, ledger_url: str) -> None:
    """Brokers tell clients of the standbys; this one asked before there was any."""
    pair = Pair(tmp_path, ledger_url, f"file://{tmp_path}/objects", has_standby=False)
    load = Load(f"127.0.0.1:{pair.ports['a']}", **{"topic.metadata.refresh.interval.ms": -1})
    try:
        asyncio.run(make_topic(f"sparrow://127.0.0.1:{pair.native_ports['a']}"))
        load.start()
        load.wait_for_more(50)
        pair.start("b")
        pair.wait_for_standby("b")
        old = pair.brokers["a"]
        pair.fail_over(lambda broker: broker.signal(signal.SIGSTOP))
        old.signal(signal.SIGCONT)
        old.wait_for_log("the shard is lost")
        load.wait_for_more(100)
        load.stop()
        judge(pair, load)
    finally:
        pair.end()


def test_a_standby_has_the_logins_and_the_tls_of_the_owner(tmp_path: Path, ledger_url: str) -> None:
    certificates = make_certificates(tmp_path)
    users = tmp_path / "users"
    users.write_text("ann pencil-of-ann\n")
    pair = Pair(
        tmp_path,
        ledger_url,
        f"file://{tmp_path}/objects",
        {
            "SPARROW_USERS_FILE": str(users),
            "SPARROW_SUPER_USERS": "ann",
            "SPARROW_TLS_CERTIFICATE": certificates.server.certificate,
            "SPARROW_TLS_KEY": certificates.server.key,
        },
    )
    native = f"127.0.0.1:{pair.native_ports['b']}"

    def kafka_options(mechanism: str, user: str, password: str) -> dict[str, object]:
        return {
            "bootstrap.servers": f"localhost:{pair.ports['b']}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": certificates.ca,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    async def make_users() -> None:
        options = {"user": "ann", "password": "pencil-of-ann", "ca_file": certificates.ca}
        async with sparrow.connect(f"sparrows://{native}", **options) as client:
            await client.admin.create_topic("orders", partitions=1)
            await client.admin.create_topic("hidden", partitions=1)
            await client.admin.create_user("bob", "brush-of-bob")
            rules = [AccessRule("Topic", "orders", "User:bob", each) for each in ("Describe", "Write")]
            await client.admin.create_access_rules(rules)

    try:
        asyncio.run(make_users())
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            options = kafka_options(mechanism, "bob", "brush-of-bob")
            assert set(AdminClient(options).list_topics(timeout=WAIT_S).topics) == {"orders"}
            assert produce("orders", b"x", **options) is None
        with pytest.raises(KafkaException):
            AdminClient(kafka_options("PLAIN", "bob", "wrong")).list_topics(timeout=3)
        with (
            pytest.raises(NotAuthenticated),
            sparrow.sync.connect(
                f"sparrows://{native}", user="bob", password="wrong", ca_file=certificates.ca
            ),
        ):
            pass
        with socket.create_connection(("127.0.0.1", pair.ports["b"]), 10) as clear:
            clear.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")
            assert clear.recv(100)[:1] != b"\x00", "nothing is answered in clear"
    finally:
        pair.end()
