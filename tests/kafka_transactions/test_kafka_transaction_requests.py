"""The transactional APIs in every version: responses and the codes that old clients know."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.record import decode
from tests.kafka_frontend.raw import RawClient, new, part, request
from tests.kafka_frontend.requests import fetch, make_topic, produce

MINUTE_MS = 60_000


class Producer:
    """A transactional producer that sends each request in a version of the test's choice."""

    def __init__(self, raw: RawClient, transactional_id: str) -> None:
        self.raw = raw
        self.id = transactional_id
        self.who: dict[str, int] = {"producer_id": -1, "producer_epoch": -1}
        self.sequence = 0

    def initialize(self, version: int = 5, timeout_ms: int = MINUTE_MS, **fields: Any) -> Any:
        found = self.raw.call(
            request(
                22,
                version,
                transactional_id=self.id,
                transaction_timeout=timedelta(milliseconds=timeout_ms),
                **fields,
            )
        )
        if found.error_code is ErrorCode.none:
            self.who = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
            self.sequence = 0
        return found

    def add(self, *topics: str, version: int = 3, who: dict[str, int] | None = None) -> list[ErrorCode]:
        prefix = "v3_and_below_"
        kind = type(request(24, version))
        wanted = tuple(new(part(kind, f"{prefix}topics"), name=each, partitions=(0,)) for each in topics)
        found = self.raw.call(
            request(
                24,
                version,
                **{f"{prefix}{name}": value for name, value in (who or self.who).items()},
                **{f"{prefix}transactional_id": self.id, f"{prefix}topics": wanted},
            )
        )
        return [
            each.partition_error_code
            for topic in found.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]

    def send(self, topic: Any, value: bytes, version: int = 11, **fields: Any) -> ErrorCode:
        batch = build_batch(
            [value],
            timestamps=time.time_ns() // 1_000_000,
            base_sequence=self.sequence,
            transactional=True,
            **self.who,
        )
        found = self.raw.call(
            produce(version, topic, [(0, batch)], **{"transactional_id": self.id, **fields})
        )
        code: ErrorCode = found.responses[0].partition_responses[0].error_code
        self.sequence += code is ErrorCode.none
        return code

    def add_group(self, group: str, version: int = 4, who: dict[str, int] | None = None) -> ErrorCode:
        found = self.raw.call(
            request(25, version, transactional_id=self.id, group_id=group, **(who or self.who))
        )
        code: ErrorCode = found.error_code
        return code

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        version: int = 4,
        who: dict[str, int] | None = None,
        **member: Any,
    ) -> ErrorCode:
        kind = type(request(28, version))
        one = new(
            part(kind, "topics.partitions"),
            partition_index=0,
            committed_offset=offset,
            committed_metadata="note",
        )
        found = self.raw.call(
            request(
                28,
                version,
                transactional_id=self.id,
                group_id=group,
                topics=(new(part(kind, "topics"), name=topic, partitions=(one,)),),
                **(who or self.who),
                **member,
            )
        )
        code: ErrorCode = found.topics[0].partitions[0].error_code
        return code

    def end(self, *, commit: bool, version: int = 4, who: dict[str, int] | None = None) -> Any:
        found = self.raw.call(
            request(26, version, transactional_id=self.id, committed=commit, **(who or self.who))
        )
        if version >= 5 and found.error_code is ErrorCode.none:
            self.who = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
            self.sequence = 0
        return found


@pytest.fixture
def producer(raw: RawClient, topic: str) -> Producer:
    make_topic(raw, topic)
    return Producer(raw, f"id-{topic}")


def committed(raw: RawClient, topic: str) -> tuple[list[bytes | None], list[tuple[int, int]]]:
    """Return (values of all batches before the last stable offset, aborted transactions)."""
    asked = fetch(12, topic, [{"partition": 0, "fetch_offset": 0}], session_epoch=-1, isolation_level=1)
    found = raw.call(asked).responses[0].partitions[0]
    values = [record.value for _, batch in split(bytes(found.records or b"")) for record in decode(batch)]
    return values, [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]


def offset_of(raw: RawClient, group: str, topic: str, *, stable: bool = True) -> tuple[ErrorCode, int]:
    kind = type(request(9, 8))
    wanted = new(part(kind, "groups.topics"), name=topic, partition_indexes=(0,))
    one = new(part(kind, "groups"), group_id=group, topics=(wanted,))
    (found,) = raw.call(request(9, 8, groups=(one,), require_stable=stable)).groups
    each = found.topics[0].partitions[0]
    return each.error_code, each.committed_offset


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_producer_id_gives_an_identity(producer: Producer, version: int) -> None:
    first, second = producer.initialize(version), producer.initialize(version)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.none, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


