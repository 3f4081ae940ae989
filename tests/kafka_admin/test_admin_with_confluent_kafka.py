"""Administration of topics and configurations with confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from sparrow.testing.running_broker import RunningBroker

SECONDS = 30


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.kafka})


def done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(SECONDS)


def refused(call: Callable[[], object]) -> int:
    with pytest.raises(KafkaException) as caught:
        call()
    return int(caught.value.args[0].code())


def test_topics_are_created_described_grown_and_deleted(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 2, 1, config={"cleanup.policy": "compact"})]))
    found = done(admin.describe_topics(TopicCollection([topic])))
    assert (found.name, [p.id for p in found.partitions], found.partitions[0].leader.id) == (topic, [0, 1], 1)
    assert refused(lambda: done(admin.create_topics([NewTopic(topic, 2)]))) == KafkaError.TOPIC_ALREADY_EXISTS
    done(admin.create_partitions([NewPartitions(topic, 3)]))
    assert len(admin.list_topics(topic, SECONDS).topics[topic].partitions) == 3
    code = refused(lambda: done(admin.create_partitions([NewPartitions(topic, 3)])))
    assert code == KafkaError.INVALID_PARTITIONS
    done(admin.delete_topics([topic]))
    assert refused(lambda: done(admin.delete_topics([topic]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_manual_assignment_and_a_check_alone(admin: AdminClient, topic: str) -> None:
    assigned = NewTopic(topic, 2, replica_assignment=[[1], [1]])
    done(admin.create_topics([assigned], validate_only=True))
    done(admin.create_topics([assigned]))
    code = refused(lambda: done(admin.create_topics([NewTopic(f"{topic}-2", 1, replica_assignment=[[7]])])))
    assert code == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_configurations_are_described_with_their_synonyms(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "1000"})]))
    found = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    entry = found["retention.ms"]
    assert (entry.value, ConfigSource(entry.source)) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert set(entry.synonyms) == {"retention.ms", "log.retention.hours"}
    assert found["segment.ms"].is_default
    broker = done(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker["num.partitions"].value == "4"
    assert broker["num.partitions"].is_read_only


def test_configurations_are_altered_whole_and_in_parts(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "1000"})]))
    whole = ConfigResource(ResourceType.TOPIC, topic, set_config={"flush.ms": "5"})
    with pytest.deprecated_call():
        done(admin.alter_configs([whole]))
    changes = [
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("segment.ms", "77", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("flush.ms", None, incremental_operation=AlterConfigOpType.DELETE),
    ]
    done(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)]
        )
    )
    found = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert {
        name: found[name].value for name in ("retention.ms", "flush.ms", "segment.ms", "cleanup.policy")
    } == {
        "retention.ms": "604800000",
        "flush.ms": "9223372036854775807",
        "segment.ms": "77",
        "cleanup.policy": "delete,compact",
    }


def test_a_dynamic_configuration_without_effect_is_kept_for_the_tools(admin: AdminClient) -> None:
    name = "sasl.kerberos.min.time.before.relogin"
    change = ConfigEntry(name, "58000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change])
    done(admin.incremental_alter_configs([resource]))
    found = done(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert (found[name].value, ConfigSource(found[name].source)) == (
        "58000",
        ConfigSource.DYNAMIC_BROKER_CONFIG,
    )


def test_records_are_deleted(admin: AdminClient, topic: str) -> None:
    done(admin.create_topics([NewTopic(topic, 1)]))
    deleted = done(admin.delete_records([TopicPartition(topic, 0, -1)]))
    assert deleted.low_watermark == 0
    code = refused(lambda: done(admin.delete_records([TopicPartition(topic, 0, 5)])))
    assert code == KafkaError.OFFSET_OUT_OF_RANGE


def test_no_leader_is_to_be_elected(admin: AdminClient, topic: str) -> None:
    from confluent_kafka import ElectionType

    done(admin.create_topics([NewTopic(topic, 1)]))
    found = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(SECONDS)
    assert [error.code() for error in found.values()] == [KafkaError.ELECTION_NOT_NEEDED]


def test_the_cluster_is_described(admin: AdminClient) -> None:
    found = admin.describe_cluster(include_authorized_operations=True).result(SECONDS)
    assert (found.controller.id, [node.id for node in found.nodes]) == (1, [1])
    assert found.authorized_operations
