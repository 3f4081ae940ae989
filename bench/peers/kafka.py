"""Kafka: one node (KRaft, broker and controller in one process) from the jars of Maven Central,
with the JVM's options that Kafka's own start script has.

A produce request with acks=all is answered by default when its batch is in the page cache: Kafka
leaves the syncing to the operating system and relies on replicas. `flush.messages=1`, a topic's
configuration, has every batch synced before the answer. Both are measured.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.peers import jars
from bench.peers.daemon import Daemon, Peer, directory, found
from bench.peers.daemon import running as running_daemon
from bench.server import free_port

SYNCED = "acks=all, flush.messages=1: each batch acknowledged after its fsync"
UNSYNCED = "acks=all: acknowledged from the page cache; synced by the operating system"
SETTINGS = (
    "one KRaft node, -Xmx1G -Xms1G and G1 as in kafka-server-start.sh; topics of one partition, "
    "flush.messages=1 where the row says so; warmed up by 300,000 messages, but not where its start is "
    "measured"
)
WARM_UP = 300_000
"""Messages."""
FORMAT_TIMEOUT_S = 90
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
_INSTALL = "java is not installed (Debian: apt-get install openjdk-17-jre-headless)"
_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True)
class KafkaNode:
    """Where it listens and where its logs are."""

    port: int
    logs: Path
    pid: int = 0
    """0: not started."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def partition(self, topic: str, number: int) -> Path:
        """The directory of a partition."""
        return self.logs / f"{topic}-{number}"


def version() -> str:
    """Return the version of the jars, which may have to be fetched.

    Raises:
        NotInstalled: Java is missing.
    """
    java()
    return jars.KAFKA


def java() -> str:
    """Its path. Raises NotInstalled."""
    return found(["java"], _INSTALL)


@contextlib.contextmanager
def prepared(root: Path) -> Iterator[Peer]:
    """A node with a formatted data directory below `root`, not started; its address is a
    `KafkaNode`.
    """
    node = KafkaNode(free_port(), root / "logs")
    properties = root / "server.properties"
    properties.write_text(_properties(node, free_port()))
    run = [java(), "-cp", ":".join(jars.fetched(jars.BROKER))]
    _format([*run, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)])
    command = [run[0], *_JVM, *run[1:], "kafka.Kafka", str(properties)]
    yield Peer(Daemon(command, root / "log", node.port), node)


@contextlib.contextmanager
def running() -> Iterator[KafkaNode]:
    """A node without topics."""
    with directory() as root, node(root) as started:
        yield started


@contextlib.contextmanager
def node(root: Path) -> Iterator[KafkaNode]:
    """A node that has ended, and closed its segments, when the block ends; its data is below
    `root`.
    """
    with prepared(root) as peer, running_daemon(peer.daemon) as daemon:
        yield replace(peer.address, pid=daemon.pid)


def _format(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
    if ended.returncode:
        raise RuntimeError(f"Kafka cannot format its directory:\n{ended.stdout}{ended.stderr}")


def _properties(node: KafkaNode, controller_port: int) -> str:
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://{node.bootstrap},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={node.logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
