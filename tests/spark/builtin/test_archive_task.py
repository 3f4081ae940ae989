"""The files that a task of an archive writes, without Spark: sorted by time, with hash and offsets,
and bounded in number even if timestamps jump.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch
from sparrow.pipelines.builtin import archivetask
from sparrow.pipelines.builtin.archivetask import ArchiveTask, files_of
from sparrow.pipelines.builtin.manifest import ArchivedFile
from sparrow.pipelines.builtin.parquetfile import SCHEMA
from sparrow.pipelines.builtin.smallfiles import MergeWork, rewrite
from tests.repetitions import repetitions

_INPUT = pa.schema([("topic", pa.string()), *SCHEMA])
Row = tuple[str, int, int]
"""Topic, partition, timestamp in microseconds."""


def _batches(rows: list[Row], size: int) -> list[pa.RecordBatch]:
    """Return rows with offsets counted by partition, as the source gives them."""
    offsets: dict[tuple[str, int], int] = {}
    columns: dict[str, list[object]] = {name: [] for name in _INPUT.names}
    for topic, partition, time_us in rows:
        offset = offsets.get((topic, partition), 100)
        offsets[topic, partition] = offset + 1
        headers = [{"key": "h", "value": b"%d" % offset}] if offset % 2 else None
        values = (topic, None if offset % 3 else b"k", b"%d" % offset, partition, offset, time_us, 0, headers)
        for name, value in zip(_INPUT.names, values, strict=True):
            columns[name].append(value)
    table = pa.Table.from_pydict(columns, _INPUT)
    return table.to_batches(max_chunksize=size)


def _archived(root: Path, rows: list[Row], *, by: str = "day", size: int = 50) -> list[ArchivedFile]:
    task = ArchiveTask(str(root), by, "zstd", ".staged")
    results = [row for batch in task.run(_batches(rows, size)) for row in batch.to_pydict()["file"]]
    return files_of([row] for row in results)


def _tuples(rows: pa.Table | pa.RecordBatch, *first: str) -> list[tuple[object, ...]]:
    """Return rows with their timestamps as numbers: Python has no dates for all of them."""
    place = rows.schema.get_field_index("timestamp")
    plain = rows.set_column(place, "timestamp", rows.column("timestamp").cast(pa.int64()))
    return [(*first, *row.values()) for row in plain.to_pylist()]


_DAY_US = 86_400_000_000
_rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b.c"]),
        st.integers(0, 2),
        st.one_of(st.integers(-5, 3 * _DAY_US), st.just(1 << 62)),
    ),
    min_size=1,
    max_size=80,
)


@settings(
    max_examples=repetitions(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(_rows, st.sampled_from(["month", "day", "hour", "none"]), st.integers(1, 60))
def test_every_row_is_in_the_file_of_its_topic_and_time_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], by: str, size: int
) -> None:
    root = tmp_path_factory.mktemp("staged")
    seen = []
    for file in _archived(root, rows, by=by, size=size):
        path = root / f"{file.path}.staged"
        data = path.read_bytes()
        assert (file.size_bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        table = pq.read_table(path, partitioning=None)
        assert table.schema.equals(SCHEMA)
        assert file.rows == table.num_rows == sum(span.rows for span in file.partitions.values())
        for number, span in file.partitions.items():
            own = table.filter(pa.compute.field("partition") == number)
            offsets = own.column("offset").to_pylist()
            assert offsets == sorted(offsets)
            assert (span.first_offset, span.last_offset, span.rows) == (offsets[0], offsets[-1], len(offsets))
        seen += _tuples(table, file.topic)
        assert file.path.startswith(f"topic={file.topic}/")
        if by == "none":
            assert file.path.count("/") == 1
    wanted = [row for batch in _batches(rows, size) for row in _tuples(batch)]
    assert sorted(map(repr, seen)) == sorted(map(repr, wanted))


def test_directories_are_named_by_the_day_or_hour_in_utc(tmp_path: Path) -> None:
    rows = [("a", 0, 1_767_225_599_999_999), ("a", 0, 1_767_225_600_000_000), ("a", 0, -1)]
    assert {file.directory for file in _archived(tmp_path, rows, by="hour")} == {
        "topic=a/date=2025-12-31/hour=23",
        "topic=a/date=2026-01-01/hour=00",
        "topic=a/date=__HIVE_DEFAULT_PARTITION__",
    }


def test_timestamps_that_jump_open_a_bounded_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archivetask, "_MAX_OPEN", 3)
    dice = random.Random(1)
    rows = [("a", 0, dice.randrange(40) * _DAY_US) for _ in range(150)]
    task = ArchiveTask(str(tmp_path), "day", "none", ".staged")
    results = []
    for batch in task.run(_batches(rows, 10)):
        assert len(task.open) <= 3 + 10
        results += batch.to_pydict()["file"]
    assert sum(file.rows for file in files_of([row] for row in results)) == 150


def test_files_become_one_in_their_order_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(100)), "text": [str(number) for number in range(100)]})
    for number in range(4):
        pq.write_table(table.slice(number * 25, 25), tmp_path / f"{number}.parquet")
    names = [f"{number}.parquet" for number in range(4)]
    work = MergeWork(str(tmp_path), "", str(tmp_path / "new" / "all.staged"), names, [], "zstd")
    done = rewrite(work)
    assert done.rows == 100
    assert pq.read_table(done.target).equals(table)
    (tmp_path / "2.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(CorruptBatch, match=r"0\.parquet, 1\.parquet, 2\.parquet"):
        rewrite(work)
    pq.write_table(pa.table({"other": [1]}), tmp_path / "2.parquet")
    with pytest.raises(CorruptBatch, match=r"2\.parquet has other columns"):
        rewrite(work)
