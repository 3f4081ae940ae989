"""The cluster, its log directory and partitions: how a single broker responds where Kafka has
several.
"""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

import sparrow
from sparrow.frontends.kafka.handlers.api_versions import FEATURES
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_admin.messages import ask, make
from tests.kafka_frontend.raw import RawClient

E = ErrorCode

# ── log directories ───────────────────────────────────────────────────────────────────────────────


def sizes(raw: RawClient, wanted: Any) -> dict[tuple[str, int], int]:
    (found,) = ask(raw, 35, 5, topics=wanted).results
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in found.topics
        for each in topic.partitions
    }


def test_the_log_directory_names_the_size_of_every_partition(
    broker: RunningBroker, raw: RawClient, topic: str
) -> None:
    make(raw, topic, 2)
    with sparrow.sync.connect(broker.url) as client:
        client.publish(topic, b"x" * 1000, key=b"key")
    found = {index: size for (name, index), size in sizes(raw, None).items() if name == topic}
    assert sorted(size > 1000 for size in found.values()) == [False, True]
    assert sizes(raw, [{"topic": topic, "partitions": [0]}]) == {(topic, 0): found[0]}
    assert sizes(raw, [{"topic": f"{topic}-none", "partitions": [0]}]) == {}


def test_a_partition_moves_to_the_directory_where_it_is(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    (directory,) = ask(raw, 35, 5, topics=None).results
    topics = [{"name": topic, "partitions": [0, 7]}, {"name": f"{topic}-none", "partitions": [0]}]
    found = ask(raw, 34, 2, dirs=[{"path": directory.log_dir, "topics": topics}]).results
    assert [[each.error_code for each in one.partitions] for one in found] == [
        [E.none, E.unknown_topic_or_partition],
        [E.unknown_topic_or_partition],
    ]


# ── elections and reassignments ───────────────────────────────────────────────────────────────────


def test_no_election_is_needed(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    for election_type in (0, 1):
        response = ask(raw, 43, 2, election_type=election_type, topic_partitions=None)
        assert (response.error_code, response.replica_election_results) == (E.none, ())
        wanted = [{"topic": topic, "partitions": [0]}]
        response = ask(raw, 43, 2, election_type=election_type, topic_partitions=wanted)
        ((result,),) = [each.partition_result for each in response.replica_election_results]
        assert result.error_code is E.election_not_needed
    assert ask(raw, 43, 2, election_type=2, topic_partitions=None).error_code is E.invalid_request


@pytest.mark.parametrize(
    ("replicas", "partition", "code"),
    [
        ([1], 0, E.none),
        (None, 0, E.no_reassignment_in_progress),
        ([2], 0, E.invalid_replica_assignment),
        ([1, 2], 0, E.invalid_replica_assignment),
        ([], 0, E.invalid_replica_assignment),
        ([1], 3, E.unknown_topic_or_partition),
    ],
)
def test_partitions_stay_where_they_are(
    raw: RawClient, topic: str, replicas: list[int] | None, partition: int, code: ErrorCode
) -> None:
    make(raw, topic)
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
    response = ask(raw, 45, 1, topics=topics, allow_replication_factor_change=False)
    ((result,),) = [each.partitions for each in response.responses]
    assert (response.error_code, result.error_code) == (E.none, code)
    assert response.allow_replication_factor_change is False


# ── the cluster ───────────────────────────────────────────────────────────────────────────────────


def test_the_cluster_says_what_may_be_done_to_it_when_asked(raw: RawClient) -> None:
    response = ask(raw, 60, 2, include_cluster_authorized_operations=True)
    assert response.cluster_authorized_operations & (1 << 5)  # create
    assert response.cluster_id


@pytest.mark.parametrize(
    ("kind", "code"), [(2, E.mismatched_endpoint_type), (3, E.unsupported_endpoint_type)]
)
def test_controllers_are_not_to_be_found_here(raw: RawClient, kind: int, code: ErrorCode) -> None:
    response = ask(raw, 60, 2, endpoint_type=kind)
    assert (response.error_code, response.brokers) == (code, ())


def test_there_is_a_quorum_of_the_metadata_alone(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    response = ask(raw, 55, 2, topics=[{"topic_name": topic, "partitions": [{"partition_index": 0}]}])
    ((partition,),) = [each.partitions for each in response.topics]
    assert partition.error_code is E.unknown_topic_or_partition


@pytest.mark.parametrize(
    ("level", "kind", "code"),
    [
        (-1, 1, E.invalid_update_version),
        (1000, 1, E.invalid_update_version),
        (7, 1, E.invalid_update_version),
        (0, 2, E.invalid_update_version),
        (7, 2, E.feature_update_failed),
        (7, 3, E.feature_update_failed),
        (7, 9, E.invalid_update_version),
    ],
)
def test_the_level_of_a_feature_does_not_change(
    raw: RawClient, level: int, kind: int, code: ErrorCode
) -> None:
    updates = [{"feature": "metadata.version", "max_version_level": level, "upgrade_type": kind}]
    for validate_only in (True, False):
        response = ask(raw, 57, 2, feature_updates=updates, validate_only=validate_only)
        assert response.error_code is code
        assert "metadata.version" in response.error_message or kind == 9


def test_a_feature_is_updated_once_in_a_request(raw: RawClient) -> None:
    update = {"feature": "metadata.version", "max_version_level": FEATURES["metadata.version"][2]}
    assert ask(raw, 57, 2, feature_updates=[update, update]).error_code is E.invalid_request


# ── partitions of topics ──────────────────────────────────────────────────────────────────────────


def describe(raw: RawClient, *names: str, limit: int = 2000, cursor: Any = None) -> Any:
    topics = [{"name": name} for name in names]
    return ask(raw, 75, 0, topics=topics, response_partition_limit=limit, cursor=cursor)


def test_partitions_are_described_in_order_and_in_parts(raw: RawClient, topic: str) -> None:
    a, b, c = (f"{topic}-{letter}" for letter in "abc")
    for name, partitions in ((b, 3), (a, 2), (c, 1)):
        make(raw, name, partitions)
    cursor, seen, rounds = None, [], 0
    while cursor is not None or not rounds:
        response = describe(raw, c, a, b, a, limit=2, cursor=cursor)
        seen += [(each.name, p.partition_index) for each in response.topics for p in each.partitions]
        cursor = response.next_cursor and {
            "topic_name": response.next_cursor.topic_name,
            "partition_index": response.next_cursor.partition_index,
        }
        rounds += 1
    assert seen == [(a, 0), (a, 1), (b, 0), (b, 1), (b, 2), (c, 0)]
    assert rounds == 3


def test_all_topics_are_described_when_none_is_named(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    found = [each.name for each in describe(raw).topics]
    assert topic in found
    assert found == sorted(found)


def test_topics_that_are_not_there_are_named_with_an_error(raw: RawClient, topic: str) -> None:
    unknown, invalid = describe(raw, f"{topic}-none", "~").topics
    assert (unknown.error_code, unknown.partitions) == (E.unknown_topic_or_partition, ())
    assert invalid.error_code is E.invalid_topic_exception


def test_a_cursor_outside_of_a_topic_is_no_error_and_a_negative_one_is(raw: RawClient, topic: str) -> None:
    make(raw, topic, 2)
    (found,) = describe(raw, topic, cursor={"topic_name": topic, "partition_index": 9}).topics
    assert (found.error_code, found.partitions) == (E.none, ())
    (refused,) = describe(raw, topic, cursor={"topic_name": topic, "partition_index": -1}).topics
    assert refused.error_code is E.invalid_request
