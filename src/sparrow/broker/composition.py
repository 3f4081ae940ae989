"""The composition of a broker: its parts, and the order in which they are built and loaded.

`Foundation` has the parts that need no store. `Parts` are built over the stores: each step of
`Parts.load` builds the parts of one area, loads their entries of the meta store, and may use the
parts of the steps before it. `Parts.close` settles them.
"""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import LogDamaged
from sparrow.broker.access.access import Access
from sparrow.broker.access.acl_store import AclService, StoredAuthorizer
from sparrow.broker.access.authz import SYSTEM, Authorizer, ReportingAuthorizer, ResourceType
from sparrow.broker.access.login_limits import LoginLimits
from sparrow.broker.access.sessions import Sessions
from sparrow.broker.access.users import UserService
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.topic import TOPIC_CONFIG, AuditTopic
from sparrow.broker.configs.node import DEAD_LETTER_AUTO_CREATE, DEAD_LETTER_PREFIX
from sparrow.broker.configs.service import ConfigService
from sparrow.broker.configs.topic import DEAD_LETTERS_ENABLE, check_config
from sparrow.broker.groups.assembly import BrokerGroups
from sparrow.broker.groups.consumer.topics import TopicView
from sparrow.broker.groups.service import GroupService
from sparrow.broker.groups.share.queues import ShareQueues
from sparrow.broker.groups.share.settings import why_no_dead_letters
from sparrow.broker.idempotency.keys import IdempotencyKeys
from sparrow.broker.measures import Measures
from sparrow.broker.pipelines.service import PipelineService
from sparrow.broker.producer_ids import BROKER, ProducerIds
from sparrow.broker.queues.dead_letters.format import Style
from sparrow.broker.queues.dead_letters.redrive import Redrives
from sparrow.broker.queues.dead_letters.service import DeadLetterService
from sparrow.broker.queues.persistence.state_store import StateStore
from sparrow.broker.queues.registry import QueueRegistry
from sparrow.broker.queues.service import QueueService
from sparrow.broker.quotas.service import QuotaService
from sparrow.broker.record_service import RecordService
from sparrow.broker.reload import Reload
from sparrow.broker.schedules.registry import ScheduleRegistry
from sparrow.broker.schedules.scheduler import Scheduler
from sparrow.broker.schedules.service import ScheduleService
from sparrow.broker.schedules.targets import ScheduleTargets
from sparrow.broker.schedules.waves import Waves
from sparrow.broker.sinks.coordinator import SinkCoordinator
from sparrow.broker.sinks.service import SinkService
from sparrow.broker.topics.registry import TopicRegistry
from sparrow.broker.topics.service import TopicService
from sparrow.broker.transactions.coordinator import TransactionCoordinator, TransactionLimits
from sparrow.broker.transactions.service import TransactionService
from sparrow.broker.webhooks.registry import WebhookRegistry
from sparrow.broker.webhooks.service import WebhookService
from sparrow.meta.store import ABSENT, Put

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.base.clock import Clock
    from sparrow.broker.config import BrokerConfig
    from sparrow.broker.partition import Partition
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.topics.registry import Topic
    from sparrow.meta.store import MetaStore
    from sparrow.records.topic_partition import TopicPartition
    from sparrow.storage.store import LogStore

CHECKPOINTS_AT_ONCE: Final = 64
"""Checkpoints of partitions that are written at the same time when the broker stops."""


class Foundation:
    """The parts of a broker that need no store."""

    def __init__(self, config: BrokerConfig, clock: Clock, authorizer: Authorizer | None) -> None:
        check_config(config.topic_defaults)
        self.config = config
        self.clock = clock
        self.measures = Measures()
        self.audit = Audit(clock, self.measures.audit_events, self.measures.lost_audit_events)
        self.rules = StoredAuthorizer(
            config.super_users,
            allow_unnamed=config.allow_unnamed_resources,
            reserved_topics=filter(None, [config.audit_topic]),
        )
        self.rules.report_refusal = self.audit.refused
        if config.has_logins:
            self.rules.expect_logins()
        self.access = Access(
            self.rules if authorizer is None else ReportingAuthorizer(authorizer, self.audit.refused)
        )
        self.sessions = Sessions(self.audit.session_ended)
        self.reload = Reload(self.access, self.audit)
        self.login_limits = LoginLimits(clock, self.measures.failed_logins)


