"""Decisions of the built-in pipelines before they start Spark: ranges to read, files to join, and
valid conditions.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import Conflict, InvalidArgument, NotFound
from sparrow.pipelines import builtin
from sparrow.pipelines.builtin.archives import check_not_behind, planned_topic
from sparrow.pipelines.builtin.conditions import check_condition
from sparrow.pipelines.builtin.directory import ExchangeJournal, Move, TableDirectory
from sparrow.pipelines.builtin.manifest import (
    ArchivedFile,
    Manifest,
    OffsetSpan,
    PartitionArchive,
    TopicArchive,
    extended,
)
from sparrow.pipelines.builtin.redrives import missing_topics
from sparrow.pipelines.builtin.replays import batch_bytes_for, rows_at_a_time
from sparrow.pipelines.builtin.smallfiles import LARGE_SHARE, SmallFile, grouped
from sparrow.pipelines.builtin.topics import SourceTopic, connected


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 200))
def test_groups_are_runs_of_small_files_and_no_larger_than_wanted(sizes: list[int], target: int) -> None:
    files = [SmallFile(str(number), size) for number, size in enumerate(sizes)]
    groups = grouped(files, target)
    flat = [int(file.path) for group in groups for file in group]
    assert flat == sorted(set(flat))
    for group in groups:
        assert len(group) > 1
        first, last = int(group[0].path), int(group[-1].path)
        assert [int(file.path) for file in group] == list(range(first, last + 1))
        assert sum(file.size_bytes for file in group) <= target
        assert all(file.size_bytes < target * LARGE_SHARE for file in group)


@given(st.integers(0, 50), st.integers(0, 50), st.one_of(st.none(), st.integers(0, 120)), st.integers(0, 120))
def test_run_reads_from_the_end_of_the_archive_and_counts_lost_records(
    start: int, length: int, known: int | None, last: int
) -> None:
    topic = SourceTopic("logs", "id", {0: start}, {0: start + length})
    before = None if known is None else TopicArchive("id", {0: PartitionArchive(0, known)})
    ranges, gaps = planned_topic(topic, before, {}, {0: last})
    first, end = ranges[0]
    assert start <= first <= end or (known is not None and first == end == known)
    assert end <= max(start + length, first)
    lost = max(0, start - known) if known is not None else 0
    assert sum(gap.offsets for gap in gaps) == lost
    after = extended(before or TopicArchive("id"), [], ranges, gaps)
    assert planned_topic(topic, after, {}, {0: last}) == ({0: (end, end)}, [])


def test_records_of_a_run_are_added_up() -> None:
    file = ArchivedFile("a", "logs", 7, 100, "", {0: OffsetSpan(10, 14, 5, 50), 1: OffsetSpan(0, 1, 2, 20)})
    before = TopicArchive("id", {0: PartitionArchive(0, 10, 9, 8, 80)})
    after = extended(before, [file], {0: (10, 15), 1: (0, 2), 2: (0, 0)}, [])
    assert after.partitions == {
        0: PartitionArchive(0, 15, 14, 13, 130),
        1: PartitionArchive(0, 2, 1, 2, 20),
        2: PartitionArchive(0, 0),
    }


COLUMNS = ("key", "value", "offset", "headers", "reason")


@pytest.mark.parametrize(
    "sql",
    [
        "offset > 3",
        "reason = 'REJECTED' AND headers['host'] LIKE 'web%'",
        "key IS NULL OR NOT startswith(value, 'x')",
        "KEY IN ('a', 'b')",
        "from_json(value, 'a int').a > 3",
        "exists(transform(array(1), x -> x), x -> true)",
        "true",
        "`offset` BETWEEN 1 AND 2",
        "value RLIKE '^a'",
    ],
)
def test_conditions_are_taken(sql: str) -> None:
    check_condition(sql, COLUMNS)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("ofset > 3", "there is no column 'ofset'; did you mean 'offset'?"),
        ("offset >", "is no SQL condition"),
        ("offset > 3; DROP TABLE x", "one condition"),
        ("SELECT 1", "is a statement"),
        ("DELETE FROM x", "is a statement"),
        ("offset IN (SELECT 1)", "is a statement"),
        ("max(offset) > 3", "looks at many rows"),
        ("row_number() OVER (ORDER BY offset) = 1", "looks at many rows"),
        ("'a'", "is no condition"),
        ("", "one condition"),
        ("(" * 3000 + "1", "is no|nested too deep"),
    ],
)
def test_invalid_condition_is_refused_before_spark_starts(sql: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text.replace("?", r"\?")):
        check_condition(sql, COLUMNS)


def test_wrong_calls_are_refused_without_a_broker_and_without_spark(tmp_path: Path) -> None:
    nowhere = {"connection": {"url": "sparrow://127.0.0.1:1"}}
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    wrong = [
        (lambda: builtin.archive("logs", str(tmp_path / "a"), by="days", **nowhere), "did you mean 'day'"),
        (lambda: builtin.archive("logs", str(tmp_path / "a"), compression="zip", **nowhere), "one of zstd"),
        (lambda: builtin.archive("logs", "s3://bucket/a", **nowhere), "is a URL"),
        (lambda: builtin.archive("logs", "", **nowhere), "has no name"),
        (lambda: builtin.archive("logs", str(tmp_path / "file"), **nowhere), "is a file"),
        (
            lambda: builtin.archive("logs", str(tmp_path / "other"), **nowhere),
            "is no archive, and has 'notes.txt'",
        ),
        (lambda: builtin.replay(str(tmp_path / "gone"), "t", **nowhere), "no such file or directory"),
        (lambda: builtin.replay(str(tmp_path / "other"), "t", **nowhere), "no table that is known"),
        (lambda: builtin.replay(str(tmp_path / "other"), "t", format="orc", **nowhere), "format is 'orc'"),
        (lambda: builtin.replay(str(tmp_path), "t", per_second=-1, **nowhere), "not negative"),
        (lambda: builtin.replay(str(tmp_path), "t", per_second=float("nan"), **nowhere), "not negative"),
        (lambda: builtin.compact_table(str(tmp_path / "other")), "no table that is known"),
        (lambda: builtin.compact_table(str(tmp_path), target_bytes=1), "at least 1024"),
        (lambda: builtin.compact_table(str(tmp_path), compression="zip"), "one of zstd"),
        (lambda: builtin.stats("logs", window_ms=5, **nowhere), "at least 1000"),
        (lambda: builtin.redrive("logs.dead", where="offset >", **nowhere), "no SQL condition"),
        (lambda: builtin.stats("logs", connection={"urll": "x"}), "did you mean 'url'"),
    ]
    for call, text in wrong:
        with pytest.raises(InvalidArgument, match=text):
            call()


def test_table_of_a_running_stream_is_not_compacted(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(InvalidArgument, match="readers go by the list in _spark_metadata"):
        builtin.compact_table(str(tmp_path))


def test_topics_that_are_not_there_are_named_all_at_once_and_left_alone_as_origins_of_dead_letters() -> None:
    import sparrow.testing

    with sparrow.testing.broker() as broker:
        with sparrow.sync.connect(broker.url) as client:
            client.admin.create_topic("orders")
        connection = {"url": broker.url}
        with pytest.raises(NotFound, match=r"no topic 'order'; did you mean 'orders'.*no topic 'x'"):
            builtin.stats(["order", "x", "orders"], connection=connection)
        with pytest.raises(NotFound, match=r"no topic's name matches 'a\*'"):
            builtin.archive("a*", "/tmp/nowhere-at-all", connection=connection)
        with connected(connection) as session:
            assert missing_topics(session, ["orders", "no topic!", "gone", ".."], None) == {
                "no topic!",
                "gone",
                "..",
            }
        assert builtin.stats("orders", connection=connection) == []
        assert builtin.redrive("orders", connection=connection).matched == 0


@given(st.floats(0.01, 1e6))
def test_a_slow_replay_is_heard_of_long_before_its_stage_expires(per_second: float) -> None:
    """Spark passes rows on by the batch, and the sink forms batches; both are small if rows are
    few.
    """
    rows = rows_at_a_time(per_second)
    assert 1 <= rows <= 10_000
    assert rows <= max(1, per_second * 5)
    assert 1024 <= batch_bytes_for(per_second) <= max(1024, per_second * 64)


def test_a_broker_that_has_less_than_the_archive_is_not_archived_over_it() -> None:
    topic = SourceTopic("logs", "id", {0: 0, 1: 0}, {0: 10, 1: 5})
    check_not_behind(topic, None)
    check_not_behind(topic, TopicArchive("id", {0: PartitionArchive(0, 10)}))
    with pytest.raises(Conflict, match="logs-1 ends at 5, and the archive has it up to 6"):
        check_not_behind(topic, TopicArchive("id", {0: PartitionArchive(0, 10), 1: PartitionArchive(0, 6)}))


@pytest.mark.parametrize("call", [builtin.compact_table, lambda path: builtin.replay(path, "t")])
def test_an_archive_whose_first_run_was_decided_and_not_finished_is_no_plain_table(
    call: Callable[[str], object], tmp_path: Path
) -> None:
    """Its manifest is still in the journal, and the directory has only a part of the files."""
    table = TableDirectory(str(tmp_path))
    staged = tmp_path / "_sparrow" / "staged" / "run"
    os.makedirs(staged)
    (staged / "b.parquet.staged").write_bytes(b"PAR1")
    manifest = Manifest("", "", "none", "zstd")
    move = Move("_sparrow/staged/run/b.parquet.staged", "topic=logs/b.parquet")
    journal = ExchangeJournal("run", moves=[move], manifest=manifest)
    (tmp_path / "_sparrow" / "journal.json").write_bytes(msgspec.json.encode(journal))
    with contextlib.suppress(InvalidArgument):
        call(table.root)
    assert table.maybe_manifest() == manifest
    assert (tmp_path / "topic=logs" / "b.parquet").exists()
