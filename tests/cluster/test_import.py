"""A data directory goes into an empty cluster, and everything goes on there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

import sparrow
import sparrow.testing
from sparrow.cli import main
from sparrow.model.access import AccessRule
from tests.cluster.brokers import BrokerProcess
from tests.cluster.postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PARTITIONS = 3
PASSWORD_OF_USER = "a-long-password"


@pytest.fixture
def engines(tmp_path: Path, ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return the URLs of an empty cluster, which the commands use as well."""
    objects = f"file://{tmp_path}/objects"
    monkeypatch.setenv("SPARROW_LEDGER", ledger_url)
    monkeypatch.setenv("SPARROW_OBJECTS", objects)
    return ledger_url, objects


@pytest.fixture
def start(tmp_path: Path, engines: tuple[str, str]) -> Iterator[Callable[..., BrokerProcess]]:
    """Return a function that starts a broker of the cluster."""
    started: list[BrokerProcess] = []

    def begin(name: str = "a", **environment: str) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path, name, *engines, **environment))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def kafka(address: str, **options: object) -> dict[str, Any]:
    return {"bootstrap.servers": address.removeprefix("kafka://"), **options}


def fill_by_kafka(address: str) -> None:
    """Write idempotent batches, a committed and an aborted transaction, and a group's offset."""
    producer = Producer(kafka(address, **{"enable.idempotence": True, "linger.ms": 0}))
    for number in range(300):
        producer.produce("orders", b"%d" % number, key=b"%d" % (number % 7), partition=number % PARTITIONS)
        if number % 10 == 9:
            producer.flush(30)
    producer.flush(30)
    writer = Producer(kafka(address, **{"transactional.id": "writer"}))
    writer.init_transactions(30)
    for word, commits in (("kept", True), ("gone", False)):
        writer.begin_transaction()
        writer.produce("ledger", word.encode(), partition=0)
        writer.flush(30)
        (writer.commit_transaction if commits else writer.abort_transaction)(30)
    consumer = Consumer(kafka(address, **{"group.id": "readers", "enable.auto.commit": False}))
    consumer.commit(offsets=[KafkaPartition("orders", 1, 42)], asynchronous=False)
    consumer.close()


async def fill_queue(url: str) -> None:
    """Let job 0 be finished, 1 leased, 2 given back once, and the others untouched."""
    async with sparrow.connect(url) as client:
        await client.admin.create_topic("jobs", partitions=1)
        await client.admin.create_queue("jobs", policy={"lease": "10m"})
        queue = client.queue("jobs")
        async with queue:
            for number in range(6):
                await queue.publish(b"job %d" % number)
            first = await queue.lease(1)
            await first.ack()
            kept = await queue.lease(1)
            assert kept.values == [b"job 1"]
            returned = await queue.lease(1)
            await returned.nack(0, error="not today")
            await client.drop()  # closing would release what is leased


async def set_up(url: str) -> None:
    async with sparrow.connect(url) as client:
        await client.admin.create_topic("orders", partitions=PARTITIONS)
        await client.admin.create_topic("ledger", partitions=1)
        await client.admin.create_topic("states", partitions=1, config={"cleanup.policy": "compact"})
        for number in range(5):
            await client.publish("states", b"%d" % number, key=b"one", partition=0)
        await client.admin.create_user("billing", PASSWORD_OF_USER)
        await client.admin.create_access_rules([AccessRule("Topic", "orders", "User:billing", "Read")])


