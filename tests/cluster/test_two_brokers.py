"""Two brokers over PostgreSQL and an object store: one dies, the other goes on, and nothing is lost
or there twice.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import sparrow
from sparrow.cli import main
from sparrow.cluster.object_stores import open_objects
from tests.cluster.brokers import BrokerProcess
from tests.cluster.postgres_server import PASSWORD, start_postgres

ROUNDS = int(os.environ.get("SPARROW_CLUSTER_ROUNDS", "1"))
SEED = int(os.environ.get("SPARROW_CLUSTER_SEED", "1"))
PARTITIONS = 3
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 60 * ROUNDS)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Pair:
    """Two brokers of one cluster, each with a port of its own for Kafka clients."""

    def __init__(self, directory: Path, ledger: str, objects: str) -> None:
        self._directory, self._ledger, self._objects = directory, ledger, objects
        self.ports = {name: free_port() for name in ("a", "b")}
        self.native_ports = {name: free_port() for name in ("a", "b")}
        self.http_ports = {name: free_port() for name in ("a", "b")}
        self.brokers: dict[str, BrokerProcess] = {}
        self.owner = "a"
        self.start("a")
        self.brokers["a"].wait_until_ready()
        self.start("b")
        self.brokers["b"].wait_for_log("standing by")

    def start(self, name: str) -> None:
        """Start a broker, which begins with an empty log."""
        (self._directory / name / "log").unlink(missing_ok=True)
        self.brokers[name] = BrokerProcess(
            self._directory,
            name,
            self._ledger,
            self._objects,
            SPARROW_KAFKA_PORT=str(self.ports[name]),
            SPARROW_KAFKA_HOST="127.0.0.1",
            SPARROW_NATIVE_PORT=str(self.native_ports[name]),
            SPARROW_HTTP_PORT=str(self.http_ports[name]),
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def url(self) -> str:
        """The URL for native clients, which names both brokers."""
        return "sparrow://" + ",".join(f"127.0.0.1:{port}" for port in self.native_ports.values())

    @property
    def other(self) -> str:
        return "b" if self.owner == "a" else "a"

    def fail_over(self, fault: Callable[[BrokerProcess], object]) -> float:
        """Let the owner fail, and wait until the other serves. Return the seconds that took."""
        begun = time.monotonic()
        fault(self.brokers[self.owner])
        self.brokers[self.other].wait_until_ready()
        self.owner = self.other
        return time.monotonic() - begun

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.end()


@pytest.fixture(params=["file", "s3"])
def objects_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/objects"
    url: str = request.getfixturevalue("s3_url")("cluster")
    return url


@pytest.fixture
def pair(tmp_path: Path, ledger_url: str, objects_url: str) -> Iterator[Pair]:
    pair = Pair(tmp_path, ledger_url, objects_url)
    yield pair
    pair.end()


class Load(threading.Thread):
    """An idempotent producer of librdkafka, which finds the owner by itself."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[tuple[int, int]] = []
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 250,
                "message.timeout.ms": 120_000,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            partition = number % PARTITIONS
            self._producer.produce(
                "orders", b"%d" % number, partition=partition, on_delivery=self._delivered(number, partition)
            )
            self._producer.poll(0)
            number += 1
            time.sleep(0.002)
        self._producer.flush(120)

    def _delivered(self, number: int, partition: int) -> Callable[[object, object], None]:
        def delivered(error: object, _: object) -> None:
            if error is None:
                self.acknowledged.append((partition, number))
            else:
                self.failures.append(str(error))

        return delivered

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more messages are acknowledged."""
        wanted, deadline = len(self.acknowledged) + count, time.monotonic() + 60
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {wanted} are acknowledged"
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        self.join(150)
        assert not self.is_alive()
        assert not self.failures, self.failures[:3]


def everything(bootstrap: str, count: int) -> list[tuple[int, int]]:
    """Return (partition, number) of all messages, each partition in its order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(PARTITIONS)])
    found: list[tuple[int, int]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            if message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
            continue
        found.append((message.partition(), int(message.value())))
    consumer.close()
    assert len(found) >= count, f"{len(found)} of {count} messages are there"
    return found


async def make_topic(url: str) -> None:
    async with sparrow.connect(url) as client:
        await client.admin.create_topic("orders", partitions=PARTITIONS)


def judge(pair: Pair, load: Load) -> None:
    """Check that each acknowledged message is there once, and all are in order."""
    found = everything(pair.bootstrap, len(load.acknowledged))
    assert len(set(found)) == len(found), "nothing is there twice"
    assert set(load.acknowledged) <= set(found), "nothing is lost"
    for partition in range(PARTITIONS):
        numbers = [number for each, number in found if each == partition]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("fault", ["kill -9", "SIGTERM", "SIGSTOP"])
def test_an_owner_that_fails_is_followed_by_the_other_and_nothing_is_lost_or_doubled(
    pair: Pair, fault: str
) -> None:
    asyncio.run(make_topic(pair.url))
    load = Load(pair.bootstrap)
    load.start()
    for _ in range(ROUNDS):
        load.wait_for_more(300)
        failed = pair.owner
        old = pair.brokers[failed]
        if fault == "kill -9":
            assert pair.fail_over(BrokerProcess.kill) < 30
        elif fault == "SIGTERM":
            assert pair.fail_over(BrokerProcess.terminate) < 15
            assert old.process.returncode == 0
        else:
            assert pair.fail_over(lambda broker: broker.signal(signal.SIGSTOP)) < 30
            old.signal(signal.SIGCONT)
            old.wait_for_log("the shard is lost")
        if fault != "SIGSTOP":
            pair.start(failed)
            pair.brokers[failed].wait_for_log("standing by")
    load.wait_for_more(300)
    load.stop()
    judge(pair, load)
    shown = "".join(broker.log for broker in pair.brokers.values())
    assert PASSWORD not in shown


def test_faults_one_after_the_other_lose_and_double_nothing(tmp_path: Path) -> None:
    server = start_postgres()
    pair = Pair(tmp_path, server.create("faults"), f"file://{tmp_path}/objects")
    chosen = random.Random(SEED)
    try:
        asyncio.run(make_topic(pair.url))
        load = Load(pair.bootstrap)
        load.start()
        for _ in range(max(3, ROUNDS)):
            load.wait_for_more(chosen.randint(50, 400))
            failed = pair.owner
            old = pair.brokers[failed]
            fault = chosen.choice(["kill -9", "SIGTERM", "SIGSTOP", "ledger"])
            if fault == "ledger":
                server.stop()
                time.sleep(2 * chosen.random())
                server.start()
                continue
            if fault == "SIGSTOP":
                pair.fail_over(lambda broker: broker.signal(signal.SIGSTOP))
                old.signal(signal.SIGCONT)
                old.wait_for_log("the shard is lost")
                continue
            pair.fail_over(BrokerProcess.kill if fault == "kill -9" else BrokerProcess.terminate)
            pair.start(failed)
            pair.brokers[failed].wait_for_log("standing by")
        load.wait_for_more(200)
        load.stop()
        judge(pair, load)
    finally:
        pair.end()
        server.remove()


@pytest.mark.parametrize("objects_url", ["file"], indirect=True)
async def test_a_worker_goes_on_at_the_other_broker_and_finished_jobs_stay_so(pair: Pair) -> None:
    async with sparrow.connect(pair.url) as client:
        await client.admin.create_queue("jobs", policy={"lease": "60s"})
        done: list[int] = []
        async with client.queue("jobs") as queue, client.producer() as producer:
            for number in range(60):
                await queue.publish(b"%d" % number)
            while len(done) < 30:
                batch = await queue.lease(10)
                await batch.ack()
                done += [int(value or b"") for value in batch.values]
            killed = asyncio.to_thread(pair.fail_over, BrokerProcess.kill)
            failing = asyncio.create_task(killed)
            deliveries = [await producer.send("jobs", b"%d" % number) for number in range(60, 80)]
            await failing
            for each in deliveries:
                await each
            deadline = time.monotonic() + 60
            while len(done) < 80 and time.monotonic() < deadline:
                batch = await queue.lease(10)
                await batch.ack()
                done += [int(value or b"") for value in batch.values]
    assert sorted(done) == list(range(80)), "each job was done once"


async def test_everything_waits_for_a_ledger_that_crashed_and_goes_on(tmp_path: Path) -> None:
    server = start_postgres()
    pair = Pair(tmp_path, server.create("outage"), f"file://{tmp_path}/objects")
    read: list[bytes | None] = []
    done: list[bytes | None] = []

    async def consume() -> None:
        async with client.subscribe("orders", start="beginning") as subscription:
            async for message in subscription:
                read.append(message.value)

    async def work() -> None:
        async with client.queue("jobs") as queue:
            while True:
                batch = await queue.lease(10)
                await batch.ack()
                done.extend(batch.values)

    try:
        async with sparrow.connect(pair.url) as client, client.producer() as producer:
            await client.admin.create_topic("orders", partitions=1)
            await client.admin.create_queue("jobs", policy={"lease": "60s"})
            tasks = [asyncio.create_task(consume()), asyncio.create_task(work())]
            for values in (range(20), range(20, 40)):
                deliveries = [
                    await producer.send(topic, b"%d" % number)
                    for number in values
                    for topic in ("orders", "jobs")
                ]
                if values[0]:
                    await asyncio.sleep(12)  # longer than a lease
                    assert not any(each.done for each in deliveries)
                    await asyncio.to_thread(server.start)
                for each in deliveries:
                    await each
                async with asyncio.timeout(30):
                    while len(read) <= values[-1] or len(done) <= values[-1]:
                        await asyncio.sleep(0.01)
                if not values[0]:
                    await asyncio.to_thread(server.stop)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert read == [b"%d" % number for number in range(40)]
        assert sorted(done) == sorted(read)
        assert pair.brokers["a"].is_ready, "the owner stays the owner"
        assert not pair.brokers["b"].is_ready
    finally:
        pair.end()
        server.remove()


def ask(url: str, *options: str) -> tuple[int, str]:
    """Return the status and the body of a request by curl."""
    command = ["curl", "-sS", "-m", "20", "-w", "%{http_code}", *options, url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout[-3:]), done.stdout[:-3]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("objects_url", ["file"], indirect=True)
def test_a_standby_redirects_clients_of_http_and_is_not_ready(pair: Pair) -> None:
    owner, standby = (f"http://127.0.0.1:{pair.http_ports[name]}" for name in ("a", "b"))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", pair.http_ports["b"])) == 0:
                break
        time.sleep(0.02)
    assert ask(f"{owner}/readyz")[0] == 200
    assert "sparrow_cluster_epoch 1.0" in ask(f"{owner}/metrics")[1]
    assert ask(f"{standby}/healthz") == (200, '{"status":"alive"}')
    assert ask(f"{standby}/readyz")[0] == 503
    assert ask(f"{standby}/metrics")[0] == 503
    status, body = ask(f"{standby}/v1/topics?x=1", "-o", "/dev/null", "-w", "%{redirect_url} %{http_code}")
    assert (status, body.split()[0]) == (307, f"{owner}/v1/topics?x=1")
    made = ask(f"{standby}/v1/topics", "-L", "-X", "POST", "-H", "content-type: application/json",
               "-d", '{"name": "orders"}')  # fmt: skip
    assert made[0] == 201, made
    assert "orders" in ask(f"{owner}/v1/topics")[1]
    pair.fail_over(BrokerProcess.kill)
    assert ask(f"{standby}/readyz")[0] == 200
    assert "orders" in ask(f"{standby}/v1/topics")[1]


@pytest.mark.parametrize("objects_url", ["file"], indirect=True)
def test_status_shows_who_owns_the_data(
    pair: Pair, ledger_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARROW_LEDGER", ledger_url)
    assert main(["cluster", "status"]) == 0
    shown = capsys.readouterr().out
    assert f"127.0.0.1:{pair.ports['a']}" in shown
    assert [line.split("\t")[1] for line in shown.splitlines()[1:3]] == ["owner", "standby"]
    assert PASSWORD not in shown


@pytest.mark.parametrize("objects_url", ["s3"], indirect=True)
def test_verification_compares_the_ledger_with_the_bucket(
    pair: Pair,
    ledger_url: str,
    objects_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asyncio.run(make_topic(pair.url))
    asyncio.run(publish_large(pair.url))
    monkeypatch.setenv("SPARROW_LEDGER", ledger_url)
    monkeypatch.setenv("SPARROW_OBJECTS", objects_url)
    assert main(["cluster", "verify"]) == 0
    assert ": good" in capsys.readouterr().out
    objects = open_objects(objects_url)
    (key,) = [each.key for each in asyncio.run(objects.find("w/"))]
    asyncio.run(objects.delete([key]))
    assert main(["cluster", "verify"]) == 1
    assert f"{key}: missing" in capsys.readouterr().out


async def publish_large(url: str) -> None:
    async with sparrow.connect(url) as client:
        await client.publish("orders", bytes(200_000), partition=0)
