"""One real Kafka broker (KRaft, one node) from the jars, for data that Kafka itself wrote."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


@dataclass(frozen=True)
class KafkaNode:
    """Where it listens and where its logs are."""

    port: int
    logs: Path

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def partition(self, topic: str, number: int) -> Path:
        """The directory of a partition."""
        return self.logs / f"{topic}-{number}"


@contextmanager
def kafka_node(java: str, jars: str, work: Path) -> Iterator[KafkaNode]:
    """A broker that has ended, and closed its segments, when the block ends."""
    port, controller_port = _free_ports(2)
    node = KafkaNode(port, work / "logs")
    properties = work / "server.properties"
    properties.write_text(_properties(node, controller_port))
    subprocess.run(
        [java, "-cp", jars, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)],
        check=True,
        capture_output=True,
    )
    with (work / "kafka.out").open("wb") as out:
        process = subprocess.Popen(
            [java, "-Xmx512m", "-cp", jars, "kafka.Kafka", str(properties)], stdout=out, stderr=out
        )
    try:
        _wait(process, port)
        yield node
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


def _properties(node: KafkaNode, controller_port: int) -> str:
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://{node.bootstrap},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={node.logs}
offsets.topic.replication.factor=1
"""


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"Kafka ended with {process.returncode} while it started")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"Kafka did not start within {START_TIMEOUT_S} s")


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports
