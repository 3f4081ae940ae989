"""Kafka's leader epoch, as clients see it at the wire before and after a takeover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparrow.records.builder import build_batch
from tests.cluster.brokers import BrokerProcess
from tests.cluster.pair import Pair
from tests.kafka_frontend.raw import RawClient, new, part, request
from tests.kafka_frontend.requests import make_topic, metadata, produce

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def leader_epoch(raw: RawClient) -> int:
    """Return the epoch of the partition's leader by Metadata."""
    (topic,) = raw.call(metadata(13, "orders", create=False)).topics
    return int(topic.partitions[0].leader_epoch)


def publish(raw: RawClient, *numbers: int) -> None:
    data = build_batch([b"%d" % number for number in numbers])
    (topic,) = raw.call(produce(9, "orders", [(0, data)])).responses
    assert topic.partition_responses[0].error_code is ErrorCode.none


def end_of(raw: RawClient, epoch: int, current: int = -1, version: int = 4) -> tuple[Any, int, int]:
    """Ask OffsetForLeaderEpoch; return the error, the epoch and its end offset."""
    kind = type(request(23, version))
    wanted = new(
        part(kind, "topics.partitions"), partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    topics = (new(part(kind, "topics"), topic="orders", partitions=(wanted,)),)
    (found,) = raw.call(request(23, version, topics=topics)).topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


def test_a_takeover_begins_an_epoch_and_the_old_one_ends_at_its_last_message(
    tmp_path: Path, ledger_url: str
) -> None:
    pair = Pair(tmp_path, ledger_url, f"file://{tmp_path}/objects")
    try:
        with RawClient(f"127.0.0.1:{pair.ports['a']}") as raw:
            make_topic(raw, "orders")
            publish(raw, *range(5))
            old = leader_epoch(raw)
            assert end_of(raw, old) == (ErrorCode.none, old, 5)
            assert end_of(raw, old + 1) == (ErrorCode.none, -1, -1), "it has not begun"
            assert end_of(raw, old, old + 1)[0] is ErrorCode.unknown_leader_epoch
        pair.fail_over(BrokerProcess.kill)
        with RawClient(f"127.0.0.1:{pair.ports['b']}") as raw:
            new_epoch = leader_epoch(raw)
            assert new_epoch > old
            assert end_of(raw, old) == (ErrorCode.none, old, 5), "nothing is published since"
            publish(raw, *range(5, 8))
            for version in (2, 3, 4):
                assert end_of(raw, old, version=version) == (ErrorCode.none, old, 5)
                assert end_of(raw, new_epoch, new_epoch, version) == (ErrorCode.none, new_epoch, 8)
            assert end_of(raw, old, old)[0] is ErrorCode.fenced_leader_epoch
            assert end_of(raw, new_epoch + 1) == (ErrorCode.none, -1, -1)
    finally:
        pair.end()
