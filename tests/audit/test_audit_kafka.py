"""Every API of the Kafka listener: each change is one event, and so is each refusal.

An API that is in neither table fails the test, so that the audit of a new one cannot be forgotten.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from kio.index import load_request_schema

from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, ResourceType
from sparrow.broker.access.credentials import upsertions_of
from sparrow.frontends.kafka.apis import APIS
from tests.acls.logins import TOKENS, logged_in
from tests.acls.test_acl_enforcement import (
    ALLOWED,
    ANY_RULE,
    GROUP,
    MARKER,
    OFFSETS,
    ROWS,
    RULE,
    SECOND,
    SECRET,
    SHARE_GROUP,
    SHARE_STARTS,
    SHARED,
    STARTED,
    TRANSACTION,
    Row,
    codes,
    message,
)
from tests.audit.recorder import Recorder, outcomes
from tests.broker.batches import batch
from tests.sessions.served import Served

CHANGED = [{"name": "retention.ms", "value": "1000", "config_operation": 0}]


def altered(resource_type: int, name: str, configs: Any = CHANGED) -> dict[str, Any]:
    return {
        "resources": [{"resource_type": resource_type, "resource_name": name, "configs": configs}],
        "validate_only": False,
    }


@dataclass(frozen=True)
class Act:
    """A request that changes something, in the newest version, and the action of its event."""

    key: int
    action: str
    fields: dict[str, Any]


NEW = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
GROUP_CONFIG = [{"name": "consumer.session.timeout.ms", "value": "46000", "config_operation": 0}]
NODE = [{"name": "log.retention.ms", "value": "86400000", "config_operation": 0}]
LOGGER = [{"name": "sparrow.kafka", "value": "INFO", "config_operation": 0}]
ACTS = [
    Act(
        3,
        "topic.create",
        {"topics": [{"name": "found", "topic_id": None}], "allow_auto_topic_creation": True},
    ),
    Act(
        8,
        "group.commit",
        {
            "group_id": "simple",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [OFFSETS],
        },
    ),
    Act(19, "topic.create", {"topics": [NEW], "timeout": SECOND, "validate_only": False}),
    Act(
        21,
        "topic.delete_records",
        {
            "topics": [{"name": SECRET, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": SECOND,
        },
    ),
    Act(27, "transaction.abort", {"markers": [MARKER]}),
    Act(30, "acl.create", {"creations": [RULE]}),
    Act(31, "acl.delete", {"filters": [{**ANY_RULE, "resource_name_filter": "own"}]}),
    Act(33, "topic.configure", altered(2, SECRET)),
    Act(
        37,
        "topic.add_partitions",
        {
            "topics": [{"name": SECRET, "count": 2, "assignments": None}],
            "timeout": SECOND,
            "validate_only": False,
        },
    ),
    Act(44, "topic.configure", altered(2, SECRET)),
    Act(44, "broker.configure", altered(4, "", NODE)),
    Act(44, "broker_logger.configure", altered(8, "1", LOGGER)),
    Act(44, "group.configure", altered(32, GROUP, GROUP_CONFIG)),
    Act(
        47,
        "group.delete_offsets",
        {"group_id": GROUP, "topics": [{"name": SECRET, "partitions": [{"partition_index": 0}]}]},
    ),
    Act(42, "group.delete", {"groups_names": ["simple"]}),
    Act(
        49,
        "quota.alter",
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "a"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": False,
        },
    ),
    Act(51, "user.alter", {"deletions": [{"name": "somebody", "mechanism": 1}], "upsertions": []}),
    Act(91, "group.reset", SHARE_STARTS),
    Act(92, "group.delete_offsets", {"group_id": SHARE_GROUP, "topics": [SHARED]}),
    Act(20, "topic.delete", {"topics": [{"name": SECRET, "topic_id": None}], "timeout": SECOND}),
]
OTHERS = {
    *(0, 1, 2, 9, 10, 11, 12, 13, 14, 15, 16, 22, 23, 24, 25, 26, 28, 29, 32, 34, 35, 48, 50, 55, 60, 61, 65),
    *(66, 68, 69, 74, 75, 76, 77, 78, 79, 90),
    43,  # an election is never needed
    45,  # partitions are where they are
    46,
    57,  # features are what the broker speaks
}
"""Keys that look at something, move data, or never change anything."""
NO_CODE = 35
"""DescribeLogDirs refuses with an empty response in versions that have no error."""
WITHOUT_A_LOGIN = {17, 18, 36}


class Site:
    """A server that allows little, with something to hide, and its events."""

    def __init__(self, served: Served, topic_id: Any) -> None:
        self.served = served
        self.topic_id = topic_id
        self.recorder = Recorder(served.broker.audit)

    async def ask(self, user: str, key: int, version: int, fields: dict[str, Any]) -> Any:
        asked = message(load_request_schema(key, version), fields, self.topic_id)
        return await asyncio.to_thread(self._call, user, asked)

    def _call(self, user: str, asked: Any) -> Any:
        assert self.served.server.ready is not None
        with logged_in(self.served.server.ready.kafka, user) as client:
            return client.call(asked)


@pytest.fixture
async def site(start: Any) -> Site:
    served = await start(tokens=TOKENS, acl_default="deny", default_partitions=1)
    broker = served.broker
    made = await broker.topics.create(SECRET, principal=SYSTEM)
    await broker.records.publish(SECRET, 0, batch(b"the secret"), principal=SYSTEM)
    await broker.groups.commit_offsets(GROUP, {(SECRET, 0): (1, "")}, principal=SYSTEM)
    await broker.users.create(upsertions_of("somebody", "a password"), principal=SYSTEM)
    await broker.acls.create(
        [
            AclBinding(
                ResourceType(kind),
                "*",
                PatternType.LITERAL,
                f"User:{user}",
                "*",
                Operation(operation),
                Permission.ALLOW,
            )
            for user, allowed in ALLOWED.items()
            for kind, operation in allowed
        ],
        principal=SYSTEM,
    )
    site = Site(served, uuid.UUID(made.id))
    await site.ask("root", 22, 5, {**STARTED, "transactional_id": TRANSACTION})
    await site.ask("root", 91, 0, SHARE_STARTS)
    site.recorder.take()
    return site


def test_each_key_is_in_one_of_the_tables() -> None:
    acts = {act.key for act in ACTS}
    assert acts | OTHERS | WITHOUT_A_LOGIN == set(APIS)
    assert not acts & OTHERS


async def test_a_request_that_changes_something_is_one_event(site: Site) -> None:
    for act in ACTS:
        response = await site.ask("root", act.key, APIS[act.key].last, act.fields)
        found = site.recorder.take()
        assert not codes(response), (act, response)
        assert outcomes(found) == [(act.action, "done", "User:root")], (act, found)
        assert (found[0].address, found[0].listener) == ("127.0.0.1", "kafka")


async def test_requests_that_change_nothing_are_no_events(site: Site) -> None:
    for row in _rows(ROWS):
        if row.key in OTHERS and row.also_by_root and row.key != 65:
            await site.ask("root", row.key, row.versions()[-1], row.fields)
            assert site.recorder.take() == [], row


async def test_each_refused_request_is_one_event(site: Site) -> None:
    acts = {(act.key, act.action) for act in ACTS} | {(33, "broker.configure")}
    for row in _rows(ROWS):
        for version in {row.versions()[0], row.versions()[-1]}:
            response = await site.ask(row.user, row.key, version, row.fields)
            found = site.recorder.take()
            if row.refused is None and row.key != NO_CODE:
                assert (codes(response), found) == (set(), []), (row, version)
                continue
            # A batch of a transaction takes two rights, and both may be missing.
            assert len({each.details["needs"] for each in found}) == len(found), (str(row), version, found)
            assert len(found) == 1 or (row.key == 0 and "transaction" in row.what), (str(row), version, found)
            action = found[0].action
            assert action == "access" or (row.key, action) in acts, (str(row), version, found)
            assert set(outcomes(found)) == {(action, "refused", f"User:{row.user}")}, (
                str(row),
                version,
                found,
            )
            assert (found[0].address, found[0].listener) == ("127.0.0.1", "kafka")
            assert found[0].error == "NOT_AUTHORIZED"


def _rows(rows: Iterable[Row]) -> Iterable[Row]:
    return (row for row in rows if row.versions())
