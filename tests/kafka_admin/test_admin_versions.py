"""Every administrative API in every served version: the response can be decoded, and has the same
contents.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparrow.frontends.kafka.apis import APIS
from sparrow.frontends.kafka.handlers.api_versions import FEATURES
from tests.kafka_admin.messages import BROKER, CLIENT_METRICS, OK, SET, TOPIC, ask, make, new_topic
from tests.kafka_frontend.raw import RawClient

Check = Callable[[RawClient, str, int], None]


def create_topics(raw: RawClient, topic: str, version: int) -> None:
    (made,) = ask(raw, 19, version, topics=[new_topic(topic, 3, 1, {"retention.ms": "5"})]).topics
    assert (made.name, made.error_code, made.error_message) == (topic, OK, None)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert {c.name: (c.value, c.config_source) for c in made.configs}["retention.ms"] == ("5", 1)
    if version >= 7:
        assert made.topic_id is not None


def delete_topics(raw: RawClient, topic: str, version: int) -> None:
    made = make(raw, topic)
    by_name = [{"name": topic, "topic_id": None}, {"name": f"{topic}-none", "topic_id": None}]
    names = [each["name"] for each in by_name]
    found = ask(raw, 20, version, topics=by_name, topic_names=names).responses
    assert {each.name: int(each.error_code) for each in found} == {topic: OK, f"{topic}-none": 3}
    if version >= 6:
        assert {each.topic_id for each in found} == {made.topic_id, None}


def delete_records(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic)
    partitions = [{"partition_index": 0, "offset": 0}, {"partition_index": 9, "offset": 0}]
    (found,) = ask(raw, 21, version, topics=[{"name": topic, "partitions": partitions}]).topics
    assert [(p.partition_index, int(p.error_code), p.low_watermark) for p in found.partitions] == [
        (0, OK, 0),
        (9, 3, -1),
    ]


def describe_configs(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic, config={"cleanup.policy": "compact"})
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["cleanup.policy"]}]
    (found,) = ask(
        raw, 32, version, resources=resources, include_synonyms=True, include_documentation=True
    ).results
    (config,) = found.configs
    assert (config.name, config.value, config.config_source) == ("cleanup.policy", "compact", 1)
    assert not config.read_only
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("cleanup.policy", "compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    if version >= 3:
        assert config.config_type == 7
        assert config.documentation


def alter_configs(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic, config={"flush.ms": "7"})
    configs = [{"name": "retention.ms", "value": "8"}]
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configs": configs}]
    (done,) = ask(raw, 33, version, resources=resources).responses
    assert (done.error_code, done.error_message, done.resource_name) == (OK, None, topic)


def incremental_alter_configs(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic)
    configs = [{"name": "retention.ms", "config_operation": SET, "value": "8"}]
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configs": configs}]
    (done,) = ask(raw, 44, version, resources=resources).responses
    assert (done.error_code, done.error_message, done.resource_name) == (OK, None, topic)


def alter_replica_log_dirs(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic)
    dirs = [{"path": "/elsewhere", "topics": [{"name": topic, "partitions": [0]}]}]
    (found,) = ask(raw, 34, version, dirs=dirs).results
    assert [(p.partition_index, int(p.error_code)) for p in found.partitions] == [(0, 57)]


def describe_log_dirs(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic, 2)
    (found,) = ask(raw, 35, version, topics=[{"topic": topic, "partitions": [1, 5]}]).results
    ((name, partitions),) = [(each.name, each.partitions) for each in found.topics]
    assert (name, [p.partition_index for p in partitions]) == (topic, [1])
    if version >= 4:
        assert 0 < found.usable_bytes <= found.total_bytes


def create_partitions(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic)
    topics = [{"name": topic, "count": 3, "assignments": None}]
    (found,) = ask(raw, 37, version, topics=topics).results
    assert (found.name, found.error_code, found.error_message) == (topic, OK, None)


def elect_leaders(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic)
    (found,) = ask(
        raw, 43, version, election_type=0, topic_partitions=[{"topic": topic, "partitions": [0, 4]}]
    ).replica_election_results
    assert [(p.partition_id, int(p.error_code)) for p in found.partition_result] == [(0, 84), (4, 3)]


def alter_partition_reassignments(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic)
    partitions = [{"partition_index": 0, "replicas": [1]}]
    (found,) = ask(raw, 45, version, topics=[{"name": topic, "partitions": partitions}]).responses
    assert [(p.partition_index, int(p.error_code)) for p in found.partitions] == [(0, OK)]


def list_partition_reassignments(raw: RawClient, topic: str, version: int) -> None:
    response = ask(raw, 46, version, topics=None)
    assert (response.error_code, response.topics) == (OK, ())


def describe_quorum(raw: RawClient, topic: str, version: int) -> None:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    response = ask(raw, 55, version, topics=topics)
    ((partition,),) = [each.partitions for each in response.topics]
    assert (response.error_code, partition.error_code, partition.leader_id) == (OK, OK, 1)
    assert [each.replica_id for each in partition.current_voters] == [1]
    if version >= 2:
        assert [(node.node_id, node.listeners[0].name) for node in response.nodes] == [(1, "CONTROLLER")]


def update_features(raw: RawClient, topic: str, version: int) -> None:
    updates = [
        {
            "feature": "metadata.version",
            "max_version_level": FEATURES["metadata.version"][2],
            "upgrade_type": 1,
        }
    ]
    response = ask(raw, 57, version, feature_updates=updates)
    assert (response.error_code, response.error_message) == (OK, None)
    if version < 2:
        assert [(each.feature, int(each.error_code)) for each in response.results] == [
            ("metadata.version", OK)
        ]
    refused = ask(raw, 57, version, feature_updates=[{"feature": "magic", "max_version_level": 1}])
    assert refused.error_code == 95


def describe_cluster(raw: RawClient, topic: str, version: int) -> None:
    response = ask(raw, 60, version)
    (node,) = response.brokers
    assert (response.error_code, response.controller_id, node.broker_id, node.host) == (OK, 1, 1, "localhost")
    assert response.cluster_authorized_operations == -(1 << 31)


def list_config_resources(raw: RawClient, topic: str, version: int) -> None:
    make(raw, topic)
    response = ask(raw, 74, version)
    found = {
        (getattr(each, "resource_type", CLIENT_METRICS), each.resource_name)
        for each in response.config_resources
    }
    assert response.error_code == OK
    assert ({(TOPIC, topic), (BROKER, "1")} <= found) == (version >= 1)


def describe_topic_partitions(raw: RawClient, topic: str, version: int) -> None:
    made = make(raw, topic, 2)
    (found,) = ask(raw, 75, version, topics=[{"name": topic}], response_partition_limit=10).topics
    assert (found.name, found.topic_id, found.error_code) == (topic, made.topic_id, OK)
    assert [(p.partition_index, p.leader_id, p.replica_nodes) for p in found.partitions] == [
        (0, 1, (1,)),
        (1, 1, (1,)),
    ]


CHECKS: dict[int, Check] = {
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    32: describe_configs,
    33: alter_configs,
    34: alter_replica_log_dirs,
    35: describe_log_dirs,
    37: create_partitions,
    43: elect_leaders,
    44: incremental_alter_configs,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    55: describe_quorum,
    57: update_features,
    60: describe_cluster,
    74: list_config_resources,
    75: describe_topic_partitions,
}


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key in CHECKS for version in range(APIS[key].first, APIS[key].last + 1)],
    ids=str,
)
def test_an_administrative_api_answers_in_every_version(
    raw: RawClient, topic: str, key: int, version: int
) -> None:
    CHECKS[key](raw, topic, version)


def test_a_version_that_is_not_served_ends_the_connection(raw: RawClient) -> None:
    raw.send_bytes(bytes.fromhex("0000000a 0013 0001 00000001 ffff".replace(" ", "")))
    assert raw.is_closed()
