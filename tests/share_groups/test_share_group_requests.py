"""ShareGroupHeartbeat, ShareGroupDescribe and what other requests know of share groups, as they are
on the wire.
"""

import base64
import uuid
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

import sparrow.sync
from sparrow.testing.running_broker import RunningBroker
from tests.consumer_groups.test_consumer_group_requests import join as consumer_join
from tests.kafka_admin.messages import ask, make
from tests.kafka_frontend.raw import RawClient
from tests.kafka_frontend.requests import make_topic


def beat(raw: RawClient, group: str, member_id: str, epoch: int, *topics: str, **more: Any) -> Any:
    """Send a heartbeat; without topics the subscription is unchanged."""
    given = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "rack_id": None}
    return ask(raw, 76, 1, subscribed_topic_names=topics or None, **given, **more)


def join(raw: RawClient, group: str, member_id: str, *topics: str) -> Any:
    answer = beat(raw, group, member_id, 0, *topics)
    assert answer.error_code is ErrorCode.none, answer.error_message
    return answer


def describe(raw: RawClient, *groups: str) -> Any:
    return ask(raw, 77, 1, group_ids=groups, include_authorized_operations=True).groups


def given(answer: Any) -> dict[uuid.UUID, tuple[int, ...]]:
    return {part.topic_id: part.partitions for part in answer.assignment.topic_partitions}


