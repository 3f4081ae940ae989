"""Dead letters sent back to their topics, chosen by SQL, each once."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sparrow.base.errors import Conflict
from sparrow.pipelines import builtin
from sparrow.pipelines.builtin import redrives
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.spark.builtin.published import got, values_of

COUNT = 30


def _publish_dead_letters(client: Client, topic: str, origin: str) -> None:
    """Publish dead letters as a pipeline writes them."""
    client.admin.create_topic(origin, partitions=2)
    client.admin.create_topic(topic, partitions=2)
    with client.producer() as producer:
        for number in range(COUNT):
            reason = b"no JSON" if number % 3 else b"positive"
            headers = [
                ("mine", b"%d" % number),
                ("reason", reason),
                ("flow", b"clean"),
                ("topic", origin.encode()),
                ("partition", b"0"),
                ("offset", b"%d" % number),
            ]
            producer.send(topic, b"value %d" % number, key=b"%d" % (number % 5), headers=headers)
        producer.send(topic, b"no letter")
        producer.flush()


def test_dead_letters_of_a_pipeline_go_back_once(
    broker: RunningBroker, client: Client, where: dict[str, Any], name: str
) -> None:
    dead = f"{name}.dead"
    _publish_dead_letters(client, dead, name)
    condition = "reason = 'no JSON' AND headers['mine'] <> '1' AND key IS NOT NULL"
    wanted = sorted(b"value %d" % number for number in range(COUNT) if number % 3 and number != 1)

    planned = builtin.redrive(dead, where=condition, dry_run=True, **where)
    assert (planned.matched, planned.sent, planned.targets) == (len(wanted), 0, {name: len(wanted)})
    assert planned.sample[0].reason == "no JSON"
    assert values_of(got(broker, name)) == []

    done = builtin.redrive(dead, where=condition, **where)
    assert (done.matched, done.sent, done.left, done.failed) == (len(wanted), len(wanted), 0, 0)
    records = [record for found in got(broker, name).values() for record in found]
    assert sorted(record.value or b"" for record in records) == wanted
    for record in records:
        number = (record.value or b"").split()[1]
        assert record.headers == (("mine", number), ("redrive-count", b"1"))
        assert record.key == b"%d" % (int(number) % 5)

    rest = builtin.redrive(dead, **where)
    # A record without an origin stays.
    assert (rest.matched, rest.sent, rest.left) == (COUNT + 1 - len(wanted), COUNT - len(wanted), 1)
    assert len(values_of(got(broker, name))) == COUNT


def test_another_topic_can_be_named(
    broker: RunningBroker, client: Client, where: dict[str, Any], name: str
) -> None:
    dead = f"{name}.dead"
    _publish_dead_letters(client, dead, name)
    assert builtin.redrive(dead, to=f"{name}-other", **where).sent == COUNT + 1
    assert len(values_of(got(broker, f"{name}-other"))) == COUNT + 1
    assert values_of(got(broker, name)) == []


def test_one_of_two_concurrent_runs_sends(
    broker: RunningBroker, client: Client, where: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = f"{name}.dead"
    _publish_dead_letters(client, dead, name)
    real = redrives._chosen
    others: list[int] = []

    def meanwhile(*arguments: Any) -> Any:
        chosen = real(*arguments)
        monkeypatch.setattr(redrives, "_chosen", real)
        others.append(builtin.redrive(dead, **where).sent)
        return chosen

    monkeypatch.setattr(redrives, "_chosen", meanwhile)
    with pytest.raises(Conflict, match="nothing was sent"):
        builtin.redrive(dead, **where)
    assert others == [COUNT]
    assert len(values_of(got(broker, name))) == COUNT


def test_dead_letters_of_a_queue_are_sent_by_the_broker_and_then_are_done(
    broker: RunningBroker, client: Client, where: dict[str, Any], name: str
) -> None:
    client.admin.create_queue(name, policy={"delivery_limit": 1})
    for number in range(12):
        client.publish(name, b"job %d" % number, key=b"a" if number % 2 else b"b")
    with client.queue(name) as queue:
        taken = 0
        while taken < 12:
            for lease in queue.lease(12):
                reason = "too big" if lease.value.endswith((b"1", b"3")) else "unknown"
                lease.reject(reason)
                taken += 1
    _wait_for_dead(client, name, 12)
    done = builtin.redrive(
        name, where="reason = 'REJECTED' AND error = 'too big' AND value LIKE 'job%'", **where
    )
    assert (done.matched, done.sent, done.failed) == (3, 3, 0)
    again = builtin.redrive(f"{name}.dead", where="error = 'too big'", **where)
    assert (again.matched, again.sent, again.left) == (3, 0, 3)
    values = values_of(got(broker, name))
    assert sorted(set(values)) == sorted(b"job %d" % number for number in range(12))
    assert sorted(value or b"" for value in values if values.count(value) == 2) == sorted(
        [b"job 1", b"job 3", b"job 11"] * 2
    )
    assert client.admin.describe_queue(name).statistics.dead == 9


def _wait_for_dead(client: Client, queue: str, count: int) -> None:
    deadline = time.monotonic() + 30
    while client.admin.describe_queue(queue).statistics.dead < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_queue_without_dead_letters_has_nothing_to_send(
    client: Client, broker: RunningBroker, name: str
) -> None:
    client.admin.create_queue(name)
    done = builtin.redrive(name, connection={"url": broker.url})
    assert (done.matched, done.sent) == (0, 0)
