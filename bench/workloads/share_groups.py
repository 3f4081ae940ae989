"""Share groups (KIP-932): a member reads and acknowledges while another client publishes, with
confluent-kafka's ShareConsumer, at Sparrow and at Kafka in the same run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench.race import Contender, client, race
from bench.results import OURS, UNSYNCED, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.kafka import KafkaNode
    from bench.race import Round
    from bench.server import Server
    from bench.together import Role

VALUE = b"m" * 100
RATE, SECONDS = 1_000, 5
KEPT = "publish, acquisition and acknowledgement on stable storage (group commit)"
UNSYNCED_KAFKAS = "publish and acknowledgement from the page cache; acquisitions in memory"
KAFKAS = (
    "publish after its fsync (flush.messages=1); acquisitions in memory, acknowledgements in the page cache"
)


def _bootstrap(address: Server | KafkaNode) -> str:
    return address.kafka if hasattr(address, "kafka") else address.bootstrap


def _make(address: Server | KafkaNode, name: str, **config: str) -> None:
    client("confluent").make_shared(_bootstrap(address), name, **config)


def _together(address: Server | KafkaNode, topic: str, count: int) -> list[Role]:
    theirs, bootstrap = client("confluent"), _bootstrap(address)
    return [
        partial(theirs.publish, bootstrap, topic, VALUE, count, "all"),
        partial(theirs.share, bootstrap, topic, count),
    ]


def _at_rate(address: Server | KafkaNode, topic: str, count: int) -> list[Role]:
    theirs, bootstrap = client("confluent"), _bootstrap(address)
    return [
        partial(theirs.publish_at_rate, bootstrap, topic, RATE, count, "all"),
        partial(theirs.share_late, bootstrap, topic, count),
    ]


def _contenders(roles: Callable[[Server | KafkaNode, str, int], list[Role]]) -> tuple[Contender, ...]:
    syncing = partial(_make, **{"flush.messages": "1"})
    return (
        Contender(OURS, "", KEPT, _make, roles),
        Contender("Kafka", "flush.messages=1", KAFKAS, syncing, roles, 1.0, UNSYNCED),
        Contender("Kafka", "", UNSYNCED_KAFKAS, _make, roles, 1.0, UNSYNCED),
    )


def batches(runs: int, scale: float) -> list[Measurement]:
    """Publish, and read and acknowledge in batches, at once."""
    contenders = _contenders(_together)
    name = "share group: 100 B, publish + fetch + acknowledge in batches"
    results = race(contenders, runs, round(300_000 * scale))
    return [results[each].row(name, "msg/s", each, lambda found: found.rate) for each in contenders]


def latency(runs: int, scale: float) -> list[Measurement]:
    """From the time when a message is due until the member has it."""
    contenders = _contenders(_at_rate)
    count = round(RATE * max(1.0, SECONDS * scale))
    results = race(contenders, runs, count)
    rows = []
    for word in ("p50", "p99"):
        name = f"share group: publish to member at {RATE:,} msg/s, {word}"
        for each in contenders:
            row = results[each].row(name, "ms", each, partial(_quantile, word))
            row.note = row.note or results[each].behind(RATE)
            rows.append(row)
    return rows


def _quantile(word: str, found: Round) -> float:
    return float(getattr(found.latencies, word))
