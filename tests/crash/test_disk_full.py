"""A disk that is really full: refused and working operations, the state after a kill -9, and the
return to service once there is space.

It needs a small file system, which root may mount. Users without that right have the same promises
tested on a machine whose space is a number (`test_full_machine.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import TimedOut
from tests.crash.disk import NoDisk, small_disk

_DISK_BYTES = 96 << 20
_MESSAGE = b"x" * 100_000
FULL = "4 MiB are kept in reserve"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a separate small file system."""
    try:
        with small_disk(tmp_path / "disk", _DISK_BYTES) as mounted:
            yield mounted.where
    except NoDisk as reason:
        pytest.skip(str(reason))


def fill(client: sparrow.sync.Client, topic: str) -> int:
    """Publish until the disk is full; return the number of acknowledged messages."""
    acknowledged = 0
    with client.producer(delivery_timeout_s=1) as producer:
        while True:
            try:
                producer.send(topic, _MESSAGE, partition=0).result()
            except TimedOut:
                return acknowledged
            acknowledged += 1


def refused(client: sparrow.sync.Client, topic: str) -> None:
    with client.producer(delivery_timeout_s=1) as producer:
        delivery = producer.send(topic, _MESSAGE, partition=0)
        with pytest.raises(TimedOut, match=FULL):
            delivery.result()


def read_back(client: sparrow.sync.Client, topic: str, count: int) -> list[bytes | None]:
    with client.subscribe(topic, start="beginning") as subscription:
        return [message.value for _, message in zip(range(count), subscription, strict=False)]


def drain(client: sparrow.sync.Client, queue: str, count: int) -> list[bytes | None]:
    """Lease and acknowledge; each acknowledgement is confirmed."""
    done: list[bytes | None] = []
    with client.queue(queue) as jobs:
        while len(done) < count:
            batch = jobs.lease(50, wait_s=5)
            assert len(batch), f"{len(done)} of {count} jobs came"
            done += batch.values
            batch.ack()
    return done


@pytest.mark.slow
def test_full_disk_refuses_messages_keeps_all_that_was_acknowledged_and_recovers_by_itself(disk):
    with ExitStack() as opened:
        data_dir = str(disk / "data")
        broker = opened.enter_context(
            sparrow.testing.broker(process=True, data_dir=data_dir, reserve_bytes="64 MiB")
        )
        client = opened.enter_context(sparrow.sync.connect(broker.url))
        client.admin.create_topic("filler", partitions=1)
        client.admin.create_queue("jobs", partitions=1)
        with client.producer() as producer:
            for number in range(200):
                producer.send("jobs", b"%d" % number)
        acknowledged = fill(client, "filler")
        refused(client, "filler")
        assert acknowledged > 100

        # Full: reading, leasing and acknowledging continue.
        assert read_back(client, "filler", acknowledged) == [_MESSAGE] * acknowledged
        assert drain(client, "jobs", 100) == [b"%d" % number for number in range(100)]
        client.admin.commit("readers", {("filler", 0): 7})

        # After a kill -9 the broker starts on the full disk.
        broker.kill()
        broker.restart()
        assert read_back(client, "filler", acknowledged) == [_MESSAGE] * acknowledged
        assert [each.offset for each in client.admin.group_offsets("readers")] == [7]
        assert drain(client, "jobs", 100) == [b"%d" % number for number in range(100, 200)]
        refused(client, "filler")

        # Space again: nobody has to restart anything.
        client.admin.delete_topic("filler")
        with client.producer(delivery_timeout_s=30) as producer:
            assert producer.send("jobs", b"after").result().offset == 200
