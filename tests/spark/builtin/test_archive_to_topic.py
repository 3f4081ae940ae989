"""Topic → archive → compacted → topic, on a real broker and real Spark: the records are the same,
byte for byte.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sparrow.base.errors import Conflict, CorruptBatch, InvalidArgument
from sparrow.pipelines import builtin
from sparrow.pipelines.builtin.directory import TableDirectory
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.spark.builtin.loglines import BEGIN_MS, lines
from tests.spark.builtin.published import got, publish_as_kafka_client, publish_natively, values_of


def test_lines_come_back_byte_for_byte_through_archive_and_compaction(
    broker: RunningBroker, client: Client, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    client.admin.create_topic(name, partitions=3)
    directory = str(tmp_path / "archive of [logs]")
    runs = []
    for seed, publish in ((1, publish_natively), (2, publish_as_kafka_client), (3, publish_natively)):
        publish(client if publish is publish_natively else broker, name, lines(400, seed))
        runs.append(builtin.archive(name, directory, by="hour", **where))
    assert [run.rows for run in runs] == [400, 400, 400]
    assert builtin.archive(name, directory, **where).run == ""

    manifest = _manifest(directory)
    assert manifest.rows == 1200
    _check_plain_readers(directory, manifest)
    compacted = builtin.compact_table(directory, spark=where["spark"])
    assert compacted.files_before == len(manifest.files)
    hours = {file.directory for file in manifest.files}
    assert compacted.files_after == len(hours) < len(manifest.files)
    _check_plain_readers(directory, _manifest(directory))
    assert not builtin.compact_table(directory, spark=where["spark"]).has_changed

    done = builtin.replay(directory, f"{name}-again", keep_partitions=True, keep_timestamps=True, **where)
    assert done.rows == 1200
    assert got(broker, f"{name}-again") == got(broker, name)


def _manifest(directory: str) -> Any:
    found = TableDirectory(directory).maybe_manifest()
    assert found is not None
    return found


def _check_plain_readers(directory: str, manifest: Any) -> None:
    """Check that plain Parquet readers of the directory see the content of the manifest once."""
    table = ds.dataset(directory, partitioning="hive").to_table(["partition", "offset"])
    assert table.num_rows == manifest.rows
    places = list(zip(*(table.column(name).to_pylist() for name in ("partition", "offset")), strict=True))
    assert len(set(places)) == len(places)
    for topic in manifest.topics.values():
        assert sum(each.rows for each in topic.partitions.values()) == manifest.rows


def test_a_crash_before_the_decision_leaves_nothing_and_one_after_it_is_finished(
    client: Client, where: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin.create_topic(name, partitions=2)
    publish_natively(client, name, lines(300))
    directory = str(tmp_path / "archive")

    def crash(*_: object) -> None:
        raise OSError("the machine is gone")

    with monkeypatch.context() as broken:
        broken.setattr(TableDirectory, "commit", crash)
        with pytest.raises(OSError, match="gone"):
            builtin.archive(name, directory, **where)
    assert list(Path(directory, "_sparrow").rglob("*.staged"))
    assert not list(Path(directory).glob("topic=*"))
    with monkeypatch.context() as broken:
        broken.setattr(TableDirectory, "_roll_forward", crash)
        with pytest.raises(OSError, match="gone"):
            builtin.archive(name, directory, **where)
    assert not list(Path(directory).glob("topic=*"))
    assert builtin.archive(name, directory, **where).rows == 0
    manifest = _manifest(directory)
    assert manifest.rows == 300
    _check_plain_readers(directory, manifest)
    assert not list(Path(directory, "_sparrow").rglob("*.staged"))


def test_deleted_offsets_are_a_gap_with_numbers(
    client: Client, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    client.admin.create_topic(name, partitions=1)
    publish_natively(client, name, lines(100))
    directory = str(tmp_path / "archive")
    builtin.archive(name, directory, **where)
    publish_natively(client, name, lines(100, seed=2))
    client.admin.delete_records(name, {0: 150})
    (topic,) = builtin.archive(name, directory, **where).topics
    assert topic.rows == 50
    assert topic.lost == 50
    (gap,) = topic.gaps
    assert (gap.partition, gap.from_offset, gap.to_offset) == (0, 100, 150)
    assert builtin.archive(name, directory, **where).lost == 0
    assert [each.offsets for each in _manifest(directory).topics[name].gaps] == [50]


def test_a_topic_made_again_does_not_go_into_the_old_ones_archive(
    client: Client, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    directory = str(tmp_path / "archive")
    client.admin.create_topic(name, partitions=1)
    publish_natively(client, name, lines(10))
    builtin.archive(name, directory, **where)
    client.admin.delete_topic(name)
    client.admin.create_topic(name, partitions=1)
    with pytest.raises(Conflict, match="deleted and made again"):
        builtin.archive(name, directory, **where)


def test_several_topics_with_times_and_a_condition(
    broker: RunningBroker, client: Client, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    for seed, topic in enumerate((f"{name}.a", f"{name}.b")):
        client.admin.create_topic(topic, partitions=1)
        publish_natively(client, topic, lines(200, seed))
    directory = str(tmp_path / "archive")
    middle_ms = BEGIN_MS + 1_000_000
    done = builtin.archive(f"{name}.*", directory, until_ms=middle_ms, **where)
    assert [each.topic for each in done.topics] == [f"{name}.a", f"{name}.b"]
    first = done.rows
    assert 0 < first < 400
    assert first + builtin.archive(f"{name}.*", directory, **where).rows == 400
    with pytest.raises(InvalidArgument, match=rf"2 topics \({name}.a, {name}.b\)"):
        builtin.replay(directory, f"{name}-web", **where)
    wanted = [each.value for each in lines(200, seed=1) if each.key == b"web-1" and each.value]
    done = builtin.replay(
        directory,
        f"{name}-web",
        from_topic=f"{name}.b",
        where="key = 'web-1' AND length(value) > 0",
        sink_id=name,
        **where,
    )
    assert done.rows == len(wanted)
    assert values_of(got(broker, f"{name}-web")) == wanted
    again = builtin.replay(directory, f"{name}-web", from_topic=f"{name}.b", sink_id=name, **where)
    assert again.was_done
    with pytest.raises(InvalidArgument, match="nofn"):
        builtin.replay(directory, f"{name}-web", from_topic=f"{name}.b", where="nofn(value) = 1", **where)
    assert len(values_of(got(broker, f"{name}-web"))) == len(wanted)


def test_a_changed_file_is_named_before_anything_is_written(
    client: Client, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    client.admin.create_topic(name, partitions=1)
    publish_natively(client, name, lines(50))
    directory = str(tmp_path / "archive")
    builtin.archive(name, directory, by="none", **where)
    publish_natively(client, name, lines(50, seed=2))
    builtin.archive(name, directory, **where)
    (first, second) = _manifest(directory).files
    path = Path(directory, first.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptBatch, match=f"{first.path} has another SHA-256"):
        builtin.replay(directory, f"{name}-again", **where)
    with pytest.raises(CorruptBatch, match=f"{first.path} has another SHA-256"):
        builtin.compact_table(directory, spark=where["spark"])
    Path(directory, second.path).unlink()
    with pytest.raises(CorruptBatch, match=f"{second.path} cannot be read"):
        builtin.replay(directory, f"{name}-again", **where)


def test_other_tables_become_topics(
    broker: RunningBroker, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    people = pa.table({"name": ["ann", "bob", "eve"], "age": [30, 40, None]})
    (tmp_path / "people").mkdir()
    pq.write_table(people, tmp_path / "people" / "a.parquet")
    assert builtin.replay(str(tmp_path / "people"), f"{name}-people", key="name", **where).rows == 3
    found = {
        record.key: json.loads(record.value or b"")
        for records in got(broker, f"{name}-people").values()
        for record in records
    }
    assert found == {
        b"ann": {"name": "ann", "age": 30},
        b"bob": {"name": "bob", "age": 40},
        b"eve": {"name": "eve"},
    }
    (tmp_path / "people.csv").write_text("name,age\nann,30\nbob,40\n")
    done = builtin.replay(
        str(tmp_path / "people.csv"),
        f"{name}-ages",
        key="name",
        value="age",
        where="age > 30",
        per_second=1000,
        **where,
    )
    assert done.rows == 1
    assert [record[:2] for records in got(broker, f"{name}-ages").values() for record in records] == [
        (b"bob", b"40")
    ]
    with pytest.raises(InvalidArgument, match="no such column; did you mean 'name'"):
        builtin.replay(str(tmp_path / "people"), f"{name}-people", key="nam", **where)


def test_many_small_parquet_files_become_few(spark: SparkSession, tmp_path: Path) -> None:
    flat, parted = tmp_path / "flat", tmp_path / "parted"
    for number in range(9):
        ids = range(number * 100, number * 100 + 100)
        rows = pa.table({"id": list(ids), "text": [str(each) for each in ids]})
        for directory in (flat, parted / f"part={number % 3}"):
            directory.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, directory / f"part-{number}.parquet")
    for path, files in ((flat, 1), (parted, 3)):
        done = builtin.compact_table(str(path), spark=spark)
        assert (done.format, done.files_before, done.files_after) == ("parquet", 9, files)
        table = ds.dataset(path, partitioning="hive").to_table()
        assert sorted(table.column("id").to_pylist()) == list(range(900))
        assert not builtin.compact_table(str(path), spark=spark).has_changed
    assert not [path.name for path in tmp_path.iterdir() if path.name not in ("flat", "parted")]


def test_delta_tables_are_compacted_as_their_own_transaction(spark: SparkSession, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")

    path = str(tmp_path / "delta")
    for number in range(5):
        deltalake.write_deltalake(path, pa.table({"id": [number]}), mode="append")
    done = builtin.compact_table(path, spark=spark)
    assert (done.format, done.files_before, done.files_after) == ("delta", 5, 1)


def test_manifest_is_json_that_lists_the_files(
    client: Client, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    made = client.admin.create_topic(name, partitions=2)
    publish_natively(client, name, lines(100))
    directory = str(tmp_path / "archive")
    builtin.archive(name, directory, by="month", compression="snappy", **where)
    found = msgspec.json.decode(Path(directory, "_sparrow", "manifest.json").read_bytes())
    assert found["topics"][name]["id"] == made.id
    assert found["cluster_id"] == client.admin.describe_broker().cluster_id
    assert found["compression"] == "snappy"
    ends = {each.partition: each.end_offset for each in client.admin.describe_topic(name).partitions}
    partitions = found["topics"][name]["partitions"]
    assert {int(number): each["last_offset"] + 1 for number, each in partitions.items()} == ends
    content = sum(len(line.key or b"") + len(line.value or b"") for line in lines(100))
    assert sum(each["bytes"] for each in partitions.values()) == content
    assert all(
        file["path"].startswith((f"topic={name}/month=2025-12/", f"topic={name}/month=2026-01/"))
        for file in found["files"]
    )