@pytest.mark.parametrize("version", range(6))
def test_a_producer_without_transactions_gets_an_id_of_its_own(raw: RawClient, version: int) -> None:
    found = [raw.call(request(22, version, transactional_id=None)) for _ in range(2)]
    assert [(each.error_code, each.producer_epoch) for each in found] == [(ErrorCode.none, 0)] * 2
    assert found[0].producer_id != found[1].producer_id


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"timeout_ms": 0}, ErrorCode.invalid_transaction_timeout),
        ({"timeout_ms": -5}, ErrorCode.invalid_transaction_timeout),
        ({"timeout_ms": 900_001}, ErrorCode.invalid_transaction_timeout),
        ({"producer_id": 5}, ErrorCode.invalid_request),
        ({"producer_epoch": 5}, ErrorCode.invalid_request),
    ],
)
def test_error_of_an_init_producer_id_is_named(
    producer: Producer, fields: dict[str, int], code: ErrorCode
) -> None:
    found = producer.initialize(**fields)  # type: ignore[arg-type]
    assert (found.error_code, found.producer_id, found.producer_epoch) == (code, -1, -1)


def test_an_empty_transactional_id_is_refused(raw: RawClient) -> None:
    assert Producer(raw, "").initialize().error_code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.invalid_producer_epoch), (4, ErrorCode.producer_fenced)]
)
def test_a_producer_that_continues_is_fenced_by_a_later_one(
    producer: Producer, version: int, code: ErrorCode
) -> None:
    producer.initialize()
    old = dict(producer.who)
    assert producer.initialize(4, **old).producer_epoch == 1
    assert producer.initialize(4, **old).producer_epoch == 1  # sent again
    producer.initialize()
    assert producer.initialize(version, **old).error_code is code


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions_and_offsets_and_ends(
    producer: Producer, raw: RawClient, topic: str, version: int
) -> None:
    group = f"group-{topic}"
    producer.initialize()
    for number, commit in enumerate((True, False, True)):
        assert producer.add(topic, version=version) == [ErrorCode.none]
        assert producer.send(topic, b"%d" % number) is ErrorCode.none
        assert producer.add_group(group, version=version) is ErrorCode.none
        assert producer.commit_offset(group, topic, number + 10, version=version) is ErrorCode.none
        assert producer.end(commit=commit, version=version).error_code is ErrorCode.none
    values, aborted = committed(raw, topic)
    assert values == [b"0", b"1", b"2"]
    assert aborted == [(producer.who["producer_id"], 2)]
    assert offset_of(raw, group, topic) == (ErrorCode.none, 12)


@pytest.mark.parametrize("version", [12, 13])
def test_broker_adds_partitions_for_clients_of_kip_890(
    producer: Producer, raw: RawClient, topic: str, version: int
) -> None:
    name = make_topic(raw, topic) if version >= 13 else topic
    group = f"group-{topic}"
    producer.initialize()
    for number, commit in enumerate((True, False, True)):
        for _ in range(2):
            assert producer.send(name, b"%d" % number, version) is ErrorCode.none
        assert producer.commit_offset(group, topic, number + 10, version=5) is ErrorCode.none
        before = dict(producer.who)
        assert producer.end(commit=commit, version=5).producer_epoch == number + 1
        again = producer.end(commit=commit, version=5, who=before)
        assert (again.error_code, again.producer_epoch) == (ErrorCode.none, number + 1)
    values, aborted = committed(raw, topic)
    assert values == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert aborted == [(producer.who["producer_id"], 3)]
    assert offset_of(raw, group, topic) == (ErrorCode.none, 12)


