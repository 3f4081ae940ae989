"""Dead letters of share groups (KIP-1191), seen through Kafka's protocol only."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.record import Record, decode
from tests.kafka_frontend.raw import RawClient, new, part, request
from tests.kafka_frontend.requests import fetch
from tests.share_fetch.calls import (
    ACCEPT,
    REJECT,
    RELEASE,
    Member,
    Partition,
    acquired,
    configure,
    fill,
)

SECONDS = 60
Make = Callable[[], Member]


def make(raw: RawClient, name: str, partitions: int, configs: dict[str, str]) -> None:
    """Create a topic."""
    kind = load_request_schema(19, 7)
    entries = tuple(
        new(part(kind, "topics.configs"), name=key, value=value) for key, value in configs.items()
    )
    wanted = new(
        part(kind, "topics"), name=name, num_partitions=partitions, replication_factor=1, configs=entries
    )
    (made,) = raw.call(request(19, 7, topics=(wanted,), timeout=timedelta(seconds=SECONDS))).topics
    assert made.error_code is ErrorCode.none, made


def letters(raw: RawClient, topic: str, partition: int, count: int) -> list[Record]:
    """Wait until there are `count` records in a partition."""
    deadline = time.monotonic() + SECONDS
    found: list[Record] = []
    while len(found) < count and time.monotonic() < deadline:
        wanted = [{"partition": partition, "fetch_offset": len(found)}]
        response = raw.call(fetch(12, topic, wanted, max_wait=timedelta(milliseconds=500), min_bytes=1))
        data = response.responses[0].partitions[0].records or b""
        for _, piece in split(data):
            found += [each for each in decode(piece) if each.offset >= len(found)]
    assert len(found) == count
    return found


def headers(record: Record) -> dict[str, Any]:
    return {name: value and value.decode() for name, value in record.headers if name.startswith("__dlq.")}


@pytest.fixture
def dead(raw: RawClient, group: str) -> str:
    """Return the group's dead letter topic."""
    name = f"dlq.{uuid.uuid4().hex}"
    make(raw, name, 2, {"errors.deadletterqueue.group.enable": "true"})
    configure(raw, group, {"errors.deadletterqueue.topic.name": name, "share.delivery.count.limit": "2"})
    return name


@pytest.fixture
def source(raw: RawClient, topic: str) -> Partition:
    """Return partition 1 of a topic with two, with six records."""
    make(raw, topic, 2, {})
    now_ms = time.time_ns() // 1_000_000
    records = build_batch(
        [b"v%d" % number for number in range(6)],
        [b"k%d" % number for number in range(6)],
        timestamps=[now_ms] * 6,
        headers=[[("own", b"%d" % number)] for number in range(6)],
    )
    return fill(raw, topic, [records], 1), 1


def settle(one: Member, source: Partition) -> None:
    """Reject record 1, release record 4 until the limit, accept the others."""
    one.get([source])
    one.acknowledge({source: [(0, 5, [ACCEPT, REJECT, ACCEPT, ACCEPT, RELEASE, ACCEPT])]})
    assert acquired(one.get()) == {1: [(4, 4, 2)]}
    one.acknowledge({source: [(4, 4, [RELEASE])]})
    assert acquired(one.fetch(wait_ms=50)) == {}


@pytest.mark.parametrize("copies", ["true", "false"])
def test_records_that_a_group_gives_up_go_to_its_dead_letter_topic(
    raw: RawClient, member: Make, group: str, topic: str, source: Partition, dead: str, copies: str
) -> None:
    configure(raw, group, {"errors.deadletterqueue.copy.record.enable": copies})
    one = member()
    one.join(topic, partitions=2)
    settle(one, source)
    rejected, exhausted = sorted(
        letters(raw, dead, 1, 2), key=lambda each: headers(each)["__dlq.errors.offset"]
    )
    common = {
        "__dlq.errors.topic": topic,
        "__dlq.errors.partition": "1",
        "__dlq.errors.group": group,
    }
    assert headers(rejected) == common | {
        "__dlq.errors.offset": "1",
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": "Offset rejected by client.",
    }
    assert headers(exhausted) == common | {
        "__dlq.errors.offset": "4",
        "__dlq.errors.delivery.count": "2",
        "__dlq.errors.message": "Offset delivery count exceeded the threshold.",
    }
    contents = [(each.key, each.value, dict(each.headers).get("own")) for each in (rejected, exhausted)]
    if copies == "true":
        assert contents == [(b"k1", b"v1", b"1"), (b"k4", b"v4", b"4")]
    else:
        assert contents == [(None, None, None)] * 2


def test_group_without_a_dead_letter_topic_drops_records_it_gives_up(
    raw: RawClient, member: Make, group: str, topic: str, source: Partition
) -> None:
    configure(raw, group, {"share.delivery.count.limit": "2"})
    one = member()
    one.join(topic, partitions=2)
    settle(one, source)
    found = raw.call(request(3, 13, topics=None)).topics
    assert not [each.name for each in found if group in (each.name or "")]
