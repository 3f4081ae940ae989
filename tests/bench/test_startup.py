"""Starting, filling and killing brokers in turn, with brokers that are missing, fail or have lost
something.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

import bench.server
from bench.peers.daemon import Daemon, NotInstalled, Peer
from bench.results import OURS, SYNCED, UNSYNCED, Measurement
from bench.server import Server, free_port
from bench.subjects import SUBJECTS, VALUE, Subject
from bench.together import Stopwatch
from bench.workloads import startup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.together import Role, Span, Start

LISTENS = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    time.sleep(60)
"""


DEAF = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
listeners = [socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[1:]]
while True:
    time.sleep(60)
"""


class Deaf(Server):
    """A server that listens, and does not end on request."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-SE", "-c", DEAF, str(self.port), str(self.http_port)]


@contextmanager
def listening(root: Path) -> Iterator[Peer]:
    """Yield a server that accepts connections, and does nothing else."""
    port = free_port()
    yield Peer(Daemon([sys.executable, "-SE", "-c", LISTENS, str(port)], root / "log", port), port)


def missing(_root: Path) -> AbstractContextManager[Peer]:
    """Raise NotInstalled, as a peer without its packages does."""
    raise NotInstalled("it is not installed (apt-get install it)")


def publish_nothing(start: Start) -> Span:
    """Publish nothing; the work of a role."""
    return Stopwatch(start).span()


def fill(_port: int, _count: int) -> Role:
    """Fill nothing."""
    return publish_nothing


def subject(name: str = "listener", prepared=listening, end: int = 11) -> Subject:
    """Return a broker that reports this many messages."""
    return Subject(name, "", "nothing", prepared, lambda _: None, lambda _: None, fill, lambda _: end)


def rounds(*subjects: Subject, count: int = 10, runs: int = 2) -> dict[str, Measurement]:
    """Return the rounds of recovery of each broker."""
    rows = {each.broker: [Measurement(each.broker, "s")] for each in subjects}
    startup._rounds(subjects, rows, runs, lambda each, row: startup._recovered(count, each, row))
    return {name: row for name, (row,) in rows.items()}


@pytest.mark.slow
def test_missing_or_faulty_peers_are_reported_and_the_others_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(startup, "PATIENCE_S", 0.05)
    monkeypatch.setattr(startup, "together", lambda role: role(time.monotonic))
    rows = rounds(subject(), subject("absent", missing), subject("forgetful", end=9))
    assert len(rows["listener"].runs) == 2
    assert not rows["listener"].note
    assert (rows["absent"].runs, rows["absent"].failed) == ([], False)
    assert rows["absent"].note == "it is not installed (apt-get install it)"
    assert rows["forgetful"].failed
    assert rows["forgetful"].note == ("failed: 11 messages were acknowledged; after kill -9 forgetful has 9")
    assert "NotThere" in capsys.readouterr().err


def test_a_server_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    daemon = Daemon(["false"], tmp_path / "log", free_port())
    daemon.spawn()

    def refuse() -> None:
        raise ConnectionRefusedError

    began = time.monotonic()
    with pytest.raises(RuntimeError, match="ended with 1"):
        startup._until(refuse, daemon)
    assert time.monotonic() - began < startup.PATIENCE_S / 2


def test_a_client_that_is_missing_is_not_waited_for(tmp_path: Path) -> None:
    def ask() -> None:
        raise NotInstalled("nats is not installed")

    with pytest.raises(NotInstalled):
        startup._until(ask, Daemon(["true"], tmp_path / "log", free_port()))


def test_brokers_that_sync_later_are_shown_as_such_where_they_are_killed() -> None:
    rows = {each.broker: startup._row(startup.SERVES, "s", each) for each in SUBJECTS}
    assert {name for name, row in rows.items() if row.strength == UNSYNCED} == {"NATS", "Kafka"}
    assert rows[OURS].strength == SYNCED


@pytest.mark.slow
def test_a_broker_that_does_not_end_is_killed_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench.server, "STOP_TIMEOUT_S", 0.05)
    monkeypatch.setattr(bench.server, "Server", Deaf)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(subprocess.TimeoutExpired), bench.server.server() as broker:
        assert list(tmp_path.iterdir())
    assert broker.process is not None
    assert broker.process.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_each_broker_is_measured_and_has_rows_of_its_own() -> None:
    assert SUBJECTS[0].broker == OURS
    assert len({each.broker for each in SUBJECTS}) == len(SUBJECTS)
    assert all(each.durability for each in SUBJECTS)
    assert len(VALUE) == 1024
