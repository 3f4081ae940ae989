"""DescribeAcls, CreateAcls, DeleteAcls and their effect on clients, through Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import admin as kp
from kio.schema.errors import ErrorCode

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.acls.logins import TOKENS, confluent, kafka_python, logged_in
from tests.kafka_frontend.raw import RawClient, part, request

WAIT_S = 30
DENIED = ErrorCode.cluster_authorization_failed


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(tokens=TOKENS, super_users="root", default_partitions=1) as running:
        yield running


@pytest.fixture
def root(broker: RunningBroker) -> Iterator[AdminClient]:
    admin = AdminClient(confluent(broker.kafka, "root"))
    yield admin
    admin.delete_acls([everything()])[everything()].result(WAIT_S)


@pytest.fixture
def raw(broker: RunningBroker) -> Iterator[RawClient]:
    with logged_in(broker.kafka, "root") as client:
        yield client
        client.call(deletion(3, any_rule()))


def everything() -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )


def rule(
    operation: AclOperation = AclOperation.READ,
    name: str = "orders",
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    kind: ResourceType = ResourceType.TOPIC,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, permission)


def publish(broker: RunningBroker, user: str, topic: str) -> Any:
    """Publish; return None, or the error."""
    outcome: list[Any] = []
    producer = Producer(confluent(broker.kafka, user, **{"message.timeout.ms": 20_000}))
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(WAIT_S)
    return outcome[0]


def test_rules_made_with_librdkafka_are_described_enforced_and_deleted(
    root: AdminClient, broker: RunningBroker
) -> None:
    made = [
        rule(AclOperation.WRITE, "or", ResourcePatternType.PREFIXED),
        rule(AclOperation.DELETE, "orders"),
        rule(AclOperation.ALL, "*", kind=ResourceType.GROUP),
    ]
    for future in root.create_acls(made).values():
        assert future.result(WAIT_S) is None
    assert sorted(root.describe_acls(everything()).result(WAIT_S)) == sorted(made)
    match = AclBindingFilter(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert sorted(root.describe_acls(match).result(WAIT_S)) == sorted(made[:2])
    root.create_topics([_topic("orders")])["orders"].result(WAIT_S)
    assert publish(broker, "alice", "orders") is None
    assert publish(broker, "nobody", "orders").name() == "TOPIC_AUTHORIZATION_FAILED"
    assert sorted(root.delete_acls([match])[match].result(WAIT_S)) == sorted(made[:2])
    assert publish(broker, "alice", "orders").name() == "TOPIC_AUTHORIZATION_FAILED", "no rule is left"


def _topic(name: str) -> Any:
    from confluent_kafka.admin import NewTopic

    return NewTopic(name, 1)


def test_librdkafka_reports_a_missing_right_of_administration(
    broker: RunningBroker, root: AdminClient
) -> None:
    closed = rule(AclOperation.DESCRIBE, "kafka-cluster", kind=ResourceType.BROKER)
    root.create_acls([closed])[closed].result(WAIT_S)
    nobody = AdminClient(confluent(broker.kafka, "nobody"))
    for future in (
        nobody.create_acls([rule()])[rule()],
        nobody.delete_acls([everything()])[everything()],
    ):
        with pytest.raises(KafkaException) as refused:
            future.result(WAIT_S)
        assert refused.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"
    # The Python binding shows no error of DescribeAcls; it shows no rule either.
    assert nobody.describe_acls(everything()).result(WAIT_S) == []
    alice = AdminClient(confluent(broker.kafka, "alice"))
    assert alice.describe_acls(everything()).result(WAIT_S) == [closed]


def test_rules_are_managed_with_kafka_python(broker: RunningBroker, root: AdminClient) -> None:
    admin = KafkaAdminClient(**kafka_python(broker.kafka, "root"))
    try:
        acl = kp.ACL(
            principal="User:alice",
            host="*",
            operation=kp.ACLOperation.READ,
            permission_type=kp.ACLPermissionType.ALLOW,
            resource_pattern=kp.ResourcePattern(kp.ResourceType.TOPIC, "py"),
        )
        made = admin.create_acls([acl])
        assert made["failed"] == []
        by = kp.ACLFilter(
            principal="User:alice",
            host="*",
            operation=kp.ACLOperation.ANY,
            permission_type=kp.ACLPermissionType.ANY,
            resource_pattern=kp.ResourcePatternFilter(
                kp.ResourceType.TOPIC, "py", kp.ACLResourcePatternType.ANY
            ),
        )
        described, _ = admin.describe_acls(by)
        assert described == [acl]
        admin.delete_acls([by])
        assert admin.describe_acls(by)[0] == []
    finally:
        admin.close()


# ── every version, and what is wrong ──────────────────────────────────────────────────────────────


def creation(version: int, *rules: dict[str, Any]) -> Any:
    kind = part(type(request(30, version, creations=())), "creations")
    return request(30, version, creations=tuple(kind(**{**RULE, **each}) for each in rules))


RULE = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def any_rule(**other: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **other,
    }


def deletion(version: int, *filters: dict[str, Any]) -> Any:
    kind = part(type(request(31, version, filters=())), "filters")
    return request(31, version, filters=tuple(kind(**each) for each in filters))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_version_makes_describes_and_deletes(raw: RawClient, version: int) -> None:
    for operation in range(2, 16):
        (made,) = raw.call(creation(version, {"operation": operation})).results
        assert (made.error_code, made.error_message) == (ErrorCode.none, None)
    response = raw.call(request(29, version, **any_rule()))
    (resource,) = response.resources
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "orders", 3)
    assert {acl.operation for acl in resource.acls} == set(range(2, 16))
    results = raw.call(
        deletion(version, any_rule(operation=3), any_rule(resource_name_filter="other"), any_rule())
    ).filter_results
    assert [len(each.matching_acls) for each in results] == [1, 0, 14]
    assert {(each.principal, each.host, each.permission_type) for each in results[2].matching_acls} == {
        ("User:alice", "*", 3)
    }
    assert raw.call(request(29, version, **any_rule())).resources == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 0},
        {"operation": 1},
        {"operation": -128},
        {"permission_type": 1},
        {"resource_name": ""},
        {"resource_type": 4, "resource_name": "orders"},
        {"principal": "alice"},
        {"host": ""},
    ],
)
def test_a_wrong_rule_fails_alone(raw: RawClient, wrong: dict[str, Any]) -> None:
    bad, good = raw.call(creation(3, wrong, {})).results
    assert bad.error_code == ErrorCode.invalid_request
    assert bad.error_message
    assert good.error_code == ErrorCode.none


def test_a_filter_with_an_unknown_element_is_refused(raw: RawClient) -> None:
    raw.call(creation(3, {}))
    response = raw.call(request(29, 3, **any_rule(operation=0)))
    assert (response.error_code, response.resources) == (ErrorCode.invalid_request, ())
    bad, good = raw.call(deletion(3, any_rule(pattern_type_filter=9), any_rule())).filter_results
    assert (bad.error_code, bad.matching_acls) == (ErrorCode.invalid_request, ())
    assert len(good.matching_acls) == 1


def test_missing_right_is_refused_for_each_element(raw: RawClient, broker: RunningBroker) -> None:
    raw.call(creation(3, {"resource_type": 4, "resource_name": "kafka-cluster"}))
    with logged_in(broker.kafka, "nobody") as nobody:
        assert [each.error_code for each in nobody.call(creation(3, {}, {"host": ""})).results] == [
            DENIED
        ] * 2
        results = nobody.call(deletion(3, any_rule(), any_rule())).filter_results
        assert [each.error_code for each in results] == [DENIED] * 2
        response = nobody.call(request(29, 3, **any_rule()))
        assert (response.error_code, response.resources) == (DENIED, ())
