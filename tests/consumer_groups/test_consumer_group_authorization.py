"""Access to consumer groups: who may be a member, and which topics a member may see."""

import uuid

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import NotAuthorized
from sparrow.broker.access.access import Access
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.broker.config import BrokerConfig
from sparrow.broker.groups.assembly import BrokerGroups
from sparrow.broker.groups.consumer.service import ConsumerGroupService
from sparrow.broker.groups.consumer.topics import TopicView
from sparrow.meta.memory import MemoryMetaStore
from tests.consumer_groups.machine import joining

READ_GROUP = (Operation.READ, ResourceType.GROUP, "g")
DESCRIBE_GROUP = (Operation.DESCRIBE, ResourceType.GROUP, "g")
SEE_A = (Operation.DESCRIBE, ResourceType.TOPIC, "a1")
ME = Principal("me")
TOPICS = {name: TopicView(name, uuid.uuid4(), 1) for name in ("a1", "a2")}


class Granted:
    """Allows what is listed."""

    def __init__(self, *allowed: tuple[Operation, ResourceType, str]) -> None:
        self.allowed = set(allowed)

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        return (operation, resource_type, resource) in self.allowed


@pytest.fixture
def granted() -> Granted:
    return Granted()


@pytest.fixture
async def service(granted: Granted) -> ConsumerGroupService:
    groups = BrokerGroups(MemoryMetaStore(), ManualClock(), BrokerConfig(), TOPICS.get)
    await groups.load()
    groups.topics_changed({"a1": 1, "a2": 1})
    return ConsumerGroupService(groups.consumer, Access(granted))


async def test_member_needs_to_read_the_group(service: ConsumerGroupService, granted: Granted) -> None:
    granted.allowed = {SEE_A}
    with pytest.raises(NotAuthorized) as refused:
        await service.heartbeat("g", joining("m", "a1"), principal=ME)
    assert refused.value.resource_type == "Group"


async def test_topic_that_may_not_be_described_fails_the_heartbeat(
    service: ConsumerGroupService, granted: Granted
) -> None:
    granted.allowed = {READ_GROUP, SEE_A}
    with pytest.raises(NotAuthorized) as refused:
        await service.heartbeat("g", joining("m", "a1", "a2"), principal=ME)
    assert refused.value.resource_type == "Topic"
    await service.heartbeat("g", joining("m", "a1"), principal=ME)


async def test_regular_expression_matches_only_topics_that_may_be_described(
    service: ConsumerGroupService, granted: Granted
) -> None:
    granted.allowed = {READ_GROUP, SEE_A}
    answer = await service.heartbeat("g", joining("m", regex="a.*"), principal=ME)
    assert answer.assignment == {(TOPICS["a1"].topic_id, 0)}


async def test_describing_a_group_needs_the_right_to_all_its_topics(
    service: ConsumerGroupService, granted: Granted
) -> None:
    granted.allowed = {READ_GROUP, DESCRIBE_GROUP, SEE_A}
    await service.heartbeat("g", joining("m", "a1"), principal=ME)
    assert len(service.describe("g", principal=ME).members) == 1
    granted.allowed.remove(SEE_A)
    with pytest.raises(NotAuthorized) as refused:
        service.describe("g", principal=ME)
    assert refused.value.resource_type == "Topic"
    granted.allowed.clear()
    with pytest.raises(NotAuthorized):
        service.describe("g", principal=ME)
