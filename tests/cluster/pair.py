"""Two brokers of one cluster as processes, loads of clients, and what is judged afterwards."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import secrets
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

import sparrow
from tests.cluster.brokers import BrokerProcess

PARTITIONS = 3


def free_port() -> int:
    """Return a port that is free now, and that the system gives to nobody until it is used: not one
    of those that connections get by themselves.
    """
    while True:
        port = 10_000 + secrets.randbelow(20_000)  # not `random`: tests seed it alike
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def answers(port: int) -> bool:
    """Return True if a process listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Pair:
    """Two brokers of one cluster, each with a port of its own for Kafka clients."""

    def __init__(
        self,
        directory: Path,
        ledger: str,
        objects: str,
        environment: dict[str, str] | None = None,
        *,
        has_standby: bool = True,
    ) -> None:
        self._directory, self._ledger, self._objects = directory, ledger, objects
        self._environment = environment or {}
        self.ports = {name: free_port() for name in ("a", "b")}
        self.native_ports = {name: free_port() for name in ("a", "b")}
        self.http_ports = {name: free_port() for name in ("a", "b")}
        self.brokers: dict[str, BrokerProcess] = {}
        self.owner = "a"
        self.start("a")
        self.brokers["a"].wait_until_ready()
        if has_standby:
            self.start("b")
            self.wait_for_standby("b")

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
            **self._environment,
        )

    def wait_for_standby(self, name: str) -> None:
        """Wait until a broker sends clients to the owner."""
        broker = self.brokers[name]
        broker.wait_for_log("standing by")
        for ports in (self.http_ports, self.native_ports, self.ports):
            broker.wait_for(lambda port=ports[name]: answers(port), 60)

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


class Load(threading.Thread):
    """An idempotent producer of librdkafka, which finds the owner by itself."""

    def __init__(self, bootstrap: str, **options: object) -> None:
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
                **options,
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
        wanted, last = len(self.acknowledged) + count, -1
        deadline = 0.0
        while (found := len(self.acknowledged)) < wanted:
            if found != last:  # a slow machine may take long, as long as it goes on
                last, deadline = found, time.monotonic() + 60
            assert time.monotonic() < deadline, f"{found} of {wanted} are acknowledged"
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


def ask(url: str, *options: str) -> tuple[int, str]:
    """Return the status and the body of a request by curl."""
    command = ["curl", "-sS", "-m", "20", "-w", "%{http_code}", *options, url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout[-3:]), done.stdout[:-3]


class HttpLoad(threading.Thread):
    """Publishes numbers one after the other by HTTP, each until it is accepted, under a key of its
    own; it asks any broker, and goes where that sends it.
    """

    def __init__(self, topic: str, ports: Iterable[int]) -> None:
        super().__init__(daemon=True)
        self.accepted = 0
        self._path = f"/v1/topics/{topic}/messages"
        self._urls = itertools.cycle([f"http://127.0.0.1:{port}{self._path}" for port in ports])
        self._stopping = threading.Event()

    def run(self) -> None:
        url = next(self._urls)
        while not self._stopping.is_set():
            key = {"Idempotency-Key": f"number-{self.accepted}"}
            asked = urllib.request.Request(url, b"%d" % self.accepted, key, method="POST")
            try:
                urllib.request.urlopen(asked, timeout=10).close()
                self.accepted += 1
            except urllib.error.HTTPError as error:
                url = error.headers.get("Location") or next(self._urls)
            except (OSError, http.client.HTTPException):
                url = next(self._urls)
            time.sleep(0.005)

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)
        assert not self.is_alive()
