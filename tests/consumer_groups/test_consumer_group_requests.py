"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as they are on the wire, in both versions, and
offsets with member epochs.
"""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, new, part, request
from tests.kafka_frontend.requests import make_topic

ANY_TIMEOUT = timedelta(seconds=60)


@pytest.fixture
def raw(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.kafka) as client:
        yield client


def beat(version: int, group: str, member_id: str, epoch: int, **fields: Any) -> Any:
    return request(
        68,
        version,
        **{
            "group_id": group,
            "member_id": member_id,
            "member_epoch": epoch,
            "topic_partitions": None,
            "subscribed_topic_names": None,
            **fields,
        },
    )


def join(version: int, group: str, member_id: str, *topics: str, **fields: Any) -> Any:
    given = {"subscribed_topic_names": topics, "rebalance_timeout": ANY_TIMEOUT, "topic_partitions": ()}
    return beat(version, group, member_id, 0, **given, **fields)


@pytest.mark.parametrize("version", [0, 1])
def test_member_joins_goes_on_and_leaves(raw: RawClient, name: str, version: int) -> None:
    topic_id = make_topic(raw, name)
    member_id = str(uuid.uuid4())
    joined = raw.call(join(version, name, member_id, name))
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, member_id, 1)
    assert joined.heartbeat_interval == timedelta(milliseconds=100)
    (given,) = joined.assignment.topic_partitions
    assert (given.topic_id, given.partitions) == (topic_id, (0, 1, 2, 3))
    kept = raw.call(beat(version, name, member_id, 1))
    assert (kept.error_code, kept.member_epoch, kept.assignment) == (ErrorCode.none, 1, None)
    left = raw.call(beat(version, name, member_id, -1))
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)


def test_version_0_gets_an_id_from_the_broker_and_version_1_must_bring_one(raw: RawClient, name: str) -> None:
    assert uuid.UUID(raw.call(join(0, name, "", name)).member_id)
    refused = raw.call(join(1, name, "", name))
    assert refused.error_code is ErrorCode.invalid_request
    assert refused.error_message


def test_names_of_assigned_topics_are_found_by_their_ids_as_java_asks(raw: RawClient, name: str) -> None:
    topic_id = make_topic(raw, name)
    kind = part(load_request_schema(3, 13), "topics")
    by_id = tuple(new(kind, name=nothing, topic_id=topic_id) for nothing in ("", None))
    for wanted in by_id:
        (found,) = raw.call(request(3, 13, topics=(wanted,), allow_auto_topic_creation=False)).topics
        assert (found.error_code, found.name, found.topic_id) == (ErrorCode.none, name, topic_id)


def test_refusals_have_the_codes_that_clients_know(raw: RawClient, name: str) -> None:
    make_topic(raw, name)
    group = f"{name}-g"

    def code(asked: Any) -> ErrorCode:
        answered: ErrorCode = raw.call(asked).error_code
        return answered

    assert code(beat(1, group, "m", 1)) is ErrorCode.group_id_not_found
    assert code(join(1, "", "m", name)) is ErrorCode.invalid_request
    assert code(join(1, group, "m", name, server_assignor="x")) is ErrorCode.unsupported_assignor
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
    assert code(beat(1, group, "m", 0, rebalance_timeout=ANY_TIMEOUT, topic_partitions=(), **regex)) is (
        ErrorCode.invalid_regular_expression
    )
    assert code(join(1, group, "m", name, instance_id="i")) is ErrorCode.none
    assert code(beat(1, group, "x", 1)) is ErrorCode.unknown_member_id
    assert code(beat(1, group, "m", 9, instance_id="i")) is ErrorCode.fenced_member_epoch
    assert code(join(1, group, "n", name, instance_id="i")) is ErrorCode.unreleased_instance_id
    assert code(beat(1, group, "n", 1, instance_id="i")) is ErrorCode.fenced_instance_id
    assert code(beat(1, group, "m", -2, instance_id="i")) is ErrorCode.none


def test_group_is_described_with_current_and_target_assignments(raw: RawClient, name: str) -> None:
    topic_id = make_topic(raw, name)
    raw.call(join(1, name, "m", name, rack_id="r", instance_id="i"))
    asked = request(69, 1, group_ids=(name, f"{name}-other", ""), include_authorized_operations=True)
    group, unknown, nameless = raw.call(asked).groups
    assert (group.error_code, group.group_id, group.group_state) == (ErrorCode.none, name, "Stable")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (1, 1, "uniform")
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 1)
    assert (member.client_id, member.client_host) == ("tests", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ((name,), None)
    assert member.member_type == 1
    for assignment in (member.assignment, member.target_assignment):
        (given,) = assignment.topic_partitions
        assert (given.topic_id, given.topic_name, given.partitions) == (topic_id, name, (0, 1, 2, 3))
    assert unknown.error_code is ErrorCode.group_id_not_found
    assert nameless.error_code is ErrorCode.invalid_group_id
    assert len(raw.call(request(69, 0, group_ids=(name,))).groups[0].members) == 1


def commit(version: int, group: str, topic: str, member_id: str, epoch: int) -> Any:
    kind = load_request_schema(8, version)
    partition = new(
        part(kind, "topics.partitions"),
        partition_index=0,
        committed_offset=7,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    topics = (new(part(kind, "topics"), name=topic, partitions=(partition,)),)
    fields = {"member_id": member_id, "generation_id_or_member_epoch": epoch, "group_instance_id": None}
    return request(8, version, group_id=group, topics=topics, **fields)


def test_offsets_of_members_are_committed_at_their_epoch_from_version_9_on(raw: RawClient, name: str) -> None:
    make_topic(raw, name)
    raw.call(join(1, name, "m", name))

    def code(version: int, member_id: str, epoch: int) -> ErrorCode:
        (topic,) = raw.call(commit(version, name, name, member_id, epoch)).topics
        answered: ErrorCode = topic.partitions[0].error_code
        return answered

    assert code(9, "m", 1) is ErrorCode.none
    assert code(9, "m", 2) is ErrorCode.stale_member_epoch
    assert code(9, "x", 1) is ErrorCode.unknown_member_id
    assert code(8, "m", 1) is ErrorCode.unsupported_version


def test_offsets_are_fetched_by_members_at_their_epoch(raw: RawClient, name: str) -> None:
    make_topic(raw, name)
    raw.call(join(1, name, "m", name))
    kind = load_request_schema(9, 9)

    def code(member_id: str | None, epoch: int) -> ErrorCode:
        wanted = new(
            part(kind, "groups"), group_id=name, member_id=member_id, member_epoch=epoch, topics=None
        )
        (group,) = raw.call(request(9, 9, groups=(wanted,), require_stable=False)).groups
        answered: ErrorCode = group.error_code
        return answered

    assert code(None, -1) is ErrorCode.none
    assert code("m", 1) is ErrorCode.none
    assert code("m", 5) is ErrorCode.stale_member_epoch
    assert code("x", 1) is ErrorCode.unknown_member_id


def test_consumer_protocol_is_announced_as_a_finalized_feature(raw: RawClient) -> None:
    answer = raw.call(request(18, 4, client_software_name="x", client_software_version="1"))
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert levels["group.version"] == 1
