"""A server of a cluster: it stands by until it owns the shard, then it is a broker over the shard,
until it stops or loses it.

A standby is registered in the ledger, and its listeners are closed: clients that know both
addresses, and load balancers, find the owner. A server that has lost the shard drops all that it
has in memory, and stands by again.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidConfig, SparrowError
from sparrow.broker.metrics import table
from sparrow.cluster.clock import LedgerClock
from sparrow.cluster.committer import CommitOptions
from sparrow.cluster.errors import LedgerUnavailable, NotOwner, ObjectMissing, ObjectsUnavailable
from sparrow.cluster.importer import refuse_unfinished
from sparrow.cluster.object_stores import open_objects
from sparrow.cluster.outage import PROBE_KEY, OutageWatch
from sparrow.cluster.ownership import Ownership
from sparrow.cluster.postgres import PostgresLedger
from sparrow.cluster.shard import OwnedShard
from sparrow.cluster.upkeep import ShardUpkeep
from sparrow.server.cluster_settings import check_cluster
from sparrow.server.config import kafka_listeners
from sparrow.server.engine import Stores
from sparrow.server.known_nodes import KnownNodes, standbys_of
from sparrow.server.listeners import DEFAULT_NAME, OFF
from sparrow.server.ready import bootstrap_of
from sparrow.server.server import Server
from sparrow.server.standby_listeners import StandbyListeners

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from contextlib import AsyncExitStack

    from sparrow.broker.metrics.table import Metric
    from sparrow.cluster.ledger import Ledger, LedgerCheck, NodeInfo, Taken
    from sparrow.cluster.objects import Objects
    from sparrow.server.config import ServerConfig
    from sparrow.server.ready import Ready

log = logging.getLogger("sparrow.server")

IDENTITY_KEY: Final = "sparrow-cluster"
"""The object that has the id of the cluster that a bucket belongs to."""
MAX_CLOCK_MS: Final = 1000
STANDBY_AFTER_S: Final = 0.3
"""A node that finds the shard free takes it, and opens no listener of a standby before."""
START_S: Final = 30.0
"""Time for which a start waits for the engines."""


class ClusterNode:
    """The engines of a cluster, and this node's claim. Use `open`."""

    def __init__(self, config: ServerConfig, ledger: Ledger, objects: Objects) -> None:
        self._config = config
        self.ledger = ledger
        self.objects = objects
        self.ownership = Ownership(ledger, addresses_of(config))
        self.lost: asyncio.Future[SparrowError] = asyncio.get_running_loop().create_future()
        """Done when the shard is lost."""
        self.asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when this node is asked to hand the shard over."""
        self.ownership.when_asked = self._ask
        self.warnings: Sequence[str] = ()
        """Risks of the ledger that the start's check found."""
        outage = self._outage = OutageWatch(objects)
        outage.is_failing = self._lacks_objects
        self.ownership.describe_objects = outage.describe
        self.ownership.gives_up = outage.gives_up
        self.takeover_s = 0.0
        """Time of the last takeover."""
        self._taken: Taken | None = None
        self._shard: OwnedShard | None = None
        self._upkeep: ShardUpkeep | None = None

    @classmethod
    async def open(cls, config: ServerConfig) -> ClusterNode:
        """Open both engines, check them, and register the node.

        Raises:
            InvalidConfig, NewerFormat: the cluster cannot be used; the sentence has the remedy.
            LedgerUnavailable, ObjectsUnavailable: an engine does not answer.
        """
        check_cluster(config.cluster)
        ledger, objects = PostgresLedger(config.cluster.ledger), open_objects(config.cluster.objects)
        try:
            async with asyncio.timeout(START_S):
                check = await check_engines(ledger, objects)
                node = cls(config, ledger, objects)
                node.warnings = check.warnings
                await node.ownership.join()
        except TimeoutError:
            await ledger.close()
            raise InvalidConfig(
                f"{ledger.location} and {objects.location} did not answer in {START_S:.0f} s; "
                "check that both can be reached"
            ) from None
        except BaseException:
            await ledger.close()
            raise
        return node

    async def stand_by(self) -> None:
        """Wait until this node owns the shard."""
        if self.ownership.is_draining:
            await self.ownership.stand_back()
        watching = asyncio.get_running_loop().create_task(
            self._outage.watch(lambda: self.ownership.owner_objects)
        )
        try:
            self._taken = await self.ownership.stand_by()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _lacks_objects(self) -> bool:
        return self._shard is not None and self._shard.committer.objects_failure is not None

    async def open_stores(self, config: ServerConfig, opening: AsyncExitStack) -> Stores:
        """Open the stores of the shard that this node has taken; see `server.engine.OpenStores`."""
        assert self._taken is not None
        begun = time.perf_counter()
        clock = LedgerClock()
        await clock.read(self.ledger)
        content = await self.ledger.load(0)
        refuse_unfinished(content)
        loop = asyncio.get_running_loop()
        self.lost, self.asked = loop.create_future(), loop.create_future()
        shard = self._shard = OwnedShard(
            content,
            self._taken,
            self.ledger,
            self.objects,
            connect=lambda: PostgresLedger(config.cluster.ledger),
            retake=self.ownership.retake,
            when_lost=self._lose,
            is_trusted=lambda: self.ownership.is_trusted and not self.lost.done(),
            clock=clock,
            options=CommitOptions(
                inline_bytes_per_s=config.cluster.inline_bytes_per_s, linger_s=config.cluster.linger_s
            ),
            cache_bytes=config.cluster.cache_bytes,
        )
        self.ownership.when_lost = shard.committer.lose
        opening.push_async_callback(shard.close)
        self._upkeep = ShardUpkeep(shard, self.ledger, self.objects, clock)
        log.info(
            "the shard is loaded",
            extra={
                "epoch": self._taken.epoch,
                "seq": self._taken.seq,
                "entries": len(content.entries),
                "commits": len(content.wal),
                "took_ms": round((time.perf_counter() - begun) * 1000),
            },
        )
        return Stores(shard.logs, shard.meta, clock)

    def _lose(self, error: SparrowError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)

    def _ask(self) -> None:
        if not self.asked.done():
            self.asked.set_result(None)

    async def note_served(self) -> None:
        """Tell the other nodes that clients are served."""
        try:
            self.takeover_s = await self.ownership.note_served()
        except SparrowError as error:
            log.warning("the ledger does not know that clients are served: %s", error.text)

    async def abandon(self) -> None:
        """End the stores without committing anything: the shard is another node's, or may be."""
        await self.stop_upkeep()
        shard, self._shard = self._shard, None
        self.ownership.epoch = -1
        if shard is not None:
            await shard.abandon(NotOwner("another broker owns the data by now; connect again"))

    def metrics(self) -> dict[Metric, float]:
        """Return the values of the metrics of cluster mode."""
        if self._shard is None:
            return {}
        committer, upkeep, others = self._shard.committer, self._upkeep, self.ownership.others
        return {
            table.CLUSTER_TAKEOVER_SECONDS: self.takeover_s,
            table.CLUSTER_STANDBYS: len(others),
            table.CLUSTER_STANDBY_LAG: min((each.seen_ms / 1000 for each in others), default=0.0),
            table.CLUSTER_OBJECTS_AWAY: float(committer.objects_failure is not None),
            table.CLUSTER_GARBAGE: 0 if upkeep is None else upkeep.deleted,
            table.CLUSTER_ORPHANS: 0 if upkeep is None else upkeep.orphans,
            table.CLUSTER_EPOCH: committer.epoch,
            table.CLUSTER_COMMITS: committer.commits,
            table.CLUSTER_UPLOADS: committer.uploads,
            table.CLUSTER_UPLOADED_BYTES: committer.uploaded_bytes,
            table.CLUSTER_INLINE_BYTES: committer.inline_bytes,
            table.CLUSTER_WAITING_BYTES: committer.waiting_bytes,
        }

    def start_upkeep(self) -> None:
        """Begin to merge, and to collect garbage."""
        if self._upkeep is not None:
            self._upkeep.start()

    async def stop_upkeep(self) -> None:
        """Stop that; the stores may be closed then."""
        upkeep, self._upkeep = self._upkeep, None
        if upkeep is not None:
            await upkeep.stop()

    async def hand_over(self) -> None:
        """Let the shard go, after its stores were closed."""
        self._shard = None
        try:
            await self.ownership.release()
        except SparrowError as error:
            log.warning("the shard was not handed over: %s", error.text)

    async def close(self) -> None:
        """Leave the cluster."""
        await self.ownership.leave()
        await self.ledger.close()