def test_one_bad_partition_of_a_kip_890_request_does_not_harm_the_others(
    producer: Producer, raw: RawClient, topic: str
) -> None:
    producer.initialize()
    batch = build_batch(
        [b"x"], timestamps=time.time_ns() // 1_000_000, base_sequence=0, transactional=True, **producer.who
    )
    found = raw.call(produce(12, topic, [(0, batch), (77, batch)], transactional_id=producer.id))
    assert [each.error_code for each in found.responses[0].partition_responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert producer.end(commit=True, version=5).error_code is ErrorCode.none


def test_if_one_partition_cannot_be_added_the_others_are_not_attempted(
    producer: Producer, topic: str
) -> None:
    producer.initialize()
    assert producer.add(topic, f"{topic}-missing") == [
        ErrorCode.operation_not_attempted,
        ErrorCode.unknown_topic_or_partition,
    ]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.invalid_txn_state),
        (10, ErrorCode.invalid_txn_state),
        (11, ErrorCode.transaction_abortable),
    ],
)
def test_a_batch_of_a_partition_that_was_not_added_is_refused(
    producer: Producer, topic: str, version: int, code: ErrorCode
) -> None:
    producer.initialize()
    assert producer.send(topic, b"x", version) is code


def test_transactional_batches_need_a_transactional_id(producer: Producer, topic: str) -> None:
    producer.initialize()
    producer.add(topic)
    code = producer.send(topic, b"x", transactional_id=None)
    assert code is ErrorCode.transactional_id_authorization_failed
    assert producer.send(topic, b"x", transactional_id="another") is ErrorCode.invalid_producer_id_mapping


def test_fenced_producers_get_codes_that_their_version_knows(producer: Producer, topic: str) -> None:
    producer.initialize()
    zombie = dict(producer.who)
    producer.add(topic)
    producer.initialize()
    old, new_code = ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced
    for version, code in ((1, old), (2, new_code), (3, new_code)):
        assert producer.add(topic, version=version, who=zombie) == [code]
        assert producer.add_group("g", version=version, who=zombie) is code
        assert producer.end(commit=True, version=version, who=zombie).error_code is code
    assert producer.commit_offset("g", topic, 1, who=zombie) is old
    producer.who = zombie
    for version in (11, 12):
        assert producer.send(topic, b"x", version) is old
    stranger = {"producer_id": zombie["producer_id"] + 1_000_000, "producer_epoch": 0}
    assert producer.add(topic, who=stranger) == [ErrorCode.invalid_producer_id_mapping]
    assert producer.end(commit=True, who=stranger).error_code is ErrorCode.invalid_producer_id_mapping


def test_ends_that_make_no_sense_are_refused(producer: Producer, topic: str) -> None:
    producer.initialize()
    assert producer.end(commit=True).error_code is ErrorCode.invalid_txn_state
    producer.add(topic)
    assert producer.end(commit=True).error_code is ErrorCode.none
    assert producer.end(commit=True).error_code is ErrorCode.none  # sent again
    assert producer.end(commit=False).error_code is ErrorCode.invalid_txn_state


def test_undecided_offsets_are_unstable_until_the_end(producer: Producer, raw: RawClient, topic: str) -> None:
    group = f"group-{topic}"
    producer.initialize()
    assert producer.commit_offset(group, topic, 5, version=3) is ErrorCode.invalid_txn_state
    assert producer.commit_offset(group, topic, 5, version=4) is ErrorCode.transaction_abortable
    producer.add_group(group)
    assert producer.commit_offset(group, topic, 5) is ErrorCode.none
    assert offset_of(raw, group, topic) == (ErrorCode.unstable_offset_commit, -1)
    assert offset_of(raw, group, topic, stable=False) == (ErrorCode.none, -1)
    producer.end(commit=True)
    assert offset_of(raw, group, topic) == (ErrorCode.none, 5)


def test_offsets_of_members_that_are_none_are_refused(producer: Producer, topic: str) -> None:
    group = f"group-{topic}"
    producer.initialize()
    producer.add_group(group)
    code = producer.commit_offset(group, topic, 5, version=3, generation_id=4, member_id="m")
    assert code is ErrorCode.illegal_generation


def test_a_transactional_producer_writes_in_transactions_alone(
    producer: Producer, raw: RawClient, topic: str
) -> None:
    producer.initialize()
    producer.add(topic)
    producer.send(topic, b"x")
    batch = build_batch([b"y"], timestamps=time.time_ns() // 1_000_000, base_sequence=1, **producer.who)
    found = raw.call(produce(11, topic, [(0, batch)]))
    assert found.responses[0].partition_responses[0].error_code is ErrorCode.producer_fenced


def test_transactions_and_their_producers_are_described_and_listed(
    producer: Producer, raw: RawClient, topic: str
) -> None:
    producer.initialize()
    producer.add(topic)
    producer.send(topic, b"x")
    (described, missing) = raw.call(
        request(65, 0, transactional_ids=(producer.id, "nobody"))
    ).transaction_states
    assert (described.error_code, described.transaction_state) == (ErrorCode.none, "Ongoing")
    assert (described.producer_id, described.producer_epoch) == (producer.who["producer_id"], 0)
    assert [(each.topic, each.partitions) for each in described.topics] == [(topic, (0,))]
    assert round(described.transaction_timeout.total_seconds() * 1000) == MINUTE_MS
    assert abs(described.transaction_start_time.timestamp() - time.time()) < 3600
    assert (missing.error_code, missing.transaction_state) == (ErrorCode.transactional_id_not_found, "")
    for version in range(3):
        found = raw.call(
            request(
                66,
                version,
                state_filters=("Ongoing", "Odd"),
                producer_id_filters=(producer.who["producer_id"],),
            )
        )
        assert found.unknown_state_filters == ("Odd",)
        assert [each.transactional_id for each in found.transaction_states] == [producer.id]
    found = raw.call(request(66, 2, transactional_id_pattern=f"id-{topic[:-1]}."))
    assert [each.transactional_id for each in found.transaction_states] == [producer.id]
    assert (
        raw.call(request(66, 2, transactional_id_pattern="(")).error_code
        is ErrorCode.invalid_regular_expression
    )
    kind = type(request(61, 0))
    wanted = new(part(kind, "topics"), name=topic, partition_indexes=(0, 99))
    there, nowhere = raw.call(request(61, 0, topics=(wanted,))).topics[0].partitions
    (found,) = there.active_producers
    assert (found.producer_id, found.last_sequence, found.current_txn_start_offset) == (
        producer.who["producer_id"],
        0,
        0,
    )
    assert nowhere.error_code is ErrorCode.unknown_topic_or_partition


def write_markers(
    raw: RawClient, who: dict[str, int], *partitions: tuple[str, int], commit: bool = False, version: int = 2
) -> list[ErrorCode]:
    kind = type(request(27, version))
    topics = tuple(
        new(part(kind, "markers.topics"), name=name, partition_indexes=(index,)) for name, index in partitions
    )
    marker = new(part(kind, "markers"), **who, transaction_result=commit, topics=topics, coordinator_epoch=0)
    (found,) = raw.call(request(27, version, markers=(marker,))).markers
    assert found.producer_id == who["producer_id"]
    return [each.error_code for topic in found.topics for each in topic.partitions]


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_aborts_the_transaction_of_a_producer(
    producer: Producer, raw: RawClient, topic: str, version: int
) -> None:
    make_topic(raw, f"{topic}-2")
    producer.initialize()
    producer.add(topic, f"{topic}-2")
    producer.send(topic, b"x")
    producer.send(f"{topic}-2", b"y")
    later = {**producer.who, "producer_epoch": -1}
    assert write_markers(raw, later, (topic, 0), version=version) == [ErrorCode.invalid_producer_epoch]
    assert write_markers(raw, producer.who, (topic, 0), commit=True) == [ErrorCode.invalid_request]
    (described,) = raw.call(request(65, 0, transactional_ids=(producer.id,))).transaction_states
    assert described.transaction_state == "Ongoing"
    codes = write_markers(raw, producer.who, (topic, 0), (topic, 99), ("nowhere", 0), version=version)
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == [ErrorCode.none, unknown, unknown]
    (described,) = raw.call(request(65, 0, transactional_ids=(producer.id,))).transaction_states
    assert described.transaction_state == "CompleteAbort"
    kind = type(request(61, 0))
    for each in (topic, f"{topic}-2"):  # it ends in every partition
        wanted = new(part(kind, "topics"), name=each, partition_indexes=(0,))
        (state,) = raw.call(request(61, 0, topics=(wanted,))).topics[0].partitions[0].active_producers
        assert state.current_txn_start_offset == -1
    # nothing is open any more
    assert write_markers(raw, producer.who, (topic, 0)) == [ErrorCode.none]
    assert producer.end(commit=True).error_code is not ErrorCode.none


def test_the_feature_that_switches_kip_890_on_is_finalized(raw: RawClient) -> None:
    found = raw.call(request(18, 4, client_software_name="tests", client_software_version="1"))
    levels = {each.name: each.max_version_level for each in found.finalized_features}
    assert levels["transaction.version"] == 2
