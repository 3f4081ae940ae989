"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords: refusals with their codes, and the
parts that succeed.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparrow.testing.running_broker import RunningBroker
from tests.kafka_admin.messages import OK, ask, create, make, new_topic, values
from tests.kafka_frontend.raw import RawClient
from tests.kafka_frontend.requests import metadata

E = ErrorCode


def exists(raw: RawClient, name: str) -> bool:
    (found,) = raw.call(metadata(13, name, create=False)).topics
    return bool(found.error_code is E.none)


def partitions_of(raw: RawClient, name: str) -> int:
    (found,) = raw.call(metadata(13, name, create=False)).topics
    return len(found.partitions)


# ── create ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"factor": 2}, E.invalid_replication_factor),
        ({"factor": 0}, E.invalid_replication_factor),
        ({"factor": -2}, E.invalid_replication_factor),
        ({"partitions": 0}, E.invalid_partitions),
        ({"partitions": -2}, E.invalid_partitions),
        ({"config": {"retention.ms": "soon"}}, E.invalid_config),
        ({"config": {"retention.ms": None}}, E.invalid_config),
        ({"config": {"no.such.config": "1"}}, E.invalid_config),
        ({"config": {"remote.storage.enable": "true"}}, E.invalid_config),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_its_code(
    raw: RawClient, topic: str, asked: dict[str, Any], code: ErrorCode
) -> None:
    (refused,) = create(raw, new_topic(topic, **asked))
    assert refused.error_code is code
    assert refused.error_message
    assert not exists(raw, topic)


@pytest.mark.parametrize("name", ["", ".", "..", "no spaces", "x" * 250])
def test_a_topic_needs_a_name_that_kafka_allows(raw: RawClient, name: str) -> None:
    (refused,) = create(raw, new_topic(name))
    assert refused.error_code is E.invalid_topic_exception


def test_names_that_differ_only_in_dots_and_underscores_collide(raw: RawClient, topic: str) -> None:
    make(raw, f"{topic}.a_b")
    (refused,) = create(raw, new_topic(f"{topic}_a.b"))
    assert refused.error_code is E.invalid_topic_exception
    assert f"{topic}.a_b" in refused.error_message
    (asked,) = raw.call(metadata(13, f"{topic}_a.b")).topics
    assert asked.error_code is E.invalid_topic_exception
    ask(raw, 20, 6, topics=[{"name": f"{topic}.a_b"}])
    make(raw, f"{topic}_a.b")


@pytest.mark.parametrize(("factor", "partitions", "made"), [(-1, -1, 4), (1, 2, 2), (-1, 3, 3)])
def test_minus_one_means_the_default(
    raw: RawClient, topic: str, factor: int, partitions: int, made: int
) -> None:
    (found,) = create(raw, new_topic(topic, partitions, factor))
    assert (found.error_code, found.num_partitions, found.replication_factor) == (OK, made, 1)
    assert partitions_of(raw, topic) == made


def test_a_topic_is_made_once(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    (again,) = create(raw, new_topic(topic))
    assert again.error_code is E.topic_already_exists


def test_a_topic_named_twice_in_a_request_is_not_made_and_the_others_are(raw: RawClient, topic: str) -> None:
    other = f"{topic}-other"
    found = create(raw, new_topic(topic), new_topic(other), new_topic(topic, 2))
    assert {each.name: each.error_code for each in found} == {topic: E.invalid_request, other: E.none}
    assert len(found) == 2
    assert not exists(raw, topic)
    assert exists(raw, other)


def test_validate_only_checks_everything_and_makes_nothing(raw: RawClient, topic: str) -> None:
    found = create(
        raw,
        new_topic(topic, 3, config={"retention.ms": "5"}),
        new_topic(f"{topic}-bad", factor=3),
        validate_only=True,
    )
    good, bad = found
    assert (good.error_code, good.num_partitions, good.topic_id) == (OK, 3, None)
    assert {each.name: each.value for each in good.configs}["retention.ms"] == "5"
    assert bad.error_code is E.invalid_replication_factor
    assert not exists(raw, topic)
    make(raw, topic)
    (again,) = create(raw, new_topic(topic), validate_only=True)
    assert again.error_code is E.topic_already_exists


def assigned(*brokers: tuple[int, ...], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(brokers, first)]


def test_partitions_may_be_assigned_by_hand_to_this_broker(raw: RawClient, topic: str) -> None:
    (made,) = create(raw, new_topic(topic, -1, assignments=assigned((1,), (1,), (1,))))
    assert (made.error_code, made.num_partitions) == (OK, 3)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"assignments": assigned((1,)), "partitions": 1}, E.invalid_request),
        ({"assignments": assigned((1,)), "factor": 1}, E.invalid_request),
        ({"assignments": assigned((1, 2))}, E.invalid_replica_assignment),
        ({"assignments": assigned((1, 1))}, E.invalid_replica_assignment),
        ({"assignments": assigned(())}, E.invalid_replica_assignment),
        ({"assignments": assigned((-1,))}, E.invalid_replica_assignment),
        ({"assignments": assigned((1,), first=1)}, E.invalid_replica_assignment),
        ({"assignments": assigned((1,)) + assigned((1,))}, E.invalid_replica_assignment),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(
    raw: RawClient, topic: str, asked: dict[str, Any], code: ErrorCode
) -> None:
    (refused,) = create(raw, new_topic(topic, **{"partitions": -1, **asked}))
    assert refused.error_code is code
    assert not exists(raw, topic)


