"""Queues over a topic with an unreadable batch: the others are delivered, its records become dead
letters.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import sparrow.sync
from sparrow.broker.broker import Broker
from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.testing.running_broker import RunningBroker
from tests.corrupt import bad
from tests.corrupt.bad import BEFORE, BEHIND, KINDS, good, good_bad_good
from tests.http_frontend.conftest import Http, http, make_http
from tests.http_streams.conftest import socket_to
from tests.webhooks.conftest import Hooks
from tests.webhooks.endpoints import EndpointServer

__all__ = ["http", "make_http"]
EVERY_KIND = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "decompression bomb"])


async def fill(broker: Broker, kind: str, **policy: object) -> None:
    await bad.fill(broker, "t", good("a"), KINDS[kind](), good("b"))
    await broker.queues.create("q", ["t"], {"delivery_limit": 0, **policy})


async def dead_letters(broker: Broker, count: int) -> list[dict[str, bytes | None]]:
    """Return the headers of this many dead letters of the queue."""
    async with asyncio.timeout(60):
        while True:
            found = (
                await broker.queues.peek("q.dead", 10) if broker.parts.queue_registry.find("q.dead") else []
            )
            if len(found) >= count:
                return [dict(each.headers) for each in found]
            await asyncio.sleep(0.01)


async def are_told(broker: Broker) -> None:
    """Check that each record of the batch has a dead letter that names it."""
    letters = await dead_letters(broker, 3)
    assert [each["dead-letter-offset"] for each in letters] == [b"3", b"4", b"5"]
    assert all(b"CORRUPT_BATCH" in (each["dead-letter-error"] or b"") for each in letters)
    assert broker.measures.corrupt_batches.counts["queue", "reject"] == 1


@EVERY_KIND
async def test_a_lease_by_http_has_the_others(http: Http, kind: str) -> None:
    await fill(http.broker, kind)
    found: list[str] = []
    async with asyncio.timeout(60):
        while len(found) < 6:
            answer = await http.post("/v1/queues/q/lease?max=100&wait_ms=1000")
            assert answer.status == 200, answer
            found += [each["value"] for each in answer.json["messages"]]
    assert found == [each.decode() for each in BEFORE + BEHIND]
    await are_told(http.broker)


@pytest.mark.parametrize(
    "policy", [{"order": "key"}, {"order": "parented"}, {"expiry_ms": 3_153_600_000_000}]
)
async def test_queues_that_look_into_every_batch_deliver_the_others(
    http: Http, policy: dict[str, object]
) -> None:
    await fill(http.broker, "header counts", **policy)
    found: list[str] = []
    async with asyncio.timeout(60):
        while len(found) < 6:
            answer = await http.post("/v1/queues/q/lease?max=100&wait_ms=1000")
            found += [each["value"] for each in answer.json["messages"]]
            for each in answer.json["messages"]:
                await http.post(f"/v1/queues/q/ack?lease={each['lease']}")
    assert sorted(found) == [each.decode() for each in BEFORE + BEHIND]
    await are_told(http.broker)


async def test_a_redrive_skips_unreadable_dead_letters(http: Http) -> None:
    await fill(http.broker, "header counts")
    consumer = await http.broker.queues.open_consumer("q")
    async with asyncio.timeout(60):
        leased = await consumer.lease(3, wait_ms=5000)
        await bad.fill(http.broker, "q.dead", KINDS["varint overflow"]())
        await consumer.settle([Settlement(Verb.REJECT, "t", 0, 0, 2)])
        while http.broker.parts.topic_registry.get("q.dead").partition(0).visible_end < 6:
            await asyncio.sleep(0.01)
        await http.broker.queues.redrive("q", RedriveFilter())
        while http.broker.queues.redrive_progress("q").is_running:
            await asyncio.sleep(0.01)
    assert sum(each.records for each in leased) == 3
    assert http.broker.queues.redrive_progress("q").moved == 3
    assert http.broker.measures.corrupt_batches.counts["mover", "skip"] == 1


async def test_an_endpoint_gets_the_others(tmp_path: Path) -> None:
    hooks = Hooks(tmp_path / "data")
    await hooks.start()
    async with EndpointServer() as server:
        await fill(hooks.broker, "header counts")
        await hooks.hook(server.url, queue="q")
        await are_told(hooks.broker)
        await hooks.until(lambda: len(server.bodies) == 6)
    await hooks.stop()
    assert sorted(server.bodies) == sorted([*BEFORE, *BEHIND])


async def test_a_place_by_time_is_found_at_a_batch_that_cannot_be_read(http: Http) -> None:
    await fill(http.broker, "header counts")
    answer = await http.get("/v1/topics/t/messages?from=timestamp:1&on_corrupt=skip")
    assert [each["value"] for each in answer.json["messages"]] == [each.decode() for each in BEFORE + BEHIND]
    await bad.fill(http.broker, "first", KINDS["header counts"](), good("b"))
    answer = await http.get("/v1/topics/first/messages?from=timestamp:1&on_corrupt=skip")
    assert [each["value"] for each in answer.json["messages"]] == [each.decode() for each in BEHIND]


@EVERY_KIND
async def test_a_socket_on_a_queue_gets_the_others(http: Http, kind: str) -> None:
    await fill(http.broker, kind)
    async with socket_to(http.port) as socket:
        await socket.ask("subscribe", "subscribed", subscription="s", queue="q", credit=100)
        found = await socket.records(6)
    assert [each["value"] for each in found] == [each.decode() for each in BEFORE + BEHIND]
    await are_told(http.broker)


@EVERY_KIND
def test_a_worker_gets_the_others_and_the_rest_are_dead_letters(broker: RunningBroker, kind: str) -> None:
    topic = good_bad_good(broker, kind)
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_queue(topic)
        found = []
        with client.queue(topic, prefetch=100) as queue:
            for job in queue:
                found.append(job.value)
                job.ack()
                if len(found) == 6:
                    break
        assert found == BEFORE + BEHIND
        letters = []
        with client.subscribe(f"{topic}.dead", start="beginning") as subscription:
            while len(letters) < 3:
                letters += subscription.pull(10, wait_s=5)
    headers = [dict(each.headers) for each in letters]
    assert [each["dead-letter-offset"] for each in headers] == [b"3", b"4", b"5"]
    assert all(b"CORRUPT_BATCH" in (each["dead-letter-error"] or b"") for each in headers)


async def test_peeking_leaves_out_unreadable_records(http: Http) -> None:
    await fill(http.broker, "header counts")
    found = await http.broker.queues.peek("q", 10)
    assert [each.value for each in found] == BEFORE + BEHIND


async def test_the_metric_says_which_readers_met_such_batches(http: Http) -> None:
    await fill(http.broker, "header counts")
    answer = await http.get("/v1/topics/t/messages?on_corrupt=skip")
    assert len(json.loads(answer.body)["messages"]) == 6
    text = (await http.get("/metrics")).body.decode()
    assert 'sparrow_corrupt_batches_total{reader="http",rule="skip"} 1' in text
