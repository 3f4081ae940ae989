"""The topics of a broker: the registry, kept in the meta store, and who watches it.

The meta store is the truth: a topic exists when its fact is written. Directories of logs follow lazily, and what a crash
leaves behind of a deleted topic is purged at the next start.

A change that has begun is carried to its end even if its caller is cancelled (its connection was lost), because the store writes
all the same: memory and store must not part. The name of a deleted topic is free when all that it had is gone.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

from sparrow.base.errors import (
    DirectoryUnreadable,
    InvalidPartitions,
    InvalidTopicName,
    NewerFormat,
    PolicyViolation,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from sparrow.base.ids import uuid7
from sparrow.broker.configs.topic import ConfigEntry, TopicConfig, check_config, check_name
from sparrow.broker.detached import Detached
from sparrow.broker.internal_topics import INTERNAL_TOPICS
from sparrow.broker.measures import Measures
from sparrow.broker.partition import Partition
from sparrow.broker.topic_names import check_topic_name, compile_pattern, plain_name
from sparrow.meta.store import ABSENT, Delete, Put
from sparrow.storage.store import LogId

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.config import BrokerConfig
    from sparrow.meta.store import Fact, MetaStore
    from sparrow.storage.store import LogStore

T = TypeVar("T")

_KIND = "topic"
_DELETED = "deleted-topic"
"""Ids of deleted topics whose logs may still be there. Only what is named here is ever removed at a start."""
_FACT_VERSION = 1
NO_TOPIC_ID = uuid.UUID(int=0)
"""Of a topic that does not exist."""
_LOG = logging.getLogger(__name__)
_RECONFIGURED_AT_ONCE = 100
"""Topics that get new defaults before the loop may do something else."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """What is known of one partition."""

    partition: int
    start_offset: int
    end_offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What is known of one topic. Lists of topics leave `partitions` and `config` empty."""

    name: str
    id: uuid.UUID
    partition_count: int
    partitions: list[PartitionInfo] = field(default_factory=list)
    config: list[ConfigEntry] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        """One of Kafka's internal topics."""
        return self.name in INTERNAL_TOPICS


class _TopicFact(msgspec.Struct, array_like=True):
    """The stored form of a topic, version 1."""

    version: int
    id: bytes
    partitions: int
    config: dict[str, str]
    created_ms: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_TopicFact)


class Topic:
    """A topic and its partitions."""

    def __init__(self, name: str, topic_id: uuid.UUID, config: TopicConfig, created_ms: int) -> None:
        self.name = name
        self.id = topic_id
        self.config = config
        self.created_ms = created_ms
        self.partitions: list[Partition] = []
        self.is_deleted = False

    def partition(self, index: int) -> Partition:
        """One partition.

        Raises:
            UnknownPartition: says how many there are.
        """
        if 0 <= index < len(self.partitions):
            return self.partitions[index]
        raise UnknownPartition(
            f"topic {self.name!r} has partitions 0 to {len(self.partitions) - 1}, not {index}"
        )

    def listing(self) -> TopicInfo:
        """What a list of topics shows; touches no log."""
        return TopicInfo(self.name, self.id, len(self.partitions))

    def info(self, *, new_from: int | None = None) -> TopicInfo:
        """Everything. Partitions from `new_from` on were made just now: their logs are empty and need not be opened to know it."""
        partitions = [
            PartitionInfo(i, 0, 0, 0)
            if new_from is not None and i >= new_from and not p.is_open
            else PartitionInfo(i, p.log.start_offset, p.log.end_offset, p.log.size_bytes)
            for i, p in enumerate(self.partitions)
        ]
        return TopicInfo(self.name, self.id, len(partitions), partitions, self.config.entries())

    def fact(self) -> Put:
        stored = _TopicFact(
            _FACT_VERSION, self.id.bytes, len(self.partitions), self.config.overrides, self.created_ms
        )
        return Put(_KIND, self.name, _ENCODER.encode(stored))


