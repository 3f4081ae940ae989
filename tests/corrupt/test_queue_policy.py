"""A queue with the policy `on_corrupt=fail`: it stops at an unreadable batch until an operator
decides.
"""

from __future__ import annotations

import pytest

import sparrow.sync
from sparrow.base.errors import CorruptBatch
from sparrow.testing.running_broker import RunningBroker
from tests.corrupt.bad import BEFORE, BEHIND, KINDS, good_bad_good


def take(broker: RunningBroker, queue: str, count: int) -> list[bytes | None]:
    with sparrow.sync.connect(broker.url) as client, client.queue(queue, prefetch=100) as reading:
        found = []
        for job in reading:
            found.append(job.value)
            job.ack()
            if len(found) == count:
                break
        return found


# A batch that is only too large for a reader is no dead letter at once, as another may read it: it
# is tried until the delivery limit.
@pytest.mark.parametrize(
    ("way_out", "kind"),
    [("log skip", kind) for kind in KINDS]
    + [("policy", kind) for kind in KINDS if kind != "decompression bomb"],
)
def test_it_delivers_the_records_before_stops_and_continues_on_request(
    broker: RunningBroker, kind: str, way_out: str
) -> None:
    topic = good_bad_good(broker, kind)
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_queue(topic, policy={"on_corrupt": "fail"})
        assert take(broker, topic, 3) == BEFORE
        with pytest.raises(
            CorruptBatch, match=f"queue '{topic}' is stopped .*offset 6.*sparrow log skip {topic} 0 3"
        ):
            take(broker, topic, 1)
        with pytest.raises(CorruptBatch):  # it stays so
            take(broker, topic, 1)
        if way_out == "policy":
            client.admin.configure_queue(topic, {"on_corrupt": "skip"})
        else:
            client.admin.skip_batch(topic, 0, 3)
        assert take(broker, topic, 3) == BEHIND


@pytest.mark.parametrize("order", ["key", "parented"])
def test_queues_with_an_order_stop_and_continue_as_well(broker: RunningBroker, order: str) -> None:
    topic = good_bad_good(broker)
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_queue(topic, policy={"on_corrupt": "fail", "order": order})
        assert sorted(filter(None, take(broker, topic, 3))) == BEFORE
        with pytest.raises(CorruptBatch):
            take(broker, topic, 1)
        client.admin.configure_queue(topic, {"on_corrupt": "skip"})
        assert sorted(filter(None, take(broker, topic, 3))) == BEHIND


def test_other_queues_and_the_broker_continue(broker: RunningBroker) -> None:
    stopped, other = good_bad_good(broker), good_bad_good(broker)
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_queue(stopped, policy={"on_corrupt": "fail"})
        client.admin.create_queue(other)
        assert take(broker, stopped, 3) == BEFORE
        with pytest.raises(CorruptBatch):
            take(broker, stopped, 1)
        assert take(broker, other, 6) == BEFORE + BEHIND
        assert client.admin.describe_queue(stopped).name == stopped
