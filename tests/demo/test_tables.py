"""A stream's table consists of the files in its list, not of those in the directory."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.base.errors import StorageFailed
from sparrow.pipelines.sparklist import committed_files, read_table, uncommitted_files


def entry(directory, name, *files, version="v1"):
    listed = directory / "_spark_metadata"
    listed.mkdir(exist_ok=True)
    told = [json.dumps({"path": f"file://{directory}/{file}", "action": "add"}) for file in files]
    (listed / name).write_text("\n".join([version, *told]))


def test_files_that_the_list_does_not_have_are_not_the_tables(tmp_path):
    for name in ("a.parquet", "b.parquet", "left.parquet"):
        pq.write_table(pa.table({"n": [1, 2], "name": [name, name]}), tmp_path / name)
    entry(tmp_path, "0", "a.parquet")
    entry(tmp_path, "1", "b.parquet")
    assert [name for (name,) in read_table(str(tmp_path), ["name"])] == [
        "a.parquet",
        "a.parquet",
        "b.parquet",
        "b.parquet",
    ]
    assert uncommitted_files(str(tmp_path)) == ["left.parquet"]


def test_a_compacted_entry_has_all_before_it_and_counts_once(tmp_path):
    entry(tmp_path, "8", "a%20b.parquet")
    entry(tmp_path, "9.compact", "a%20b.parquet", "x.parquet")
    entry(tmp_path, "10", "c.parquet")
    (tmp_path / "_spark_metadata" / ".11.0a.tmp").write_text("half")
    names = [path.rpartition("/")[2] for path in committed_files(str(tmp_path))]
    assert sorted(names) == ["a b.parquet", "c.parquet", "x.parquet"]


def test_a_table_without_a_list_has_no_files(tmp_path):
    assert committed_files(str(tmp_path)) == []
    assert uncommitted_files(str(tmp_path)) == []


def test_a_list_or_a_file_that_cannot_be_read_is_told(tmp_path):
    entry(tmp_path, "0", "a.parquet")
    with pytest.raises(StorageFailed, match=r"a\.parquet cannot be read"):
        list(read_table(str(tmp_path), ["n"]))
    entry(tmp_path, "1", "b.parquet", version="v2")
    with pytest.raises(StorageFailed, match="has the version v2"):
        committed_files(str(tmp_path))


def test_times_of_all_years_are_read(tmp_path):
    times = [datetime(year, 5, 1, 12, tzinfo=UTC) for year in (1001, 2026, 2999)]
    table = pa.table({"time": pa.array(times, pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    entry(tmp_path, "0", "a.parquet")
    assert [time.replace(tzinfo=UTC) for (time,) in read_table(str(tmp_path), ["time"])] == times
