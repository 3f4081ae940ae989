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
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sparrow
from sparrow.cli import main
from sparrow.cluster.object_stores import open_objects
from tests.cluster.brokers import BrokerProcess
from tests.cluster.pair import HttpLoad, Load, Pair, ask, judge, make_topic
from tests.cluster.postgres_server import PASSWORD, start_postgres

ROUNDS = int(os.environ.get("SPARROW_CLUSTER_ROUNDS", "1"))
SEED = int(os.environ.get("SPARROW_CLUSTER_SEED", "1"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 60 * ROUNDS)]


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


@pytest.mark.parametrize("objects_url", ["file"], indirect=True)
async def test_clients_of_all_kinds_go_on_over_a_kill_and_a_restart(pair: Pair) -> None:
    async with sparrow.connect(pair.url) as client:
        for topic in ("orders", "by-http"):
            await client.admin.create_topic(topic, partitions=1)
        http_load = HttpLoad("by-http", pair.http_ports.values())
        read: list[int] = []

        async def consume() -> None:
            async with client.subscribe("orders", group="readers", start="beginning") as subscription:
                async for message in subscription:
                    read.append(int(message.value or b""))

        async def publish(producer: sparrow.Producer, first: int) -> None:
            for each in [await producer.send("orders", b"%d" % n) for n in range(first, first + 50)]:
                await each

        async def until(condition: Callable[[], bool]) -> None:
            async with asyncio.timeout(60):
                while not condition():
                    await asyncio.sleep(0.02)

        consuming = asyncio.create_task(consume())
        http_load.start()
        async with client.producer() as producer:
            for number, fault in enumerate((BrokerProcess.kill, BrokerProcess.terminate)):
                accepted = http_load.accepted
                await publish(producer, 100 * number)
                await until(lambda accepted=accepted: http_load.accepted > accepted + 20)
                failed = pair.owner
                failing = asyncio.create_task(asyncio.to_thread(pair.fail_over, fault))
                await publish(producer, 100 * number + 50)
                await failing
                pair.start(failed)
                await asyncio.to_thread(pair.wait_for_standby, failed)
            accepted = http_load.accepted
            await until(lambda: http_load.accepted > accepted + 20 and set(read) >= set(range(200)))
        await asyncio.to_thread(http_load.stop)
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)
        found: list[int] = []
        async with client.subscribe("by-http", start="beginning") as subscription:
            async with asyncio.timeout(60):
                while len(found) < http_load.accepted:
                    found += [int(each.value or b"") for each in await subscription.pull(1000)]
    assert found[: http_load.accepted] == list(range(http_load.accepted)), "each once, and in order"


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
