"""Access to resources that no rule names: administration and everything else, with and without
logins.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import NotAuthorized
from sparrow.broker.access.acl_store import ADMINISTRATION, StoredAuthorizer
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import ANONYMOUS, OPERATIONS_OF, Operation, Principal, ResourceType
from sparrow.broker.access.credentials import upsertions_of
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.model.access import CLUSTER_NAME

ALICE = Principal("alice")
UNRELATED = AclBinding(
    ResourceType.TOPIC, "other", PatternType.LITERAL, "User:bob", "*", Operation.READ, Permission.ALLOW
)


def name_of(kind: ResourceType) -> str:
    return CLUSTER_NAME if kind is ResourceType.CLUSTER else "thing"


@pytest.mark.parametrize("default", [None, True, False])
@pytest.mark.parametrize("rules", [[], [UNRELATED]])
@pytest.mark.parametrize("kind", sorted(ADMINISTRATION, key=lambda each: each.value))
def test_no_default_grants_any_administrative_right_once_somebody_can_log_in(
    kind: ResourceType, rules: list[AclBinding], default: bool | None
) -> None:
    authorizer = StoredAuthorizer(allow_unnamed=default)
    authorizer.change(added=rules)
    authorizer.expect_logins()
    for operation in OPERATIONS_OF[kind]:
        for principal in (ALICE, ANONYMOUS):
            assert not authorizer.allows(principal, operation, kind, name_of(kind)), operation


@pytest.mark.parametrize(("default", "expected"), [(None, False), (True, True), (False, False)])
@pytest.mark.parametrize("kind", [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID])
def test_resources_without_a_rule_follow_the_default_which_is_deny_once_logins_exist(
    kind: ResourceType, default: bool | None, expected: bool
) -> None:
    authorizer = StoredAuthorizer(allow_unnamed=default)
    assert authorizer.allows(ALICE, Operation.DESCRIBE, kind, "x") is (default is not False)
    authorizer.expect_logins()
    assert authorizer.allows(ALICE, Operation.DESCRIBE, kind, "x") is expected


def test_a_rule_for_the_cluster_and_a_super_user_administer() -> None:
    authorizer = StoredAuthorizer(["User:root"])
    authorizer.expect_logins()
    rule = AclBinding(
        ResourceType.CLUSTER,
        CLUSTER_NAME,
        PatternType.LITERAL,
        "User:alice",
        "*",
        Operation.ALTER,
        Permission.ALLOW,
    )
    asked = (Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert authorizer.allows(Principal("root"), *asked)
    assert not authorizer.allows(ALICE, *asked)
    authorizer.change(added=[rule])
    assert authorizer.allows(ALICE, *asked)
    assert not authorizer.allows(Principal("bob"), *asked)


async def test_the_first_user_of_a_running_broker_closes_it_and_a_restart_keeps_it_closed(
    tmp_path: Path,
) -> None:
    for each in range(2):
        async with Broker(tmp_path / "data") as broker:
            if each == 0:
                await broker.topics.create("before")
                assert not broker.rules.lacks_administrator
                await broker.users.create(upsertions_of("alice", "long enough"))
            assert broker.rules.lacks_administrator
            for principal in (ANONYMOUS, ALICE):
                with pytest.raises(NotAuthorized):
                    await broker.topics.create("after", principal=principal)
                with pytest.raises(NotAuthorized):
                    broker.topics.describe("before", principal=principal)
                with pytest.raises(NotAuthorized):
                    await broker.users.delete("alice", principal=principal)


async def test_deleting_the_last_user_does_not_open_a_running_broker(tmp_path: Path) -> None:
    config = BrokerConfig(super_users=frozenset({"User:alice"}))
    async with Broker(tmp_path / "data", config=config) as broker:
        with pytest.raises(NotAuthorized):
            await broker.users.create(upsertions_of("bob", "long enough"))
        await broker.users.create(upsertions_of("alice", "long enough"), principal=ALICE)
        await broker.users.delete("alice", principal=ALICE)
        with pytest.raises(NotAuthorized):
            await broker.topics.create("x")


@pytest.mark.parametrize("options", [{"users": {"alice": "long enough"}}, {"tokens": {"alice": "a-token"}}])
@pytest.mark.parametrize("default", ["auto", "allow"])
def test_start_with_logins_but_no_administrator_says_what_to_do(
    caplog: pytest.LogCaptureFixture, options: dict[str, object], default: str
) -> None:
    caplog.set_level(logging.WARNING, "sparrow.server")
    with sparrow.testing.broker(**options, acl_default=default):
        pass
    assert "super_users: [NAME]" in caplog.text
    caplog.clear()
    with sparrow.testing.broker(**options, acl_default=default, super_users="alice"):
        pass
    assert "super_users" not in caplog.text


def test_an_existing_directory_with_allow_in_words_keeps_working_and_administers_nothing(
    tmp_path: Path,
) -> None:
    data = str(tmp_path / "data")
    with sparrow.testing.broker(data_dir=data, topics=["orders"]):
        pass
    options = {"data_dir": data, "tokens": {"alice": "a-token"}, "acl_default": "allow"}
    with (
        sparrow.testing.broker(**options) as broker,
        sparrow.sync.connect(broker.url, token="a-token") as client,
    ):
        client.publish("orders", b"one")
        client.admin.create_topic("more")
        client.admin.create_queue("work")
        with client.subscribe("orders", start="beginning", group="g") as subscription:
            assert next(iter(subscription)).value == b"one"
        for refused in (client.admin.list_users, client.admin.describe_broker):
            with pytest.raises(NotAuthorized):
                refused()