def addresses_of(config: ServerConfig, ready: Ready | None = None) -> dict[str, str]:
    """Return the addresses of the node's listeners, as its clients reach them.

    Args:
        ready: of the running server: the ports that were free.
    """
    native_port = config.native_port if ready is None else ready.port
    found = {"native": _reachable(config, config.native_host, native_port)}
    for number, each in enumerate(kafka_listeners(config)):
        port = each.port if ready is None or number else int(ready.kafka.rpartition(":")[2])
        port = each.advertised_port if each.advertised_port != -1 else port
        key = "kafka" if each.name == DEFAULT_NAME else f"kafka.{each.name}"
        found[key] = _reachable(config, each.advertised_host or each.host, port)
    if config.http_port != OFF:
        port = config.http_port if ready is None else int(ready.http.rstrip("/").rpartition(":")[2])
        scheme = "https" if config.http_tls and config.tls_certificate else "http"
        found["http"] = f"{scheme}://{_reachable(config, config.http_host, port)}"
    return found


def _reachable(config: ServerConfig, host: str, port: int) -> str:
    """Return host:port as other machines reach a listener."""
    is_any = host in ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound
    return bootstrap_of((config.cluster.host or socket.gethostname()) if is_any else host, port)


async def check_engines(ledger: Ledger, objects: Objects) -> LedgerCheck:
    """Check both engines at a start. Return the properties of the ledger.

    Raises:
        InvalidConfig, NewerFormat, LedgerUnavailable
    """
    check = await ledger.open()
    sent_ms = time.time_ns() // 1_000_000
    check = await ledger.open()
    received_ms = time.time_ns() // 1_000_000
    ahead_ms = sent_ms - check.now_ms if sent_ms > check.now_ms else min(received_ms - check.now_ms, 0)
    if abs(ahead_ms) > MAX_CLOCK_MS:
        direction = "ahead of" if ahead_ms > 0 else "behind"
        raise InvalidConfig(
            f"the clock of this machine is {abs(ahead_ms)} ms {direction} that of {ledger.location}; "
            "keep both with NTP"
        )
    for warning in check.warnings:
        log.warning(warning)
    try:
        await _check_objects(objects, check.cluster_id.encode(), ledger)
    except ObjectsUnavailable as error:
        raise InvalidConfig(f"the object store cannot be used: {error.text}") from None
    return check


