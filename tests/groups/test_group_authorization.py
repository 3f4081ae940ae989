"""Access to groups and their offsets by Kafka's rules."""

from __future__ import annotations

import typing

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import NotAuthorized
from sparrow.broker.access.access import Access
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.config import BrokerConfig
from sparrow.broker.groups.assembly import BrokerGroups
from sparrow.broker.groups.classic.protocol import Leaver, SyncRequest
from sparrow.broker.groups.offsets import NO_MEMBER, OffsetAndMetadata
from sparrow.broker.groups.service import GroupService
from sparrow.meta.memory import MemoryMetaStore
from sparrow.model.access import CLUSTER_NAME
from tests.groups.classic_driver import request

if typing.TYPE_CHECKING:
    from sparrow.broker.topics.registry import TopicRegistry

if typing.TYPE_CHECKING:
    pass

GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
READ_GROUP = (Operation.READ, GROUP, "g")
DESCRIBE_GROUP = (Operation.DESCRIBE, GROUP, "g")
DELETE_GROUP = (Operation.DELETE, GROUP, "g")
READ_A = (Operation.READ, TOPIC, "a")
DESCRIBE_A = (Operation.DESCRIBE, TOPIC, "a")
ME = Principal("me")
A, B = ("a", 0), ("b", 0)


class Granted:
    """An authorizer that allows the listed rights."""

    def __init__(self) -> None:
        self.allowed: set[tuple[Operation, ResourceType, str]] = set()

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        assert principal == ME
        return (operation, resource_type, resource) in self.allowed


@pytest.fixture
def granted() -> Granted:
    return Granted()


@pytest.fixture
async def service(granted: Granted) -> GroupService:
    groups = BrokerGroups(MemoryMetaStore(), ManualClock(), BrokerConfig(group_initial_rebalance_delay_ms=0))
    await groups.load()
    groups.topics_changed({"a": 1, "b": 1})
    for group in ("g", "h"):
        await groups.commit(group, {A: OffsetAndMetadata(1), B: OffsetAndMetadata(2)})
    return GroupService(groups, typing.cast("TopicRegistry", None), Access(granted), Audit())


async def test_members_need_to_read_the_group(service: GroupService, granted: Granted) -> None:
    granted.allowed = {DESCRIBE_GROUP, DELETE_GROUP}
    for call in (
        service.classic.join(request(), principal=ME),
        service.classic.sync(SyncRequest("g", "m", 1), principal=ME),
        service.commit("g", {A: OffsetAndMetadata(1)}, NO_MEMBER, principal=ME),
    ):
        with pytest.raises(NotAuthorized) as refused:
            await call
        assert refused.value.resource_type == "Group"
    with pytest.raises(NotAuthorized):
        service.classic.heartbeat("g", "m", 1, principal=ME)
    with pytest.raises(NotAuthorized):
        service.classic.leave("g", [Leaver("m")], principal=ME)
    granted.allowed = {READ_GROUP}
    assert (await service.classic.join(request(), principal=ME)).generation == 1


async def test_offsets_are_committed_for_topics_that_may_be_read(
    service: GroupService, granted: Granted
) -> None:
    granted.allowed = {READ_GROUP, READ_A}
    results = await service.commit("g", dict.fromkeys((A, B), OffsetAndMetadata(9)), NO_MEMBER, principal=ME)
    assert results[A] is None
    assert isinstance(results[B], NotAuthorized)
    assert results[B].resource_type == "Topic"


async def test_offsets_are_fetched_of_topics_that_may_be_described(
    service: GroupService, granted: Granted
) -> None:
    with pytest.raises(NotAuthorized):
        await service.fetch("g", None, principal=ME)
    granted.allowed = {DESCRIBE_GROUP, DESCRIBE_A}
    assert (await service.fetch("g", None, principal=ME)).keys() == {A}
    found = await service.fetch("g", [A, B], principal=ME)
    assert isinstance(found[A], OffsetAndMetadata)
    assert isinstance(found[B], NotAuthorized)


async def test_deleting_offsets_needs_delete_on_the_group_and_read_on_the_topic(
    service: GroupService, granted: Granted
) -> None:
    granted.allowed = {READ_GROUP, READ_A}
    with pytest.raises(NotAuthorized):
        await service.delete_offsets("g", [A], principal=ME)
    granted.allowed = {DELETE_GROUP, READ_A}
    results = await service.delete_offsets("g", [A, B], principal=ME)
    assert results[A] is None
    assert isinstance(results[B], NotAuthorized)


async def test_groups_are_listed_that_may_be_described_or_all_with_the_cluster(
    service: GroupService, granted: Granted
) -> None:
    assert service.listing(principal=ME) == []
    granted.allowed = {DESCRIBE_GROUP}
    assert [info.group for info in service.listing(principal=ME)] == ["g"]
    granted.allowed = {(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)}
    assert [info.group for info in service.listing(principal=ME)] == ["g", "h"]
    with pytest.raises(NotAuthorized):
        service.classic.describe("g", principal=ME)
    with pytest.raises(NotAuthorized):
        service.check_coordinator(GROUP, "g", principal=ME)
