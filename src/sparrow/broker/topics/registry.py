"""The topics of a broker: the registry, kept in the meta store, and its watchers.

The meta store decides: a topic exists when its entry is written. Directories of logs follow lazily,
and those of a deleted topic that a crash left behind are removed at the next start.

A change that has begun is completed even if its caller is cancelled (its connection was lost),
because the store writes nevertheless: memory and store must agree. The name of a deleted topic is
free when all its data is gone.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from sparrow.base.errors import (
    InvalidPartitions,
    InvalidTopicName,
    LogDamaged,
    PolicyViolation,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from sparrow.base.ids import uuid7
from sparrow.broker import entries
from sparrow.broker.audit.topic import AuditPartition
from sparrow.broker.configs.topic import TopicConfig, check_config, check_name
from sparrow.broker.detached import Detached
from sparrow.broker.measures import Measures
from sparrow.broker.names import check_topic_name, compile_pattern, plain_name
from sparrow.broker.partition import Partition
from sparrow.broker.record_checks import RecordChecks
from sparrow.broker.topics.internal_topics import INTERNAL_TOPICS
from sparrow.broker.topics.name_matches import NameMatches
from sparrow.meta.store import ABSENT, Delete, Put
from sparrow.model.topics import PartitionDescription, TopicDescription
from sparrow.storage.store import LogId

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.config import BrokerConfig
    from sparrow.meta.store import MetaStore
    from sparrow.storage.store import LogStore

T = TypeVar("T")

_KIND = "topic"
_DELETED = "deleted-topic"
"""Ids of deleted topics whose logs may still exist. A start removes only logs that are named
here.
"""
_ENTRY_VERSION = 1
_LOG = logging.getLogger(__name__)
_RECONFIGURED_AT_ONCE = 100
"""Topics that get new defaults before other tasks run."""


class _TopicEntry(msgspec.Struct, array_like=True):
    """The stored form of a topic, version 1."""

    version: int
    id: bytes
    partitions: int
    config: dict[str, str]
    created_ms: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_TopicEntry)


class Topic:
    """A topic and its partitions."""

    def __init__(
        self,
        name: str,
        topic_id: uuid.UUID,
        config: TopicConfig,
        created_ms: int,
        *,
        is_internal: bool = False,
    ) -> None:
        self.name = name
        self.is_internal = is_internal
        self.id = topic_id
        self.config = config
        self.created_ms = created_ms
        self.partitions: list[Partition] = []
        self.is_deleted = False

    def partition(self, index: int) -> Partition:
        """Return one partition.

        Raises:
            UnknownPartition: names the number of partitions.
        """
        if 0 <= index < len(self.partitions):
            return self.partitions[index]
        raise UnknownPartition(
            f"topic {self.name!r} has partitions 0 to {len(self.partitions) - 1}, not {index}"
        )

    def listing(self) -> TopicDescription:
        """Return the description that lists of topics show; touch no log."""
        return TopicDescription(self.name, str(self.id), len(self.partitions))

    def info(self, *, new_from: int | None = None) -> TopicDescription:
        """Return the full description. Partitions from `new_from` on were created just now: their
        logs are empty and are not opened.
        """
        partitions = [
            PartitionDescription(i, 0, 0, 0)
            if new_from is not None and i >= new_from and not p.is_open
            else _partition_info(i, p)
            for i, p in enumerate(self.partitions)
        ]
        return TopicDescription(self.name, str(self.id), len(partitions), partitions, self.config.entries())

    def entry(self) -> Put:
        stored = _TopicEntry(
            _ENTRY_VERSION, self.id.bytes, len(self.partitions), self.config.overrides, self.created_ms
        )
        return Put(_KIND, self.name, _ENCODER.encode(stored))


def _partition_info(index: int, partition: Partition) -> PartitionDescription:
    try:
        log = partition.log
    except LogDamaged:  # the partition is closed; the others are shown
        return PartitionDescription(index, -1, -1, 0)
    return PartitionDescription(index, log.start_offset, log.end_offset, log.size_bytes)


class TopicRegistry:
    """The registry of topics. Loop thread only. Changes are durable when a method returns."""

    def __init__(
        self,
        config: BrokerConfig,
        meta: MetaStore,
        store: LogStore,
        clock: Clock,
        *,
        measures: Measures | None = None,
    ) -> None:
        self.explain: Callable[[str], str | None] = lambda _: None
        """Returns the reason why a topic is missing, if another part knows one; None: it does not
        exist.
        """
        self._config = config
        self._measures = measures or Measures()
        self.record_checks = RecordChecks()
        self.defaults: Mapping[str, str] = config.topic_defaults
        """Configuration values that topics have unless they set their own."""
        self._meta = meta
        self._store = store
        self._clock = clock
        self._internal = INTERNAL_TOPICS | ({config.audit_topic} - {""})
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._plain_names: dict[str, str] = {}
        """Names by their form in metrics."""
        self.partition_count = 0
        """The number of partitions of all topics, including those that are being created."""
        self._creating: dict[str, asyncio.Future[Topic]] = {}
        self._deleting: dict[str, asyncio.Future[None]] = {}
        self._changing = asyncio.Lock()
        self._changes = Detached()
        self._watchers: list[Callable[[Topic], None]] = []
        self._patterns = NameMatches(self, compile_pattern)

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    # ── finding ───────────────────────────────────────────────────────────────────────────────────

    def find(self, name: str) -> Topic | None:
        """Return the topic, or None."""
        return self._topics.get(name)

    def is_internal(self, name: str) -> bool:
        """Return True for Kafka's internal topics and the audit topic."""
        return name in self._internal

    def find_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic of that id, or None."""
        return self._by_id.get(topic_id)

    def get(self, name: str) -> Topic:
        """Return the topic.

        Raises:
            UnknownTopic, InvalidTopicName
        """
        topic = self._topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise UnknownTopic(
                self.explain(name) or f"there is no topic {name!r}; `sparrow topic create {name}` makes one"
            )
        return topic

    def find_partition(self, key: tuple[str, int]) -> Partition | None:
        """Return the partition of (topic, number), or None."""
        topic = self._topics.get(key[0])
        return topic.partitions[key[1]] if topic is not None and 0 <= key[1] < len(topic.partitions) else None

    def matching(self, pattern: str, *, internal: bool = False) -> list[Topic]:
        """Return the topics whose name matches a pattern (`*` and `?`), by name. Kafka's internal
        topics are included if `internal` is True, or if the pattern begins as they do.
        """
        hidden = frozenset() if internal else self._hidden_from(pattern)
        names = sorted(self._topics.keys() - hidden)
        if pattern == "*":
            return [self._topics[name] for name in names]
        matches = compile_pattern(pattern).match
        return [self._topics[name] for name in names if matches(name)]

    def knows_pattern(self, pattern: str) -> bool:
        """Return True if the names that a pattern matches are known, so that `learn_pattern` takes
        no time.
        """
        return pattern in self._patterns

    async def learn_pattern(self, pattern: str) -> list[str]:
        """Return the names that match a pattern, in any order, as `matching` has them. Other tasks
        run in between.

        Raises:
            InvalidTopicName: the pattern has a character that no topic name has.
        """
        names = await self._patterns.learn(pattern, partial(asyncio.sleep, 0))
        return [name for name in names if name not in self._hidden_from(pattern)]

    async def find_matching(self, pattern: str) -> list[str]:
        """Return the names that match a pattern that is needed once, in order. Other tasks run in
        between.
        """
        names = await self._patterns.find(pattern, partial(asyncio.sleep, 0))
        return sorted(name for name in names if name not in self._hidden_from(pattern))

    def watch(self, watcher: Callable[[Topic], None]) -> Callable[[], None]:
        """Call `watcher` with each topic that was created, grew, or was deleted (`is_deleted`);
        return a function that stops that.
        """
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _notify(self, topic: Topic) -> None:
        if topic.is_deleted:
            self._patterns.topic_deleted(topic.name)
        else:
            self._patterns.topic_created(topic.name)
        for watcher in list(self._watchers):
            try:
                watcher(topic)
            except Exception:  # noqa: BLE001 - one watcher's bug must not fail the change, nor silence the others
                _LOG.exception("a watcher of topic %r failed", topic.name)

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Read all topics from the meta store; complete deletions that a crash interrupted.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry is no topic, or one of a later Sparrow.
        """
        for entry in await self._meta.scan(_KIND):
            stored = entries.read(entry, _DECODER.decode, _ENTRY_VERSION)
            config = TopicConfig(stored.config, self.defaults)
            topic = self._new(entry.key, uuid.UUID(bytes=stored.id), config, stored.created_ms)
            self._grow(topic, stored.partitions)
            self._topics[topic.name] = self._by_id[topic.id] = topic
            self._plain_names.setdefault(plain_name(topic.name), topic.name)
            self.partition_count += len(topic.partitions)
        await self._finish_deletions()

    async def _finish_deletions(self) -> None:
        """Remove the logs of topics whose deletion a crash interrupted. Other unknown logs are
        kept: the meta store may be the one that lost something.
        """
        deleted = {entry.key for entry in await self._meta.scan(_DELETED)}
        for log_id in self._store.ids():
            known = self._topics.get(log_id.topic)
            if log_id.topic_id.hex in deleted:
                await self._store.purge(log_id)
            elif known is None or known.id != log_id.topic_id:
                if await self._store.forget_missing(log_id):
                    continue
                _LOG.warning(
                    "the log %s belongs to no topic that is known and is left alone; was the meta "
                    "store (meta.db, meta.db-wal)"
                    " lost or restored without its log? Put it back, or remove the log's directory",
                    log_id,
                )
        await self._meta.write([Delete(_DELETED, key) for key in deleted])

    async def create(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """Create a topic; -1 partitions means the broker's default.

        Raises:
            TopicExists: it exists and can be used, also if another call was creating it.
                InvalidTopicName, InvalidConfig, InvalidArgument
        """
        await self._wait_until_settled(name)
        count, checked = self.check_new(name, partitions, config)
        now_ms = self._clock.wall_ms()
        topic = self._new(name, uuid7(now_ms), checked, now_ms)
        self._grow(topic, count)
        self._creating[name] = asyncio.get_running_loop().create_future()
        self._plain_names[plain_name(name)] = name
        self.partition_count += count
        return await self._changes.run(self._create(topic))

    def check_new(self, name: str, partitions: int, config: Mapping[str, str]) -> tuple[int, TopicConfig]:
        """Check that such a topic could be created; return its number of partitions and its
        configuration.

        Raises:
            as `create`
        """
        check_topic_name(name)
        if name not in self._deleting:
            self._check_name(name)
        count = self._config.default_partitions if partitions == -1 else partitions
        self._check_count(count, count)
        return count, TopicConfig(check_config(config), self.defaults)

    def _check_name(self, name: str) -> None:
        if name in self._topics or name in self._creating:
            raise TopicExists(f"topic {name!r} exists already")
        taken = self._plain_names.get(plain_name(name))
        if taken is not None and taken != name:
            raise InvalidTopicName(
                f"the topic name {name!r} collides with that of topic {taken!r}: names that differ "
                "only in . and _"
                " are the same in metrics"
            )

    def _forget_plain_name(self, name: str) -> None:
        if self._plain_names.get(plain_name(name)) == name:
            del self._plain_names[plain_name(name)]

    async def _create(self, topic: Topic) -> Topic:
        try:
            put = topic.entry()
            await self._meta.write([Put(put.kind, put.key, put.value, ABSENT)])
            self._topics[topic.name] = self._by_id[topic.id] = topic
        except BaseException:
            self._forget_plain_name(topic.name)
            self.partition_count -= len(topic.partitions)
            raise
        finally:
            self._creating.pop(topic.name).cancel()
        self._notify(topic)
        return topic

    async def ensure(self, name: str) -> Topic:
        """Return the topic; create it with the defaults if it is missing and the policy allows.

        Raises:
            UnknownTopic: it is missing, and the broker does not create topics by itself.
        """
        topic = self._topics.get(name)
        if topic is not None or not self._config.auto_create_topics:
            return topic or self.get(name)
        check_topic_name(name)
        await self._wait_until_deleted(name)
        if name in self._topics:
            return self._topics[name]
        creating = self._creating.get(name)
        if creating is not None:
            await asyncio.wait([creating])
            return self.get(name)
        return await self.create(name, -1, {})

    async def delete(self, name: str, forget: Callable[[str], Awaitable[None]]) -> None:
        """Delete a topic and its logs; `forget` drops what other parts keep under its name, before
        the name is free.
        """
        await self._changes.run(self._delete(name, forget))

    async def _delete(self, name: str, forget: Callable[[str], Awaitable[None]]) -> None:
        async with self._changing:
            topic = self.get(name)
            await self._meta.write([Delete(_KIND, name), Put(_DELETED, topic.id.hex, b"")])
            gone = self._deleting[name] = asyncio.get_running_loop().create_future()
            try:
                del self._topics[name]
                del self._by_id[topic.id]
                self._forget_plain_name(name)
                self.partition_count -= len(topic.partitions)
                topic.is_deleted = True
                self._notify(topic)
                for partition in topic.partitions:
                    partition.refuse_from_now()
                    partition.wake_waiters()
                await self._clear(topic, forget)
            finally:
                del self._deleting[name]
                gone.set_result(None)

    async def _clear(self, topic: Topic, forget: Callable[[str], Awaitable[None]]) -> None:
        try:
            await forget(topic.name)
        finally:
            for partition in topic.partitions:
                await partition.delete()
        await self._meta.write([Delete(_DELETED, topic.id.hex)])

    async def _wait_until_deleted(self, name: str) -> None:
        while (gone := self._deleting.get(name)) is not None:
            await asyncio.wait([gone])

    async def _wait_until_settled(self, name: str) -> None:
        while (busy := self._deleting.get(name) or self._creating.get(name)) is not None:
            await asyncio.wait([busy])

    async def configure(self, name: str, set_: Mapping[str, str], unset: Sequence[str]) -> Topic:
        """Set and unset configuration values of a topic."""
        return await self._changes.run(self._configure(name, set_, unset))

    async def _configure(self, name: str, set_: Mapping[str, str], unset: Sequence[str]) -> Topic:
        async with self._changing:
            topic = self.get(name)
            for key in unset:
                check_name(key)
            overrides = {k: v for k, v in topic.config.overrides.items() if k not in unset}
            overrides.update(check_config(set_))
            before, topic.config = topic.config, TopicConfig(overrides, self.defaults)
            try:
                await self._meta.write([topic.entry()])
            except BaseException:
                topic.config = before
                raise
            for partition in topic.partitions:
                partition.configure(topic.config)
            return topic

    async def add_partitions(self, name: str, total: int) -> Topic:
        """Grow a topic to `total` partitions."""
        return await self._changes.run(self._add_partitions(name, total))

    async def _add_partitions(self, name: str, total: int) -> Topic:
        async with self._changing:
            topic = self.get(name)
            before = len(topic.partitions)
            self.check_growth(topic, total)
            grown = Topic(topic.name, topic.id, topic.config, topic.created_ms)
            self._grow(grown, total)
            await self._meta.write([grown.entry()])
            topic.partitions.extend(grown.partitions[before:])
            self.partition_count += total - before
            self._notify(topic)
            return topic

    async def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Change the values that topics have unless they set their own, for all topics at once."""
        self.defaults = defaults
        async with self._changing:
            for count, topic in enumerate(list(self), 1):
                topic.config = TopicConfig(topic.config.overrides, self.defaults)
                for partition in topic.partitions:
                    partition.configure(topic.config)
                if count % _RECONFIGURED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def check_growth(self, topic: Topic, total: int) -> None:
        """Check that a topic could grow to `total` partitions.

        Raises:
            InvalidPartitions
        """
        before = len(topic.partitions)
        if total <= before:
            raise InvalidPartitions(
                f"topic {topic.name!r} has {before} partitions; {total} is not more (they cannot shrink)"
            )
        self._check_count(total, total - before)

    async def settle(self) -> None:
        """Wait for changes whose callers have gone away."""
        await self._changes.settle()

    def _check_count(self, count: int, new: int) -> None:
        limit = self._config.max_partitions_per_topic
        if not 1 <= count <= limit:
            raise InvalidPartitions(f"a topic has 1 to {limit} partitions, not {count}")
        if self.partition_count + new > self._config.max_partitions:
            raise PolicyViolation(
                f"{new} more partitions are too many: there are {self.partition_count}, and "
                "max_partitions allows"
                f" {self._config.max_partitions}; delete topics, or raise it"
            )

    def _hidden_from(self, pattern: str) -> frozenset[str]:
        """Return the topics that a pattern does not match unless it begins as they do."""
        return frozenset() if pattern.startswith("__") else self._internal

    def _new(self, name: str, topic_id: uuid.UUID, config: TopicConfig, created_ms: int) -> Topic:
        return Topic(name, topic_id, config, created_ms, is_internal=name in self._internal)

    def _grow(self, topic: Topic, total: int) -> None:
        loop = asyncio.get_running_loop()
        kind = AuditPartition if topic.name == self._config.audit_topic else Partition
        for index in range(len(topic.partitions), total):
            log_id = LogId(topic.name, topic.id, index)
            topic.partitions.append(
                kind(
                    log_id,
                    topic.config,
                    self._store,
                    self._clock,
                    loop,
                    measures=self._measures,
                    checks=self.record_checks,
                )
            )
