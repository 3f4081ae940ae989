"""The broker: opens the stores, starts and closes its parts, and offers its services.

A service has one method for each operation that a frontend may ask for. It checks the rights of the
principal and leaves the work to the module that has the rules. All methods are called on the event
loop's thread. Usable without any socket:

    async with sparrow.Broker("data") as broker:
        await broker.topics.create("orders", partitions=4)
        published = await broker.records.publish("orders", 0, batch)
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from os import PathLike, fspath
from typing import TYPE_CHECKING, NamedTuple, Self

from sparrow.base.clock import Clock, SystemClock
from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.access.authz import ANONYMOUS, Authorizer, Operation, Principal
from sparrow.broker.composition import Foundation, Parts
from sparrow.broker.config import BrokerConfig
from sparrow.broker.connections import Connections
from sparrow.broker.log_dirs import LogDirectory, describe_log_directory
from sparrow.broker.maintenance import BrokerMaintenance
from sparrow.broker.metrics.collector import MetricsCollector
from sparrow.broker.server_view import ServerView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparrow.broker.status.service import StatusService
    from sparrow.meta.store import MetaStore
    from sparrow.storage.damage import Damages
    from sparrow.storage.store import LogStore


class StandbyNode(NamedTuple):
    """Another broker of a cluster, and the address that it has for clients of one of the Kafka
    listeners.
    """

    node_id: int
    listener: str
    host: str
    port: int


class Broker:
    """A broker over a data directory (`path`), or over given stores. An async context manager."""

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        config: BrokerConfig | None = None,
        clock: Clock | None = None,
        log_store: LogStore | None = None,
        meta_store: MetaStore | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        if (path is None) == (log_store is None or meta_store is None):
            raise InvalidArgument("a broker needs a path, or else a log store and a meta store")
        self.warnings: Sequence[str] = ()
        """Risks of this installation, as sentences."""
        self.standbys: Sequence[StandbyNode] = ()
        """Brokers that take over when this one is gone, with the addresses of their Kafka
        listeners.
        """
        self.listener_ports: dict[str, int] = {}
        """The ports of "native", "kafka" and "http" that are served, for the error that a client at
        the wrong port gets.
        """
        self.config = config or BrokerConfig()
        self.clock = clock or SystemClock()
        self._foundation = base = Foundation(self.config, self.clock, authorizer)
        self.measures = base.measures
        self.audit = base.audit
        self.rules = base.rules
        self.access = base.access
        self.sessions = base.sessions
        self.reload = base.reload
        self.login_limits = base.login_limits
        self.server = ServerView(base.access)
        self.client_connections = Connections(base.measures, base.access, base.audit)
        self.started_at_ms = -1
        self._path = None if path is None else fspath(path)
        self._log_store = log_store
        self._meta_store = meta_store
        self._is_open = False
        self._status: StatusService | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ── start and close ───────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Open the stores, recover what a crash left, start the maintenance.

        Raises:
            DirectoryInUse, NewerFormat, DirectoryUnreadable: the data directory cannot be used.
        """
        async with AsyncExitStack() as opened:
            await self._open_stores(opened)
            self.parts = Parts(self._foundation, self._logs, self._meta)
            await self.parts.load()
            opened.pop_all()  # from here on `close` closes them
        self._offer_services(self.parts)
        parts = self.parts
        self._maintenance = BrokerMaintenance(
            self.config,
            self.clock,
            parts.topic_registry,
            parts.group_registry,
            transactions=parts.transaction_coordinator,
            queues=parts.queue_registry,
            idempotency=parts.idempotency,
            sinks=parts.sink_coordinator,
            written=parts.written,
            survey=self._logs.survey,
            record=self._record_status,
        )
        parts.queue_registry.begin()
        parts.idempotency.begin()
        self.metrics = MetricsCollector(self, self._logs, self._meta, parts.written)
        self._maintenance.start()
        self._audit_topic = await self.parts.open_audit_topic()
        self.started_at_ms = self.clock.wall_ms()
        self._is_open = True
        parts.scheduler.begin()

    async def _open_stores(self, opened: AsyncExitStack) -> None:
        """Take the given stores, or open those of the data directory; `opened` closes the latter
        when the start fails.
        """
        if self._log_store is not None and self._meta_store is not None:
            self._logs, self._meta = self._log_store, self._meta_store
            return
        from sparrow.meta.sqlite import SqliteMetaStore
        from sparrow.storage.local import LocalLogStore

        assert self._path is not None
        # The log store comes first: it makes the directory and holds its lock.
        self._logs = LocalLogStore(self._path, clock=self.clock)
        opened.push_async_callback(self._logs.close)
        self._meta = SqliteMetaStore(f"{self._path}/meta.db")
        opened.push_async_callback(self._meta.close)

    def _offer_services(self, parts: Parts) -> None:
        self.cluster_id = parts.cluster_id
        self.topics = parts.topics
        self.records = parts.records
        self.groups = parts.groups
        self.queues = parts.queues
        self.transactions = parts.transactions
        self.idempotency = parts.idempotency
        self.sinks = parts.sinks
        self.webhooks = parts.webhooks
        self.schedules = parts.schedules
        self.pipelines = parts.pipelines
        self.users = parts.users
        self.acls = parts.acls
        self.configs = parts.configs
        self.quotas = parts.quotas

    async def close(self) -> None:
        """Make everything durable and give the data directory back, so that the next start reads no
        records. Again: no effect.

        Raises:
            StorageFailed, DiskFull: not all could be; the directory is given back nevertheless, and
                the next start recovers.
        """
        if not self._is_open:
            return
        self._is_open = False
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._meta.close)
            closing.push_async_callback(self._logs.close)
            await self._maintenance.stop()
            await self._close_audit()
            await self.parts.close()

    async def _close_audit(self) -> None:
        self.audit.close()
        if self._audit_topic is not None:
            self.audit.channels.remove(self._audit_topic.add)
            await self._audit_topic.close()

    # ── state for supervisors ─────────────────────────────────────────────────────────────────────

    def refusal(self) -> SparrowError | None:
        """Return why the stores refuse records now, None if they do not, as far as is known.
        Takes no right.
        """
        return self._logs.refusal()

    @property
    def status(self) -> StatusService:
        """The status of the broker and its history; loaded when it is first needed, which is a few
        seconds after the start.
        """
        if self._status is None:
            from sparrow.broker.status.service import StatusService

            self._status = StatusService(
                self.parts,
                self.measures,
                self._logs,
                self.clock,
                self.access,
                cluster_id=self.cluster_id,
                started_ms=self.started_at_ms,
            )
        return self._status

    async def _record_status(self) -> None:
        await self.status.record()

    def is_current(self) -> bool:
        """Return False while another broker may own the data by now: a frontend then answers no
        request before `current` returns. Takes no right.
        """
        return self._logs.is_current()

    async def current(self) -> None:
        """Wait until no other broker can own the data. Takes no right.

        Raises:
            Draining: another one does.
        """
        await self._logs.current()

    @property
    def leader_epoch(self) -> int:
        """Kafka's leader epoch of all partitions. Takes no right."""
        return self._logs.leader_epoch

    @property
    def damages(self) -> Damages:
        """The records that are known to be missing or unreadable in the logs. Takes no right."""
        return self._logs.damages

    @property
    def log_directory(self) -> str:
        """The place of the records: an absolute path, or a URL."""
        return self._logs.location

    async def describe_log_directory(
        self, wanted: Mapping[str, Sequence[int]] | None = None, *, principal: Principal = ANONYMOUS
    ) -> LogDirectory:
        """Return the directory of the records, with the sizes of the wanted partitions or (None) of
        all.

        Raises:
            NotAuthorized
        """
        self.access.require_cluster(principal, Operation.DESCRIBE)
        return await describe_log_directory(self.parts.topic_registry, self._logs, wanted)

    def statistics(self, *, principal: Principal = ANONYMOUS) -> dict[str, int]:
        """Return the current numbers of topics, partitions, groups and bytes.

        Raises:
            NotAuthorized
        """
        self.access.require_cluster(principal, Operation.DESCRIBE)
        topics = self.parts.topic_registry
        partitions = [p for topic in topics for p in topic.partitions]
        return {
            "topics": len(topics),
            "partitions": len(partitions),
            "bytes": sum(p.log.size_bytes for p in partitions if p.is_open),
            "groups": len(self.parts.group_registry.list_groups()),
            "free_bytes": self._logs.free_bytes(),
        }
