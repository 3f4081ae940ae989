"""`sparrow demo`: what it refuses, and that nothing is left when it is stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sparrow.cli import main
from sparrow.cli.app import commands
from sparrow.demo import pipeline
from tests.demo.repositories import repository

DOCUMENT = Path(__file__).parents[2] / "docs" / "demo.md"
PROGRAM = """
import sys
from sparrow.cli import main
from sparrow.demo import pipeline

pipeline.check_installed = lambda: None  # what it looks for is needed for charts, behind these tests
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def spark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "check_installed", lambda: None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--repo", "/nowhere"], "/nowhere: no such directory"),
        (["--repo", "REPO", "--broker", "http://127.0.0.1"], "its scheme is 'http'"),
        (["--repo", "REPO", "--out", "FILE"], "is not a directory; say by --out"),
    ],
)
def test_impossible_arguments_are_refused_in_a_sentence(
    arguments, told, spark_is_there, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    paths = {"REPO": str(repository(tmp_path / "repo", [[]])), "FILE": str(tmp_path / "file")}
    (tmp_path / "file").touch()
    code = main(["demo", *(paths.get(each, each) for each in arguments)])
    assert (code, told in capsys.readouterr().err) == (2, True)


def test_document_names_every_option():
    command = commands("demo").commands["demo"]
    options = {name for each in command.params for name in each.opts if name.startswith("--")}
    assert set(re.findall(r"^\| `(--[a-z]+)", DOCUMENT.read_text(), re.MULTILINE)) == options


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_stopped_demonstration_leaves_no_process_and_no_file(number, code, tmp_path):
    repo = repository(tmp_path / "repo", [[], *([n] for n in range(200))])
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = start(repo, tmp_path / "out", temporary)
    with process:
        until_told(process, "work …")
        family = children(process.pid, 3)  # the broker and the workers
        # As a terminal does: the broker gets Ctrl-C and the terminal's end, too.
        (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)
        process.communicate(timeout=30)
    assert process.returncode == code
    until_gone(family)
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_demonstration_stopped_beside_spark_leaves_no_temporary_file(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    repo = repository(tmp_path / "repo", [[], *([n] for n in range(20))])
    with start(repo, tmp_path / "out", temporary) as process:
        until_told(process, "pipeline …")
        deadline = time.monotonic() + 60
        while not list(temporary.glob("sparrow-demo-*/**/tmp????????")):  # PySpark's, beside its JVM
            assert time.monotonic() < deadline, list(temporary.rglob("*"))
            time.sleep(0.02)
        family = children(process.pid, 2)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 143
    until_gone(family)
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_while_the_broker_starts_is_no_failure(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with start(repository(tmp_path / "repo", [[]]), tmp_path / "out", temporary) as process:
        until_told(process, "start …")
        family = children(process.pid, 1)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "")
    until_gone(family)
    assert list(temporary.iterdir()) == []


def start(repo: Path, out: Path, temporary: Path) -> subprocess.Popen[str]:
    arguments = ["demo", "--repo", str(repo), "--out", str(out), "--workers", "2"]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )


def children(pid: int, count: int) -> list[psutil.Process]:
    """Wait for this many child processes, and return them."""
    deadline = time.monotonic() + 20
    while len(found := psutil.Process(pid).children(recursive=True)) < count:
        assert time.monotonic() < deadline, found
    return found


def until_gone(family: list[psutil.Process]) -> None:
    """Wait until the processes are gone: a worker that was about to start when the signal came ends
    by itself, a moment later.
    """
    deadline = time.monotonic() + 10
    while left := [each for each in family if is_alive(each)]:
        assert time.monotonic() < deadline, left


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_told(process: subprocess.Popen[str], line: str) -> None:
    """Read the output until it contains this text."""
    assert process.stderr is not None
    said = []
    for each in process.stderr:
        said.append(each)
        if each.strip() == line:
            return
    raise AssertionError("".join(said))
