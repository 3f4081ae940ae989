"""The faults of a cluster, those of the table in docs/cluster.md; each ends with a cluster of two
brokers whose engines are well.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.cluster.crash.links import UNAVAILABLE

if TYPE_CHECKING:
    from tests.cluster.crash.cluster import Cluster


class Endured:
    """See `tests.crash.faults.Endured`."""

    broker: Cluster
    dice: random.Random


Fault = Callable[[Any], Awaitable[None]]


async def kill(it: Endured) -> None:
    """Kill the owner."""
    cluster = it.broker
    name, since = await cluster.owned(), time.monotonic()
    await asyncio.to_thread(cluster.brokers[name].kill)
    await cluster.taken_from(name, since)
    cluster.start(name)


async def terminate(it: Endured) -> None:
    """End the owner by SIGTERM."""
    cluster = it.broker
    name, since = await cluster.owned(), time.monotonic()
    code = await asyncio.to_thread(cluster.brokers[name].terminate)
    assert code == 0
    await cluster.taken_from(name, since)
    cluster.start(name)


async def kill_both(it: Endured) -> None:
    """Kill both brokers, and start them again."""
    cluster = it.broker
    await cluster.owned()
    for broker in cluster.brokers.values():
        await asyncio.to_thread(broker.kill)
    for name in cluster.brokers:
        cluster.start(name)
    await asyncio.sleep(0.5)
    await cluster.owned()


async def kill_standby(it: Endured) -> None:
    """Kill the standby, and start it again."""
    cluster = it.broker
    await cluster.owned()
    name = cluster.standby
    await asyncio.to_thread(cluster.brokers[name].kill)
    cluster.start(name)


async def pause(it: Endured) -> None:
    """Stop the owner for less than its lease."""
    broker = it.broker.brokers[await it.broker.owned()]
    broker.signal(signal.SIGSTOP)
    await asyncio.sleep(it.dice.uniform(0.1, 3))
    broker.signal(signal.SIGCONT)
    await it.broker.owned()


async def long_pause(it: Endured) -> None:
    """Stop the owner for longer than its lease; it goes on when another one serves."""
    cluster = it.broker
    name, since = await cluster.owned(), time.monotonic()
    cluster.brokers[name].signal(signal.SIGSTOP)
    await cluster.taken_from(name, since)
    cluster.brokers[name].signal(signal.SIGCONT)


async def restart_ledger(it: Endured) -> None:
    """Restart PostgreSQL as after a crash."""
    await asyncio.to_thread(it.broker.postgres.stop)
    await asyncio.to_thread(it.broker.postgres.start)
    await it.broker.owned()


async def stop_ledger(it: Endured) -> None:
    """Stop PostgreSQL for some seconds."""
    await asyncio.to_thread(it.broker.postgres.stop)
    await asyncio.sleep(it.dice.uniform(2, 12))
    await asyncio.to_thread(it.broker.postgres.start)
    await it.broker.owned()


async def fail_over_ledger(it: Endured) -> None:
    """Crash PostgreSQL; its synchronous standby is promoted and has its address."""
    links = it.broker.ledger_links.values()
    await asyncio.to_thread(it.broker.postgres.fail_over)
    for link in links:
        link.reset()
    await it.broker.owned()


async def cut_ledger(it: Endured) -> None:
    """Cut the owner off from PostgreSQL: the other broker takes over."""
    cluster = it.broker
    name, since = await cluster.owned(), time.monotonic()
    cluster.ledger_links[name].freeze()
    await cluster.taken_from(name, since)
    await asyncio.sleep(it.dice.uniform(0, 3))
    cluster.ledger_links[name].thaw()


async def reset_ledger(it: Endured) -> None:
    """End the owner's connections to PostgreSQL in the middle of commits."""
    link = it.broker.ledger_links[await it.broker.owned()]
    for _ in range(it.dice.randint(1, 5)):
        link.loses_responses = True
        await asyncio.sleep(it.dice.uniform(0.01, 0.2))
        link.loses_responses = False
        link.reset()
        await asyncio.sleep(it.dice.uniform(0.01, 0.2))
    await it.broker.owned()


async def stop_objects(it: Endured) -> None:
    """Stop the object store for some seconds."""
    for link in it.broker.object_links.values():
        link.freeze()
        link.reset()
    if it.broker.s3.can_restart:
        await asyncio.to_thread(it.broker.s3.stop)
    await asyncio.sleep(it.dice.uniform(1, 6))
    if it.broker.s3.can_restart:
        await asyncio.to_thread(it.broker.s3.start)
    for link in it.broker.object_links.values():
        link.thaw()


async def slow_objects(it: Endured) -> None:
    """Let each piece to and from the object store take long."""
    await _objects_for_a_while(it, "delay_s", it.dice.uniform(0.05, 0.5))


async def losing_objects(it: Endured) -> None:
    """Lose the responses of the object store: what was stored looks failed."""
    await _objects_for_a_while(it, "loses_responses", True)


async def failing_objects(it: Endured) -> None:
    """Let the object store answer 503, also to what it has stored."""
    await _objects_for_a_while(it, "response", UNAVAILABLE)


async def cut_objects(it: Endured) -> None:
    """Cut the owner off from the object store."""
    link = it.broker.object_links[await it.broker.owned()]
    link.freeze()
    await asyncio.sleep(it.dice.uniform(1, 10))
    link.thaw()


async def _objects_for_a_while(it: Endured, name: str, value: object) -> None:
    links = list(it.broker.object_links.values())
    before = getattr(links[0], name)
    for link in links:
        setattr(link, name, value)
    await asyncio.sleep(it.dice.uniform(1, 4))
    for link in links:
        setattr(link, name, before)


async def two_at_once(it: Endured) -> None:
    """Kill or stop the owner while an engine has a fault."""
    engine = it.dice.choice([stop_objects, slow_objects, restart_ledger, losing_objects, failing_objects])
    other = it.dice.choice([kill, long_pause, kill_standby])
    await asyncio.gather(engine(it), other(it))


FAULTS: tuple[Fault, ...] = (
    kill,
    kill,
    terminate,
    kill_both,
    kill_standby,
    pause,
    long_pause,
    restart_ledger,
    stop_ledger,
    fail_over_ledger,
    cut_ledger,
    reset_ledger,
    stop_objects,
    slow_objects,
    losing_objects,
    failing_objects,
    cut_objects,
    two_at_once,
)


def deck(dice: random.Random) -> Iterator[Fault]:
    """Yield faults without an end; each once in as many rounds as there are."""
    while True:
        cards = list(FAULTS)
        dice.shuffle(cards)
        yield from cards