class Parts:
    """The parts of a broker over its stores. `load` before use.

    Services have the names that they have in the broker. Registries and coordinators are for the
    parts themselves, and for tests: frontends call services only.
    """

    def __init__(self, foundation: Foundation, logs: LogStore, meta: MetaStore) -> None:
        self._logs = logs
        self._meta = meta
        self._config = foundation.config
        self._clock = foundation.clock
        self._audit = foundation.audit
        self._access = foundation.access
        self._rules = foundation.rules
        self._sessions = foundation.sessions
        self._measures = foundation.measures

    # ── loading ───────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Build and load all parts; open the logs that a crash left without a checkpoint.

        Raises:
            all that the stores raise; the parts need no close then.
        """
        for step in (
            self._load_access,
            self._load_settings,
            self._open_states,
            self._load_topics_and_groups,
            self._load_transactions,
            self._load_sinks,
            self._load_queues,
            self._load_webhooks,
            self._load_schedules,
        ):
            await step()
        self._unwatch_topics = self.topic_registry.watch(self._topic_changed)

    async def load_view(self) -> None:
        """Build and load the parts of a view alone: see `BrokerView`.

        Raises:
            as `load`.
        """
        await self._load_access()
        await self._load_settings()
        await self.topic_registry.load()
        self._build_groups()
        await self.users.load()

    async def _load_access(self) -> None:
        self.users = UserService(
            self._meta,
            self._access,
            self._rules.expect_logins,
            self._sessions,
            audit=self._audit,
        )
        self.acls = AclService(self._meta, self._rules, self._access, audit=self._audit)
        await self.acls.load()

    async def _load_settings(self) -> None:
        self.topic_registry = TopicRegistry(
            self._config, self._meta, self._logs, self._clock, measures=self._measures
        )
        self.configs = ConfigService(self._config, self._meta, self.topic_registry, self._access, self._audit)
        await self.configs.load()
        self.quotas = QuotaService(self._meta, self._clock, self._access, self._audit)
        await self.quotas.load()
        self.pipelines = PipelineService(self._clock, self._access)
        self.cluster_id = await self._load_cluster_id()

    async def _load_cluster_id(self) -> str:
        entry = await self._meta.get("cluster", "id")
        if entry is not None:
            return entry.value.decode()
        cluster_id = str(uuid.uuid4())
        await self._meta.write([Put("cluster", "id", cluster_id.encode(), ABSENT)])
        return cluster_id

    async def _open_states(self) -> None:
        """Open the journal, before any log: it may have the newest records of some."""
        self._states = await StateStore.open(self._meta, self._logs)

    async def _load_topics_and_groups(self) -> None:
        await self.topic_registry.load()
        self._build_groups()
        await self.group_registry.load()
        await self.group_registry.forget_other_topics({topic.name for topic in self.topic_registry})
        self.group_registry.topics_changed(
            {topic.name: len(topic.partitions) for topic in self.topic_registry}
        )
        self.producer_ids = ProducerIds(self._meta)
        await self.producer_ids.load()
        self.records = RecordService(
            self.topic_registry,
            self.group_registry,
            self.producer_ids,
            self.topics,
            access=self._access,
            watch_rules=self._rules.watch,
        )

    def _build_groups(self) -> None:
        """Build the registry of groups, and the services of groups and topics."""
        self.group_registry = BrokerGroups(
            self._meta,
            self._clock,
            self._config,
            self._view_topic,
            lambda group, name: self.configs.of_group(group).get(name),
        )
        self.groups = GroupService(self.group_registry, self.topic_registry, self._access, self._audit)
        self.topics = TopicService(
            self.topic_registry, self.group_registry, self._access, self._audit, self._config
        )

    async def _load_transactions(self) -> None:
        coordinator = self.transaction_coordinator = TransactionCoordinator(
            self._meta,
            self._clock,
            find=self.topic_registry.find_partition,
            producer_ids=self.producer_ids,
            offsets=self.group_registry,
            limits=TransactionLimits(
                self._config.transaction_max_timeout_ms, self._config.transactional_id_expiration_ms
            ),
        )
        self.group_registry.follow(coordinator.pending)
        await coordinator.load()
        self.transactions = TransactionService(
            coordinator,
            self.topic_registry,
            self.group_registry,
            self._clock,
            self._access,
            audit=self._audit,
        )
        await self.users.load()
        self.written = frozenset(self._logs.ids())
        if not self._logs.clean_start:
            await self._recover(p for t in self.topic_registry for p in t.partitions if p.id in self.written)
        await coordinator.resume()

    async def _recover(self, partitions: Iterable[Partition]) -> None:
        """Open many logs at once, each in a thread."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(self._config.recovery_threads, "sparrow-recovery") as pool:
            opening = [(p, loop.run_in_executor(pool, p.load)) for p in partitions]
            for partition, loaded in opening:
                try:
                    partition.attach(*await loaded)
                except LogDamaged:
                    # the store has logged it; this partition stays closed, all others serve
                    continue

    async def _load_sinks(self) -> None:
        transactions = self.transaction_coordinator
        coordinator = self.sink_coordinator = SinkCoordinator(
            self._meta, self._clock, transactions, find=self.topic_registry.find_partition
        )
        await coordinator.load()
        self.sinks = SinkService(coordinator, transactions, self.topic_registry, self._access, self._audit)

    async def _load_queues(self) -> None:
        states = self._states
        registry = self.queue_registry = QueueRegistry(states, self._clock, self.topic_registry)
        self.topic_registry.explain = registry.without_dead_letters
        await registry.load()
        registry.made.append(self._dead_letter_service(registry, states).attach)
        self.idempotency = IdempotencyKeys(
            self._meta,
            self._clock,
            self.topic_registry,
            self._new_producer_id,
            window_ms=self._config.idempotency_window_ms,
            max_keys=self._config.idempotency_max_keys,
        )
        self.queues = QueueService(
            registry,
            self._access,
            self.topics.ensure_with_partitions,
            redrives=Redrives(registry, self.topic_registry),
            watch_rules=self._rules.watch,
            audit=self._audit,
        )
        self.topics.when_batch_removed.append(self._resume_queues)
        self.group_registry.share.queues = ShareQueues(registry, self.topic_registry, self._clock)
        self.configs.group_changed = self.group_registry.share.settings_changed

    async def _load_webhooks(self) -> None:
        webhooks = self.webhook_registry = WebhookRegistry(self._meta, self.queue_registry)
        await webhooks.load()
        self.webhooks = WebhookService(webhooks, self.queue_registry, self._clock, self._access, self._audit)
        self.users.when_deleted.append(self.webhooks.owner_deleted)

    async def _load_schedules(self) -> None:
        registry = self.schedule_registry = ScheduleRegistry(self._meta, self._clock)
        await registry.load()
        waves = Waves(
            registry,
            self.topic_registry,
            self._meta,
            self._clock,
            new_producer_id=self._new_producer_id,
            lateness=self._measures.schedule_lateness,
        )
        await waves.load()
        targets = self.schedule_targets = ScheduleTargets(
            self.queue_registry, self.topic_registry, self._access
        )
        self.scheduler = Scheduler(registry, targets, waves, self._clock)
        self.schedules = ScheduleService(
            registry, targets, waves, self._clock, access=self._access, audit=self._audit
        )
        self.users.when_deleted.append(self.schedules.owner_deleted)

    # ── callbacks of the parts ────────────────────────────────────────────────────────────────────

    def _view_topic(self, name: str) -> TopicView | None:
        topic = self.topic_registry.find(name)
        return None if topic is None else TopicView(topic.name, topic.id, len(topic.partitions))

    def _topic_changed(self, topic: Topic) -> None:
        self.group_registry.topics_changed({topic.name: 0 if topic.is_deleted else len(topic.partitions)})

    async def _new_producer_id(self) -> int:
        """Return a producer id that no client may use."""
        return (await self.producer_ids.allocate(BROKER)).producer_id

    def _resume_queues(self, key: TopicPartition) -> None:
        for queue in self.queue_registry:
            if queue.source(key) is not None:
                queue.resume_reading()

    def _dead_letter_service(self, registry: QueueRegistry, states: StateStore) -> DeadLetterService:
        return DeadLetterService(
            registry,
            states,
            self.topic_registry,
            self._new_producer_id,
            self._config.auto_create_topics,
            style_of=self._dead_letter_style,
            refusal_of=lambda queue, topic: (
                self.share_dead_letter_refusal(topic) if queue.is_share_group else None
            ),
        )

    def share_dead_letter_refusal(self, topic: str) -> str | None:
        """Return why share groups may not write dead letters to a topic as it is now (KIP-1191), or
        None if they may.
        """
        found = self.topic_registry.find(topic)
        return why_no_dead_letters(
            topic,
            prefix=self.configs.of_node(DEAD_LETTER_PREFIX),
            is_enabled=None if found is None else found.config.value(DEAD_LETTERS_ENABLE).lower() == "true",
            makes_missing=self.configs.of_node(DEAD_LETTER_AUTO_CREATE).lower() == "true",
        )

    def _dead_letter_style(self, queue: Queue) -> Style:
        if not queue.is_share_group:
            return Style.SPARROW
        copies = self.group_registry.share.settings(queue.name).copies_dead_letters
        return Style.KAFKA_WITH_CONTENT if copies else Style.KAFKA

    async def open_audit_topic(self) -> AuditTopic | None:
        """Create the audit topic if it is missing, and write events to it; None without one."""
        name = self._config.audit_topic
        if not name:
            return None
        if self.topic_registry.find(name) is None:
            with self._audit.act(SYSTEM, "topic.create", ResourceType.TOPIC, name):
                await self.topic_registry.create(name, 1, TOPIC_CONFIG)
        topic = AuditTopic(
            lambda: self.topic_registry.find_partition((name, 0)), self._measures.lost_audit_events
        )
        self._audit.channels.append(topic.add)
        topic.start()
        return topic

    # ── closing ───────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """Settle running work, and write checkpoints; the stores stay open."""
        await self.scheduler.close()
        await self.topic_registry.record_checks.close()
        await self.idempotency.close()
        await self.webhook_registry.close()
        await self.queue_registry.close()
        self.group_registry.close()
        await self.sink_coordinator.close()
        await self.transaction_coordinator.close()
        await self.producer_ids.settle()
        await self.topic_registry.settle()
        await self.acls.settle()
        await self.configs.settle()
        await self.quotas.settle()
        self._unwatch_topics()
        await self._checkpoint()

    async def _checkpoint(self) -> None:
        """Write the checkpoints of all partitions, many at a time: a store that is far away keeps
        those together.
        """
        partitions = [p for topic in self.topic_registry for p in topic.partitions]
        for first in range(0, len(partitions), CHECKPOINTS_AT_ONCE):
            some = partitions[first : first + CHECKPOINTS_AT_ONCE]
            ended = await asyncio.gather(*map(_checkpoint, some), return_exceptions=True)
            for failure in filter(None, ended):
                raise failure


async def _checkpoint(partition: Partition) -> None:
    await partition.end_opening()
    if partition.is_open and partition.log.uncheckpointed_bytes:
        await partition.checkpoint()
