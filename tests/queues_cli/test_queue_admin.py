"""`client.admin` for queues, of both clients."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import sparrow
from sparrow.base.errors import InvalidArgument, InvalidConfig, QueueExists, UnknownQueue
from sparrow.client.results import RedriveProgress
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker


def test_queue_is_made_changed_and_described(client: Client, name: str) -> None:
    made = client.admin.create_queue(name, policy={"lease_ms": 1000, "dead_letter_topic": None})
    assert (made.name, made.kind, made.topics, made.is_paused) == (name, "queue", [name], False)
    assert (made.policy["lease_ms"], made.policy["dead_letter_topic"]) == (1000, None)
    assert client.admin.create_queue(name, policy={"lease_ms": 1000, "dead_letter_topic": None}).id == made.id
    with pytest.raises(QueueExists):
        client.admin.create_queue(name)
    changed = client.admin.configure_queue(name, {"prefetch": 7}, unset=["lease_ms"])
    assert (changed.policy["prefetch"], changed.policy["lease_ms"]) == (7, 30_000)
    client.admin.pause_queue(name)
    assert client.admin.describe_queue(name).is_paused
    client.admin.resume_queue(name)
    assert not client.admin.describe_queue(name).is_paused
    assert [each.id for each in client.admin.list_queues(name)] == [made.id]
    client.admin.delete_queue(name)
    with pytest.raises(UnknownQueue):
        client.admin.describe_queue(name)


def test_one_name_by_itself_is_a_list_of_one(client: Client, name: str) -> None:
    made = client.admin.create_queue(name, f"{name}.topic", policy={"lease_ms": 1000})
    assert made.topics == [f"{name}.topic"]
    assert client.admin.configure_queue(name, unset="lease_ms").policy["lease_ms"] == 30_000
    assert client.admin.peek_queue(name, states="ready") == []


def test_queue_begins_at_a_time(client: Client, name: str) -> None:
    client.publish(name, b"old", timestamp_ms=1_000)
    client.publish(name, b"new", timestamp_ms=2_000)
    start = datetime.fromtimestamp(1.5, UTC)
    assert client.admin.create_queue(name, policy={"start": start}).policy["start"] == "timestamp:1500"
    assert [each.value for each in client.admin.peek_queue(name)] == [b"new"]
    with pytest.raises(InvalidArgument, match="time without zone"):
        client.admin.create_queue(name, policy={"start": datetime(2026, 5, 1)})  # noqa: DTZ001 - the point


def test_peeked_records_are_records_that_tell_more(client: Client, name: str) -> None:
    client.admin.create_queue(name)
    placed = client.publish(name, b"v", key=b"k", headers={"h": b"1", "priority": b"7"}, timestamp_ms=5)
    (found,) = client.admin.peek_queue(name)
    assert isinstance(found, sparrow.Message)
    assert (found.topic, found.partition, found.offset) == (name, placed.partition, placed.offset)
    assert (found.timestamp, found.key, found.value) == (5, b"k", b"v")
    assert found.headers == (("h", b"1"), ("priority", b"7"))
    assert (found.state, found.delivery_count, found.priority) == ("ready", 0, 7)
    assert client.admin.peek_queue(name, skip=1) == []
    assert client.admin.purge_queue(name) == 1


def test_statistics_of_subscribers_and_consumers_are_shown(client: Client, name: str) -> None:
    client.admin.create_queue(name, policy={"subscribers": ["a", "b"]})
    client.publish(name, b"v", headers={"priority": b"9"})
    with client.queue(name, subscriber="a") as queue:
        (job,) = queue.lease(1)
        statistics = client.admin.describe_queue(name).statistics
        assert (statistics.ready, statistics.leased, statistics.delivered) == (1, 1, 1)
        assert [(each.subscriber, each.leased) for each in statistics.consumers] == [("a", 1)]
        assert {name: (each.ready, each.leased) for name, each in statistics.subscribers.items()} == {
            "a": (0, 1),
            "b": (1, 0),
        }
        assert list(statistics.oldest_by_priority) == [9]
        assert statistics.oldest_ms >= 0
        job.ack()


def test_refusal_of_the_broker_is_raised(client: Client, name: str) -> None:
    with pytest.raises(InvalidConfig, match="lease_ms is 1"):
        client.admin.create_queue(name, policy={"lease_ms": 1})
    for call in (
        client.admin.describe_queue,
        client.admin.delete_queue,
        client.admin.pause_queue,
        client.admin.resume_queue,
        client.admin.purge_queue,
        client.admin.peek_queue,
        client.admin.redrive_queue,
        client.admin.redrive_progress,
        client.admin.stop_redrive,
    ):
        with pytest.raises(UnknownQueue):
            call(f"no-{name}")


def test_redrive_of_a_queue_without_dead_letters_is_done_at_once(client: Client, name: str) -> None:
    client.admin.create_queue(name)
    progress = client.admin.redrive_queue(name, reason="REJECTED", since=datetime(2026, 5, 1, tzinfo=UTC))
    while progress.is_running:
        progress = client.admin.redrive_progress(name)
    assert progress == RedriveProgress()
    assert client.admin.stop_redrive(name) == RedriveProgress()


@pytest.mark.slow
async def test_client_that_drops_its_connection_leaves_leases_to_their_time(
    server: RunningBroker, client: Client, name: str
) -> None:
    client.admin.create_queue(name)
    client.publish(name, b"v")
    async with sparrow.connect(server.url) as crashing:
        queue = crashing.queue(name)
        assert len(await queue.lease(1)) == 1
        await crashing.drop()
        assert not crashing.is_connected
    (found,) = client.admin.peek_queue(name)
    assert (found.state, found.delivery_count) == ("leased", 1)
