"""The client for threads."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import sparrow
from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    RecordTooLarge,
    TimedOut,
    UnknownPartition,
)
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.native.limits import NativeLimits
from sparrow.sync.background import Background
from sparrow.sync.client import Client
from tests.client.frontends import Frontend, Proxy

# These tests block, so the broker runs on its own thread.


@pytest.fixture
def broker_thread() -> Iterator[Background]:
    thread = Background()
    yield thread
    thread.stop()


@pytest.fixture
def frontend(broker_thread: Background, tmp_path: Path) -> Iterator[Frontend]:
    opened = Frontend(tmp_path / "data", BrokerConfig(default_partitions=2), NativeLimits())
    broker_thread.run(opened.start())
    yield opened
    broker_thread.run(opened.stop())


@pytest.fixture
def client(frontend: Frontend) -> Iterator[Client]:
    with sparrow.sync.connect(frontend.url, close_timeout_s=5) as connected:
        yield connected


def test_a_message_is_published_and_read(client: Client) -> None:
    placed = client.publish("t", b"v", key=b"k", headers={"h": b"1"})
    with client.subscribe("t", start="beginning") as sub:
        for message in sub:
            assert (message.offset, message.value, message.key) == (placed.offset, b"v", b"k")
            break


def test_messages_sent_by_many_threads_arrive_once_and_in_the_order_of_each(client: Client) -> None:
    client.admin.create_topic("t", partitions=1)

    def send(worker: int) -> list[int]:
        deliveries = [producer.send("t", b"%d %d" % (worker, i)) for i in range(300)]
        return [d.result(10).offset for d in deliveries]

    with client.producer() as producer, ThreadPoolExecutor(4) as pool:
        offsets = list(pool.map(send, range(4)))
    assert sorted(o for each in offsets for o in each) == list(range(1200))
    assert all(each == sorted(each) for each in offsets)
    with client.subscribe("t", start="beginning") as sub:
        found: list[Any] = []
        for batch in sub.batches():
            found += batch
            if len(found) == 1200:
                break
    for worker in range(4):
        mine = [m.value.split()[1] for m in found if m.value.startswith(b"%d " % worker)]
        assert mine == [b"%d" % i for i in range(300)]


def test_flush_waits_for_everything_that_was_sent(client: Client) -> None:
    with client.producer(linger_ms=60_000) as producer:
        deliveries = [producer.send("t", b"x" * 1000) for _ in range(2000)]
        producer.flush()
        assert all(d.done for d in deliveries)


def test_a_result_is_waited_for_no_longer_than_asked(client: Client) -> None:
    with client.producer(linger_ms=60_000) as producer:
        delivery = producer.send("t", b"x")
        with pytest.raises(TimedOut, match=r"not confirmed within 0\.02 s"):
            delivery.result(0.02)
        producer.flush()
        assert delivery.result().topic == "t"


def test_error_of_a_message_is_raised_by_its_delivery_or_by_flush(client: Client) -> None:
    client.admin.create_topic("t", partitions=1, config={"max.message.bytes": "1000"})
    with client.producer() as producer:
        with pytest.raises(UnknownPartition):
            producer.send("t", b"x", partition=9).result()
        with pytest.raises(RecordTooLarge):
            producer.send("t", b"x" * 2000).result()
        producer.flush()
        producer.send("t", "text")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="must be bytes"):
            producer.flush()
        producer.flush()
    with pytest.raises(RecordTooLarge), client.producer() as producer:
        producer.send("t", b"x" * 2000)


def test_a_producer_is_started_and_not_used_after_its_end(client: Client) -> None:
    producer = client.producer()
    with pytest.raises(InvalidArgument, match="not started"):
        producer.send("t", b"x")
    with producer:
        producer.send("t", b"x")
    producer.close()
    with pytest.raises(ConnectionLost, match="closed"):
        producer.send("t", b"x")


@pytest.mark.slow
def test_sending_waits_for_room_and_memory_is_bounded(frontend: Frontend, broker_thread: Background) -> None:
    proxy = Proxy(frontend.port)
    broker_thread.run(proxy.start())
    sent = 0

    def send_for_ever() -> None:
        nonlocal sent
        with suppress(ConnectionLost):
            while True:
                producer.send("t", b"x" * 10_000)
                sent += 1

    with sparrow.sync.connect(proxy.url, close_timeout_s=0.2) as client:
        producer = client.producer(max_pending_bytes=100_000).start()
        producer.send("t", b"x").result()
        proxy.is_silent = True
        thread = threading.Thread(target=send_for_ever)
        thread.start()
        while sent <= 10:
            thread.join(0.01)
        thread.join(0.05)
        assert sent < 80
        with pytest.raises((TimedOut, ConnectionLost)):
            producer.close()
        thread.join(5)
        assert not thread.is_alive()
        proxy.is_silent = False
    broker_thread.run(proxy.stop())


def test_commits_cover_messages_handed_out_and_not_those_received(client: Client) -> None:
    client.admin.create_topic("t", partitions=1)
    with client.producer() as producer:
        for i in range(10):
            producer.send("t", b"%d" % i)
    with client.subscribe("t", group="g", start="beginning") as sub:
        for message in sub:
            if message.offset == 3:
                break
        sub.commit()
        assert [o.offset for o in client.admin.group_offsets("g")] == [4]
        sub.commit(message)
    with client.subscribe("t", group="g") as sub:
        assert [m.value for m in sub.pull(100, wait_s=5)] == [b"%d" % i for i in range(4, 10)]
        assert sub.pull(100, wait_s=0.01) == []
        assert sub.assignment == [("t", 0)]


def test_topics_are_added_and_dropped(client: Client) -> None:
    client.publish("b", b"x")
    with client.subscribe("a") as sub:
        sub.add("b", start="beginning")
        assert [m.topic for m in sub.pull(1, wait_s=5)] == ["b"]
        sub.drop("a")
        assert sub.topics == ["b"]


def test_iteration_ends_when_another_thread_closes_the_subscription(client: Client) -> None:
    sub = client.subscribe("t").start()
    threading.Timer(0.05, sub.close).start()
    assert list(sub) == []


def test_ctrl_c_interrupts_a_wait_and_the_client_goes_on(client: Client) -> None:
    with client.subscribe("t") as sub:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            sub.pull(1, wait_s=60)
        client.publish("t", b"x")
        assert [m.value for m in sub.pull(1, wait_s=5)] == [b"x"]


def test_a_blocking_call_in_a_callback_is_refused_and_does_not_hang(client: Client) -> None:
    refused = threading.Event()

    def callback(_: Any) -> None:
        try:
            client.publish("t", b"x")
        except InvalidArgument:
            refused.set()

    with client.subscribe("t", on_assigned=callback):
        assert refused.wait(5)


def test_a_closed_client_says_so_and_closes_twice(frontend: Frontend) -> None:
    before = threading.active_count()
    client = sparrow.sync.connect(frontend.url)
    client.close()
    client.close()
    with pytest.raises(ConnectionLost, match="closed"):
        client.publish("t", b"x")
    assert threading.active_count() == before


def test_an_error_in_the_block_is_the_one_that_is_seen(frontend: Frontend) -> None:
    def fail() -> None:
        with sparrow.sync.connect(frontend.url) as client, client.producer() as producer:
            producer.send("t", b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_an_unreachable_broker_leaves_no_thread(frontend: Frontend) -> None:
    before = threading.active_count()
    with pytest.raises(ConnectionLost):
        sparrow.sync.connect("sparrow://127.0.0.1:1", connect_timeout_s=0.05)
    assert threading.active_count() == before


def test_queues_in_the_style_of_msbq(client: Client) -> None:
    with client.channel() as channel:
        channel.assert_queue("q", partitions=1)
        channel.deliver("q", b"one")
        for message in channel.consume("q"):
            assert message.value == b"one"
            break


def test_administration_has_the_same_names(client: Client) -> None:
    theirs = {n for n in dir(type(client.admin)) if not n.startswith("_")}
    ours = {n for n in dir(sparrow.Client) if not n.startswith("_")}
    assert theirs == {n for n in dir(sparrow.client.Admin) if not n.startswith("_")}
    assert {n for n in dir(Client) if not n.startswith("_")} >= ours - {
        "abandon",
        "queue_with",
        "shutdown",  # signals go to the thread that waits
        "subscription",
    }
    client.admin.create_topic("t", partitions=1, config={"retention.ms": "1000"})
    client.admin.configure_topic("t", {"retention.bytes": "5000"}, unset=["retention.ms"])
    assert client.admin.add_partitions("t", 2).partition_count == 2
    assert [t.name for t in client.admin.list_topics()] == ["t"]
    assert client.admin.ensure_topic("t").name == client.admin.describe_topic("t").name
    assert [o.offset for o in client.admin.offsets("t")] == [0, 0]
    assert client.admin.delete_records("t", {0: 0}) == {0: 0}
    client.admin.commit("g", {("t", 0): 0})
    assert [g.group for g in client.admin.list_groups()] == ["g"]
    assert client.admin.describe_group("g").group == "g"
    assert client.admin.reset_group("g", "t", "beginning", partitions=[0]) == {0: 0}
    client.admin.delete_group("g")
    client.admin.delete_topic("t")
    assert client.admin.describe_broker().topics == 0


def test_the_background_hands_over_results_and_errors() -> None:
    background = Background()

    async def fail() -> None:
        raise ZeroDivisionError

    assert background.run(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ZeroDivisionError):
        background.run(fail())
    with pytest.raises(TimeoutError):
        background.run(asyncio.sleep(60), 0.01)
    background.stop()
    background.call_soon(lambda: None)
    with pytest.raises(ConnectionLost):
        background.run(asyncio.sleep(0))