def everything(
    address: str, isolation: str = "read_committed"
) -> dict[tuple[str, int], list[tuple[int | None, bytes | None]]]:
    """Return (offset, value) of all messages by (topic, partition)."""
    places = [("orders", number) for number in range(PARTITIONS)] + [("ledger", 0), ("states", 0)]
    consumer = Consumer(
        kafka(
            address,
            **{
                "group.id": "judge",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": isolation,
            },
        )
    )
    consumer.assign([KafkaPartition(topic, number, 0) for topic, number in places])
    found: dict[tuple[str, int], list[tuple[int | None, bytes | None]]] = {place: [] for place in places}
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + 60
    while len(ended) < len(places):
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is None:
            continue
        place = (str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", error
            ended.add(place)
        else:
            found[place].append((message.offset(), message.value()))
    consumer.close()
    return found


async def state_of(url: str) -> dict[str, Any]:
    """Return what clients see beside the records of topics."""
    async with sparrow.connect(url) as client:
        peeked = await client.admin.peek_queue("jobs", 10)
        return {
            "queue": sorted(
                (
                    each.value or b"",
                    each.state,
                    each.delivery_count,
                    each.partition,
                    each.offset,
                    each.timestamp,
                    each.consumer,
                    each.error,
                )
                for each in peeked
            ),
            "topics": [(each.name, each.config) for each in await client.admin.list_topics()],
            "group": await client.admin.describe_group("readers"),
            "users": await client.admin.list_users(),
            "rules": await client.admin.list_access_rules(),
            "policy": (await client.admin.describe_queue("jobs")).policy,
        }


def cluster_id(address: str) -> str:
    found: str = Producer(kafka(address)).list_topics(timeout=30).cluster_id
    return found


def test_everything_of_a_killed_broker_goes_on_in_the_cluster(
    tmp_path: Path, start: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(tmp_path / "data")
    with sparrow.testing.broker(process=True, data_dir=directory, super_users=["User:ANONYMOUS"]) as single:
        asyncio.run(set_up(single.url))
        fill_by_kafka(single.kafka)
        asyncio.run(fill_queue(single.url))
        asyncio.run(delete_some(single.url))
        records, state = everything(single.kafka), asyncio.run(state_of(single.url))
        whole, cluster = everything(single.kafka, "read_uncommitted"), cluster_id(single.kafka)
        single.kill()
        assert main(["cluster", "import", directory, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["logs"] >= PARTITIONS + 3
    assert found["entries"] > 10
    broker = start(SPARROW_SUPER_USERS="User:ANONYMOUS")
    ready = broker.wait_until_ready()
    assert records["orders", 0][0][0] == 20
    assert [value for _, value in records["ledger", 0]] == [b"kept"]
    assert everything(ready["kafka"]) == records
    assert everything(ready["kafka"], "read_uncommitted") == whole
    assert cluster_id(ready["kafka"]) == cluster
    assert asyncio.run(state_of(ready["url"])) == state
    assert [each[:3] for each in state["queue"]][:2] == [(b"job 1", "leased", 1), (b"job 2", "ready", 1)]
    assert state["queue"][1][-1] == "not today"
    asyncio.run(go_on(ready["url"], last=records["orders", 1][-1][0]))
    capsys.readouterr()
    broker.terminate()
    assert main(["cluster", "verify"]) == 0
    assert main(["cluster", "import", directory]) == 78
    assert "is not empty" in capsys.readouterr().err


async def delete_some(url: str) -> None:
    async with sparrow.connect(url) as client:
        await client.admin.delete_records("orders", {0: 20})


async def go_on(url: str, last: int | None) -> None:
    """Work on with what was imported."""
    async with sparrow.connect(url) as client:
        sent = await client.publish("orders", b"next", partition=1)
        assert last is not None
        assert sent.offset == last + 1
        async with client.queue("jobs") as queue:
            batch = await queue.lease(10)
            assert sorted(zip(batch.values, [job.delivery_count for job in batch], strict=True)) == [
                (b"job 2", 2),
                (b"job 3", 1),
                (b"job 4", 1),
                (b"job 5", 1),
            ]
            await batch.ack()
        (left,) = await client.admin.peek_queue("jobs", 10)
        assert (left.value, left.state) == (b"job 1", "leased"), "its lease goes on"


async def publish_much(url: str, megabytes: int) -> None:
    async with sparrow.connect(url) as client, client.producer() as producer:
        await client.admin.create_topic("orders", partitions=PARTITIONS)
        for number in range(megabytes * 4):
            await producer.send("orders", os.urandom(256 << 10), partition=number % PARTITIONS)


def import_process(directory: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "import sys; from sparrow.cli import main; sys.exit(main())"]
    return subprocess.Popen([*command, "cluster", "import", directory], stderr=subprocess.DEVNULL)


def test_an_import_that_is_killed_goes_on_and_no_broker_starts_before(
    tmp_path: Path,
    postgres: PostgresServer,
    engines: tuple[str, str],
    start: Callable[..., BrokerProcess],
    capsys: pytest.CaptureFixture[str],
) -> None:
    database = engines[0].rpartition("/")[2]
    directory, other = str(tmp_path / "data"), str(tmp_path / "other")
    for each, megabytes in ((directory, 100), (other, 1)):
        with sparrow.testing.broker(process=True, data_dir=each) as single:
            asyncio.run(publish_much(single.url, megabytes))
    process = import_process(directory)
    deadline = time.monotonic() + 60
    while not (tmp_path / "objects" / "w").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    broker = start("early")
    assert broker.process.wait(60) == 78
    assert "was begun and is not finished; run `sparrow cluster import" in broker.log
    assert main(["cluster", "import", other]) == 78
    assert f"the import of {directory}, which has other data, was begun" in capsys.readouterr().err
    copied = int(postgres.execute(database, "SELECT count(*) FROM sparrow.wal"))
    assert main(["cluster", "import", directory]) == 0
    assert int(postgres.execute(database, "SELECT count(*) FROM sparrow.wal")) > copied
    assert "(100" in capsys.readouterr().out
    ready = start("late").wait_until_ready()

    async def count() -> int:
        async with sparrow.connect(ready["url"]) as client:
            found = await client.admin.describe_topic("orders")
            return sum(each.end_offset for each in found.partitions)

    assert asyncio.run(count()) == 400


def test_a_directory_or_a_cluster_that_is_not_fit_is_refused_with_the_reason(
    tmp_path: Path, start: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "data"
    assert main(["cluster", "import", str(directory)]) == 73
    assert "there is no directory" in capsys.readouterr().err
    with sparrow.testing.broker(process=True, data_dir=str(directory)) as single:
        asyncio.run(publish_much(single.url, 1))
        assert main(["cluster", "import", str(directory)]) == 73
        assert "is in use by the broker with pid" in capsys.readouterr().err
    broker = start()
    broker.wait_until_ready()
    assert main(["cluster", "import", str(directory)]) == 69
    assert "brokers of this cluster run: node 1 (" in capsys.readouterr().err
    broker.terminate()
    meta = directory / "meta.db"
    kept = meta.read_bytes()
    meta.unlink()
    assert main(["cluster", "import", str(directory)]) == 73
    assert "meta.db is missing" in capsys.readouterr().err
    meta.write_bytes(kept)
    (segment,) = (directory / "logs" / "orders-1").glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:5000] + b"?" + whole[5001:])
    assert main(["cluster", "import", str(directory)]) == 65
    shown = capsys.readouterr().err
    assert "a batch of orders-1 from offset 0 on is damaged" in shown
    assert "sparrow log skip orders 1 OFFSET" in shown
    segment.unlink()
    assert main(["cluster", "import", str(directory)]) == 69
    assert "the partition orders-1 is closed" in capsys.readouterr().err
    segment.write_bytes(whole)
    assert main(["cluster", "import", str(directory)]) == 0, "a cluster that only ran is empty"
