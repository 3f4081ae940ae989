"""Administration of topics, configurations and the cluster with kafka-python, and with its
command.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import kafka.errors as errors
import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.cli.admin import run_cli

from sparrow.testing.running_broker import RunningBroker


@pytest.fixture
def admin(broker: RunningBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.kafka)
    yield client
    client.close()


def configs(admin: KafkaAdminClient, type_: ConfigResourceType, name: str, *names: str) -> dict[str, Any]:
    wanted = ConfigResource(type_, name, dict.fromkeys(names)) if names else ConfigResource(type_, name)
    (by_name,) = admin.describe_configs([wanted], config_filter="all").values()
    found: dict[str, Any] = by_name[name]
    return found


def test_topics_are_created_described_grown_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "1000"})])
    assert topic in admin.list_topics()
    (found,) = admin.describe_topics([topic])
    assert (found["name"], len(found["partitions"])) == (topic, 2)
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 2, 1)])
    admin.create_partitions({topic: {"count": 4, "assignments": [[1], [1]]}})
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({topic: 4})
    described = admin.describe_topic_partitions([topic], response_partition_limit=3)
    assert described["next_cursor"]["partition_index"] == 3
    admin.delete_topics([topic])
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_configurations_are_described_and_altered(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": ("APPEND", "compact")})
    for incremental in (True, False):
        change = (
            resource if incremental else ConfigResource(ConfigResourceType.TOPIC, topic, {"flush.ms": "5"})
        )
        admin.alter_configs([change], incremental=incremental)
    found = configs(admin, ConfigResourceType.TOPIC, topic, "cleanup.policy", "flush.ms")
    assert {name: entry["value"] for name, entry in found.items()} == {
        "cleanup.policy": "delete,compact",
        "flush.ms": "5",
    }
    assert configs(admin, ConfigResourceType.BROKER, "1")["num.partitions"]["value"] == "4"
    assert topic in admin.list_config_resources()["topic"]


def test_the_cluster_and_its_partitions_are_described(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    assert admin.describe_cluster()["controller_id"] == 1
    (log_dirs,) = admin.describe_log_dirs({topic: [0]})
    assert [each["name"] for each in log_dirs["log_dirs"][0]["topics"]] == [topic]
    quorum = admin.describe_metadata_quorum()
    assert quorum["topics"][0]["partitions"][0]["leader_id"] == 1
    assert admin.list_partition_reassignments() == {}
    assert "metadata.version" in admin.describe_features()
    with pytest.raises(errors.InvalidUpdateVersionError):
        admin.update_features({"magic": 1})


def test_partitions_stay_where_they_are(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    partition = TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({partition: [1]}) == {partition: None}
    cancelled = admin.alter_partition_reassignments({partition: None})
    assert cancelled == {partition: errors.NoReassignmentInProgressError}
    elected = admin.elect_leaders(0, {topic: [0]})
    assert (
        elected.replica_election_results[0].partition_result[0].error_code
        == errors.ElectionNotNeededError.errno
    )
    assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 0


def test_the_command_of_kafka_python(
    broker: RunningBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> Any:
        code = run_cli(["-b", broker.kafka, "--format", "json", *arguments])
        out = capsys.readouterr().out
        assert not code, out
        return json.loads(out) if out else None

    run("topics", "create", "-t", topic, "--num-partitions", "2")
    assert topic in run("topics", "list")
    run("configs", "alter", "-r", "topic", "-n", topic, "-c", "retention.ms=5000")
    assert (
        run("configs", "describe", "-r", "topic", "-n", topic)["topic"][topic]["retention.ms"]["value"]
        == "5000"
    )
    assert run("cluster", "describe")["controller_id"] == 1
    assert run("cluster", "describe-log-dirs")[0]["broker"] == 1
    assert run("partitions", "list-reassignments") == {}
    assert "1" in run("configs", "list")["broker"]
    run("topics", "delete", "-t", topic)
    assert topic not in run("topics", "list")
