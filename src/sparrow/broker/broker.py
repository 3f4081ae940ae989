"""The broker: one verb for each thing that a door may ask for.

A verb checks who asks (`authz`), finds what is meant (`topics`), and leaves the work to the module that has the rule. All verbs
are called on the event loop's thread. Usable without any socket:

    async with sparrow.Broker("data") as broker:
        await broker.create_topic("orders", partitions=4)
        published = await broker.publish("orders", 0, batch)
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Self

from sparrow.base.clock import Clock, SystemClock
from sparrow.base.errors import (
    InvalidArgument,
    InvalidTopicName,
    OffsetOutOfRange,
    PolicyViolation,
    SparrowError,
    TopicExists,
)
from sparrow.broker import fetch as fetching
from sparrow.broker import weighing
from sparrow.broker.access.acl_store import Acls, StoredAuthorizer
from sparrow.broker.access.authz import (
    ANONYMOUS,
    CLUSTER_NAME,
    Authorizer,
    Operation,
    Principal,
    ResourceType,
    authorized_operations,
    refusal,
    require,
)
from sparrow.broker.access.users import Users
from sparrow.broker.config import BrokerConfig
from sparrow.broker.configs.configs import Configs
from sparrow.broker.configs.node import DEAD_LETTER_AUTO_CREATE, DEAD_LETTER_PREFIX
from sparrow.broker.configs.topic import DEAD_LETTERS_ENABLE, check_config
from sparrow.broker.groups.assembly import assemble
from sparrow.broker.groups.consumer.topics import TopicView
from sparrow.broker.groups.consumer.verbs import ConsumerGroupVerbs
from sparrow.broker.groups.description import GroupType
from sparrow.broker.groups.groups import check_group_name, check_offsets_are_places
from sparrow.broker.groups.offsets import OffsetAndMetadata
from sparrow.broker.groups.share.queues import ShareQueues
from sparrow.broker.groups.share.settings import why_no_dead_letters
from sparrow.broker.groups.share.verbs import ShareGroupVerbs
from sparrow.broker.groups.verbs import GroupVerbs
from sparrow.broker.housekeeping import Housekeeping
from sparrow.broker.idempotency.keys import IdempotencyKeys
from sparrow.broker.internal_topics import INTERNAL_CONFIG, INTERNAL_TOPICS
from sparrow.broker.lag import lags_of_share, report
from sparrow.broker.log_dirs import LogDirectory, describe_log_directory
from sparrow.broker.measures import Measures
from sparrow.broker.metrics.gathering import Gathering
from sparrow.broker.partition import ACKS_ALL, Admit, Partition, Published, refuse_transactional
from sparrow.broker.pipelines.verbs import PipelineVerbs
from sparrow.broker.positions import TIMESTAMP, Start, check_start, locate
from sparrow.broker.producer_ids import ProducerIdentity, ProducerIds
from sparrow.broker.queues.dead_lettering import DeadLettering
from sparrow.broker.queues.deadletters import Style
from sparrow.broker.queues.queues import Queues
from sparrow.broker.queues.redrive import Redrives
from sparrow.broker.queues.verbs import QueueVerbs
from sparrow.broker.quotas.quotas import Quotas
from sparrow.broker.sinks.coordinator import SinkCoordinator
from sparrow.broker.sinks.verbs import SinkVerbs
from sparrow.broker.subscription import Selector, Subscription, SubscriptionListener
from sparrow.broker.topics import NO_TOPIC_ID, Topic, TopicInfo, Topics
from sparrow.broker.transactions.coordinator import TransactionCoordinator, TransactionLimits
from sparrow.broker.transactions.verbs import Transactions
from sparrow.broker.watching import Watches, look_at_all
from sparrow.broker.webhooks.registry import Webhooks
from sparrow.broker.webhooks.verbs import WebhookVerbs
from sparrow.meta.store import ABSENT, Put

if TYPE_CHECKING:
    from sparrow.broker.fetch import Fetched, FetchRequest, ReadMemory
    from sparrow.broker.groups.description import GroupInfo
    from sparrow.broker.groups.native.coordinator import Membership
    from sparrow.broker.lag import GroupReport
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.reader import Key
    from sparrow.broker.watching import Known, Watched
    from sparrow.meta.store import MetaStore
    from sparrow.storage.store import LogId, LogStore

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group committed for one partition; `offset` is the next to read."""

    topic: str
    partition: int
    offset: int
    metadata: str


