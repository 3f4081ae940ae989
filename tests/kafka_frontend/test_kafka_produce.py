"""Produce: accepted and refused batches, in every version."""

from __future__ import annotations

import struct
import time
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

import sparrow.sync
import sparrow.testing
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.record import decode
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient, encode, request
from tests.kafka_frontend.requests import fetch, make_topic, produce
from tests.records import malformed

BATCH = build_batch([b"one", b"two"], [b"1", b"2"])


def configure(broker: RunningBroker, topic: str, **config: str) -> None:
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic(
            topic, partitions=1, config={key.replace("_", "."): value for key, value in config.items()}
        )


def outcome(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def read_all(raw: RawClient, topic: str) -> bytes:
    request = fetch(12, topic, [{"partition": 0, "fetch_offset": 0}], session_epoch=-1)
    return bytes(raw.call(request).responses[0].partitions[0].records)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_takes_a_batch_and_says_where_it_is(raw: RawClient, topic: str, version: int) -> None:
    topic_id = make_topic(raw, topic)
    name = topic_id if version >= 13 else topic
    for expected in (0, 2):
        found = outcome(raw.call(produce(version, name, [(0, BATCH)])))
        assert (found.error_code, found.index, found.base_offset) == (ErrorCode.none, 0, expected)
        assert found.log_append_time is None
        if version >= 5:
            assert found.log_start_offset == 0
    values = [record.value for _, batch in split(read_all(raw, topic)) for record in decode(batch)]
    assert values == [b"one", b"two"] * 2


@pytest.mark.parametrize("acks", [-1, 1])
def test_several_partitions_are_answered_each(raw: RawClient, topic: str, acks: int) -> None:
    make_topic(raw, topic)
    response = raw.call(produce(9, topic, [(0, BATCH), (7, BATCH), (3, BATCH), (1, b"")], acks=acks))
    found = [
        (each.index, each.error_code, each.base_offset) for each in response.responses[0].partition_responses
    ]
    assert found == [
        (0, ErrorCode.none, 0),
        (7, ErrorCode.unknown_topic_or_partition, -1),
        (3, ErrorCode.none, 0),
        (1, ErrorCode.invalid_record, -1),
    ]


def test_acks_0_is_not_answered(raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    raw.send(produce(9, topic, [(0, BATCH)], acks=0))
    # the next response is that of the next request
    found = outcome(raw.call(produce(9, topic, [(0, BATCH)])))
    assert found.base_offset == 2


def test_acks_0_that_fails_closes_the_connection(raw: RawClient, topic: str) -> None:
    raw.send(produce(9, topic, [(0, BATCH)], acks=0))
    assert raw.is_closed()


def test_acks_that_do_not_exist_are_refused(raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    found = outcome(raw.call(produce(9, topic, [(0, BATCH)], acks=2)))
    assert found.error_code is ErrorCode.invalid_required_acks


def test_a_topic_that_is_not_there_is_not_made(raw: RawClient, topic: str) -> None:
    assert (
        outcome(raw.call(produce(9, topic, [(0, BATCH)]))).error_code is ErrorCode.unknown_topic_or_partition
    )
    assert outcome(raw.call(produce(13, uuid.uuid4(), [(0, BATCH)]))).error_code is ErrorCode.unknown_topic_id


def damaged(at: int, value: int = 0xFF) -> bytes:
    data = bytearray(BATCH)
    data[at] ^= value
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(None, ErrorCode.invalid_record, id="null"),
        pytest.param(b"", ErrorCode.invalid_record, id="empty"),
        pytest.param(b"x" * 30, ErrorCode.invalid_record, id="noise"),
        pytest.param(damaged(16, 3), ErrorCode.invalid_record, id="magic 1"),
        pytest.param(damaged(len(BATCH) - 1), ErrorCode.corrupt_message, id="a flipped bit"),
        pytest.param(BATCH[:-1], ErrorCode.corrupt_message, id="cut short"),
        pytest.param(BATCH[:8] + struct.pack(">i", -1) + BATCH[12:], ErrorCode.corrupt_message, id="size -1"),
        pytest.param(BATCH[:8] + struct.pack(">i", 1<<30) + BATCH[12:], ErrorCode.corrupt_message, id="1GB"),
        pytest.param(BATCH + b"more", ErrorCode.corrupt_message, id="bytes behind it"),
    ],
)  # fmt: skip
def test_bad_batches_are_refused_and_leave_nothing(
    raw: RawClient, topic: str, records: bytes | None, code: ErrorCode
) -> None:
    make_topic(raw, topic)
    found = outcome(raw.call(produce(9, topic, [(0, records)])))
    assert (found.error_code, found.base_offset) == (code, -1)
    assert found.error_message
    assert read_all(raw, topic) == b""


@pytest.mark.parametrize("records", [None, b"", BATCH + BATCH])
def test_an_unknown_partition_is_named_before_a_bad_batch(
    raw: RawClient, topic: str, records: bytes | None
) -> None:
    make_topic(raw, topic)
    found = outcome(raw.call(produce(9, topic, [(99, records)])))
    assert found.error_code is ErrorCode.unknown_topic_or_partition


def test_a_partition_takes_one_batch_at_a_time(raw: RawClient, topic: str) -> None:
    topic_id = make_topic(raw, topic)
    found = outcome(raw.call(produce(9, topic, [(0, BATCH + BATCH)])))
    assert (found.error_code, found.base_offset) == (ErrorCode.invalid_record, -1)
    assert read_all(raw, topic) == b""
    assert outcome(raw.call(produce(13, topic_id, [(0, BATCH)]))).base_offset == 0


def test_a_batch_over_the_topics_limit_is_refused(broker: RunningBroker, raw: RawClient, topic: str) -> None:
    configure(broker, topic, max_message_bytes="100")
    found = outcome(raw.call(produce(9, topic, [(0, build_batch([b"x" * 200]))])))
    assert found.error_code is ErrorCode.message_too_large


def test_keyless_records_of_a_compacted_topic_are_named_one_by_one(
    broker: RunningBroker, raw: RawClient, topic: str
) -> None:
    configure(broker, topic, cleanup_policy="compact")
    batch = build_batch([b"a", b"b", b"c"], [b"key", None, None])
    found = outcome(raw.call(produce(9, topic, [(0, batch)])))
    assert found.error_code is ErrorCode.invalid_record
    assert [each.batch_index for each in found.record_errors] == [1, 2]


def test_a_topic_with_append_time_stamps_and_says_so(
    broker: RunningBroker, raw: RawClient, topic: str
) -> None:
    configure(broker, topic, message_timestamp_type="LogAppendTime")
    before = time.time()
    found = outcome(raw.call(produce(9, topic, [(0, BATCH)])))
    stamped = found.log_append_time.timestamp()
    assert before - 60 <= stamped <= time.time() + 60
    ((header, batch),) = split(read_all(raw, topic))
    assert header.is_log_append_time
    assert {record.timestamp for record in decode(batch)} == {round(stamped * 1000)}


def test_zstd_needs_version_7(raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    batch = build_batch([b"x" * 1000], compression=Compression.ZSTD)
    assert (
        outcome(raw.call(produce(6, topic, [(0, batch)]))).error_code
        is ErrorCode.unsupported_compression_type
    )
    assert outcome(raw.call(produce(7, topic, [(0, batch)]))).error_code is ErrorCode.none


def test_zstd_topics_are_not_given_to_clients_that_cannot_read_them(
    broker: RunningBroker, raw: RawClient, topic: str
) -> None:
    configure(broker, topic, compression_type="zstd")
    old, new = (
        raw.call(fetch(version, topic, [{"partition": 0, "fetch_offset": 0}], session_epoch=-1))
        .responses[0]
        .partitions[0]
        for version in (9, 10)
    )
    assert old.error_code is ErrorCode.unsupported_compression_type
    assert new.error_code is ErrorCode.none


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches_stay_as_they_are(raw: RawClient, topic: str, codec: Compression) -> None:
    make_topic(raw, topic)
    batch = build_batch([b"x" * 1000], compression=codec)
    raw.call(produce(9, topic, [(0, batch)]))
    assert read_all(raw, topic)[17:] == batch[17:]


def test_a_topic_recompresses_as_configured(broker: RunningBroker, raw: RawClient, topic: str) -> None:
    configure(broker, topic, compression_type="lz4")
    raw.call(produce(9, topic, [(0, build_batch([b"x" * 1000], compression=Compression.GZIP))]))
    ((header, batch),) = split(read_all(raw, topic))
    assert header.compression == Compression.LZ4
    assert [record.value for record in decode(batch)] == [b"x" * 1000]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_a_wrong_record_is_refused_and_named_where_the_version_can(
    raw: RawClient, topic: str, version: int, codec: Compression
) -> None:
    make_topic(raw, topic)
    records = malformed.record(0) + malformed.record(1, value=(-2, b""))
    found = outcome(raw.call(produce(version, topic, [(0, malformed.batch_of(records, 2, codec))])))
    assert found.error_code is ErrorCode.invalid_record
    if version >= 8:
        assert [each.batch_index for each in found.record_errors] == [1]
        assert "record 1 of the batch has a value" in found.error_message
    assert read_all(raw, topic) == b""


def test_a_record_of_a_time_that_the_topic_does_not_take_is_named(raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    batch = build_batch([b"a", b"b"], timestamps=[1, 2**50])
    found = outcome(raw.call(produce(9, topic, [(0, batch)])))
    assert found.error_code is ErrorCode.invalid_timestamp
    assert [each.batch_index for each in found.record_errors] == [1]


def test_records_that_cannot_be_decompressed_are_refused_for_good(raw: RawClient, topic: str) -> None:
    """Clients retry after CORRUPT_MESSAGE; as the CRC is correct, they would send the same bytes
    again.
    """
    make_topic(raw, topic)
    batch = malformed.with_crc(build_batch([b"x" * 100], compression=Compression.ZSTD)[:-3] + b"abc")
    found = outcome(raw.call(produce(9, topic, [(0, batch)])))
    assert found.error_code is ErrorCode.invalid_record
    assert read_all(raw, topic) == b""


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_large_compressed_batch_and_those_behind_it_are_stored_in_order(
    raw: RawClient, topic: str, acks: int
) -> None:
    make_topic(raw, topic)
    large = build_batch([bytes(3 << 20)], compression=Compression.ZSTD)
    for data in (large, BATCH):
        raw.send(produce(9, topic, [(0, data)], acks=acks))
    if acks:
        assert [outcome(raw.receive(0, 9)).base_offset for _ in range(2)] == [0, 1]
    else:
        assert outcome(raw.call(produce(9, topic, [(0, BATCH)]))).base_offset == 3


def test_a_large_compressed_batch_with_a_wrong_record_fails_later(raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    records = malformed.record(0, value=(3 << 20, bytes(3 << 20))) + malformed.record(1, key=(-2, b""))
    wrong = malformed.batch_of(records, 2, Compression.ZSTD)
    found = outcome(raw.call(produce(9, topic, [(0, wrong)])))
    assert (found.error_code, found.record_errors[0].batch_index) == (ErrorCode.invalid_record, 1)
    raw.send(produce(9, topic, [(0, wrong)], acks=0))
    assert raw.is_closed()


def test_a_decompression_bomb_is_refused(broker: RunningBroker, raw: RawClient, topic: str) -> None:
    configure(broker, topic, compression_type="lz4")
    bomb = build_batch([bytes(300 << 20)], compression=Compression.ZSTD)
    assert len(bomb) < 1 << 20
    found = outcome(raw.call(produce(9, topic, [(0, bomb)])))
    assert found.error_code is ErrorCode.message_too_large
    assert read_all(raw, topic) == b""


@pytest.fixture
def producer_id(raw: RawClient) -> int:
    given = raw.call(request(22, 4, transactional_id=None))
    assert given.error_code is ErrorCode.none
    return int(given.producer_id)


def idempotent(producer_id: int, sequence: int, *, epoch: int = 0) -> bytes:
    return build_batch([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_a_repeated_batch_gets_its_first_response(raw: RawClient, topic: str, producer_id: int) -> None:
    make_topic(raw, topic)
    offsets = [
        outcome(raw.call(produce(9, topic, [(0, idempotent(producer_id, n))]))).base_offset
        for n in (0, 1, 0, 1, 2)
    ]
    assert offsets == [0, 1, 0, 1, 2]


def test_a_gap_in_the_sequence_is_refused(raw: RawClient, topic: str, producer_id: int) -> None:
    make_topic(raw, topic)
    raw.call(produce(9, topic, [(0, idempotent(producer_id, 0))]))
    found = outcome(raw.call(produce(9, topic, [(0, idempotent(producer_id, 5))])))
    assert found.error_code is ErrorCode.out_of_order_sequence_number


def test_an_old_epoch_is_refused(raw: RawClient, topic: str, producer_id: int) -> None:
    make_topic(raw, topic)
    raw.call(produce(9, topic, [(0, idempotent(producer_id, 0, epoch=1))]))
    found = outcome(raw.call(produce(9, topic, [(0, idempotent(producer_id, 0, epoch=0))])))
    assert found.error_code is ErrorCode.invalid_producer_epoch


def test_requests_on_the_way_to_the_disk_do_not_hold_up_the_next(raw: RawClient, topic: str) -> None:
    make_topic(raw, topic)
    for n in range(300):
        raw.send_bytes(encode(produce(9, topic, [(0, BATCH)]), n))
    assert [int.from_bytes(raw.receive_frame()[:4]) for _ in range(300)] == list(range(300))
