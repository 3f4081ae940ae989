"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets as they are on the
wire, as Kafka's tools use them.
"""

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.kafka_admin.messages import ask, make
from tests.kafka_frontend.raw import RawClient
from tests.kafka_frontend.requests import produce
from tests.share_groups.test_share_group_requests import beat, join

NO_ID = uuid.UUID(int=0)


def fill(raw: RawClient, topic: str, partition: int, *values: bytes) -> None:
    from tests.broker.batches import batch

    (answer,) = raw.call(produce(9, topic, [(partition, batch(*values))])).responses
    assert answer.partition_responses[0].error_code is ErrorCode.none


def describe(raw: RawClient, version: int, group: str, topics: Any = None) -> Any:
    groups = [{"group_id": group, "topics": topics}]
    (found,) = ask(raw, 90, version, groups=groups).groups
    return found


def asked(topic: str, *partitions: int) -> dict[str, Any]:
    return {"topic_name": topic, "partitions": partitions}


def alter(raw: RawClient, group: str, topic: str, offsets: dict[int, int]) -> Any:
    partitions = [{"partition_index": number, "start_offset": at} for number, at in offsets.items()]
    return ask(raw, 91, 0, group_id=group, topics=[{"topic_name": topic, "partitions": partitions}])


def delete(raw: RawClient, group: str, *topics: str) -> Any:
    return ask(raw, 92, 0, group_id=group, topics=[{"topic_name": topic} for topic in topics])


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_are_described_for_all_topics_or_those_asked_for(
    raw: RawClient, name: str, version: int
) -> None:
    topic_id = make(raw, name, 2).topic_id
    join(raw, name, "m", name)
    fill(raw, name, 1, b"1", b"2", b"3")
    found = describe(raw, version, name)
    assert (found.group_id, found.error_code) == (name, ErrorCode.none)
    (topic,) = found.topics
    assert (topic.topic_name, topic.topic_id) == (name, topic_id)
    shown = [(p.partition_index, p.start_offset, p.leader_epoch, p.error_code) for p in topic.partitions]
    assert shown == [(0, 0, 0, ErrorCode.none), (1, 0, 0, ErrorCode.none)]
    if version == 1:
        assert [p.lag for p in topic.partitions] == [0, 3]
    wanted = [asked(name, 1, 9), asked("missing", 0)]
    here, missing = describe(raw, version, name, wanted).topics
    assert [(p.partition_index, p.start_offset) for p in here.partitions] == [(1, 0), (9, -1)]
    assert missing.topic_id in {NO_ID, None}
    assert [(p.start_offset, p.error_code) for p in missing.partitions] == [(-1, ErrorCode.none)]
    assert describe(raw, version, name, []).topics == ()


@pytest.mark.parametrize("version", [0, 1])
def test_unknown_group_has_no_offsets_and_that_is_no_error(raw: RawClient, name: str, version: int) -> None:
    make(raw, name)
    found = describe(raw, version, name)
    assert (found.error_code, found.topics) == (ErrorCode.none, ())
    (topic,) = describe(raw, version, name, [asked(name, 0)]).topics
    assert [(p.start_offset, p.error_code) for p in topic.partitions] == [(-1, ErrorCode.none)]


def test_offsets_are_altered_while_the_group_is_empty(raw: RawClient, name: str) -> None:
    topic_id = make(raw, name, 2).topic_id
    fill(raw, name, 0, b"1", b"2", b"3")
    join(raw, name, "m", name)
    assert alter(raw, name, name, {0: 1}).error_code is ErrorCode.non_empty_group
    beat(raw, name, "m", -1)
    answer = alter(raw, name, name, {0: 1, 7: 0})
    assert answer.error_code is ErrorCode.none
    (topic,) = answer.responses
    assert (topic.topic_name, topic.topic_id) == (name, topic_id)
    codes = {p.partition_index: p.error_code for p in topic.partitions}
    assert codes == {0: ErrorCode.none, 7: ErrorCode.unknown_topic_or_partition}
    (topic,) = describe(raw, 1, name).topics
    assert [(p.start_offset, p.lag) for p in topic.partitions] == [(1, 2), (0, 0)]


def test_altering_makes_a_group_but_not_out_of_nonsense(raw: RawClient, name: str) -> None:
    make(raw, name)
    fill(raw, name, 0, b"1", b"2")
    answer = alter(raw, name, "missing", {0: 0})
    assert answer.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition
    assert ask(raw, 91, 0, group_id=name, topics=[]).error_code is ErrorCode.none
    assert alter(raw, "", name, {0: 0}).error_code is ErrorCode.invalid_group_id
    assert alter(raw, f"{name}-g", name, {0: 1}).responses[0].partitions[0].error_code is ErrorCode.none
    (group,) = ask(raw, 77, 1, group_ids=[f"{name}-g"]).groups
    assert (group.error_code, group.group_state) == (ErrorCode.none, "Empty")


def test_topics_are_forgotten_while_the_group_is_empty(raw: RawClient, name: str) -> None:
    topic_id = make(raw, name).topic_id
    assert delete(raw, name, name).error_code is ErrorCode.group_id_not_found
    assert delete(raw, "", name).error_code is ErrorCode.invalid_group_id
    join(raw, name, "m", name)
    assert delete(raw, name, name).error_code is ErrorCode.non_empty_group
    beat(raw, name, "m", -1)
    answer = delete(raw, name, name, "missing")
    assert answer.error_code is ErrorCode.none
    here, missing = answer.responses
    assert (here.topic_name, here.topic_id, here.error_code) == (name, topic_id, ErrorCode.none)
    assert (missing.topic_name, missing.error_code) == ("missing", ErrorCode.unknown_topic_or_partition)
    assert describe(raw, 1, name).topics == ()
    (again,) = delete(raw, name, name).responses
    assert again.error_code is ErrorCode.unknown_topic_or_partition
