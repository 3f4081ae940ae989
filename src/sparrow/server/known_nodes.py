"""The nodes of a cluster that a node has seen, and what their Kafka clients are given of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from sparrow.broker.broker import StandbyNode
from sparrow.server.listeners import DEFAULT_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparrow.cluster.ledger import NodeInfo

REMEMBERED_S: Final = 600.0
"""Time for which the addresses of a node that is gone are given to clients. Clients ask where
brokers are every five minutes; one that asked while a node was started again must find it later.
"""


class KnownNodes:
    """The nodes that were seen lately, by the address for Kafka clients.

    Args:
        now: monotonic seconds; for tests.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[str, tuple[NodeInfo, float]] = {}

    def see(self, nodes: Iterable[NodeInfo]) -> None:
        """Remember nodes that are alive."""
        now = self._now()
        for node in nodes:
            if node.addresses.get("kafka"):
                self._seen[node.addresses["kafka"]] = node, now
        for address in [each for each, (_, at) in self._seen.items() if now - at > REMEMBERED_S]:
            del self._seen[address]

    def others(self, address: str) -> list[NodeInfo]:
        """Return the remembered nodes but the one at `address`."""
        return [node for each, (node, _) in self._seen.items() if each != address]


def kafka_addresses(addresses: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return (host, port) of a node's Kafka listeners by their names, as far as they are known."""
    found = {}
    for key, text in addresses.items():
        kind, _, name = key.partition(".")
        host, _, port = text.rpartition(":")
        if kind == "kafka" and host and port.isdecimal() and int(port):
            found[name or DEFAULT_NAME] = host.strip("[]"), int(port)
    return found


def standbys_of(nodes: Iterable[NodeInfo]) -> list[StandbyNode]:
    """Return nodes as Kafka clients see them."""
    return [found for node in nodes for found in listeners_of(node.id, node.addresses)]


def listeners_of(node_id: int, addresses: Mapping[str, str]) -> list[StandbyNode]:
    """Return a node as Kafka clients see it, once for each of its listeners."""
    return [StandbyNode(node_id, name, *address) for name, address in kafka_addresses(addresses).items()]