class Topics:
    """The registry. Loop thread only. Changes are durable when a method returns."""

    def __init__(
        self,
        config: BrokerConfig,
        meta: MetaStore,
        store: LogStore,
        clock: Clock,
        *,
        measures: Measures | None = None,
    ) -> None:
        self._config = config
        self._measures = measures or Measures()
        self.defaults: Mapping[str, str] = config.topic_defaults
        """Configuration values that topics have unless they set their own."""
        self._meta = meta
        self._store = store
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._plain_names: dict[str, str] = {}
        """Names by how metrics write them."""
        self.partition_count = 0
        """Partitions of all topics together, those that are being made included."""
        self._creating: dict[str, asyncio.Future[Topic]] = {}
        self._deleting: dict[str, asyncio.Future[None]] = {}
        self._changing = asyncio.Lock()
        self._changes = Detached()
        self._watchers: list[Callable[[Topic], None]] = []

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    # ── finding ───────────────────────────────────────────────────────────────────────────────────

    def find(self, name: str) -> Topic | None:
        """The topic, or None."""
        return self._topics.get(name)

    def find_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic of that id, or None."""
        return self._by_id.get(topic_id)

    def get(self, name: str) -> Topic:
        """The topic.

        Raises:
            UnknownTopic, InvalidTopicName
        """
        topic = self._topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise UnknownTopic(f"there is no topic {name!r}; `sparrow topic create {name}` makes one")
        return topic

    def find_partition(self, key: tuple[str, int]) -> Partition | None:
        """The partition of (topic, number), or None."""
        topic = self._topics.get(key[0])
        return topic.partitions[key[1]] if topic is not None and 0 <= key[1] < len(topic.partitions) else None

    def matching(self, pattern: str, *, internal: bool = False) -> list[Topic]:
        """Topics whose name matches a pattern (`*` and `?`), by name. Kafka's internal ones only where `internal` says so, or the
        pattern begins as they do."""
        hidden = frozenset() if internal or pattern.startswith("__") else INTERNAL_TOPICS
        names = sorted(self._topics.keys() - hidden)
        if pattern == "*":
            return [self._topics[name] for name in names]
        matches = compile_pattern(pattern).match
        return [self._topics[name] for name in names if matches(name)]

    def watch(self, watcher: Callable[[Topic], None]) -> Callable[[], None]:
        """Call `watcher` with each topic that was created, grew, or was deleted (`is_deleted`); returns what ends it."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _tell(self, topic: Topic) -> None:
        for watcher in list(self._watchers):
            try:
                watcher(topic)
            except Exception:  # noqa: BLE001 - one watcher's bug must not fail the change, nor silence the others
                _LOG.exception("a watcher of topic %r failed", topic.name)

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Read all topics from the meta store; finish deletions that a crash cut short.

        Raises:
            DirectoryUnreadable, NewerFormat: a fact is no topic, or one of a later Sparrow.
        """
        for fact in await self._meta.scan(_KIND):
            stored = _decode(fact)
            config = TopicConfig(stored.config, self.defaults)
            topic = Topic(fact.key, uuid.UUID(bytes=stored.id), config, stored.created_ms)
            self._grow(topic, stored.partitions)
            self._topics[topic.name] = self._by_id[topic.id] = topic
            self._plain_names.setdefault(plain_name(topic.name), topic.name)
            self.partition_count += len(topic.partitions)
        await self._finish_deletions()

    async def _finish_deletions(self) -> None:
        """Remove the logs of topics whose deletion a crash cut short. Logs that nobody knows are kept: the meta store may be
        the one that lost something."""
        deleted = {fact.key for fact in await self._meta.scan(_DELETED)}
        for log_id in self._store.ids():
            known = self._topics.get(log_id.topic)
            if log_id.topic_id.hex in deleted:
                await self._store.purge(log_id)
            elif known is None or known.id != log_id.topic_id:
                _LOG.warning(
                    "the log %s belongs to no topic that is known and is left alone; was the meta store (meta.db, meta.db-wal)"
                    " lost or restored without its log? Put it back, or remove the log's directory",
                    log_id,
                )
        await self._meta.write([Delete(_DELETED, key) for key in deleted])

    async def create(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """Make a topic; -1 partitions means the broker's default.

        Raises:
            TopicExists: it is there and can be used, also if another call was making it.
            InvalidTopicName, InvalidConfig, InvalidArgument
        """
        await self._wait_until_settled(name)
        count, checked = self.check_new(name, partitions, config)
        now_ms = self._clock.wall_ms()
        topic = Topic(name, uuid7(now_ms), checked, now_ms)
        self._grow(topic, count)
        self._creating[name] = asyncio.get_running_loop().create_future()
        self._plain_names[plain_name(name)] = name
        self.partition_count += count
        return await self._changes.run(self._create(topic))

    def check_new(self, name: str, partitions: int, config: Mapping[str, str]) -> tuple[int, TopicConfig]:
        """Whether such a topic could be made; returns what it would have.

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
                f"the topic name {name!r} collides with that of topic {taken!r}: names that differ only in . and _"
                " are the same in metrics"
            )

    def _forget_plain_name(self, name: str) -> None:
        if self._plain_names.get(plain_name(name)) == name:
            del self._plain_names[plain_name(name)]

    async def _create(self, topic: Topic) -> Topic:
        try:
            put = topic.fact()
            await self._meta.write([Put(put.kind, put.key, put.value, ABSENT)])
            self._topics[topic.name] = self._by_id[topic.id] = topic
        except BaseException:
            self._forget_plain_name(topic.name)
            self.partition_count -= len(topic.partitions)
            raise
        finally:
            self._creating.pop(topic.name).cancel()
        self._tell(topic)
        return topic

    async def ensure(self, name: str) -> Topic:
        """The topic; made with the defaults when it is missing and the policy allows.

        Raises:
            UnknownTopic: missing, and the broker does not create topics by itself.
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
        """Delete a topic and its logs; `forget` is to drop what others keep under its name, before the name is free."""
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
                self._tell(topic)
                for partition in topic.partitions:
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
                await self._meta.write([topic.fact()])
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
            await self._meta.write([grown.fact()])
            topic.partitions.extend(grown.partitions[before:])
            self.partition_count += total - before
            self._tell(topic)
            return topic

    async def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Configuration values that topics have unless they set their own; they hold for all topics from now on."""
        self.defaults = defaults
        async with self._changing:
            for count, topic in enumerate(list(self), 1):
                topic.config = TopicConfig(topic.config.overrides, self.defaults)
                for partition in topic.partitions:
                    partition.configure(topic.config)
                if count % _RECONFIGURED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def check_growth(self, topic: Topic, total: int) -> None:
        """Whether a topic could grow to `total` partitions.

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
        """Wait for changes whose callers went away."""
        await self._changes.settle()

    def _check_count(self, count: int, new: int) -> None:
        limit = self._config.max_partitions_per_topic
        if not 1 <= count <= limit:
            raise InvalidPartitions(f"a topic has 1 to {limit} partitions, not {count}")
        if self.partition_count + new > self._config.max_partitions:
            raise PolicyViolation(
                f"{new} more partitions are too many: there are {self.partition_count}, and max_partitions allows"
                f" {self._config.max_partitions}; delete topics, or raise it"
            )

    def _grow(self, topic: Topic, total: int) -> None:
        loop = asyncio.get_running_loop()
        for index in range(len(topic.partitions), total):
            log_id = LogId(topic.name, topic.id, index)
            topic.partitions.append(
                Partition(log_id, topic.config, self._store, self._clock, loop, measures=self._measures)
            )


def _decode(fact: Fact) -> _TopicFact:
    try:
        stored = _DECODER.decode(fact.value)
    except msgspec.DecodeError as error:
        raise DirectoryUnreadable(
            f"the meta store holds a topic that cannot be read, {fact.key!r}: {error}; put back a backup of the data directory"
        ) from error
    if stored.version > _FACT_VERSION:
        raise NewerFormat(
            f"topic {fact.key!r} was stored by a newer Sparrow (format {stored.version}, known is {_FACT_VERSION});"
            " start that version, or a newer one"
        )
    return stored
