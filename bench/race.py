"""Several brokers do the same work in turn, round after round, each as a process with its data on the same disk.

What is not installed is left out; its row says how to get it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import groupby
from typing import Any, NamedTuple

from bench.peers import rabbitmq, redis
from bench.peers.daemon import NotInstalled
from bench.quiet import until_idle
from bench.results import Measurement
from bench.server import server
from bench.together import Role, Span, seconds, together

OURS = "sparrow"


@contextmanager
def sparrow_broker() -> Iterator[str]:
    with server("--default-partitions", "1") as running:
        assert running.process is not None
        until_idle(running.process.pid)
        yield running.url


_BROKERS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    OURS: sparrow_broker,
    "RabbitMQ": rabbitmq.running,
    "Redis": redis.running,
}


@dataclass(frozen=True)
class Contender:
    """One client of one broker, with one kind of queue."""

    broker: str
    client: str
    """What its row says of it."""
    durability: str
    prepare: Callable[[Any, str], None]
    """Makes the queue: (address, name)."""
    roles: Callable[[Any, str, int], list[Role]]
    """The client processes: (address, queue, messages). The last one is the consumer."""
    share: float = 1.0
    """How many of the messages it gets; less for who is slower, so that all take about as long."""

    def __str__(self) -> str:
        return f"{self.broker}, {self.client}" if self.client else self.broker


class Round(NamedTuple):
    """What the processes of one contender found in one round."""

    messages: int
    spans: list[Span]

    @property
    def rate(self) -> float:
        """Messages per second, from the first beginning to the last end."""
        return self.messages / seconds(self.spans)


@dataclass
class Results:
    """Of one contender."""

    rounds: list[Round] = field(default_factory=list)
    missing: str = ""
    """What was not installed."""

    def row(
        self, name: str, unit: str, contender: Contender, figure: Callable[[Round], float]
    ) -> Measurement:
        """The contender's row of the table."""
        runs = [figure(each) for each in self.rounds]
        return Measurement(f"{name}: {contender}", unit, None, contender.durability, runs, self.missing)


def client(name: str) -> Any:
    """A module of `bench.clients`; imported late, for it may need what is not installed.

    Raises:
        NotInstalled: it does.
    """
    try:
        return import_module(f"bench.clients.{name}")
    except ImportError as error:
        raise NotInstalled(
            f"{error.name} is not installed (pip install pika aio-pika redis hiredis)"
        ) from None


def race(contenders: Sequence[Contender], runs: int, count: int) -> dict[Contender, Results]:
    """Let each do the work with `count` messages (or its share) in each round; those of one broker follow each other in the list."""
    results = {contender: Results() for contender in contenders}
    for _ in range(runs):
        for broker, group in groupby(contenders, lambda each: each.broker):
            of_broker = list(group)
            try:
                with _BROKERS[broker]() as address:
                    for number, contender in enumerate(of_broker):
                        _one(contender, address, f"q{number}", count, results[contender])
            except NotInstalled as error:
                for contender in of_broker:
                    results[contender].missing = str(error)
    return results


def _one(contender: Contender, address: Any, queue: str, count: int, results: Results) -> None:
    share = max(1, round(count * contender.share))
    try:
        contender.prepare(address, queue)
        roles = contender.roles(address, queue, share)
    except NotInstalled as error:
        results.missing = str(error)
        return
    results.rounds.append(Round(share, together(*roles)))


def against_best(
    name: str, ours: Measurement, rows: Mapping[Contender, Measurement], *, more_is_better: bool
) -> Measurement:
    """One figure of Sparrow's as a multiple of the best peer's of the same round: 1 or more (or less, where less is better) is ahead of each of them."""
    theirs = [row.runs for contender, row in rows.items() if contender.broker != OURS and row.runs]
    best = max if more_is_better else min
    rounds = zip(ours.runs, *theirs, strict=True) if theirs else ()
    runs = [mine / best(others) for mine, *others in rounds]
    return Measurement(name, "x", runs=runs, note="" if runs else "no peer is installed")
