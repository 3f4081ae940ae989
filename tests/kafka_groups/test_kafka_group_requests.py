"""Classic groups and offsets by raw requests, in every version: requests that client libraries do
not send.
"""

from __future__ import annotations

import base64
import uuid
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import NewTopic
from kio.schema.errors import ErrorCode

from sparrow.testing.running_broker import RunningBroker
from tests.consumer_groups.clients import Cluster
from tests.groups.classic_driver import subscription
from tests.kafka_frontend.raw import RawClient, new, part, request

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, DELETE_OFFSETS = (
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    42,
    47,
)
NO_ERROR = ErrorCode.none


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    cluster.make_topic(name, 2)
    return name


def topic_id(cluster: Cluster, topic: str) -> uuid.UUID:
    (found,) = cluster.admin.describe_topics(TopicCollection([topic])).values()
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{found.result().topic_id}=="))


def join_request(version: int, group: str, member_id: str = "", **given: Any) -> Any:
    kind = type(request(JOIN, version))
    protocol = new(part(kind, "protocols"), name="range", metadata=subscription(group))
    values = {
        "group_id": group,
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=30),
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": (protocol,),
        **given,
    }
    return new(kind, **values)


def join(raw: RawClient, version: int, group: str, **given: Any) -> Any:
    """Join as a client does, with the id that the first response assigns."""
    reply = raw.call(join_request(version, group, **given))
    if reply.error_code is ErrorCode.member_id_required:
        assert version >= 4
        reply = raw.call(join_request(version, group, reply.member_id, **given))
    return reply


def sync(raw: RawClient, version: int, group: str, member: str, generation: int, assignment: bytes) -> Any:
    kind = type(request(SYNC, version))
    given = new(part(kind, "assignments"), member_id=member, assignment=assignment)
    return raw.call(
        new(
            kind,
            group_id=group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(given,),
        )
    )


def commit_request(version: int, group: str, topic: str | uuid.UUID, **given: Any) -> Any:
    kind = type(request(COMMIT, version))
    partitions = tuple(
        new(
            part(kind, "topics.partitions"),
            partition_index=index,
            committed_offset=given.get("offset", 5 + index),
            committed_metadata=given.get("metadata", "note"),
            committed_leader_epoch=0,
        )
        for index in given.get("partitions", (0,))
    )
    topics = (new(part(kind, "topics"), name=topic, topic_id=topic, partitions=partitions),)
    values = {"retention_time": timedelta(milliseconds=-1), "member_id": "", **given, "topics": topics}
    return new(kind, group_id=group, **values)


def codes(response: Any) -> list[ErrorCode]:
    return [each.error_code for topic in response.topics for each in topic.partitions]


# ── members ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_in_every_version(raw: RawClient, name: str, version: int) -> None:
    joined = join(raw, version, name)
    assert joined.error_code is NO_ERROR
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, joined.member_id, "range")
    assert [m.member_id for m in joined.members] == [joined.member_id]
    synced = sync(raw, min(version, 5), name, joined.member_id, 1, b"mine")
    assert (synced.error_code, bytes(synced.assignment)) == (NO_ERROR, b"mine")
    beat = request(HEARTBEAT, min(version, 4), group_id=name, generation_id=1, member_id=joined.member_id)
    assert raw.call(beat).error_code is NO_ERROR
    leave_version = min(version, 5)
    kind = type(request(LEAVE, leave_version))
    members = ()
    if leave_version >= 3:
        members = (new(part(kind, "members"), member_id=joined.member_id, reason="enough"),)
    left = raw.call(new(kind, group_id=name, member_id=joined.member_id, members=members))
    assert left.error_code is NO_ERROR
    assert [m.error_code for m in getattr(left, "members", ())] == [NO_ERROR] * len(members)
    assert raw.call(beat).error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", range(10))
def test_error_of_a_join_is_named_in_every_version(raw: RawClient, name: str, version: int) -> None:
    for given, code in (
        ({"session_timeout": timedelta(milliseconds=1)}, ErrorCode.invalid_session_timeout),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "stranger"}, ErrorCode.unknown_member_id),
    ):
        reply = raw.call(join_request(version, name, **given))  # type: ignore[arg-type]
        assert (reply.error_code, reply.generation_id, reply.members) == (code, -1, ())
    assert raw.call(join_request(version, "")).error_code is ErrorCode.invalid_group_id


