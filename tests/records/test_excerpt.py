"""An excerpt of a batch has the requested records, unchanged and at their offsets, and every client
can read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch, RecordTooLarge
from sparrow.records import excerpt as module
from sparrow.records.batch import check, split
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.control import ControlType, build_marker
from sparrow.records.excerpt import Excerpter, excerpt, excerpts
from sparrow.records.record import decode
from sparrow.records.rewrite import retain, with_log_append_time
from tests.records.columns import NOW_MS, columns, expected
from tests.records.kafka_python import KafkaPythonBatch
from tests.records.librdkafka import SECONDS, MockCluster
from tests.records.naive import fields_of, with_fields

CODECS = st.sampled_from(Compression)
Range = tuple[int, int]


def batch_of(count: int, base_offset: int = 0, codec: int = 0, size: int = 100) -> bytes:
    """Return a batch of records that differ in size, sent in a transaction."""
    return build_batch(
        [b"%d" % n * (size // 3 + n % 3) for n in range(count)],
        [b"key %d" % n for n in range(count)],
        timestamps=[NOW_MS + n for n in range(count)],
        compression=codec,
        base_offset=base_offset,
        producer_id=7,
        producer_epoch=1,
        base_sequence=9,
        transactional=True,
    )


def offsets_of(data: bytes) -> list[int]:
    return [record.offset for _, batch in split(data) for record in decode(batch)]


@st.composite
def ranges_within(draw: st.DrawFn, end: int) -> list[Range]:
    """Draw ranges in order, not overlapping, some beyond the end."""
    cuts = sorted(draw(st.sets(st.integers(0, end + 5), max_size=8)))
    return list(zip(cuts[::2], cuts[1::2], strict=False))


# ── one batch ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@settings(deadline=None)
@given(columns, CODECS, st.booleans(), st.data())
def test_an_excerpt_has_exactly_the_records_of_its_range(
    columns: dict[str, Any], codec: Compression, is_compacted: bool, data: st.DataObject
) -> None:
    count = len(columns["values"])
    rows = expected(columns, 50)
    batch = build_batch(**columns, compression=codec, base_offset=50, producer_id=4, base_sequence=2)
    if is_compacted:
        kept = data.draw(st.sets(st.integers(50, 49 + count), min_size=1))
        batch = retain(batch, lambda record: record.offset in kept) or b""
        rows = [row for row in rows if row[0] in kept]
    first, end = sorted(data.draw(st.tuples(*[st.integers(40, 60 + count)] * 2)))
    cut = excerpt(memoryview(batch), first, end)
    rows = [row for row in rows if first <= row[0] < end]
    if not rows:
        assert cut == b""
        return
    whole, header = check(batch), check(cut)
    assert fields_of(decode(cut)) == rows
    assert header.record_count == len(rows)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (
        whole.base_offset,
        whole.last_offset,
        whole.leader_epoch,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.compression == 0
    assert not header.is_transactional


def test_log_append_time_holds_in_an_excerpt() -> None:
    batch = with_log_append_time(check(batch_of(10)), batch_of(10), NOW_MS + 99)
    cut = excerpt(batch, 3, 5)
    assert [record.timestamp for record in decode(cut)] == [NOW_MS + 99] * 2


def test_nothing_is_cut_out_of_control_batches_and_empty_ones() -> None:
    assert excerpt(build_marker(ControlType.COMMIT, 7, 0, NOW_MS, base_offset=5), 0, 9) == b""
    empty = retain(batch_of(5), lambda _: False, keep_empty=True)
    assert empty is not None
    assert excerpt(empty, 0, 9) == b""


@pytest.mark.parametrize("fields", [{"record_count": 4}, {"record_count": 6, "last_offset_delta": 5}])
def test_a_batch_that_counts_wrong_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptBatch):
        excerpt(with_fields(batch_of(5), **fields), 0, 3)


@settings(deadline=None)
@given(st.binary(max_size=120), st.integers(1, 30))
def test_any_records_give_an_excerpt_or_an_error(body: bytes, count: int) -> None:
    batch = with_fields(batch_of(1)[:61] + body, record_count=count, last_offset_delta=count - 1)
    try:
        cut = excerpt(batch, 1, 3)
    except CorruptBatch:
        return
    assert not cut or check(cut).record_count <= 2


# ── many batches ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), CODECS, st.sampled_from([3, 300])), max_size=5), st.data())
def test_excerpts_hold_all_that_is_wanted_and_of_large_batches_little_else(
    shapes: list[tuple[int, Compression, int]], data: st.DataObject
) -> None:
    chunk, end = b"", 0
    for count, codec, size in shapes:
        chunk += batch_of(count, end, codec, size)
        end += count
    ranges = data.draw(ranges_within(end))
    wanted = {offset for first, stop in ranges for offset in range(first, min(stop, end))}
    source = {record.offset: record for _, batch in split(chunk) for record in decode(batch)}

    cut = excerpts(data.draw(st.sampled_from([bytes, memoryview]))(chunk), ranges)
    found = [record for _, batch in split(cut) for record in decode(batch)]
    assert [record.offset for record in found] == sorted({record.offset for record in found})
    assert wanted <= {record.offset for record in found}
    assert all(record == source[record.offset] for record in found)
    for header, batch in split(cut):
        of_batch = {record.offset for record in decode(batch)}
        assert of_batch & wanted
        if len(batch) >= 2048:
            assert len(of_batch & wanted) >= 0.75 * (
                header.record_count if header.producer_id < 0 else len(of_batch)
            )


def test_batches_that_are_wanted_whole_are_not_touched() -> None:
    chunk = batch_of(100) + batch_of(100, 100, 4)
    assert excerpts(chunk, [(0, 200)]) is chunk
    assert excerpts(chunk, [(0, 80), (110, 190)]) is chunk
    assert excerpts(memoryview(chunk), [(0, 200)]) == chunk


def test_small_batches_are_not_cut_but_left_out_when_nothing_of_them_is_wanted() -> None:
    small = [batch_of(10, base, size=9) for base in range(0, 40, 10)]
    assert excerpts(b"".join(small), [(12, 13), (35, 36)]) == small[1] + small[3]


def test_several_ranges_of_one_batch_are_one_batch() -> None:
    cut = excerpts(batch_of(100), [(3, 5), (7, 8), (90, 200)])
    assert len(list(split(cut))) == 1
    assert offsets_of(cut) == [3, 4, 7, *range(90, 100)]


def test_markers_are_left_out() -> None:
    marker = build_marker(ControlType.COMMIT, 7, 0, NOW_MS, base_offset=100)
    assert excerpts(batch_of(100) + marker, [(0, 101)]) == batch_of(100)


def test_uncuttable_batch_stays_unchanged() -> None:
    broken = with_fields(batch_of(100), record_count=99, last_offset_delta=98)
    bomb = build_batch([b"\0" * 1_000_000] * 40, compression=4, base_offset=100)
    assert excerpts(broken + bomb, [(0, 5), (100, 101)]) == broken + bomb
    assert excerpts(b"no batch" * 20, [(0, 5)]) == b"no batch" * 20
    with pytest.raises(RecordTooLarge):
        excerpt(bomb, 100, 101)


# ── what is remembered ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the base offsets of the batches that were walked over, in order."""
    offsets: list[int] = []
    read = module._read

    def counted(header: Any, *arguments: Any) -> Any:
        offsets.append(header.base_offset)
        return read(header, *arguments)

    monkeypatch.setattr(module, "_read", counted)
    return offsets


