"""Administration of topics and configurations with aiokafka, which has only the old encodings."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition

from sparrow.testing.running_broker import RunningBroker


async def test_topics_are_created_configured_grown_and_deleted(broker: RunningBroker, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.kafka)
    await admin.start()
    try:
        made = await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "1000"})])
        assert made.topic_errors == [(topic, 0, None)]
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"flush.ms": "5"})
        (altered,) = await admin.alter_configs([resource])
        assert altered.resources[0][0] == 0
        (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        values = {entry[0]: entry[1] for entry in described.resources[0][4]}
        assert (values["flush.ms"], values["retention.ms"]) == ("5", "604800000")
        grown = await admin.create_partitions({topic: NewPartitions(3)})
        assert [each[:2] for each in grown.topic_errors] == [(topic, 0)]
        deleted = await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=0)})
        assert deleted == {TopicPartition(topic, 0): 0}
        assert (await admin.describe_cluster())["controller_id"] == 1
        gone = await admin.delete_topics([topic])
        assert gone.topic_error_codes == [(topic, 0)]
    finally:
        await admin.close()
