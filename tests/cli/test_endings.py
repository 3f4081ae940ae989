"""Ends of commands: signals, closed streams, readers that go away, missing packages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import sparrow.testing

SPARROW = [sys.executable, "-m", "sparrow"]
LIMIT_S = 30
MISSING = (
    "sparrow: the command line needs more packages; install them with: pip install 'sparrow-broker[server]'\n"
)


@pytest.fixture(scope="module")
def broker():
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture(autouse=True)
def url(broker, monkeypatch):
    monkeypatch.setenv("SPARROW_URL", broker.url)


@pytest.fixture
def topic(sparrow_topic):
    return sparrow_topic


def start(*arguments, **options):
    return subprocess.Popen(
        [*SPARROW, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def finish(process):
    """Wait for a process that ends by itself; return (exit code, stdout, stderr)."""
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_member_of_a_group_commits_printed_records_and_leaves(run, topic, number, code):
    run("publish", topic, *"abc")
    process = start("consume", topic, "--follow", "--from", "beginning", "--group", topic)
    printed = [process.stdout.readline() for _ in range(3)]
    process.send_signal(number)
    assert finish(process) == (code, "", "")
    assert printed == ["a\n", "b\n", "c\n"]
    described = run("group", "describe", topic).out
    assert "empty" in described
    assert f"{topic}\t0\t3\t3\t0" in described


@pytest.mark.slow
def test_second_ctrl_c_ends_a_command_that_cannot_finish(run, topic):
    for _ in range(2):
        run("publish", topic, *["x" * 100_000] * 10)
    process = start("consume", topic, "--follow", "--from", "beginning")
    # from here on nobody reads: the writing thread blocks
    assert process.stdout.read(1) == "x"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == -signal.SIGINT
    assert process.stderr.read() == ""
    process.stdout.close()
    process.stderr.close()


@pytest.mark.slow
def test_stopped_publish_says_what_was_acknowledged(run, topic):
    process = start("publish", topic, stdin=subprocess.PIPE)
    process.stdin.write("one\ntwo\n")
    process.stdin.flush()
    reader = start("consume", topic, "--follow", "--from", "beginning", "--max", "2")
    assert finish(reader) == (0, "one\ntwo\n", "")
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, err) == (130, "")
    assert out.startswith("2 messages acknowledged")


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_the_reader_missed_is_not_committed(run, topic, monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    for _ in range(2):
        run("publish", topic, *["x" * 100_000] * 10)
    process = start("consume", topic, "--group", topic, "--from", "beginning")
    assert process.stdout.read(1) == "x"
    process.stdout.close()
    assert process.wait(LIMIT_S) == 141
    assert process.stderr.read() == ""
    process.stderr.close()
    found = run("consume", topic, "--group", topic)
    assert len(found.out.splitlines()) == 20


@pytest.mark.slow
def test_table_that_nobody_reads_ends_with_141(topic):
    with sparrow.sync.connect(os.environ["SPARROW_URL"]) as client:
        for number in range(3):
            client.admin.create_topic(f"{topic}-{number}")
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen([*SPARROW, "topic", "list"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (141, "")


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_reason_to_fail(run, topic, closed):
    command = f'"$0" -m sparrow publish {topic} message {closed}'
    found = subprocess.run(["sh", "-c", command, sys.executable], timeout=LIMIT_S, check=False)
    assert found.returncode == 0
    assert run("consume", topic).out == "message\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "arguments"), [("typer", ["topic", "list"]), ("httptools", ["serve"]), ("rich", ["serve"])]
)
def test_thin_install_says_how_to_get_the_commands(tmp_path, package, arguments):
    for name in {package, "typer", "httptools"}:
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name={name!r})\n")
    process = start(*arguments, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert finish(process) == (1, "", MISSING)