async def _check_objects(objects: Objects, cluster_id: bytes, ledger: Ledger) -> None:
    await objects.put(PROBE_KEY, [cluster_id])
    if await objects.get(PROBE_KEY) != cluster_id:
        raise InvalidConfig(
            f"{objects.location} gave other bytes than were written to it; "
            "a cluster needs a store that reads what it wrote"
        )
    try:
        found = await objects.get(IDENTITY_KEY)
    except ObjectMissing:
        await _mark_objects(objects, cluster_id, ledger)
        found = await objects.get(IDENTITY_KEY)
    if found != cluster_id:
        raise InvalidConfig(
            f"{objects.location} belongs to the cluster {found.decode(errors='replace')[:40]}, "
            f"and {ledger.location} is {cluster_id.decode()}; give each cluster a prefix and a database of "
            "its own"
        )
    await ledger.note_objects(objects.location)


async def _mark_objects(objects: Objects, cluster_id: bytes, ledger: Ledger) -> None:
    """Write the cluster's id into a place that has none, if it is the place of this cluster."""
    place = await ledger.note_objects(objects.location)
    if place != objects.location:
        raise InvalidConfig(
            f"the cluster at {ledger.location} has its objects in {place}, and {objects.location} has none "
            "of them; correct cluster.objects, or copy all objects there"
        )
    await objects.put(IDENTITY_KEY, [cluster_id])


