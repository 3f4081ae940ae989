"""Requests of share groups, in any version, and readers of their responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from tests.kafka_frontend.raw import RawClient, new, part, request
from tests.kafka_frontend.requests import make_topic, produce

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
NEWEST = 2
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
WAIT_S = 60

Partition = tuple[uuid.UUID, int]
Batch = tuple[int, int, Sequence[int]]
"""First and last offset, and the types."""


def share_heartbeat(group: str, member: str, epoch: int, topics: Sequence[str] | None) -> Any:
    return request(76, 1, group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics)


def _topics(kind: Any, partitions: Mapping[Partition, Sequence[Batch]]) -> tuple[Any, ...]:
    """Build the topics of a request of class `kind`."""
    topic_kind = part(kind, "topics")
    partition_kind = part(kind, "topics.partitions")
    batch_kind = part(kind, "topics.partitions.acknowledgement_batches")
    by_topic: dict[uuid.UUID, list[Any]] = {}
    for (topic, number), batches in partitions.items():
        acknowledged = tuple(
            new(batch_kind, first_offset=first, last_offset=last, acknowledge_types=tuple(types))
            for first, last, types in batches
        )
        by_topic.setdefault(topic, []).append(
            new(partition_kind, partition_index=number, acknowledgement_batches=acknowledged)
        )
    return tuple(new(topic_kind, topic_id=topic, partitions=tuple(each)) for topic, each in by_topic.items())


def share_fetch(
    group: str,
    member: str,
    epoch: int,
    partitions: Mapping[Partition, Sequence[Batch]] | Iterable[Partition] = (),
    *,
    forgotten: Iterable[Partition] = (),
    wait_ms: int = 0,
    version: int = NEWEST,
    **fields: Any,
) -> Any:
    """Build a fetch of partitions, with acknowledgements."""
    kind = load_request_schema(SHARE_FETCH, version)
    wanted = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, ())
    forgotten_kind = part(kind, "forgotten_topics_data")
    limits = {"min_bytes": 1, "max_bytes": 50 << 20, "max_records": 500, "batch_size": 500}
    return request(
        SHARE_FETCH,
        version,
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_wait=timedelta(milliseconds=wait_ms),
        topics=_topics(kind, wanted),
        forgotten_topics_data=tuple(
            new(forgotten_kind, topic_id=topic, partitions=(number,)) for topic, number in forgotten
        ),
        **limits | fields,
    )


def renewing_fetch(
    group: str, member: str, epoch: int, partitions: Mapping[Partition, Sequence[Batch]]
) -> Any:
    """Build a fetch that only renews: it may not ask for records."""
    nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    return share_fetch(group, member, epoch, partitions, is_renew_ack=True, **nothing)


def share_acknowledge(
    group: str,
    member: str,
    epoch: int,
    partitions: Mapping[Partition, Sequence[Batch]],
    *,
    version: int = NEWEST,
    **fields: Any,
) -> Any:
    kind = load_request_schema(SHARE_ACKNOWLEDGE, version)
    return request(
        SHARE_ACKNOWLEDGE,
        version,
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        topics=_topics(kind, partitions),
        **fields,
    )


def parts(response: Any) -> dict[Partition, Any]:
    """Return the contents of a response per partition."""
    return {
        (topic.topic_id, each.partition_index): each
        for topic in response.responses
        for each in topic.partitions
    }


def acquired(response: Any) -> dict[int, list[tuple[int, int, int]]]:
    """Return the acquired (first, last, delivery count) by partition."""
    return {
        number: [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]
        for (_, number), data in parts(response).items()
        if data.acquired_records
    }


def offsets(response: Any, partition: int = 0) -> list[int]:
    """Return the acquired offsets of a partition."""
    ranges = acquired(response).get(partition, [])
    return [offset for first, last, _ in ranges for offset in range(first, last + 1)]


def base_offsets(records: bytes | None) -> list[int]:
    return [header.base_offset for header, _ in split(records or b"")]


class Member:
    """A member of a share group that sends by hand what a client's share consumer sends, on one
    connection.
    """

    def __init__(self, bootstrap: str, group: str, member: str = "") -> None:
        self.raw = RawClient(bootstrap)
        self.group = group
        self.id = member or str(uuid.uuid4())
        self.epoch = 0
        self.member_epoch = 0
        self.assigned: set[Partition] = set()

    def join(self, *topics: str, partitions: int = 1) -> None:
        """Subscribe, and wait until `partitions` are assigned."""
        deadline = time.monotonic() + WAIT_S
        names: Sequence[str] | None = topics
        while time.monotonic() < deadline:
            reply = self.raw.call(share_heartbeat(self.group, self.id, self.member_epoch, names))
            assert reply.error_code is ErrorCode.none, reply
            names, self.member_epoch = None, reply.member_epoch
            if reply.assignment is not None:
                self.assigned = {
                    (topic.topic_id, number)
                    for topic in reply.assignment.topic_partitions
                    for number in topic.partitions
                }
            if len(self.assigned) >= partitions:
                return
            time.sleep(0.02)
        raise AssertionError(f"no more than {len(self.assigned)} partitions were assigned")

    def fetch(self, partitions: Any = (), **fields: Any) -> Any:
        """Send the next fetch of the session."""
        reply = self.raw.call(share_fetch(self.group, self.id, self.epoch, partitions, **fields))
        if reply.error_code is ErrorCode.none and self.epoch >= 0:
            self.epoch += 1
        return reply

    def get(self, partitions: Any = (), **fields: Any) -> Any:
        """Fetch until records are acquired."""
        deadline = time.monotonic() + WAIT_S
        reply = self.fetch(partitions, **{"wait_ms": 500, **fields})
        while not acquired(reply) and time.monotonic() < deadline:
            assert reply.error_code is ErrorCode.none, reply
            reply = self.fetch(**{"wait_ms": 500, **fields})
        return reply

    def acknowledge(self, partitions: Mapping[Partition, Sequence[Batch]], **fields: Any) -> Any:
        reply = self.raw.call(share_acknowledge(self.group, self.id, self.epoch, partitions, **fields))
        if reply.error_code is ErrorCode.none:
            self.epoch += 1
        return reply

    def close(self) -> None:
        """Leave the group and disconnect."""
        with suppress(OSError):
            if self.member_epoch > 0:
                self.raw.call(share_heartbeat(self.group, self.id, -1, None))
        self.die()

    def die(self) -> None:
        """Disconnect without leaving the group."""
        self.raw.socket.close()


def fill(raw: RawClient, topic: str, batches: Sequence[bytes], partition: int = 0) -> uuid.UUID:
    """Publish; return the topic's id."""
    topic_id = make_topic(raw, topic)
    for each in batches:
        found = raw.call(produce(9, topic, [(partition, each)]))
        assert found.responses[0].partition_responses[0].error_code is ErrorCode.none
    return topic_id


def batch(count: int, first: int = 0, **fields: Any) -> bytes:
    """Build a batch of current records whose values are their numbers."""
    now_ms = time.time_ns() // 1_000_000
    return build_batch(
        [b"%d" % number for number in range(first, first + count)], timestamps=[now_ms] * count, **fields
    )


def configure(raw: RawClient, group: str, configs: Mapping[str, str]) -> None:
    """Set configurations of a group."""
    kind = load_request_schema(44, 1)
    entries = tuple(
        new(part(kind, "resources.configs"), name=name, config_operation=0, value=value)
        for name, value in configs.items()
    )
    resource = new(part(kind, "resources"), resource_type=32, resource_name=group, configs=entries)
    (reply,) = raw.call(request(44, 1, resources=(resource,))).responses
    assert not reply.error_code, reply


def errors(response: Any) -> dict[int, ErrorCode]:
    """Return the acknowledgement errors of a response, by partition."""
    return {
        number: ErrorCode(getattr(data, "acknowledge_error_code", None) or data.error_code)
        for (_, number), data in parts(response).items()
    }