def test_one_request_makes_ten_thousand_partitions_at_most(raw: RawClient, topic: str) -> None:
    found = create(raw, *(new_topic(f"{topic}-{index}", 1000) for index in range(11)))
    assert {each.error_code for each in found} == {E.policy_violation}
    assert not exists(raw, f"{topic}-0")


def test_timeout_of_zero_waits_for_immediate_operations(raw: RawClient, topic: str) -> None:
    (made,) = create(raw, new_topic(topic), timeout=timedelta())
    assert made.error_code is E.none


def test_a_topic_survives_a_restart_with_its_configuration(topic: str) -> None:
    import sparrow.testing

    with sparrow.testing.broker() as broker:
        with RawClient(broker.kafka) as raw:
            made = make(raw, topic, 2, {"retention.ms": "123456"})
        broker.restart()
        with RawClient(broker.kafka) as raw:
            (found,) = raw.call(metadata(13, topic, create=False)).topics
            assert (found.topic_id, len(found.partitions)) == (made.topic_id, 2)
            assert values(raw, 2, topic, "retention.ms") == {"retention.ms": "123456"}


# ── delete ────────────────────────────────────────────────────────────────────────────────────────


def delete(raw: RawClient, *topics: tuple[str | None, uuid.UUID | None]) -> list[tuple[Any, Any, ErrorCode]]:
    wanted = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    found = ask(raw, 20, 6, topics=wanted).responses
    return [(each.name, each.topic_id, each.error_code) for each in found]


def test_a_topic_is_deleted_by_name_or_by_id(raw: RawClient, topic: str) -> None:
    first, second = make(raw, topic).topic_id, make(raw, f"{topic}-2").topic_id
    assert sorted(delete(raw, (topic, None), (None, second))) == [
        (topic, first, E.none),
        (f"{topic}-2", second, E.none),
    ]
    assert not exists(raw, topic)
    assert not exists(raw, f"{topic}-2")


def test_missing_topic_is_not_deleted(raw: RawClient, topic: str) -> None:
    unknown = uuid.uuid4()
    assert delete(raw, (topic, None)) == [(topic, None, E.unknown_topic_or_partition)]
    assert delete(raw, (None, unknown)) == [(None, unknown, E.unknown_topic_id)]


def test_a_topic_is_deleted_by_name_or_by_id_and_not_by_both_or_none(raw: RawClient, topic: str) -> None:
    topic_id = make(raw, topic).topic_id
    assert delete(raw, (topic, topic_id)) == [(topic, topic_id, E.invalid_request)]
    assert delete(raw, (None, None)) == [(None, None, E.invalid_request)]
    assert delete(raw, (topic, None), (topic, None)) == [(topic, None, E.invalid_request)]
    assert exists(raw, topic)


def test_a_name_is_free_when_its_topic_is_deleted(raw: RawClient, topic: str) -> None:
    first = make(raw, topic).topic_id
    for _ in range(3):
        assert delete(raw, (topic, None))[0][2] is E.none
        assert make(raw, topic).topic_id != first


# ── grow ──────────────────────────────────────────────────────────────────────────────────────────


def grow(raw: RawClient, name: str, count: int, assignments: Any = None, **given: Any) -> Any:
    topics = [{"name": name, "count": count, "assignments": assignments}]
    (done,) = ask(raw, 37, 3, topics=topics, **given).results
    assert done.name == name
    return done