@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_taken_piece_by_piece_is_read_once(reads: list[int], codec: int) -> None:
    excerpter = Excerpter()
    batch = batch_of(1000, codec=codec)
    pieces = [
        offsets_of(excerpter.excerpt(bytearray(batch), [(n, n + 10)], "t-0")) for n in range(0, 1000, 10)
    ]
    assert pieces == [list(range(n, n + 10)) for n in range(0, 1000, 10)]
    assert reads == [0]


def test_batches_of_different_partitions_are_not_taken_for_each_other(reads: list[int]) -> None:
    excerpter = Excerpter()
    for source in ("t-0", "t-1", "t-0"):
        assert offsets_of(excerpter.excerpt(batch_of(100), [(3, 4)], source)) == [3]
    assert reads == [0, 0]


def test_only_the_last_few_batches_are_remembered(reads: list[int]) -> None:
    excerpter = Excerpter(max_batches=8)
    for base in [*range(0, 1000, 100), 900, 0]:
        assert offsets_of(excerpter.excerpt(batch_of(100, base), [(base + 3, base + 4)])) == [base + 3]
    assert reads == [*range(0, 1000, 100), 0]


def test_excerpt_cache_is_bounded_in_bytes(reads: list[int]) -> None:
    excerpter = Excerpter(max_remembered_bytes=100_000)
    batches = [batch_of(100, base, 4, size=900) for base in (0, 100, 200)]
    for base, batch in [*enumerate(batches), *enumerate(batches)]:
        assert offsets_of(excerpter.excerpt(batch, [(base * 100, base * 100 + 1)])) == [base * 100]
    assert excerpter._remembered_bytes <= 100_000
    assert len(reads) == 6


# ── other readers ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("reader", [KafkaPythonBatch, AiokafkaBatch])
def test_python_clients_read_excerpts(reader: type[Any], codec: Compression) -> None:
    read = reader(excerpt(batch_of(100, 40, codec), 61, 64))
    assert read.validate_crc()
    assert [(each.offset, each.timestamp, each.key) for each in read] == [
        (40 + n, NOW_MS + n, b"key %d" % n) for n in (21, 22, 23)
    ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    cluster = MockCluster()
    yield cluster
    cluster.close()


def test_librdkafka_reads_excerpts(cluster: MockCluster) -> None:
    assert cluster.produce("excerpts", excerpt(batch_of(100, 40, 4), 60, 63)) == 0
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "excerpts",
        "check.crcs": True,
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    })  # fmt: skip
    consumer.assign([TopicPartition("excerpts", 0, 0)])
    try:
        messages = [message for _ in range(3) for message in consumer.consume(1, SECONDS)]
    finally:
        consumer.close()
    assert [each.error() for each in messages] == [None] * 3
    assert [(each.offset(), each.key()) for each in messages] == [(n, b"key %d" % n) for n in (20, 21, 22)]