class Broker:
    """A broker over a data directory (`path`), or over given stores. An async context manager."""

    clock: Clock
    cluster_id: str
    topics: Topics

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
        self.config = config or BrokerConfig()
        self.clock = clock or SystemClock()
        self._rules = StoredAuthorizer(
            self.config.super_users, allow_unnamed=self.config.allow_unnamed_resources
        )
        self.authorizer = authorizer or self._rules
        self.measures = Measures()
        self.started_at_ms = -1
        check_config(self.config.topic_defaults)
        self._path = None if path is None else fspath(path)
        self._log_store = log_store
        self._meta_store = meta_store
        self._is_open = False

    # ── life ──────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the stores, recover what a crash left, begin housekeeping.

        Raises:
            DirectoryInUse, NewerFormat, DirectoryUnreadable: the data directory cannot be used.
        """
        async with AsyncExitStack() as opened:
            await self._open_stores(opened)
            written = await self._load()
            opened.pop_all()  # from here on `close` closes them
        self._unwatch = self.topics.watch(self._topic_changed)
        self._housekeeping = Housekeeping(
            self.config,
            self.clock,
            self.topics,
            self.groups,
            transactions=self.transactions.coordinator,
            queues=self.queues.registry,
            idempotency=self.idempotency,
            sinks=self.sinks.coordinator,
            written=written,
        )
        self.queues.registry.begin()
        self.idempotency.begin()
        self.metrics = Gathering(self, self._logs, self._meta, written)
        self._housekeeping.start()
        self.started_at_ms = self.clock.wall_ms()
        self._is_open = True

    async def _load(self) -> frozenset[LogId]:
        """Everything that the stores know; returns the logs that have data."""
        self.topics = Topics(self.config, self._meta, self._logs, self.clock, measures=self.measures)
        self.watches = Watches(self.topics)
        self.groups = assemble(
            self._meta,
            self.clock,
            self.config,
            self._view_topic,
            lambda group, name: self.configs.of_group(group).get(name),
        )
        self.consumer_group_verbs = ConsumerGroupVerbs(self.groups, lambda: self.authorizer)
        self.share_group_verbs = ShareGroupVerbs(self.groups, lambda: self.authorizer)
        self.group_verbs = GroupVerbs(self.groups, lambda: self.authorizer)
        self._producer_ids = ProducerIds(self._meta)
        self.users = Users(self._meta, lambda who, operation: self._require(who, operation, _CLUSTER))
        self.acls = Acls(self._meta, self._rules, lambda: self.authorizer)
        await self.acls.load()
        self.configs = Configs(self.config, self._meta, self.topics, self._require)
        await self.configs.load()
        self.quotas = Quotas(self._meta, self.clock, lambda: self.authorizer)
        await self.quotas.load()
        self.cluster_id = await self._load_cluster_id()
        await self.topics.load()
        await self.groups.load()
        await self.groups.forget_other_topics({topic.name for topic in self.topics})
        self.groups.topics_changed({topic.name: len(topic.partitions) for topic in self.topics})
        await self._producer_ids.load()
        self.transactions = await self._load_transactions()
        await self.users.load()
        written = frozenset(self._logs.ids())
        if not self._logs.clean_start:
            await self._recover(p for t in self.topics for p in t.partitions if p.id in written)
        await self.transactions.coordinator.resume()
        self.sinks = await self._load_sinks()
        registry = Queues(self._meta, self.clock, self.topics)
        await registry.load()
        registry.made.append(self._dead_lettering(registry).attach)
        self.idempotency = IdempotencyKeys(
            self._meta,
            self.clock,
            self.topics,
            self._new_producer_id,
            window_ms=self.config.idempotency_window_ms,
            max_keys=self.config.idempotency_max_keys,
        )
        self.queues = QueueVerbs(
            registry,
            lambda: self.authorizer,
            self._ensure_topic_with,
            redrives=Redrives(registry, self.topics),
            watch_rules=self._rules.watch,
        )
        webhooks = Webhooks(self._meta, registry)
        await webhooks.load()
        self.webhooks = WebhookVerbs(webhooks, registry, self.clock, lambda: self.authorizer)
        self.pipelines = PipelineVerbs(self.clock, lambda: self.authorizer)
        self.groups.share.queues = ShareQueues(registry, self.topics, self.clock)
        self.configs.group_changed = self.groups.share.settings_changed
        return written

    async def _new_producer_id(self) -> int:
        return (await self._producer_ids.allocate()).producer_id

    def _dead_lettering(self, registry: Queues) -> DeadLettering:
        return DeadLettering(
            registry,
            self._meta,
            self.topics,
            self._new_producer_id,
            self.config.auto_create_topics,
            style_of=self._dead_letter_style,
            refusal_of=lambda queue, topic: (
                self.share_dead_letter_refusal(topic) if queue.is_share_group else None
            ),
        )

    def _dead_letter_style(self, queue: Queue) -> Style:
        if not queue.is_share_group:
            return Style.SPARROW
        copies = self.groups.share.settings(queue.name).copies_dead_letters
        return Style.KAFKA_WITH_CONTENT if copies else Style.KAFKA

    async def _load_transactions(self) -> Transactions:
        coordinator = TransactionCoordinator(
            self._meta,
            self.clock,
            find=self.topics.find_partition,
            producer_ids=self._producer_ids,
            offsets=self.groups,
            limits=TransactionLimits(
                self.config.transaction_max_timeout_ms, self.config.transactional_id_expiration_ms
            ),
        )
        self.groups.follow(coordinator.pending)
        await coordinator.load()
        return Transactions(coordinator, self.topics, self.groups, self.clock, lambda: self.authorizer)

    async def _load_sinks(self) -> SinkVerbs:
        transactions = self.transactions.coordinator
        coordinator = SinkCoordinator(self._meta, self.clock, transactions, find=self.topics.find_partition)
        await coordinator.load()
        return SinkVerbs(coordinator, transactions, self.topics, lambda: self.authorizer)

    async def _open_stores(self, opened: AsyncExitStack) -> None:
        """Take the given stores, or open those of the data directory; `opened` closes the latter when the start fails."""
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

    async def _load_cluster_id(self) -> str:
        fact = await self._meta.get("cluster", "id")
        if fact is not None:
            return fact.value.decode()
        cluster_id = str(uuid.uuid4())
        await self._meta.write([Put("cluster", "id", cluster_id.encode(), ABSENT)])
        return cluster_id

    async def _recover(self, partitions: Iterable[Partition]) -> None:
        """Open many logs at once, each in a thread."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(self.config.recovery_threads, "sparrow-recovery") as pool:
            opening = [(p, loop.run_in_executor(pool, p.load)) for p in partitions]
            for partition, loaded in opening:
                partition.attach(*await loaded)

    async def close(self) -> None:
        """Make everything durable and give the data directory back, so that the next start reads no records. Again: no effect.

        Raises:
            StorageFailed, DiskFull: not all could be; the directory is given back all the same, and the next start recovers.
        """
        if not self._is_open:
            return
        self._is_open = False
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._meta.close)
            closing.push_async_callback(self._logs.close)
            await self._housekeeping.stop()
            await self.idempotency.close()
            await self.webhooks.registry.close()
            await self.queues.registry.close()
            self.groups.close()
            await self.sinks.coordinator.close()
            await self.transactions.coordinator.close()
            await self.topics.settle()
            await self.acls.settle()
            await self.configs.settle()
            await self.quotas.settle()
            self._unwatch()
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        for partition in [p for topic in self.topics for p in topic.partitions]:
            if partition.is_open and partition.log.uncheckpointed_bytes:
                await partition.checkpoint()

    def _require(
        self, principal: Principal, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        require(self.authorizer, principal, operation, kind, name)

    def require_cluster(self, principal: Principal, operation: Operation) -> None:
        """Raise NotAuthorized unless the principal may do this to the cluster as a whole."""
        self._require(principal, operation, _CLUSTER)

    def _allows(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self.authorizer.allows(principal, operation, kind, name)

    def authorized_operations(
        self, principal: Principal, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> frozenset[Operation]:
        """Everything that the principal may do to a resource (KIP-430)."""
        return authorized_operations(self.authorizer, principal, resource_type, name)

    # ── topics ────────────────────────────────────────────────────────────────────────────────────

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        config: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> TopicInfo:
        """Create a topic; -1 partitions means the broker's default. Durable when it returns.

        With `validate_only` nothing is made; the answer has an id of zeros.

        Raises:
            TopicExists, InvalidTopicName, InvalidConfig, InvalidPartitions, NotAuthorized
        """
        self.require_create(principal, name)
        if validate_only:
            count, checked = self.topics.check_new(name, partitions, config or {})
            return TopicInfo(name, NO_TOPIC_ID, count, config=checked.entries())
        made = await self.topics.create(name, partitions, config or {})
        return self._shown(made.info(new_from=0), principal)

    def require_create(self, principal: Principal, name: str) -> None:
        """Raise NotAuthorized unless the principal may make the topic, or any topic."""
        if not self._allows(principal, Operation.CREATE, _CLUSTER, CLUSTER_NAME):
            self._require(principal, Operation.CREATE, _TOPIC, name)

    async def ensure_topic(self, name: str, *, principal: Principal = ANONYMOUS) -> TopicInfo:
        """The topic; created with the defaults when it is missing and the policy allows.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, _TOPIC, name)
        return (await self._ensure(principal, name)).listing()

    async def _ensure(self, principal: Principal, name: str) -> Topic:
        if self.topics.find(name) is None and self.config.auto_create_topics:
            self.require_create(principal, name)
        return await self.topics.ensure(name)

    async def _ensure_topic_with(self, name: str, partitions: int, principal: Principal) -> None:
        """A topic with so many partitions, if it is missing."""
        if self.topics.find(name) is None:
            self.require_create(principal, name)
            with suppress(TopicExists):
                await self.topics.create(name, partitions, {})

    async def _ensure_readable(self, principal: Principal, names: Sequence[str]) -> None:
        for name in names:
            self._require(principal, Operation.READ, _TOPIC, name)
        for name in names:
            await self._ensure(principal, name)

    async def delete_topic(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Delete a topic, its records, and the offsets that groups committed to it.

        Raises:
            UnknownTopic, NotAuthorized
        """
        self.require_delete(principal, name)
        await self.topics.delete(name, self.groups.topic_deleted)

    def require_delete(self, principal: Principal, topic: str) -> None:
        """Raise NotAuthorized unless the principal may delete the topic, or any topic."""
        if not self._allows(principal, Operation.DELETE, _CLUSTER, CLUSTER_NAME):
            self._require(principal, Operation.DELETE, _TOPIC, topic)

    async def configure_topic(
        self,
        name: str,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the verb's own word
        unset: Sequence[str] = (),
        *,
        principal: Principal = ANONYMOUS,
    ) -> TopicInfo:
        """Set and unset configuration values of a topic; they hold from now on.

        Raises:
            UnknownTopic, InvalidConfig, NotAuthorized
        """
        self._require(principal, Operation.ALTER_CONFIGS, _TOPIC, name)
        return (await self.topics.configure(name, set or {}, unset)).info()

    async def add_partitions(
        self, name: str, total: int, *, validate_only: bool = False, principal: Principal = ANONYMOUS
    ) -> TopicInfo:
        """Grow a topic to `total` partitions, or only see whether that is possible.

        Raises:
            UnknownTopic, InvalidPartitions, NotAuthorized
        """
        self._require(principal, Operation.ALTER, _TOPIC, name)
        if validate_only:
            self.topics.check_growth(self.topics.get(name), total)
            return self.topics.get(name).listing()
        before = len(self.topics.get(name).partitions)
        grown = await self.topics.add_partitions(name, total)
        return self._shown(grown.info(new_from=before), principal)

    def describe_topic(self, name: str, *, principal: Principal = ANONYMOUS) -> TopicInfo:
        """Partitions with their offsets, and every configuration with value, default and source, if the principal may see that.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, _TOPIC, name)
        return self._shown(self.topics.get(name).info(), principal)

    def _shown(self, info: TopicInfo, principal: Principal) -> TopicInfo:
        """What the principal may see of it: configuration takes DESCRIBE_CONFIGS."""
        may_see = self._allows(principal, Operation.DESCRIBE_CONFIGS, _TOPIC, info.name)
        return info if may_see else replace(info, config=[])

    async def ensure_internal_topic(self, name: str) -> None:
        """Make one of Kafka's internal topics if it is missing; see `internal_topics`.

        Raises:
            DiskFull, StorageFailed
        """
        if self.topics.find(name) is None:
            with suppress(TopicExists):  # somebody else asked, too
                await self.topics.create(name, 1, INTERNAL_CONFIG)

    def topic_listing(self, name: str, *, principal: Principal = ANONYMOUS) -> TopicInfo:
        """A topic without partitions and configuration; touches no log.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, _TOPIC, name)
        return self.topics.get(name).listing()

    def partition(
        self,
        topic: str,
        partition: int,
        *,
        operation: Operation = Operation.DESCRIBE,
        principal: Principal = ANONYMOUS,
    ) -> Partition:
        """One partition, for a principal that may do `operation` on the topic.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized
        """
        self._require(principal, operation, _TOPIC, topic)
        return self.topics.get(topic).partition(partition)

    def list_topics(
        self, pattern: str = "*", *, internal: bool = False, principal: Principal = ANONYMOUS
    ) -> list[TopicInfo]:
        """Topics that match and that the principal may describe, by name, without partitions and configuration. Kafka's internal
        topics are among them where `internal` says so."""
        return [
            topic.listing()
            for topic in self.topics.matching(pattern, internal=internal)
            if self._allows(principal, Operation.DESCRIBE, _TOPIC, topic.name)
        ]

    def _view_topic(self, name: str) -> TopicView | None:
        topic = self.topics.find(name)
        return None if topic is None else TopicView(topic.name, topic.id, len(topic.partitions))

    def _topic_changed(self, topic: Topic) -> None:
        self.groups.topics_changed({topic.name: 0 if topic.is_deleted else len(topic.partitions)})

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    def publish(
        self,
        topic: str,
        partition: int,
        data: bytes | memoryview,
        *,
        acks: int = ACKS_ALL,
        admit: Admit = refuse_transactional,
        principal: Principal = ANONYMOUS,
    ) -> asyncio.Future[Published]:
        """Append record batches to a partition.

        Args:
            data: one record batch (idempotent producers) or several, back to back. May be reused when this returns.
            acks: -1 the future is done when the batch is on stable storage; 1 when it is in the page cache; 0 likewise,
                nobody is expected to look.
            admit: of a transactional producer; `transactions.admission` gives it.

        Raises, at once:
            UnknownTopic, UnknownPartition, NotAuthorized, and what `Partition.publish` raises.
            InvalidTopicName: one of Kafka's internal topics.
        """
        self._require(principal, Operation.WRITE, _TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicName(f"{topic} is internal: nobody writes to it")
        return self.topics.get(topic).partition(partition).publish(data, acks, admit)

    async def open_producer(self, *, principal: Principal = ANONYMOUS) -> ProducerIdentity:
        """A new identity for an idempotent producer. Whoever may write a topic may be idempotent (KIP-679).

        Raises:
            NotAuthorized
        """
        self._require_idempotence(principal)
        return await self._producer_ids.allocate()

    def _require_idempotence(self, principal: Principal) -> None:
        if not self._allows(
            principal, Operation.IDEMPOTENT_WRITE, _CLUSTER, CLUSTER_NAME
        ) and not self.authorizer.allows_some(principal, Operation.WRITE, _TOPIC):
            raise refusal(principal, Operation.IDEMPOTENT_WRITE, _CLUSTER, CLUSTER_NAME)

    def resume_producer(
        self, producer_id: int, epoch: int, *, principal: Principal = ANONYMOUS
    ) -> ProducerIdentity:
        """The identity of a producer that reconnects.

        Raises:
            UnknownProducer: this broker never made it.
            NotAuthorized
        """
        self._require_idempotence(principal)
        return self._producer_ids.resume(producer_id, epoch)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    async def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        max_bytes: int = 50 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        committed: bool = False,
        stop: asyncio.Future[None] | None = None,
        memory: ReadMemory | None = None,
        principal: Principal = ANONYMOUS,
    ) -> list[Fetched]:
        """Read several partitions at given offsets, with long poll; errors are per partition, in the answers.

        `committed`: only records before the last stable offset, and which of their transactions were aborted. `stop` ends the wait.
        `memory` limits what is read at a time.
        """
        for topic in {request.topic for request in requests}:
            self._require(principal, Operation.READ, _TOPIC, topic)
        return await fetching.fetch(
            self.topics,
            requests,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            committed=committed,
            stop=stop,
            memory=memory,
        )

    async def subscribe(
        self,
        selectors: Sequence[Selector],
        *,
        listener: SubscriptionListener,
        group: str = "",
        member_id: str = "",
        client_name: str = "",
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        committed_only: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> Subscription:
        """Read topics and patterns as one stream; with a group as one of its members.

        `listener` hears of partitions after this has returned. `committed_only` leaves out records of transactions that are open or
        were aborted.
        """
        subscription = Subscription(
            self.topics,
            listener,
            ensure=partial(self._ensure_readable, principal),
            allowed=lambda topic: self._allows(principal, Operation.READ, _TOPIC, topic),
            refused=lambda names: self._refused_reading(principal, group, names),
            watch_rules=self._rules.watch,
            committed=lambda key: self.groups.committed_offset(group, key) if group else None,
            committed_only=committed_only,
        )
        try:
            if not group:
                await subscription.start(selectors)
                return subscription
            self._require(principal, Operation.READ, _GROUP, group)
            await subscription.start_in_group(
                selectors,
                partial(
                    self._join,
                    group=group,
                    member_id=member_id,
                    client_name=client_name,
                    session_timeout_ms=session_timeout_ms,
                    rebalance_timeout_ms=rebalance_timeout_ms,
                ),
            )
        except BaseException:
            await subscription.close()
            raise
        return subscription

    def _refused_reading(self, principal: Principal, group: str, names: Sequence[str]) -> SparrowError | None:
        """Why a subscription may not go on; None if it may."""
        if group and not self._allows(principal, Operation.READ, _GROUP, group):
            return refusal(principal, Operation.READ, _GROUP, group)
        for name in names:
            if not self._allows(principal, Operation.READ, _TOPIC, name):
                return refusal(principal, Operation.READ, _TOPIC, name)
        return None

    async def offsets(
        self, topic: str, at: str, value: int = -1, partition: int = -1, *, principal: Principal = ANONYMOUS
    ) -> list[tuple[int, int, int]]:
        """Where a place is: (partition, offset, timestamp) for one partition or (-1) all.

        `at` is "beginning", "end" or "timestamp" with `value` in ms; the offset is -1 when no record is that late.
        """
        self._require(principal, Operation.DESCRIBE, _TOPIC, topic)
        found = self.topics.get(topic)
        wanted = found.partitions if partition == -1 else [found.partition(partition)]
        return [await _offset_at(p, at, value) for p in wanted]

    async def watch(
        self,
        names: Sequence[str],
        known: Mapping[str, Known],
        *,
        committed: bool = False,
        wait_ms: int = 0,
        principal: Principal = ANONYMOUS,
    ) -> tuple[list[Watched], list[str]]:
        """Topics as they are, and which of the names are missing: at once where that is not as `known` says (or that says nothing),
        else at the first change, or when the wait is over. `committed`: partitions end at the last stable offset.

        Raises:
            NotAuthorized, InvalidTopicName, InvalidArgument, Overloaded
        """

        def require_description(name: str) -> None:
            self._require(principal, Operation.DESCRIBE, _TOPIC, name)

        for name in names:
            require_description(name)
        await self.watches.wait(names, known, committed=committed, wait_s=wait_ms / 1000)
        return look_at_all(self.topics, names, committed=committed, require=require_description)

    async def weigh(
        self, topic: str, ranges: Sequence[tuple[int, int, int]], *, principal: Principal = ANONYMOUS
    ) -> list[int]:
        """About how many bytes lie in ranges of offsets, each (partition, first, behind the last).

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized
            InvalidArgument: too many, or negative numbers.
        """
        self._require(principal, Operation.DESCRIBE, _TOPIC, topic)
        return await weighing.weigh(self.topics.get(topic), ranges)

    async def reach(
        self, topic: str, points: Sequence[tuple[int, int, int]], *, principal: Principal = ANONYMOUS
    ) -> list[int]:
        """How far bytes reach: an offset for each (partition, offset, bytes); see `PartitionLog.reach`.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized, OffsetOutOfRange
            InvalidArgument: too many, or negative numbers.
        """
        self._require(principal, Operation.DESCRIBE, _TOPIC, topic)
        return await weighing.reach(self.topics.get(topic), points)

    async def delete_records(
        self, topic: str, before: Mapping[int, int], *, principal: Principal = ANONYMOUS
    ) -> dict[int, int]:
        """Delete all records before an offset, per partition; -1 means all. Returns the new log starts.

        Raises:
            OffsetOutOfRange: an offset behind the end; partitions named before it may be done.
            PolicyViolation: the topic is compacted, and its cleanup.policy has no delete.
        """
        self._require(principal, Operation.DELETE, _TOPIC, topic)
        found = self.topics.get(topic)
        partitions = {index: found.partition(index) for index in before}
        if found.config.compact and not found.config.log.delete:
            raise PolicyViolation(
                f"records of topic {topic!r} cannot be deleted by offset: its cleanup.policy is compact alone"
            )
        starts: dict[int, int] = {}
        for index, partition in partitions.items():
            end = partition.visible_end
            offset = before[index] if before[index] != -1 else end
            if not 0 <= offset <= end:
                raise OffsetOutOfRange(
                    f"records of {partition.id} cannot be deleted before offset {offset}: it ends at {end}"
                )
            await partition.keep_producers()
            starts[index] = await partition.log.delete_records(offset)
        return starts

    def refusal(self) -> SparrowError | None:
        """Why the stores refuse records now; None: they do not, as far as is known. For supervisors: anybody may ask."""
        return self._logs.refusal()

    @property
    def log_directory(self) -> str:
        """Where records are kept: an absolute path, or a URL."""
        return self._logs.location

    async def describe_log_directory(
        self, wanted: Mapping[str, Sequence[int]] | None = None, *, principal: Principal = ANONYMOUS
    ) -> LogDirectory:
        """Where records are kept, with the sizes of the wanted partitions or (None) of all.

        Raises:
            NotAuthorized
        """
        self.require_cluster(principal, Operation.DESCRIBE)
        return await describe_log_directory(self.topics, self._logs, wanted)

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    def _join(
        self, topics: list[str], subscription: Subscription, *, group: str, **options: Any
    ) -> Membership:
        return self.groups.native.join(group, topics, subscription, **options)

    def list_groups(self, *, principal: Principal = ANONYMOUS) -> list[GroupInfo]:
        """Groups of all kinds that have members or committed offsets, by name."""
        return self.group_verbs.list_groups(principal=principal)

    def describe_group(self, group: str, *, principal: Principal = ANONYMOUS) -> GroupReport:
        """Members, committed offsets and lag; nothing of topics that the principal may not describe.

        Raises:
            UnknownGroup, NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, _GROUP, group)
        described = self.groups.describe(group)
        members = tuple(
            member.only(lambda topic: self._allows(principal, Operation.DESCRIBE, _TOPIC, topic))
            for member in described.members
        )
        committed = self._visible_offsets(principal, group)
        return report(replace(described, members=members), committed, self.topics)

    async def report_group(self, group: str, *, principal: Principal = ANONYMOUS) -> GroupReport:
        """As `describe_group`; of a share group with how far it is instead of committed offsets.

        Raises:
            UnknownGroup, NotAuthorized
        """
        found = self.describe_group(group, principal=principal)
        if found.type is not GroupType.SHARE:
            return found
        progress = await self.share_group_verbs.progress(group, principal=principal)
        return replace(found, offsets=lags_of_share(progress))

    def _visible_offsets(self, principal: Principal, group: str) -> dict[Key, OffsetAndMetadata]:
        """What a group committed for topics that the principal may describe."""
        committed = self.groups.fetch_offsets(group)
        visible = {
            topic
            for topic in {key[0] for key in committed}
            if self._allows(principal, Operation.DESCRIBE, _TOPIC, topic)
        }
        return {key: value for key, value in committed.items() if key[0] in visible}

    async def commit_offsets(
        self, group: str, offsets: Mapping[Key, tuple[int, str]], *, principal: Principal = ANONYMOUS
    ) -> None:
        """Commit (offset, metadata) per partition for a group that has no members; durable when it returns.

        Raises:
            GroupNotEmpty, UnknownTopic, UnknownPartition, InvalidArgument, NotAuthorized
        """
        self._require(principal, Operation.READ, _GROUP, group)
        check_group_name(group)
        for topic, partition in offsets:
            self._require(principal, Operation.READ, _TOPIC, topic)
            self.topics.get(topic).partition(partition)
        values = {key: OffsetAndMetadata(*value) for key, value in offsets.items()}
        check_offsets_are_places(values)
        await self.groups.commit(group, values)

    def fetch_offsets(
        self, group: str, topics: Sequence[str] = (), *, principal: Principal = ANONYMOUS
    ) -> list[CommittedOffset]:
        """What a group committed, for some topics or (empty) all that the principal may describe, by topic and partition.

        Raises:
            NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, _GROUP, group)
        for topic in topics:
            self._require(principal, Operation.DESCRIBE, _TOPIC, topic)
        committed = self._visible_offsets(principal, group)
        return [
            CommittedOffset(topic, partition, value.offset, value.metadata)
            for (topic, partition), value in sorted(committed.items())
            if not topics or topic in topics
        ]

    async def reset_group(
        self,
        group: str,
        topic: str,
        at: str,
        value: int = -1,
        partitions: Sequence[int] = (),
        *,
        principal: Principal = ANONYMOUS,
    ) -> list[tuple[str, int, int]]:
        """Set a group's offsets on a topic to a place (`positions.Start`); an offset outside of the log becomes its start or end.

        Raises:
            GroupNotEmpty: it has members; stop them first.
            UnknownTopic, UnknownPartition, InvalidArgument, NotAuthorized
        """
        self._require(principal, Operation.READ, _GROUP, group)
        check_group_name(group)
        self._require(principal, Operation.READ, _TOPIC, topic)
        found = self.topics.get(topic)
        places: dict[Key, OffsetAndMetadata] = {}
        for index in partitions or range(len(found.partitions)):
            partition = found.partition(index)
            offset, _ = await locate(partition, Start(at, value))
            inside = min(max(offset, partition.start_offset), partition.visible_end)
            places[topic, index] = OffsetAndMetadata(inside)
        await self._set_places(group, places)
        return [(name, index, place.offset) for (name, index), place in places.items()]

    def share_dead_letter_refusal(self, topic: str) -> str | None:
        """Why share groups may not write dead letters to a topic, as it stands (KIP-1191); None: they may."""
        found = self.topics.find(topic)
        return why_no_dead_letters(
            topic,
            prefix=self.configs.of_node(DEAD_LETTER_PREFIX),
            is_enabled=None if found is None else found.config.value(DEAD_LETTERS_ENABLE).lower() == "true",
            makes_missing=self.configs.of_node(DEAD_LETTER_AUTO_CREATE).lower() == "true",
        )

    async def _set_places(self, group: str, places: Mapping[Key, OffsetAndMetadata]) -> None:
        if not self.groups.share.owns(group):
            await self.groups.commit(group, places)
            return
        moved = await self.groups.share.move(group, {key: place.offset for key, place in places.items()})
        for error in moved.values():
            if error is not None:
                raise error

    async def delete_group(self, group: str, *, principal: Principal = ANONYMOUS) -> None:
        """Forget a group and its offsets.

        Raises:
            UnknownGroup, GroupNotEmpty, NotAuthorized
        """
        self._require(principal, Operation.DELETE, _GROUP, group)
        await self.groups.delete_group(group)

    def statistics(self, *, principal: Principal = ANONYMOUS) -> dict[str, int]:
        """Counts of what there is now.

        Raises:
            NotAuthorized
        """
        self.require_cluster(principal, Operation.DESCRIBE)
        partitions = [p for topic in self.topics for p in topic.partitions]
        return {
            "topics": len(self.topics),
            "partitions": len(partitions),
            "bytes": sum(p.log.size_bytes for p in partitions if p.is_open),
            "groups": len(self.groups.list_groups()),
            "free_bytes": self._logs.free_bytes(),
        }


async def _offset_at(partition: Partition, at: str, value: int) -> tuple[int, int, int]:
    """(partition, offset, timestamp); unlike a reader's start, a time after all records has no offset."""
    index = partition.id.partition
    if at == TIMESTAMP:
        check_start(Start(at, value))
        found = await partition.log.offset_for_timestamp(value)
        return (index, *found) if found else (index, -1, -1)
    return (index, *await locate(partition, Start(at, value)))
