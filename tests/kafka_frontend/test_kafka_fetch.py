"""Fetch and ListOffsets: versions, limits, sessions, long poll."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

import sparrow.sync
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, new, part, request
from tests.kafka_frontend.requests import fetch, list_offsets, make_topic, produce

VALUES = 5


def batch(first: int) -> bytes:
    return build_batch(
        [b"%d" % n for n in range(first, first + VALUES)],
        timestamps=[1000 * n for n in range(first, first + VALUES)],
    )


def fill(raw: RawClient, topic: str, batches: int, partition: int = 0) -> uuid.UUID:
    topic_id = make_topic(raw, topic)
    for n in range(batches):
        found = raw.call(produce(9, topic, [(partition, batch(n * VALUES))]))
        assert found.responses[0].partition_responses[0].error_code is ErrorCode.none
    return topic_id


def only(response: Any) -> Any:
    (topic,) = response.responses
    (found,) = topic.partitions
    return found


def base_offsets(records: bytes) -> list[int]:
    return [header.base_offset for header, _ in split(records)]


def at(offset: int, partition: int = 0, **fields: int) -> dict[str, int]:
    return {"partition": partition, "fetch_offset": offset, **fields}


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_gives_the_records(raw: RawClient, topic: str, version: int) -> None:
    topic_id = fill(raw, topic, 2)
    name = topic_id if version >= 13 else topic
    found = only(raw.call(fetch(version, name, [at(0)])))
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (ErrorCode.none, 10, 10)
    assert base_offsets(found.records) == [0, 5]
    assert found.aborted_transactions is None
    if version >= 5:
        assert found.log_start_offset == 0


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (1, 0), (4, 0), (5, 5), (8, 5)])
def test_an_offset_inside_a_batch_gets_the_whole_batch(
    raw: RawClient, topic: str, offset: int, first: int
) -> None:
    fill(raw, topic, 2)
    assert base_offsets(only(raw.call(fetch(12, topic, [at(offset)]))).records)[0] == first


@pytest.mark.parametrize("offset", [11, 10**12, -1, -(10**12)])
def test_an_offset_outside_of_the_log_is_out_of_range(raw: RawClient, topic: str, offset: int) -> None:
    fill(raw, topic, 2)
    found = only(raw.call(fetch(12, topic, [at(offset)], max_wait=timedelta(minutes=5), min_bytes=1)))
    assert (found.error_code, found.records) == (ErrorCode.offset_out_of_range, b"")


def test_the_end_is_an_offset(raw: RawClient, topic: str) -> None:
    fill(raw, topic, 2)
    found = only(raw.call(fetch(12, topic, [at(10)])))
    assert (found.error_code, found.records) == (ErrorCode.none, b"")


def test_unknown_topics_and_partitions_are_named_at_once(raw: RawClient, topic: str) -> None:
    wait = {"max_wait": timedelta(minutes=5), "min_bytes": 1}
    assert (
        only(raw.call(fetch(12, "nothing-here", [at(0)], **wait))).error_code
        is ErrorCode.unknown_topic_or_partition
    )
    assert only(raw.call(fetch(18, uuid.uuid4(), [at(0)], **wait))).error_code is ErrorCode.unknown_topic_id
    make_topic(raw, topic)
    assert (
        only(raw.call(fetch(12, topic, [at(0, 99)], **wait))).error_code
        is ErrorCode.unknown_topic_or_partition
    )


def test_a_leader_epoch_that_never_was_is_refused(raw: RawClient, topic: str) -> None:
    fill(raw, topic, 1)
    found = only(raw.call(fetch(12, topic, [at(0, current_leader_epoch=9)])))
    assert found.error_code is ErrorCode.unknown_leader_epoch
    assert only(raw.call(fetch(12, topic, [at(0, current_leader_epoch=0)]))).error_code is ErrorCode.none


def test_a_batch_larger_than_every_limit_is_given_if_it_is_the_first(raw: RawClient, topic: str) -> None:
    fill(raw, topic, 3)
    found = only(raw.call(fetch(12, topic, [at(0, partition_max_bytes=1)], max_bytes=1)))
    assert base_offsets(found.records) == [0]


def test_the_limit_holds_over_all_partitions(raw: RawClient, topic: str) -> None:
    for partition in range(3):
        fill(raw, topic, 1, partition)
    size = len(batch(0))
    response = raw.call(fetch(12, topic, [at(0, n) for n in range(3)], max_bytes=2 * size))
    assert [len(each.records) for each in response.responses[0].partitions] == [size, size, 0]


def test_a_fetch_waits_for_records(broker: RunningBroker, raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    raw.send(fetch(12, topic, [at(0)], max_wait=timedelta(minutes=5), min_bytes=1))
    with RawClient(broker.kafka) as other:
        other.call(produce(9, topic, [(0, batch(0))]))
    assert base_offsets(only(raw.receive(1, 12)).records) == [0]


def test_a_fetch_waits_until_there_is_as_much_as_it_wants(
    broker: RunningBroker, raw: RawClient, topic: str
) -> None:
    make_topic(raw, topic)
    wanted = len(batch(0)) + len(batch(5))
    raw.send(fetch(12, topic, [at(0), at(0, 1)], max_wait=timedelta(minutes=5), min_bytes=wanted))
    with RawClient(broker.kafka) as other:
        other.call(produce(9, topic, [(0, batch(0))]))
        other.call(produce(9, topic, [(1, batch(5))]))
    found = raw.receive(1, 12).responses[0].partitions
    assert sum(len(each.records) for each in found) >= wanted


def test_a_fetch_ends_when_its_topic_is_deleted(broker: RunningBroker, raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    raw.send(fetch(12, topic, [at(0)], max_wait=timedelta(minutes=5), min_bytes=1))
    with sparrow.sync.connect(broker.url) as client:
        client.admin.delete_topic(topic)
    assert only(raw.receive(1, 12)).error_code is ErrorCode.unknown_topic_or_partition


def test_a_client_that_disconnects_while_it_waits_does_no_harm(broker: RunningBroker, topic: str) -> None:
    with RawClient(broker.kafka) as raw:
        make_topic(raw, topic)
        raw.send(fetch(12, topic, [at(0)], max_wait=timedelta(minutes=5), min_bytes=1))
    with RawClient(broker.kafka) as raw:
        raw.call(produce(9, topic, [(0, batch(0))]))
        assert base_offsets(only(raw.call(fetch(12, topic, [at(0)]))).records) == [0]


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────


def session(
    topic_id: uuid.UUID,
    session_id: int,
    epoch: int,
    partitions: list[dict[str, int]],
    forgotten: tuple[int, ...] = (),
) -> Any:
    kind = part(type(fetch(17, topic_id, [at(0)])), "forgotten_topics_data")
    gone = (new(kind, topic_id=topic_id, partitions=forgotten),) if forgotten else ()
    return fetch(
        17, topic_id, partitions, session_id=session_id, session_epoch=epoch, forgotten_topics_data=gone
    )


def test_session_returns_new_records(raw: RawClient, topic: str) -> None:
    topic_id = fill(raw, topic, 1)
    first = raw.call(session(topic_id, 0, 0, [at(0), at(0, 1)]))
    assert first.session_id > 0
    assert [each.partition_index for each in first.responses[0].partitions] == [0, 1]

    advanced = raw.call(session(topic_id, first.session_id, 1, [at(5)]))
    assert (advanced.error_code, advanced.responses) == (ErrorCode.none, ())

    raw.call(produce(9, topic, [(1, batch(0))]))
    third = raw.call(session(topic_id, first.session_id, 2, []))
    assert [(each.partition_index, base_offsets(each.records)) for each in third.responses[0].partitions] == [
        (1, [0])
    ]


def test_partitions_leave_a_session(raw: RawClient, topic: str) -> None:
    topic_id = fill(raw, topic, 1)
    first = raw.call(session(topic_id, 0, 0, [at(0), at(0, 1)]))
    raw.call(session(topic_id, first.session_id, 1, [at(5)], forgotten=(1,)))
    raw.call(produce(9, topic, [(1, batch(0))]))
    assert raw.call(session(topic_id, first.session_id, 2, [])).responses == ()


def test_a_session_disagrees_aloud(raw: RawClient, topic: str) -> None:
    topic_id = fill(raw, topic, 1)
    first = raw.call(session(topic_id, 0, 0, [at(0)]))
    assert (
        raw.call(session(topic_id, first.session_id, 7, [])).error_code
        is ErrorCode.invalid_fetch_session_epoch
    )
    assert raw.call(session(topic_id, 123456, 1, [])).error_code is ErrorCode.fetch_session_id_not_found
    by_name = fetch(12, topic, [], session_id=first.session_id, session_epoch=1)
    assert raw.call(by_name).error_code is ErrorCode.fetch_session_topic_id_error


def test_a_session_is_closed_by_its_last_request(raw: RawClient, topic: str) -> None:
    topic_id = fill(raw, topic, 1)
    first = raw.call(session(topic_id, 0, 0, [at(0)]))
    last = raw.call(session(topic_id, first.session_id, -1, [at(0)]))
    assert (last.session_id, base_offsets(only(last).records)) == (0, [0])
    assert (
        raw.call(session(topic_id, first.session_id, 1, [])).error_code
        is ErrorCode.fetch_session_id_not_found
    )


def test_a_session_without_partitions_ends_at_once(raw: RawClient, topic: str) -> None:
    topic_id = fill(raw, topic, 1)
    first = raw.call(session(topic_id, 0, 0, [at(0)]))
    asked = session(topic_id, first.session_id, 1, [], forgotten=(0,))
    last = raw.call(replace(asked, max_wait=timedelta(hours=1), min_bytes=1))
    assert (last.error_code, last.session_id, last.responses) == (ErrorCode.none, 0, ())
    assert (
        raw.call(session(topic_id, first.session_id, 2, [at(0)])).error_code
        is ErrorCode.fetch_session_id_not_found
    )


def test_a_partition_that_is_wanted_and_forgotten_at_once_is_forgotten(raw: RawClient, topic: str) -> None:
    topic_id = fill(raw, topic, 1)
    first = raw.call(session(topic_id, 0, 0, [at(5), at(0, 1)]))
    second = raw.call(session(topic_id, first.session_id, 1, [at(0)], forgotten=(0,)))
    assert (second.session_id, second.responses) == (first.session_id, ())


def test_a_fetch_of_nothing_is_answered_at_once(raw: RawClient, topic: str) -> None:
    topic_id = fill(raw, topic, 1)
    asked = fetch(17, topic_id, [], session_epoch=-1, max_wait=timedelta(hours=1), min_bytes=1)
    assert raw.call(asked).responses == ()


def test_errors_in_a_session_are_said_every_time(broker: RunningBroker, raw: RawClient, topic: str) -> None:
    topic_id = fill(raw, topic, 1)
    first = raw.call(session(topic_id, 0, 0, [at(0)]))
    with sparrow.sync.connect(broker.url) as client:
        client.admin.delete_topic(topic)
    for epoch in (1, 2):
        assert (
            only(raw.call(session(topic_id, first.session_id, epoch, []))).error_code
            is ErrorCode.unknown_topic_id
        )


def test_a_full_response_does_not_starve_the_other_partitions(raw: RawClient, topic: str) -> None:
    for partition in range(3):
        topic_id = fill(raw, topic, 1, partition)
    small = [at(0, n, partition_max_bytes=1) for n in range(3)]
    kind = {"session_epoch": 0, "max_bytes": 1}
    first = raw.call(fetch(17, topic_id, small, **kind))
    seen = {each.partition_index for each in first.responses[0].partitions if each.records}
    for epoch in (1, 2):
        request = fetch(17, topic_id, [], session_id=first.session_id, session_epoch=epoch, max_bytes=1)
        seen |= {each.partition_index for each in raw.call(request).responses[0].partitions if each.records}
    assert seen == {0, 1, 2}


# ── offsets by time ───────────────────────────────────────────────────────────────────────────────


def offset_of(
    raw: RawClient, version: int, topic: str, timestamp: int, **fields: Any
) -> tuple[ErrorCode, int, int]:
    found = raw.call(list_offsets(version, topic, {0: timestamp}, **fields)).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_finds_beginning_end_and_times(raw: RawClient, topic: str, version: int) -> None:
    fill(raw, topic, 2)
    none = ErrorCode.none
    assert offset_of(raw, version, topic, -2) == (none, 0, -1)
    assert offset_of(raw, version, topic, -1) == (none, 10, -1)
    assert offset_of(raw, version, topic, 0) == (none, 0, 0)
    assert offset_of(raw, version, topic, 2001) == (none, 3, 3000)
    assert offset_of(raw, version, topic, 9000) == (none, 9, 9000)
    assert offset_of(raw, version, topic, 9001) == (none, -1, -1)


@pytest.mark.parametrize(("timestamp", "since", "found"), [(-3, 7, 9), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)])
def test_special_times_are_known_from_their_version_on(
    raw: RawClient, topic: str, timestamp: int, since: int, found: int
) -> None:
    fill(raw, topic, 2)
    assert offset_of(raw, since, topic, timestamp)[:2] == (ErrorCode.none, found)
    assert offset_of(raw, since - 1, topic, timestamp)[0] is ErrorCode.unsupported_version


def test_an_empty_log_has_no_times(raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    for timestamp in (0, -3):
        assert offset_of(raw, 7, topic, timestamp) == (ErrorCode.none, -1, -1)


def test_offset_of_a_missing_topic_is_an_error(raw: RawClient, topic: str) -> None:
    assert offset_of(raw, 7, topic, -1)[0] is ErrorCode.unknown_topic_or_partition


def test_a_partition_that_is_asked_twice_is_refused(raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    one = list_offsets(7, topic, {0: -1})
    twice = request(2, 7, topics=one.topics * 2)
    codes = [each.partitions[0].error_code for each in raw.call(twice).topics]
    assert codes == [ErrorCode.invalid_request] * 2


# ── leader epochs ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_only_epoch_ends_at_the_end(raw: RawClient, topic: str, version: int) -> None:
    fill(raw, topic, 1)
    kind = type(request(23, version))
    for epoch, expected in ((0, (ErrorCode.none, 0, 5)), (3, (ErrorCode.none, -1, -1))):
        wanted = new(
            part(kind, "topics.partitions"), partition=0, current_leader_epoch=-1, leader_epoch=epoch
        )
        topics = (new(part(kind, "topics"), topic=topic, partitions=(wanted,)),)
        found = raw.call(request(23, version, topics=topics)).topics[0].partitions[0]
        assert (found.error_code, found.leader_epoch, found.end_offset) == expected


def test_many_connections_wait_at_the_same_partition(
    broker: RunningBroker, raw: RawClient, topic: str
) -> None:
    make_topic(raw, topic)
    found: list[list[int]] = []

    def wait() -> None:
        with RawClient(broker.kafka) as client:
            response = client.call(fetch(12, topic, [at(0)], max_wait=timedelta(minutes=5), min_bytes=1))
            found.append(base_offsets(only(response).records))

    threads = [threading.Thread(target=wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    raw.call(produce(9, topic, [(0, batch(0))]))
    for thread in threads:
        thread.join(30)
    assert found == [[0]] * 20
