"""kafka-python and aiokafka: each reads what we build, we read what each builds, and without
compression the bytes are the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.control_record import ControlRecord as AiokafkaControl
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st

from sparrow.records.batch import parse_header
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.control import ControlType, build_marker, maybe_parse_marker
from sparrow.records.record import decode
from tests.records.columns import NOW_MS, columns, expected
from tests.records.kafka_python import KafkaPythonBatch, KafkaPythonBuilder, MemoryRecords
from tests.records.naive import fields_of

AIOKAFKA_CODECS = st.sampled_from(Compression)
# kafka-python's other codecs need libraries of their own.
KAFKA_PYTHON_CODECS = st.sampled_from([Compression.NONE, Compression.GZIP])
PRODUCER = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40}


def built_by(
    builder: type[Any], columns: dict[str, Any], codec: int = 0, *, transactional: bool = False
) -> bytes:
    batch = builder(2, codec, transactional, *PRODUCER.values(), 1 << 30)
    for offset, timestamp, key, value, headers in expected(columns):
        assert batch.append(offset, timestamp, key, value, list(headers)) is not None
    return bytes(batch.build())


def read_by(reader: type[Any], batch: bytes) -> list[tuple[Any, ...]]:
    read = reader(batch)
    assert read.validate_crc()
    return [(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in read]


@pytest.mark.slow
@given(columns, st.booleans())
def test_bytes_are_those_of_kafka_python(columns: dict[str, Any], transactional: bool) -> None:
    ours = build_batch(**columns, **PRODUCER, transactional=transactional)
    theirs = built_by(KafkaPythonBuilder, columns, transactional=transactional)
    # All but the leader epoch, which the log stamps: they begin with 0, Java's producer and we with
    # -1.
    assert (ours[:12], ours[16:]) == (theirs[:12], theirs[16:])


@pytest.mark.slow
@given(columns, st.booleans())
def test_bytes_are_those_of_aiokafka(columns: dict[str, Any], transactional: bool) -> None:
    ours = build_batch(**columns, **PRODUCER, transactional=transactional)
    theirs = built_by(AiokafkaBuilder, columns, transactional=transactional)
    assert (ours[:12], ours[16:]) == (theirs[:12], theirs[16:])


@pytest.mark.slow
@given(columns, KAFKA_PYTHON_CODECS)
def test_kafka_python_reads_ours(columns: dict[str, Any], codec: Compression) -> None:
    batch = build_batch(**columns, compression=codec, base_offset=500)
    assert read_by(KafkaPythonBatch, batch) == expected(columns, 500)


@pytest.mark.slow
@given(columns, AIOKAFKA_CODECS)
def test_aiokafka_reads_ours(columns: dict[str, Any], codec: Compression) -> None:
    batch = build_batch(**columns, compression=codec, base_offset=500)
    assert read_by(AiokafkaBatch, batch) == expected(columns, 500)


@pytest.mark.slow
@given(columns, KAFKA_PYTHON_CODECS)
def test_batches_of_kafka_python_are_decoded(columns: dict[str, Any], codec: Compression) -> None:
    assert fields_of(decode(built_by(KafkaPythonBuilder, columns, codec))) == expected(columns)


@pytest.mark.slow
@given(columns, AIOKAFKA_CODECS)
def test_batches_of_aiokafka_are_decoded(columns: dict[str, Any], codec: Compression) -> None:
    assert fields_of(decode(built_by(AiokafkaBuilder, columns, codec))) == expected(columns)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_large_batches_of_aiokafka_are_packed_and_decoded(codec: Compression) -> None:
    columns = {
        "values": [b"value %d " % n * 100 for n in range(300)],
        "keys": None,
        "headers": None,
        "timestamps": [NOW_MS] * 300,
    }
    batch = built_by(AiokafkaBuilder, columns, codec)
    assert parse_header(batch).compression == codec
    assert fields_of(decode(batch)) == expected(columns)
    assert read_by(AiokafkaBatch, build_batch(**columns, compression=codec)) == expected(columns)


def test_kafka_python_walks_our_batches_back_to_back() -> None:
    data = b"".join(build_batch([b"a", b"b"], timestamps=NOW_MS, base_offset=base) for base in (0, 2, 4))
    walk = MemoryRecords(data)
    offsets = []
    while batch := walk.next_batch():
        offsets += [record.offset for record in batch]
    assert offsets == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_marker_is_one_to_kafka_python(kind: ControlType) -> None:
    batch = KafkaPythonBatch(build_marker(kind, 7, 2, NOW_MS, 5, base_offset=90))
    assert batch.validate_crc()
    assert (batch.is_control_batch, batch.is_transactional) == (True, True)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, -1)
    (record,) = batch
    assert (record.offset, record.timestamp, record.version) == (90, NOW_MS, 0)
    assert (record.commit, record.abort) == (kind is ControlType.COMMIT, kind is ControlType.ABORT)


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_marker_is_one_to_aiokafka(kind: ControlType) -> None:
    batch = AiokafkaBatch(build_marker(kind, 7, 2, NOW_MS, 5, base_offset=90))
    assert batch.validate_crc()
    assert (batch.is_control_batch, batch.is_transactional) == (True, True)
    (record,) = batch
    assert AiokafkaControl.parse(record.key) == AiokafkaControl(0, int(kind))


def test_marker_parsed_is_the_marker_built() -> None:
    marker = maybe_parse_marker(build_marker(ControlType.ABORT, 7, 2, NOW_MS, 5, base_offset=90))
    assert marker == (ControlType.ABORT, 7, 2, 5, 90, NOW_MS)
