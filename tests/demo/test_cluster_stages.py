"""The stages over a cluster: the broker that owns the data is killed while workers work."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sparrow.base.errors import InvalidArgument
from sparrow.cli import main
from sparrow.demo import cluster, pipeline, stages
from sparrow.demo.history import find
from sparrow.demo.surroundings import DemoPlan
from tests.cluster.postgres_server import why_not
from tests.demo.repositories import repository
from tests.demo.test_stages import HISTORY, NoSpark


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the directory of temporary files, which PostgreSQL's user can enter."""
    made = Path(tempfile.mkdtemp(prefix="demo-test-"))
    made.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_all_checks_hold_when_the_owner_is_killed_and_nothing_is_left(
    tmp_path: Path, temporary: Path
) -> None:
    pytest.importorskip("asyncpg")
    pytest.importorskip("obstore")
    if reason := why_not():
        pytest.skip(reason)
    source = find(str(repository(tmp_path / "repo", HISTORY)))
    report = stages.run(DemoPlan(cluster=True, workers=2, out_dir=str(tmp_path / "out")), source, NoSpark())
    assert report.held, [each for each in report.checks if not each.held]
    (killed,) = [each for each in report.checks if each.name.startswith("the broker that owned the data")]
    assert re.search(rf"after \d+ of {source.count()} jobs; it served after \d+\.\d s", killed.detail)
    work = next(each for each in report.stages if each.name == "work")
    assert work.figures["jobs"] == source.count()
    assert "takeover s" in work.figures
    assert list(temporary.iterdir()) == []
    commands = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert not any(str(temporary) in each for each in commands)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--cluster", "--broker", "sparrow://127.0.0.1"], "leave out --broker"),
        (["--objects", "file:///tmp/x"], "--objects is for --cluster"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_missing_engine_is_named_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "check_installed", lambda: None)
    with pytest.raises(InvalidArgument, match=r"no initdb on PATH; on Debian: apt install postgresql"):
        cluster.find_postgres(str(tmp_path), str(tmp_path))
    for version in ("9", "14", "15", "17"):
        (tmp_path / version / "bin").mkdir(parents=True)
        for program in ("initdb", "postgres"):
            (tmp_path / version / "bin" / program).touch(0o755)
    assert cluster.find_postgres(str(tmp_path), str(tmp_path)) == f"{tmp_path}/17/bin"
    assert cluster.find_postgres(f"{tmp_path}/15/bin", str(tmp_path)) == f"{tmp_path}/15/bin"
    monkeypatch.setattr(cluster, "PACKAGES", ("asyncpg", "no_such_package"))
    assert main(["demo", "--cluster"]) == 2
    assert "pip install 'sparrow-broker[cluster]'" in capsys.readouterr().err
    monkeypatch.setattr(cluster, "PACKAGES", ())
    monkeypatch.setattr(cluster, "find_postgres", lambda: "")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: {}[name])
    assert main(["demo", "--cluster"]) == 2
    assert "does not run as root" in capsys.readouterr().err
