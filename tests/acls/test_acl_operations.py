"""The operations that responses show as allowed (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

import sparrow.sync
import sparrow.testing
from sparrow.broker.access.acls import PatternType, Permission
from sparrow.broker.access.authz import OPERATIONS_OF, Operation, ResourceType
from sparrow.client.results import AccessRule
from sparrow.frontends.kafka.wire_codes import ACL_CODES, operation_bits
from sparrow.testing.running_broker import RunningBroker
from tests.acls.logins import TOKENS, confluent, logged_in
from tests.kafka_frontend.raw import part, request

WAIT_S = 30
NOT_REQUESTED = -(1 << 31)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    options: Any = {"tokens": TOKENS, "super_users": "root", "acl_default": "deny", "default_partitions": 1}
    with sparrow.testing.broker(**options) as running:
        with sparrow.sync.connect(running.url, token=TOKENS["root"]) as root:
            root.admin.create_topic("orders")
            root.admin.commit("billing", {("orders", 0): 0})
            root.admin.create_access_rules(
                [
                    AccessRule("Topic", "orders", "User:alice", "Write"),
                    AccessRule("Topic", "orders", "User:alice", "AlterConfigs"),
                    AccessRule("Group", "bill", "User:alice", "Read", pattern_type="Prefixed"),
                    AccessRule("Cluster", "kafka-cluster", "User:alice", "Alter"),
                ]
            )
        yield running


def test_the_numbers_are_those_of_kafka() -> None:
    assert [ACL_CODES[each] for each in (Operation.ANY, Operation.ALL, Operation.READ)] == [1, 2, 3]
    assert ACL_CODES[Operation.TWO_PHASE_COMMIT] == 15
    assert [ACL_CODES[each] for each in ResourceType] == [1, 2, 3, 4, 5, 6, 7]
    assert [ACL_CODES[each] for each in PatternType] == [1, 2, 3, 4]
    assert [ACL_CODES[each] for each in Permission] == [1, 2, 3]
    assert operation_bits(OPERATIONS_OF[ResourceType.TOPIC]) == 0b110111111000
    assert operation_bits([]) == 0


def test_librdkafka_gets_its_allowed_operations(broker: RunningBroker) -> None:
    admin = AdminClient(confluent(broker.kafka, "alice"))
    topics = admin.describe_topics(TopicCollection(["orders"]), include_authorized_operations=True)
    assert set(topics["orders"].result(WAIT_S).authorized_operations) == {
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    }
    groups = admin.describe_consumer_groups(["billing"], include_authorized_operations=True)
    assert set(groups["billing"].result(WAIT_S).authorized_operations) == {
        AclOperation.READ,
        AclOperation.DESCRIBE,
    }
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert set(cluster.authorized_operations) == {AclOperation.ALTER, AclOperation.DESCRIBE}


@pytest.mark.parametrize(
    ("user", "cluster"), [("root", operation_bits(OPERATIONS_OF[ResourceType.CLUSTER])), ("nobody", 0)]
)
def test_metadata_has_allowed_operations_only_on_request(
    broker: RunningBroker, user: str, cluster: int
) -> None:
    topic = operation_bits(OPERATIONS_OF[ResourceType.TOPIC])
    kind = part(type(request(3, 9, topics=())), "topics")
    with logged_in(broker.kafka, user) as client:
        for asked in (True, False):
            for version in range(8, 14):
                response = client.call(
                    request(
                        3,
                        version,
                        topics=None if version > 9 else (kind(name="orders"),),
                        include_topic_authorized_operations=asked,
                        include_cluster_authorized_operations=asked,
                    )
                )
                if version <= 10:
                    assert response.cluster_authorized_operations == (cluster if asked else NOT_REQUESTED)
                for each in response.topics:
                    if user == "root":
                        assert each.topic_authorized_operations == (topic if asked else NOT_REQUESTED)
            cluster_response = client.call(request(60, 0, include_cluster_authorized_operations=asked))
            assert cluster_response.cluster_authorized_operations == (cluster if asked else NOT_REQUESTED)
