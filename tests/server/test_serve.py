"""`sparrow serve`: refusals at the start, its output, and how it stops."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.base.errors import InvalidConfig
from sparrow.cli import main
from sparrow.client import connect

SPARROW = [sys.executable, "-m", "sparrow"]


@pytest.fixture
def root_logger():
    """Restore the root logger, which a caller of `serve` in this process changes."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def refused(capsys, root_logger, tmp_path, monkeypatch):
    """Return a function that runs `sparrow serve ARGUMENTS…`, which must end by itself; it returns
    (exit code, stderr).
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main(["serve", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert out == ""
        assert "Traceback" not in err
        return code, err

    return run


def test_public_address_without_authentication_is_refused_and_touches_nothing(refused, tmp_path):
    code, err = refused("--native-host", "0.0.0.0", "--native-port", 0)
    assert code == 78
    assert 'insecure_public_listen: "without authentication"' in err
    assert list(tmp_path.iterdir()) == []


def test_passwords_in_clear_on_a_public_address_are_refused_and_touch_nothing(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARROW_USERS", "ann=pencil-2B")
    code, err = refused("--native-host", "0.0.0.0", "--native-port", 0)
    assert code == 78
    assert 'insecure_clear_passwords: "passwords in clear"' in err
    assert "pencil" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_user_made_by_a_command_is_found_at_the_start(tmp_path, capsys):
    password = tmp_path / "password"
    password.write_text("pencil-2B\n")
    where = ["--data-dir", str(tmp_path / "data"), "--password-file", str(password)]
    assert main(["user", "create", "ann", *where]) == 0
    capsys.readouterr()
    public = {"native_host": "0.0.0.0", "insecure_public_listen": "without authentication"}
    with pytest.raises(InvalidConfig, match=r"native.host is '0.0.0.0': passwords and tokens would cross"):
        sparrow.testing.broker(data_dir=str(tmp_path / "data"), **public).__enter__()
    with sparrow.testing.broker(
        data_dir=str(tmp_path / "data"), insecure_clear_passwords="passwords in clear", **public
    ):
        pass


def test_wrong_option_is_refused_with_its_place(refused):
    code, err = refused("--idle-timeout", "soon")
    assert code == 78
    assert "--idle-timeout: idle_timeout cannot be 'soon'" in err


def test_unknown_flag_is_a_usage_error(refused, capsys):
    with pytest.raises(SystemExit) as ended:
        refused("--native-prot", 5)
    assert ended.value.code == 2
    assert "--native-prot" in capsys.readouterr().err


def test_directory_in_use_is_refused_with_the_pid(refused):
    with sparrow.testing.broker() as broker:
        code, err = refused("--data-dir", broker.data_dir, "--native-port", 0)
    assert code == 73
    assert f"in use by process {os.getpid()}" in err


def test_newer_format_is_refused(refused, tmp_path):
    path = tmp_path / "newer"
    path.mkdir()
    (path / "format").write_text("sparrow data directory\nversion: 99\n")
    code, err = refused("--data-dir", path, "--native-port", 0)
    assert code == 73
    assert "format 99" in err


def test_data_directory_that_is_a_file_is_refused(refused, tmp_path):
    (tmp_path / "file").write_text("")
    code, err = refused("--data-dir", tmp_path / "file", "--native-port", 0)
    assert code == 73
    assert str(tmp_path / "file") in err


def test_port_in_use_is_refused_and_gives_the_directory_back(refused, tmp_path):
    with sparrow.testing.broker() as broker:
        code, err = refused("--data-dir", tmp_path / "data", "--native-port", broker.port)
    assert code == 78
    assert f"cannot listen on 127.0.0.1:{broker.port}" in err
    assert "another program uses it" in err
    assert (tmp_path / "data" / ".clean").exists()


def test_declared_topic_with_a_wrong_configuration_is_refused(refused, tmp_path):
    (tmp_path / "sparrow.yml").write_text("topics: [{name: orders, config: {retention.mss: 5}}]")
    code, err = refused("--native-port", 0)
    assert code == 78
    assert "did you mean 'retention.ms'" in err


def test_declared_topic_with_a_wrong_name_is_a_wrong_configuration(refused, tmp_path):
    (tmp_path / "sparrow.yml").write_text("topics: [../etc]")
    code, err = refused("--native-port", 0)
    assert code == 78
    assert "sparrow.yml:1: topics[0]: the topic name '../etc' may only have" in err


def test_address_of_another_machine_is_named_as_such(refused):
    words = ("--insecure-public-listen", "without authentication")
    code, err = refused("--native-port", 0, "--native-host", "203.0.113.7", *words)
    assert code == 78
    assert "this machine has no such address" in err


def test_ready_file_that_cannot_be_written_is_refused(refused, tmp_path):
    code, err = refused("--native-port", 0, "--ready-file", tmp_path / "no" / "ready")
    assert code == 78
    assert "ready_file" in err


def test_declared_topics_are_there_and_stay_as_they_are():
    topics = [{"name": "orders", "partitions": 3, "config": {"retention.ms": "7d"}}, "audit"]

    async def look(url):
        async with connect(url) as client:
            await client.admin.add_partitions("orders", 5)
            return {each.name: each.partition_count for each in await client.admin.list_topics()}

    with sparrow.testing.broker(topics=topics, default_partitions=2) as broker:
        assert asyncio.run(look(broker.url)) == {"orders": 5, "audit": 2}
        broker.restart()

        async def count(url):
            async with connect(url) as client:
                return (await client.admin.describe_topic("orders")).partition_count

        assert asyncio.run(count(broker.url)) == 5


class Serving:
    """A `sparrow serve` process whose stderr is read to the end."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.ready_file = directory / "ready"
        self.process = subprocess.Popen(
            [*SPARROW, "serve", "--native-port", "0", "--ready-file", str(self.ready_file), *flags],
            cwd=directory,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 30
        while not self.ready_file.exists():
            assert time.monotonic() < deadline
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.005)
        self.ready = json.loads(self.ready_file.read_text())

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return (exit code, stderr)."""
        self.process.send_signal(number)
        err = self.process.communicate(timeout=30)[1]
        return self.process.returncode, err


@pytest.mark.slow
def test_a_broker_that_was_started_with_signals_ignored_ends_by_them(tmp_path):
    before = [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)]
    try:
        serving = Serving(tmp_path, "--log-format", "json")
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)
    code, err = serving.stop(signal.SIGINT)
    assert (code, "SIGINT" in err) == (0, True)


@pytest.mark.slow
def test_start_says_what_listens_where_and_where_the_data_is(tmp_path):
    serving = Serving(tmp_path)
    assert serving.ready["pid"] == serving.process.pid
    assert serving.ready["data_dir"] == str(tmp_path / "sparrow-data")
    code, err = serving.stop(signal.SIGINT)
    assert code == 0
    assert not serving.ready_file.exists()
    *banner, ready, stopping, stopped = err.splitlines()
    assert re.fullmatch(r"Sparrow \S+ is ready \(pid \d+\)", banner[0])
    assert f"clients   {serving.ready['url']}" in banner[1]
    assert f"Kafka     {serving.ready['kafka']}" in banner[2]
    assert f"HTTP      {serving.ready['http']}" in banner[3]
    assert "everybody" in banner[4]
    assert str(tmp_path / "sparrow-data") in banner[5]
    events = [json.loads(line) for line in (ready, stopping, stopped)]
    assert [each["event"] for each in events] == ["ready", "stopping", "stopped"]
    assert events[1]["signal"] == "SIGINT"


@pytest.mark.slow
def test_sigterm_under_load_confirms_accepted_publishes_and_closes_cleanly(tmp_path):
    serving = Serving(tmp_path, "--drain-timeout", "5s")
    acknowledged = []

    async def publish():
        async with (
            connect(serving.ready["url"], reconnect_timeout_s=0.1) as client,
            client.producer(delivery_timeout_s=5) as producer,
        ):
            for number in range(1_000_000):
                delivery = await producer.send("load", b"%d" % number, partition=0)
                if number % 50 == 0:
                    acknowledged.append((await delivery).offset)
                    if len(acknowledged) == 20:
                        serving.process.terminate()

    with pytest.raises(sparrow.SparrowError):
        asyncio.run(publish())
    assert serving.process.wait(30) == 0
    serving.process.stderr.close()
    assert (tmp_path / "sparrow-data" / ".clean").exists()
    assert acknowledged == [number * 50 for number in range(len(acknowledged))]
    with sparrow.testing.broker(data_dir=str(tmp_path / "sparrow-data")) as broker:
        assert asyncio.run(_end(broker.url)) > acknowledged[-1]


async def _end(url):
    async with connect(url) as client:
        return (await client.admin.offsets("load", "end", partition=0))[0].offset


@pytest.mark.slow
def test_second_signal_ends_a_drain_at_once(tmp_path):
    serving = Serving(tmp_path, "--drain-timeout", "1h", "--log-level", "debug")
    with socket.create_connection((serving.ready["host"], serving.ready["port"])):
        serving.process.terminate()
        for line in serving.process.stderr:
            if "stopping" in line:
                break
        code, err = serving.stop()
    assert code == 128 + signal.SIGTERM
    assert "second signal" in err


@pytest.mark.slow
def test_drain_is_bounded_though_a_client_does_not_go(tmp_path):
    serving = Serving(tmp_path, "--drain-timeout", "200ms")
    with socket.create_connection((serving.ready["host"], serving.ready["port"])):
        began = time.monotonic()
        code, _ = serving.stop()
    assert code == 0
    assert time.monotonic() - began < 10
    assert (tmp_path / "sparrow-data" / ".clean").exists()


@pytest.mark.slow
def test_help_names_every_flag():
    found = subprocess.run(
        [*SPARROW, "serve", "--help"], capture_output=True, text=True, timeout=30, check=True
    )
    for flag in ("--config", "--data-dir", "--native-port", "--drain-timeout", "SPARROW_NATIVE_HOST"):
        assert flag in found.stdout
