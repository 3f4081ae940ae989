"""Several brokers do the same work in turn, round after round (A B C A B C …), each as a process
with its data on the same disk.

What is not installed is left out; its row says how to get it. A contender that fails is a row that
says so, and the others go on.
"""

from __future__ import annotations

import statistics
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import count as numbers
from itertools import groupby
from typing import Any, NamedTuple

from bench.cluster import CLUSTER, cluster_broker
from bench.kept import kept
from bench.pace import Quantiles, quantiles, settled
from bench.peers import kafka, nats, rabbitmq, redis
from bench.peers.daemon import NotInstalled
from bench.quiet import until_idle
from bench.results import OURS, RATIO, SYNCED, Measurement, Target
from bench.server import Server, server
from bench.together import Role, Span, seconds, together

NATS_SYNCED = "NATS (sync_interval always)"
KEEPS_UP = 0.8
"""A contender below this share of a rate, from the first message sent to the last one read, falls
behind.
"""
_queue_numbers = numbers()
"""A broker may be kept from one workload to the next: no two queues have the same name."""


@contextmanager
def sparrow_broker() -> Iterator[Server]:
    with server("--default-partitions", "1") as running:
        assert running.process is not None
        until_idle(running.process.pid)
        yield running


@contextmanager
def kafka_broker() -> Iterator[kafka.KafkaNode]:
    """Yield a Kafka broker that is warm: the JVM's compiler has seen the work."""
    with kafka.running() as node:
        together(partial(client("confluent").warm_up, node.bootstrap, kafka.WARM_UP))
        until_idle(node.pid)
        yield node


_BROKERS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    OURS: sparrow_broker,
    "RabbitMQ": rabbitmq.running,
    "Redis": redis.running,
    "NATS": nats.running,
    NATS_SYNCED: partial(nats.running, is_synced=True),
    "Kafka": kafka_broker,
    CLUSTER: cluster_broker,
}
_SLOW_TO_START = {"RabbitMQ", "Kafka"}
"""Kept from one workload to the next, where a run has to be short."""


@dataclass(frozen=True)
class Contender:
    """One client of one broker, with one kind of queue."""

    broker: str
    client: str
    """The text of its row."""
    durability: str
    prepare: Callable[[Any, str], None]
    """Makes the queue: (address, name)."""
    roles: Callable[[Any, str, int], list[Role]]
    """The client processes: (address, queue, messages). The last one is the consumer."""
    share: float = 1.0
    """Share of the messages that it gets: less for slower ones, so that all take about as long."""
    strength: str = SYNCED
    """SYNCED or UNSYNCED: only equals are compared."""

    def __str__(self) -> str:
        return f"{self.broker}, {self.client}" if self.client else self.broker


class Round(NamedTuple):
    """Results of the processes of one contender in one round."""

    messages: int
    spans: list[Span]

    @property
    def rate(self) -> float:
        """Messages per second, from the first beginning to the last end."""
        return self.messages / seconds(self.spans)

    @property
    def latencies(self) -> Quantiles:
        """Quantiles of what the consumer found, behind the beginning."""
        return quantiles(settled(self.spans[-1].found))


@dataclass
class Results:
    """Results of one contender."""

    rounds: list[Round] = field(default_factory=list)
    missing: str = ""
    """The missing software, or the failure."""
    failed: bool = False

    def row(
        self, figure: str, unit: str, contender: Contender, of_round: Callable[[Round], float]
    ) -> Measurement:
        """The contender's row of the table."""
        return Measurement(
            f"{figure}: {contender}",
            unit,
            durability=contender.durability,
            runs=[of_round(each) for each in self.rounds],
            note=self.missing,
            figure=figure,
            broker=contender.broker,
            client=contender.client,
            strength=contender.strength,
            failed=self.failed,
        )

    def behind(self, rate: int) -> str:
        """Return a note if latencies grew as long as messages came at this rate; "" if the
        contender keeps up.
        """
        if not self.rounds:
            return ""
        reached = statistics.median(each.rate for each in self.rounds)
        return "" if reached > KEEPS_UP * rate else f"does not keep up with the rate: {reached:,.0f} msg/s"

    def fail(self, error: Exception) -> None:
        """It takes part no longer, and has no figure."""
        self.rounds.clear()
        self.missing = (
            f"failed: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
        )
        self.failed = True