def test_a_static_member_is_fenced_by_its_successor(raw: RawClient, name: str) -> None:
    first = join(raw, 9, name, group_instance_id="i")
    sync(raw, 5, name, first.member_id, 1, b"x")
    second = join(raw, 9, name, group_instance_id="i")
    assert (second.error_code, second.generation_id, second.skip_assignment) == (NO_ERROR, 1, True)
    beat = {"group_id": name, "generation_id": 1, "group_instance_id": "i"}
    old = raw.call(request(HEARTBEAT, 4, member_id=first.member_id, **beat))
    assert old.error_code is ErrorCode.fenced_instance_id
    assert raw.call(request(HEARTBEAT, 4, member_id=second.member_id, **beat)).error_code is NO_ERROR


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(
    raw: RawClient, cluster: Cluster, name: str, topic: str, version: int
) -> None:
    called = topic if version < 10 else topic_id(cluster, topic)
    assert codes(raw.call(commit_request(version, name, called))) == [NO_ERROR]
    reply = raw.call(commit_request(version, name, called, partitions=(0, 7)))
    assert codes(reply) == [NO_ERROR, ErrorCode.unknown_topic_or_partition]
    reply = raw.call(commit_request(version, name, called, metadata="x" * 4097))
    assert codes(reply) == [ErrorCode.offset_metadata_too_large]
    unknown = "nothing" if version < 10 else uuid.uuid4()
    code = ErrorCode.unknown_topic_or_partition if version < 10 else ErrorCode.unknown_topic_id
    assert codes(raw.call(commit_request(version, name, unknown))) == [code]


def test_commits_of_strangers_are_refused(raw: RawClient, name: str, topic: str) -> None:
    stranger = {"member_id": "m", "generation_id_or_member_epoch": 1}
    assert codes(raw.call(commit_request(8, name, topic, **stranger))) == [ErrorCode.illegal_generation]
    assert codes(raw.call(commit_request(9, name, topic, **stranger))) == [ErrorCode.group_id_not_found]
    joined = join(raw, 9, name)
    mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert codes(raw.call(commit_request(9, name, topic, **mine))) == [ErrorCode.rebalance_in_progress]
    sync(raw, 5, name, joined.member_id, 1, b"x")
    assert codes(raw.call(commit_request(9, name, topic, **mine))) == [NO_ERROR]
    assert codes(raw.call(commit_request(9, name, topic))) == [ErrorCode.unknown_member_id]
    old = {**mine, "generation_id_or_member_epoch": 0}
    assert codes(raw.call(commit_request(9, name, topic, **old))) == [ErrorCode.illegal_generation]


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_in_every_version(
    raw: RawClient, cluster: Cluster, name: str, topic: str, version: int
) -> None:
    raw.call(commit_request(9, name, topic, partitions=(1,)))
    asked = [(topic if version < 10 else topic_id(cluster, topic), (0, 1))]
    for wanted in (asked, None) if version >= 2 else (asked,):
        topics, error = fetch(raw, version, name, wanted)
        assert error is NO_ERROR
        assert [getattr(t, "name", None) or t.topic_id for t in topics] == [asked[0][0]]
        found = {p.partition_index: (p.committed_offset, p.metadata) for p in topics[0].partitions}
        assert found == ({0: (-1, ""), 1: (6, "note")} if wanted else {1: (6, "note")})
        if version >= 5:
            assert {p.committed_leader_epoch for p in topics[0].partitions} <= {0, -1}


def test_an_offset_may_be_a_word_as_in_kafka(raw: RawClient, name: str, topic: str) -> None:
    """KafkaJS resets a group by committing -2 (earliest) or -1 (latest), and reads the value
    back.
    """
    assert codes(raw.call(commit_request(5, name, topic, partitions=(0, 1), offset=-2))) == [
        NO_ERROR,
        NO_ERROR,
    ]
    topics, _ = fetch(raw, 5, name, [(topic, (0, 1))])
    assert [p.committed_offset for p in topics[0].partitions] == [-2, -2]


def fetch(raw: RawClient, version: int, group: str, wanted: Any) -> tuple[Any, Any]:
    kind = type(request(FETCH, version))
    topic_kind = part(kind, "topics" if version < 8 else "groups.topics")
    topics = None
    if wanted is not None:
        topics = tuple(new(topic_kind, name=t, topic_id=t, partition_indexes=p) for t, p in wanted)
    if version < 8:
        reply = raw.call(new(kind, group_id=group, topics=topics))
        return reply.topics, getattr(reply, "error_code", NO_ERROR)
    asked = new(part(kind, "groups"), group_id=group, topics=topics)
    (reply,) = raw.call(new(kind, groups=(asked,))).groups
    return reply.topics, reply.error_code


