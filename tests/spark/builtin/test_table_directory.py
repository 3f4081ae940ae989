"""Changes of a table's directory: a crash at any step leaves the old state or the new one, and
readers see every row once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparrow.base.errors import Conflict, InvalidArgument
from sparrow.pipelines.builtin import directory as directories
from sparrow.pipelines.builtin.directory import (
    Exchange,
    ExchangeJournal,
    Move,
    TableDirectory,
    exchange_root,
    root_sibling,
)
from sparrow.pipelines.builtin.manifest import ArchivedFile, Manifest, OffsetSpan

STEPS = ("rename", "replace", "unlink", "makedirs", "fsync")


class _Crash(Exception):
    """The process ends here."""


def _manifest(*paths: str) -> Manifest:
    files = [ArchivedFile(path, "logs", 1, 1, "", {0: OffsetSpan(0, 0, 1, 1)}) for path in paths]
    return Manifest("now", "now", "day", "zstd", files=files)


def _filled(root: Path) -> TableDirectory:
    """Make two live files with their manifest, and staged ones that replace one and add one."""
    table = TableDirectory(str(root))
    with table.exclusive():
        for path in ("d=1/a.parquet", "d=1/b.parquet"):
            _put(table, f"_sparrow/staged/first/{path}")
        paths = ("d=1/a.parquet", "d=1/b.parquet")
        moves = [Move(f"_sparrow/staged/first/{path}", path) for path in paths]
        table.commit(ExchangeJournal("first", moves=moves, manifest=_manifest(*paths)))
    return table


def _put(table: TableDirectory, path: str) -> None:
    os.makedirs(os.path.dirname(table.path(path)), exist_ok=True)
    Path(table.path(path)).write_bytes(path.rpartition("/")[2].encode())


def _change(table: TableDirectory) -> ExchangeJournal:
    """Return a change: a and b become c, and d=2 gets a file."""
    _put(table, "_sparrow/staged/second/directories/d=1/c.parquet")
    _put(table, "_sparrow/staged/second/e.parquet.staged")
    return ExchangeJournal(
        "second",
        moves=[Move("_sparrow/staged/second/e.parquet.staged", "d=2/e.parquet")],
        exchanges=[Exchange("_sparrow/staged/second/directories/d=1", "d=1", "c.parquet")],
        manifest=_manifest("d=1/c.parquet", "d=2/e.parquet"),
    )


def _seen(table: TableDirectory) -> set[str]:
    return {str(path.relative_to(table.root)) for path in Path(table.root).glob("d=*/*")}


OLD, NEW = {"d=1/a.parquet", "d=1/b.parquet"}, {"d=1/c.parquet", "d=2/e.parquet"}


def _crashing_at(step: int, patch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let calls of the file system raise from the `step`th on. Return their number."""
    count = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            nonlocal count
            count += 1
            if count > step:
                raise _Crash
            return real(*arguments, **more)

        return call

    for name in STEPS:
        patch.setattr(directories.os, name, counted(getattr(os, name)))
    return lambda: count


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_crash_at_any_step_leaves_the_old_state_or_the_new_one(
    can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_exchange:
        monkeypatch.setattr(directories, "_maybe_exchanged", lambda *_: False)
    outcomes = []
    for step in range(100):
        table = _filled(tmp_path / str(step))
        with table.exclusive():
            journal = _change(table)
            with monkeypatch.context() as patch:
                calls = _crashing_at(step, patch)
                with contextlib.suppress(_Crash):
                    table.commit(journal)
                is_done = calls() <= step
        after = TableDirectory(table.root)
        with after.exclusive():
            manifest = after.maybe_manifest()
        assert manifest is not None
        assert {file.path for file in manifest.files} == _seen(after)
        assert _seen(after) in (OLD, NEW)
        assert not (Path(after.state) / "staged").exists()
        outcomes.append(_seen(after) == NEW)
        if is_done:
            break
    assert outcomes == sorted(outcomes)
    assert outcomes[0] is False
    assert outcomes[-1] is True


def test_a_listing_that_began_before_the_exchange_sees_all_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _filled(tmp_path)
    begun = os.open(table.path("d=1"), os.O_RDONLY)
    seen: list[set[str]] = []

    def meanwhile(_: float) -> None:
        seen.append(set(os.listdir(begun)))
        seen.append(set(os.listdir(table.path("d=1"))))

    monkeypatch.setattr(directories.time, "sleep", meanwhile)
    try:
        with table.exclusive():
            table.commit(_change(table))
    finally:
        os.close(begun)
    assert seen == [{"a.parquet", "b.parquet"}, {"c.parquet"}]


def test_one_process_at_a_time_changes_a_directory_and_readers_keep_it_as_it_is(tmp_path: Path) -> None:
    table = _filled(tmp_path)
    other = TableDirectory(table.root)
    with table.exclusive(), pytest.raises(Conflict, match="is at work in"), other.exclusive():
        pass
    with table.shared(), other.shared(), pytest.raises(Conflict), TableDirectory(table.root).exclusive():
        pass
    with other.exclusive():
        pass


def test_a_whole_table_is_exchanged_with_its_lock(tmp_path: Path) -> None:
    root = tmp_path / "table"
    root.mkdir()
    (root / "a.parquet").write_bytes(b"a")
    table = TableDirectory(str(root))
    with table.exclusive():
        prepared = root_sibling(table, "run")
        os.makedirs(prepared)
        Path(prepared, "b.parquet").write_bytes(b"b")
        exchange_root(table, prepared)
        with pytest.raises(Conflict), TableDirectory(str(root)).exclusive():
            pass
    assert {path.name for path in root.iterdir()} == {"b.parquet", "_sparrow"}
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", "no manifest of an archive"),
        (b"[]", "no manifest of an archive"),
        (b'{"format": "other"}', "its format is 'other'"),
        (b'{"format": "sparrow-archive", "version": 2}', "version 2; this Sparrow knows 1"),
        (b'{"format": "sparrow-archive", "version": 1, "created": 3}', "no manifest of an archive"),
    ],
)
def test_invalid_manifest_is_refused_in_a_sentence(data: bytes, text: str, tmp_path: Path) -> None:
    table = TableDirectory(str(tmp_path))
    os.makedirs(table.state)
    Path(table.manifest_path).write_bytes(data)
    with pytest.raises(InvalidArgument, match=text):
        table.maybe_manifest()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", ""])
def test_a_manifest_that_leads_out_of_its_directory_is_refused(path: str, tmp_path: Path) -> None:
    table = TableDirectory(str(tmp_path))
    os.makedirs(table.state)
    Path(table.manifest_path).write_bytes(directories.manifests.encode(_manifest(path)))
    with pytest.raises(InvalidArgument, match="not inside the archive"):
        table.maybe_manifest()
