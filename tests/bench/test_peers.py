"""The peers: started and ended by the bench, and described by their clients. Peers that are not
installed are not tested.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from bench.peers import jars, kafka, nats, rabbitmq, redis
from bench.peers.daemon import Daemon, NotInstalled, Peer, found
from bench.race import client
from bench.server import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNT = 300
VALUE = b"m" * 100
PREPARED: dict[str, Callable[[Path], AbstractContextManager[Peer]]] = {
    "nats": nats.prepared,
    "redis": redis.prepared,
    "rabbitmq": rabbitmq.prepared,
}
"""Kafka's node is started by `make compat`: it needs Java, 50 MB of jars and ten seconds."""


def at_once() -> float:
    """Return a start that waits for nobody."""
    return time.monotonic()


@pytest.fixture
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    """Yield a started peer; nothing of it is left after the test."""
    try:
        with PREPARED[request.param](tmp_path) as prepared:
            prepared.daemon.spawn()
            group = prepared.daemon.pid
            try:
                prepared.daemon.until_accepting()
                yield prepared
            finally:
                prepared.daemon.stop()
        assert not of_group(group)
    except NotInstalled as error:
        pytest.skip(str(error))


def of_group(group: int) -> list[str]:
    """Return the living processes of a group."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process.name())
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return members


def module_of(name: str) -> Any:
    """Return a module of the clients; skip the test if its packages are missing."""
    try:
        return client(name)
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["nats"], indirect=True)
def test_both_clients_of_nats_read_all_that_both_have_published(peer: Peer) -> None:
    theirs, port = module_of("nats"), peer.address
    theirs.make(port, "topic")
    assert theirs.publish(port, "topic", VALUE, COUNT - 1, 50, at_once).ended > 0
    theirs.publish_bytes(port, "topic", VALUE, COUNT - 1, 50, at_once)
    assert theirs.end(port, "topic") == 2 * COUNT
    assert theirs.read(port, "topic", 2 * COUNT, at_once).found == 2 * COUNT - 1
    assert 0 < theirs.read_bytes(port, "topic", b"mm", 2 * COUNT, at_once).found < 2 * COUNT
    assert theirs.about(port)


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["nats"], indirect=True)
def test_workers_of_nats_leave_only_unrequested_messages_in_the_queue(peer: Peer) -> None:
    theirs, port = module_of("nats"), peer.address
    theirs.make_queue(port, "singly", "explicit", 20, is_pushed=True)
    theirs.make_queue(port, "batches", "all", 100)
    for queue in ("singly", "batches"):
        theirs.publish_bytes(port, queue, VALUE, COUNT, 50, at_once)
    theirs.consume_singly(port, "singly", COUNT, 4, at_once)
    theirs.consume_bytes(port, "batches", b"mm", COUNT, 50, at_once)
    assert theirs.unacknowledged(port, "singly") == 0
    assert theirs.unacknowledged(port, "batches") == 0


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["redis"], indirect=True)
def test_both_clients_of_redis_read_all_messages_with_the_requested_syncing(
    peer: Peer,
) -> None:
    theirs, port = module_of("redis"), peer.address
    theirs.publish(port, "topic", VALUE, COUNT - 1, 50, at_once)
    theirs.sync(port, "everysec")
    theirs.publish_bytes(port, "topic", VALUE, COUNT - 1, 50, at_once)
    assert theirs.end(port, "topic") == 2 * COUNT
    for read in (theirs.read, theirs.read_bytes):
        assert read(port, "topic", 2 * COUNT, 100, at_once).found == 2 * COUNT - 1
    assert theirs.synced(port) == "everysec"


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["rabbitmq"], indirect=True)
def test_a_stream_of_rabbitmq_is_read_from_its_beginning(peer: Peer) -> None:
    amqp, port = module_of("amqp"), peer.address
    amqp.make(port, "topic", "stream")
    amqp.publish(port, "topic", VALUE, COUNT, 50, at_once)
    for _ in range(2):
        assert amqp.consume(port, "topic", COUNT, 100, 10, at_once, is_stream=True).found == COUNT


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["redis"], indirect=True)
def test_a_killed_server_starts_again_on_its_data(peer: Peer) -> None:
    theirs, port = module_of("redis"), peer.address
    theirs.publish_bytes(port, "topic", VALUE, COUNT, 50, at_once)
    peer.daemon.kill()
    peer.daemon.spawn()
    peer.daemon.until_accepting()
    assert peer.daemon.memory_bytes() > 1_000_000
    assert theirs.end(port, "topic") == COUNT + 1


def test_server_that_exits_at_once_is_reported_with_its_output(tmp_path: Path) -> None:
    daemon = Daemon(["sh", "-c", "echo no such option; exit 3"], tmp_path / "log", free_port())
    daemon.spawn()
    with pytest.raises(RuntimeError, match=r"ended with 3:\nno such option"):
        daemon.until_accepting()


def test_missing_peer_says_how_to_install_it() -> None:
    with pytest.raises(NotInstalled, match="apt-get install nothing"):
        found(["no-such-program-of-sparrow"], "apt-get install nothing")


def test_a_nats_server_that_cannot_sync_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    old.chmod(0o755)
    monkeypatch.setenv(nats.PROGRAM_VARIABLE, str(old))
    assert nats.version() == "2.9.10"
    with pytest.raises(NotInstalled, match=r"2\.9\.10 cannot sync before it acknowledges"):
        nats.prepared(tmp_path, is_synced=True).__enter__()
    with nats.prepared(tmp_path) as prepared:
        assert prepared.daemon.command[0] == str(old)


@pytest.mark.parametrize(
    ("release", "can"), [("2.9.10", False), ("2.10.0", True), ("2.10.29-beta", True), ("3.0.1", True)]
)
def test_nats_syncs_since_2_10(release: str, can: bool) -> None:
    assert nats.can_sync(release) is can


def test_jars_that_cannot_be_fetched_are_not_installed_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "CENTRAL", f"http://127.0.0.1:{free_port()}/maven2")
    with pytest.raises(NotInstalled, match=r"lz4-java-1\.10\.1\.jar cannot be fetched from Maven Central"):
        jars.fetched(["at.yawk.lz4:lz4-java:1.10.1"])
    # not tried again: a try may take a minute
    with pytest.raises(NotInstalled, match="lz4-java"):
        jars.fetched(["org.yaml:snakeyaml:2.5"])
    assert not jars.is_kept(["at.yawk.lz4:lz4-java:1.10.1"])
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.parametrize("module", [nats, redis, rabbitmq, kafka])
def test_every_peer_states_its_settings_and_its_version(module: Any) -> None:
    assert module.SETTINGS
    try:
        version = module.version()
    except NotInstalled as error:
        pytest.skip(str(error))
    assert version[0].isdigit()