def test_member_joins_goes_on_and_leaves(raw: RawClient, name: str) -> None:
    topic_id = make_topic(raw, name)
    member_id = str(uuid.uuid4())
    joined = join(raw, name, member_id, name)
    assert (joined.member_id, joined.member_epoch) == (member_id, 1)
    assert joined.heartbeat_interval == timedelta(milliseconds=100)
    assert given(joined) == {topic_id: (0, 1, 2, 3)}
    kept = beat(raw, name, member_id, 1)
    assert (kept.error_code, kept.member_epoch, kept.assignment) == (ErrorCode.none, 1, None)
    left = beat(raw, name, member_id, -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (ErrorCode.none, member_id, -1)
    assert beat(raw, name, member_id, 1).error_code is ErrorCode.unknown_member_id


def test_more_members_than_partitions_share_them(raw: RawClient, name: str) -> None:
    make(raw, name, 2)
    for number in range(5):
        assert given(join(raw, name, f"m{number}", name))
    (group,) = describe(raw, name)
    assert len(group.members) == 5


def test_refusals_have_the_codes_that_clients_know(raw: RawClient, name: str) -> None:
    make_topic(raw, name)

    def code(*given: Any, **more: Any) -> ErrorCode:
        answered: ErrorCode = beat(raw, *given, **more).error_code
        return answered

    assert code(name, "m", 1) is ErrorCode.group_id_not_found
    assert code(name, "m", -1) is ErrorCode.group_id_not_found
    assert code("", "m", 0, name) is ErrorCode.invalid_request
    assert code(name, "", 0, name) is ErrorCode.invalid_request
    assert code(name, "m" * 37, 0, name) is ErrorCode.invalid_request
    assert code(name, "m", 0) is ErrorCode.invalid_request
    assert code(name, "m", -2, name) is ErrorCode.invalid_request
    join(raw, name, "m", name)
    assert code(name, "x", 1) is ErrorCode.unknown_member_id
    assert code(name, "x", -1) is ErrorCode.unknown_member_id
    assert code(name, "m", 9) is ErrorCode.fenced_member_epoch
    assert beat(raw, name, "m", 9).error_message


def test_kinds_of_groups_do_not_take_each_others_names(raw: RawClient, name: str) -> None:
    make_topic(raw, name)
    raw.call(consumer_join(1, f"{name}-c", "m", name))
    assert beat(raw, f"{name}-c", "m", 0, name).error_code is ErrorCode.group_id_not_found
    join(raw, name, "m", name)
    assert raw.call(consumer_join(1, name, "m", name)).error_code is ErrorCode.group_id_not_found
    (consumer,) = ask(raw, 69, 1, group_ids=[name]).groups
    assert consumer.error_code is ErrorCode.group_id_not_found
    (share,) = describe(raw, f"{name}-c")
    assert share.error_code is ErrorCode.group_id_not_found
    (classic,) = ask(raw, 15, 6, groups=[name]).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.group_id_not_found, "Dead")
    (old,) = ask(raw, 15, 5, groups=[name]).groups
    assert (old.error_code, old.group_state) == (ErrorCode.none, "Dead")
    joining = {
        "group_id": name,
        "session_timeout": timedelta(seconds=30),
        "rebalance_timeout": timedelta(seconds=30),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    assert ask(raw, 11, 9, **joining).error_code is ErrorCode.inconsistent_group_protocol


def test_group_is_described_with_assignments_of_members(raw: RawClient, name: str) -> None:
    topic_id = make_topic(raw, name)
    beat(raw, name, "m", 0, name, "missing-topic")
    group, unknown, nameless = describe(raw, name, f"{name}-other", "")
    assert (group.error_code, group.group_id, group.group_state) == (ErrorCode.none, name, "Stable")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (1, 1, "simple")
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", None, 1)
    assert (member.client_id, member.client_host) == ("tests", "/127.0.0.1")
    assert set(member.subscribed_topic_names) == {name, "missing-topic"}
    (part,) = member.assignment.topic_partitions
    assert (part.topic_id, part.topic_name, part.partitions) == (topic_id, name, (0, 1, 2, 3))
    assert unknown.error_code is ErrorCode.group_id_not_found
    assert nameless.error_code is ErrorCode.invalid_group_id
    beat(raw, name, "m", -1)
    (empty,) = describe(raw, name)
    assert (empty.group_state, empty.members) == ("Empty", ())


@pytest.mark.parametrize("version", [4, 5])
def test_share_groups_are_listed_with_their_state_and_kind(raw: RawClient, name: str, version: int) -> None:
    make_topic(raw, name)
    join(raw, name, "m", name)

    def listed(**filters: Any) -> list[Any]:
        return [each for each in ask(raw, 16, version, **filters).groups if each.group_id == name]

    (group,) = listed(states_filter=["stable"])
    assert (group.protocol_type, group.group_state) == ("share", "Stable")
    assert not listed(states_filter=["Empty"])
    if version == 5:
        assert [each.group_type for each in listed(types_filter=["Share"])] == ["share"]
        assert not listed(types_filter=["consumer"])


def test_group_is_deleted_when_it_is_empty(raw: RawClient, name: str) -> None:
    make_topic(raw, name)
    join(raw, name, "m", name)

    def delete() -> ErrorCode:
        (result,) = ask(raw, 42, 2, groups_names=[name]).results
        code: ErrorCode = result.error_code
        return code

    assert delete() is ErrorCode.non_empty_group
    beat(raw, name, "m", -1)
    assert delete() is ErrorCode.none
    assert delete() is ErrorCode.group_id_not_found
    assert describe(raw, name)[0].error_code is ErrorCode.group_id_not_found


def test_share_groups_commit_no_offsets(raw: RawClient, name: str) -> None:
    make_topic(raw, name)
    join(raw, name, "m", name)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    topics = [{"name": name, "partitions": [{**partition, "committed_metadata": ""}]}]
    committed = ask(
        raw, 8, 9, group_id=name, generation_id_or_member_epoch=1, member_id="m", group_instance_id=None,
        topics=topics,
    )  # fmt: skip
    assert committed.topics[0].partitions[0].error_code is ErrorCode.group_id_not_found
    deleted = ask(raw, 47, 0, group_id=name, topics=[{"name": name, "partitions": [{"partition_index": 0}]}])
    assert deleted.error_code is ErrorCode.group_id_not_found


def test_coordinator_of_a_group_and_of_a_share_partition_is_this_broker(raw: RawClient, name: str) -> None:
    topic_id = make_topic(raw, name)
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")

    def found(key_type: int, *keys: str, version: int = 6) -> list[ErrorCode]:
        answer = ask(raw, 10, version, key_type=key_type, coordinator_keys=keys)
        return [each.error_code for each in answer.coordinators]

    assert found(0, name) == [ErrorCode.none]
    assert found(2, f"{name}:{text}:0", f"a:b:{text}:3") == [ErrorCode.none] * 2
    wrong = [name, "", f":{text}:0", f"{name}:{text}", f"{name}:x:0", f"{name}:{text}:x"]
    assert found(2, *wrong) == [ErrorCode.invalid_request] * len(wrong)
    assert found(2, f"{name}:{text}:0", version=5) == [ErrorCode.invalid_request]
    assert found(3, name) == [ErrorCode.invalid_request]


@pytest.mark.parametrize("version", [3, 4])
def test_share_version_is_a_feature_that_is_on(raw: RawClient, version: int) -> None:
    answer = ask(raw, 18, version, client_software_name="tests", client_software_version="1")
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert finalized["share.version"] == 1
    supported = {each.name: each.max_version for each in answer.supported_features}
    assert supported["share.version"] == 1


@pytest.mark.slow
def test_members_come_back_after_a_kill(name: str) -> None:
    with sparrow.testing.broker(process=True, group_heartbeat_interval_ms=100) as broker:
        with RawClient(broker.kafka) as raw:
            make_topic(raw, name)
            join(raw, name, "m", name)
            join(raw, name, "n", name)
        broker.kill()
        broker.restart()
        with RawClient(broker.kafka) as raw:
            told = beat(raw, name, "m", 1)
            assert (told.error_code, told.member_epoch) == (ErrorCode.none, 2)
            assert sum(map(len, given(told).values())) == 2
            assert beat(raw, name, "n", 2).error_code is ErrorCode.none


def test_native_client_sees_share_groups(broker: RunningBroker, raw: RawClient, name: str) -> None:
    make(raw, name, 2)
    join(raw, name, "m", name)
    with sparrow.sync.connect(broker.url) as client:
        (listed,) = [each for each in client.admin.list_groups() if each.group == name]
        assert (listed.type, listed.state, listed.members) == ("share", "stable", 1)
        found = client.admin.describe_group(name)
        assert (found.type, found.members[0].member_id) == ("share", "m")
        assert [(o.topic, o.partition, o.lag) for o in found.offsets] == [(name, 0, 0), (name, 1, 0)]