def client(name: str) -> Any:
    """A module of `bench.clients`; imported late, for it may need what is not installed.

    Raises:
        NotInstalled: it does.
    """
    try:
        return import_module(f"bench.clients.{name}")
    except ImportError as error:
        raise NotInstalled(
            f"{error.name} is not installed (make bench installs it: uv sync --inexact --extra "
            "server --group bench)"
        ) from None


def race(contenders: Sequence[Contender], runs: int, count: int) -> dict[Contender, Results]:
    """Let each do the work with `count` messages (or its share) in each round; those of one broker
    follow each other in the list.
    """
    results = {contender: Results() for contender in contenders}
    for _ in range(runs):
        for broker, group in groupby(contenders, lambda each: each.broker):
            left = [each for each in group if not results[each].missing]
            if left:
                _round(broker, left, count, results)
    return results


def _round(broker: str, group: Sequence[Contender], count: int, results: dict[Contender, Results]) -> None:
    """One broker, and each of its contenders once."""
    try:
        with _started(broker) as address:
            for contender in group:
                try:
                    results[contender].rounds.append(_one(contender, address, count))
                except NotInstalled as error:
                    results[contender].missing = str(error)
                except Exception as error:  # noqa: BLE001 - the others are measured
                    traceback.print_exc()
                    results[contender].fail(error)
    except NotInstalled as error:
        for contender in group:
            results[contender].missing = str(error)
    except Exception as error:  # noqa: BLE001 - it did not start, or did not end
        traceback.print_exc()
        for contender in group:
            results[contender].fail(error)


def _started(broker: str) -> AbstractContextManager[Any]:
    start = _BROKERS[broker]
    return kept(broker, start) if broker in _SLOW_TO_START else start()


def _one(contender: Contender, address: Any, count: int) -> Round:
    share = max(1, round(count * contender.share))
    queue = f"q{next(_queue_numbers)}"
    contender.prepare(address, queue)
    return Round(share, together(*contender.roles(address, queue, share)))


def against_best(
    name: str, ours: Measurement, rows: Mapping[Contender, Measurement], *, more_is_better: bool
) -> Measurement:
    """One figure of Sparrow's as a multiple of the best peer's of the same round and the same
    strength: 1 or more (or less, where less is better) is ahead of each of them.
    """
    equals = [row for row in rows.values() if row.broker != OURS and row.strength == ours.strength]
    runs = _multiples(ours, equals, more_is_better=more_is_better)
    note = "" if runs else "no peer of this strength was measured"
    return Measurement(
        name, RATIO, runs=runs, note=note, figure=ours.figure, client=ours.client, strength=ours.strength
    )


def against_redis(
    ours: Measurement, rows: Mapping[Contender, Measurement], target: Target, *, more_is_better: bool
) -> Measurement:
    """The same beside Redis with `appendfsync always` alone, which is the yardstick of queues."""
    name = f"{ours.name}, of Redis's"
    equals = [row for row in rows.values() if row.broker == "Redis" and row.strength == ours.strength]
    runs = _multiples(ours, equals, more_is_better=more_is_better)
    note = "" if runs else "Redis was not measured: apt-get install redis-server"
    return Measurement(name, RATIO, target, runs=runs, note=note, strength=ours.strength)


def _multiples(ours: Measurement, peers: Sequence[Measurement], *, more_is_better: bool) -> list[float]:
    """Our figure of each round, divided by the best of the peers' of that round."""
    theirs = [row.runs for row in peers if row.runs]
    best = max if more_is_better else min
    rounds = zip(ours.runs, *theirs, strict=True) if theirs and ours.runs else ()
    return [mine / best(others) for mine, *others in rounds]