def test_an_unknown_topic_id_is_named(raw: RawClient, name: str) -> None:
    (topic,), error = fetch(raw, 10, name, [(uuid.uuid4(), (3,))])
    assert error is NO_ERROR
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(3, ErrorCode.unknown_topic_id)]


# ── administration ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(7))
def test_coordinators_are_found_in_every_version(
    broker: RunningBroker, raw: RawClient, name: str, version: int
) -> None:
    port = int(broker.kafka.rpartition(":")[2])
    for key_type in (0, 1) if version >= 1 else (0,):
        reply = raw.call(request(FIND, version, key=name, key_type=key_type, coordinator_keys=(name,)))
        (found,) = reply.coordinators if version >= 4 else (reply,)
        assert (found.error_code, found.port) == (NO_ERROR, port)
    if version >= 1:
        reply = raw.call(request(FIND, version, key=name, key_type=9, coordinator_keys=(name,)))
        (found,) = reply.coordinators if version >= 4 else (reply,)
        assert found.error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(raw: RawClient, name: str, version: int) -> None:
    joined = join(raw, 9, name)
    reply = raw.call(request(DESCRIBE, version, groups=(name,)))
    assert reply.groups[0].group_state == "CompletingRebalance"
    sync(raw, 5, name, joined.member_id, 1, b"mine")
    reply = raw.call(request(DESCRIBE, version, groups=(name, "nothing"), include_authorized_operations=True))
    group, unknown = reply.groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.client_id, member.client_host) == ("tests", "/127.0.0.1")
    assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (subscription(name), b"mine")
    assert unknown.group_state == "Dead"
    assert unknown.error_code is (NO_ERROR if version < 6 else ErrorCode.group_id_not_found)
    if version >= 3:
        assert group.authorized_operations > 0


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version_by_state_and_kind(
    raw: RawClient, name: str, topic: str, version: int
) -> None:
    raw.call(commit_request(9, name + "-empty", topic))
    joined = join(raw, 9, name)
    sync(raw, 5, name, joined.member_id, 1, b"mine")

    def listed(**filters: Any) -> dict[str, Any]:
        reply = raw.call(request(LIST, version, **filters))
        assert reply.error_code is NO_ERROR
        return {g.group_id: g for g in reply.groups if g.group_id.startswith(name)}

    assert {g.protocol_type for g in listed().values()} == {"", "consumer"}
    if version >= 4:
        assert listed(states_filter=("stable",)).keys() == {name}
        assert listed(states_filter=("Empty",)).keys() == {name + "-empty"}
    if version >= 5:
        assert len(listed(types_filter=("CLASSIC",))) == 2
        assert not listed(types_filter=("consumer",))
        assert listed()[name].group_type == "classic"


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_in_every_version(raw: RawClient, name: str, topic: str, version: int) -> None:
    raw.call(commit_request(9, name, topic))
    join(raw, 9, name + "-live")
    reply = raw.call(request(DELETE, version, groups_names=(name, name + "-live", "nothing")))
    assert [each.error_code for each in reply.results] == [
        NO_ERROR,
        ErrorCode.non_empty_group,
        ErrorCode.group_id_not_found,
    ]


def test_offsets_of_topics_without_readers_are_deleted(
    raw: RawClient, cluster: Cluster, name: str, topic: str
) -> None:
    other = name + "-other"
    for future in cluster.admin.create_topics([NewTopic(other, 1, 1)]).values():
        future.result()
    raw.call(commit_request(9, name, topic))
    raw.call(commit_request(9, name, other))
    joined = join(raw, 9, name)
    sync(raw, 5, name, joined.member_id, 1, b"x")
    kind = type(request(DELETE_OFFSETS, 0))
    partition = new(part(kind, "topics.partitions"), partition_index=0)
    topics = tuple(
        new(part(kind, "topics"), name=each, partitions=(partition,)) for each in (topic, other, "nothing")
    )
    reply = raw.call(new(kind, group_id=name, topics=topics))
    assert reply.error_code is NO_ERROR
    assert codes(reply) == [
        ErrorCode.group_subscribed_to_topic,
        NO_ERROR,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert raw.call(new(kind, group_id="nothing", topics=())).error_code is ErrorCode.group_id_not_found