def test_a_topic_grows(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    assert grow(raw, topic, 3).error_code is E.none
    assert grow(raw, topic, 5, [{"broker_ids": [1]}, {"broker_ids": [1]}]).error_code is E.none
    assert partitions_of(raw, topic) == 5


def test_a_topic_that_is_only_to_be_checked_does_not_grow(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    assert grow(raw, topic, 3, validate_only=True).error_code is E.none
    assert grow(raw, topic, 1, validate_only=True).error_code is E.invalid_partitions
    assert partitions_of(raw, topic) == 1


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, E.invalid_partitions),
        (1, None, E.invalid_partitions),
        (-1, None, E.invalid_partitions),
        (1_000_000, None, E.invalid_partitions),
        (3, [], E.invalid_replica_assignment),
        (3, [{"broker_ids": [2]}], E.invalid_replica_assignment),
        (3, [{"broker_ids": [1]}, {"broker_ids": [1]}], E.invalid_replica_assignment),
    ],
)
def test_a_growth_that_cannot_be_is_refused(
    raw: RawClient, topic: str, count: int, assignments: Any, code: ErrorCode
) -> None:
    make(raw, topic, 2)
    refused = grow(raw, topic, count, assignments)
    assert refused.error_code is code
    assert refused.error_message
    assert partitions_of(raw, topic) == 2


def test_an_unknown_topic_does_not_grow(raw: RawClient, topic: str) -> None:
    assert grow(raw, topic, 2).error_code is E.unknown_topic_or_partition


def test_a_topic_named_twice_does_not_grow(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    wanted = {"name": topic, "count": 2, "assignments": None}
    (refused,) = ask(raw, 37, 3, topics=[wanted, wanted]).results
    assert refused.error_code is E.invalid_request
    assert partitions_of(raw, topic) == 1


# ── delete records ────────────────────────────────────────────────────────────────────────────────


def delete_records(raw: RawClient, name: str, *before: tuple[int, int]) -> list[tuple[int, int, ErrorCode]]:
    partitions = [{"partition_index": index, "offset": offset} for index, offset in before]
    (found,) = ask(raw, 21, 2, topics=[{"name": name, "partitions": partitions}]).topics
    return [(each.partition_index, each.low_watermark, each.error_code) for each in found.partitions]


def publish(broker: RunningBroker, name: str, count: int) -> None:
    import sparrow

    with sparrow.sync.connect(broker.url) as client:
        for number in range(count):
            client.publish(name, b"%d" % number)


def test_records_are_deleted_before_an_offset_or_all(
    broker: RunningBroker, raw: RawClient, topic: str
) -> None:
    make(raw, topic)
    publish(broker, topic, 5)
    assert delete_records(raw, topic, (0, 2)) == [(0, 2, E.none)]
    assert delete_records(raw, topic, (0, 1)) == [(0, 2, E.none)]
    assert delete_records(raw, topic, (0, 6)) == [(0, -1, E.offset_out_of_range)]
    assert delete_records(raw, topic, (0, -2)) == [(0, -1, E.offset_out_of_range)]
    assert delete_records(raw, topic, (0, -1)) == [(0, 5, E.none)]


def test_each_partition_answers_for_itself(raw: RawClient, topic: str) -> None:
    make(raw, topic, 2)
    assert delete_records(raw, topic, (0, 0), (1, 9), (2, 0)) == [
        (0, 0, E.none),
        (1, -1, E.offset_out_of_range),
        (2, -1, E.unknown_topic_or_partition),
    ]
    assert delete_records(raw, f"{topic}-none", (0, 0)) == [(0, -1, E.unknown_topic_or_partition)]


@pytest.mark.parametrize(
    ("policy", "code"), [("compact", E.policy_violation), ("compact,delete", E.none), ("delete", E.none)]
)
def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    raw: RawClient, topic: str, policy: str, code: ErrorCode
) -> None:
    make(raw, topic, config={"cleanup.policy": policy})
    ((_, _, found),) = delete_records(raw, topic, (0, -1))
    assert found is code


# ── what the configuration changes ────────────────────────────────────────────────────────────────


def test_a_larger_replication_factor_is_accepted_where_the_configuration_says_so(topic: str) -> None:
    import sparrow.testing

    with (
        sparrow.testing.broker(kafka_max_replication_factor=3, kafka_node_id=7) as broker,
        RawClient(broker.kafka) as raw,
    ):
        three, four = create(raw, new_topic(topic, 2, 3), new_topic(f"{topic}-4", 2, 4))
        assert (three.error_code, three.replication_factor) == (E.none, 1)
        assert four.error_code is E.invalid_replication_factor
        (found,) = raw.call(metadata(13, topic, create=False)).topics
        assert [each.replica_nodes for each in found.partitions] == [(7,), (7,)]
        (assigned_to,) = create(raw, new_topic(f"{topic}-7", -1, assignments=assigned((7,))))
        assert assigned_to.error_code is E.none
        assert values(raw, 4, "7", "node.id") == {"node.id": "7"}