class ClusterServer:
    """A server of a cluster, from its start to its end.

    Args:
        when_ready: called with the server each time clients can connect.
    """

    def __init__(
        self,
        config: ServerConfig,
        read_again: Callable[[], ServerConfig] | None,
        when_ready: Callable[[Server, Ready], None],
    ) -> None:
        self._config = config
        self._read_again = read_again
        self._when_ready = when_ready
        self.server: Server | None = None
        """The server while this node owns the shard."""
        self.listeners: StandbyListeners | None = None
        """The listeners while it does not."""
        self._known = KnownNodes()

    async def run(self, stopped: asyncio.Future[str]) -> None:
        """Serve and stand by until `stopped` is done.

        Raises:
            SparrowError: the start failed; see `ClusterNode.open` and `Server.start`.
        """
        node = await ClusterNode.open(self._config)
        try:
            await asyncio.to_thread(_load_broker)
            while not stopped.done():
                await self._stand_by_and_serve(node, stopped)
        finally:
            await node.close()

    async def _stand_by_and_serve(self, node: ClusterNode, stopped: asyncio.Future[str]) -> None:
        """Stand by until this node owns the shard, and serve until it does not, or until `stopped`
        is done.
        """
        listeners = self.listeners = StandbyListeners(
            self._config, node.ledger, node.ownership, self._known, self._read_again
        )
        opening = asyncio.get_running_loop().create_task(self._open(listeners))

        async def close() -> None:
            self.listeners = None
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await listeners.close()

        try:
            log.info("standing by", extra={"node": node.ownership.node, "ledger": node.ledger.location})
            node.ownership.when_seen = self._known.see
            if await _first(node.stand_by(), stopped):
                await self._serve(node, stopped, close)
        finally:
            await close()

    async def _open(self, listeners: StandbyListeners) -> None:
        """Open the listeners of a standby, unless the shard is taken at once."""
        await asyncio.sleep(STANDBY_AFTER_S)
        try:
            await listeners.open()
        except Exception:  # without them clients find the owner by its own address
            log.exception("the listeners of the standby cannot be opened")

    async def _serve(
        self,
        node: ClusterNode,
        stopped: asyncio.Future[str],
        close_standby: Callable[[], Awaitable[None]],
    ) -> None:
        """Serve while the shard is this node's. The listeners of the standby are closed when the
        owner's are opened.
        """
        config = self._config
        config = replace(config, broker=replace(config.broker, node_id=node.ownership.node))
        self.server = server = Server(
            config,
            node.open_stores,
            self._read_again,
            data=node.objects.location,
            before_listening=close_standby,
        )
        try:
            ready = await server.start()
        except (NotOwner, LedgerUnavailable, ObjectsUnavailable) as error:
            log.warning("the shard cannot be loaded, standing by: %s", error.text)
            await self._abandon(server, node)
            return
        server.add_metrics(node.metrics)
        server.add_warnings(node.warnings)
        addresses = addresses_of(config, ready)
        node.ownership.when_seen = partial(self._see, server, addresses.get("kafka", ""))
        self._see(server, addresses.get("kafka", ""), node.ownership.others)
        self._when_ready(server, ready)
        node.start_upkeep()
        await node.ownership.announce(addresses)
        await node.note_served()
        waits: list[asyncio.Future[Any]] = [stopped, node.lost, node.asked]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if node.lost.done():
            log.warning("the shard is lost, standing by: %s", node.lost.result().text)
            await self._abandon(server, node)
            return
        reason = stopped.result() if stopped.done() else "handover"
        log.info("stopping", extra={"signal": reason, "drain_timeout_ms": config.drain_timeout_ms})
        await node.ownership.drain()
        await node.stop_upkeep()
        await server.stop()
        self.server = None
        await node.hand_over()

    def _see(self, server: Server, own: str, nodes: Sequence[NodeInfo]) -> None:
        """Remember the other nodes, and tell Kafka clients of them."""
        self._known.see(nodes)
        server.set_standbys(standbys_of(self._known.others(own)))

    async def _abandon(self, server: Server, node: ClusterNode) -> None:
        """Drop all that the broker has in memory."""
        self.server = None
        node.ownership.when_seen = self._known.see
        await node.abandon()
        try:
            await server.stop(0)
        except (SparrowError, TimeoutError) as error:
            log.debug("ending a broker that lost its shard: %s", error)


def _load_broker() -> None:
    """Load what a takeover needs, so that it only has to read the ledger."""
    importlib.import_module("sparrow.broker.broker")
    for name in ("native", "kafka", "http"):
        importlib.import_module(f"sparrow.frontends.{name}.frontend")


async def _first(work: Coroutine[Any, Any, None], stopped: asyncio.Future[str]) -> bool:
    """Return True if the work is done, False if `stopped` came first, which cancels the work."""
    task = asyncio.get_running_loop().create_task(work)
    waits: list[asyncio.Future[Any]] = [task, stopped]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False
    task.result()
    return True
