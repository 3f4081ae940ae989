"""Operations on topics: create, change, describe, list and delete them, and delete their records.

Each operation checks the rights of its principal, and is one event of the audit if it changes
something. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparrow.base.errors import OffsetOutOfRange, PolicyViolation, TopicExists
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.event import names
from sparrow.broker.configs.topic import TopicConfig
from sparrow.broker.partition import Partition, open_all
from sparrow.broker.topics.internal_topics import INTERNAL_CONFIG
from sparrow.model.access import CLUSTER_NAME
from sparrow.model.topics import TopicDescription, TopicOverview

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.audit.audit import Audit
    from sparrow.broker.config import BrokerConfig
    from sparrow.broker.groups.registry import GroupRegistry
    from sparrow.broker.topics.registry import Topic, TopicRegistry
    from sparrow.model.topics import RemovedBatch
    from sparrow.records.topic_partition import TopicPartition

_LOG = logging.getLogger(__name__)
_TOPIC = ResourceType.TOPIC
_CLUSTER = ResourceType.CLUSTER
_NO_ID = str(uuid.UUID(int=0))
"""The id of a topic that does not exist."""

_LISTED_PER_SLICE = 1_000
"""Topics that are listed before other tasks run."""


class TopicService:
    """The service of topics, `broker.topics`."""

    def __init__(
        self, topics: TopicRegistry, groups: GroupRegistry, access: Access, audit: Audit, config: BrokerConfig
    ) -> None:
        self.when_batch_removed: list[Callable[[TopicPartition], None]] = []
        """Called when a batch was removed from a partition, so that its readers continue."""
        self._topics = topics
        self._groups = groups
        self._access = access
        self._audit = audit
        self._config = config

    async def create(
        self,
        name: str,
        partitions: int = -1,
        config: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> TopicDescription:
        """Create a topic and return it; -1 partitions means the broker's default. Durable when it
        returns.

        With `validate_only` nothing is created, and the returned topic has an id of zeros.

        Raises:
            TopicExists, InvalidTopicName, InvalidConfig, InvalidPartitions, NotAuthorized
        """
        with self._audit.act(principal, "topic.create", _TOPIC, name, set=names([*(config or {})])) as act:
            self.require_create(principal, name)
            if validate_only:
                act.discard()
                count, checked = self._topics.check_new(name, partitions, config or {})
                return TopicDescription(name, _NO_ID, count, config=checked.entries())
            made = await self._topics.create(name, partitions, config or {})
            return self._shown(made.info(new_from=0), principal)

    def require_create(self, principal: Principal, name: str) -> None:
        """Raise NotAuthorized unless the principal may create this topic, or all topics."""
        self._access.require_here_or_everywhere(principal, Operation.CREATE, _TOPIC, name)

    async def ensure(self, name: str, *, principal: Principal = ANONYMOUS) -> TopicDescription:
        """Return the topic; create it with the defaults if it is missing and the policy allows.
        Producers call this before they publish.

        Raises:
            UnknownTopic, InvalidTopicName
            NotAuthorized: names WRITE, which implies DESCRIBE: a producer needs it.
        """
        if not self._access.allows(principal, Operation.DESCRIBE, _TOPIC, name):
            raise self._access.refusal(principal, Operation.WRITE, _TOPIC, name)
        return (await self._found_or_created(principal, name)).listing()

    async def _found_or_created(self, principal: Principal, name: str) -> Topic:
        found = self._topics.find(name)
        if found is not None or not self._config.auto_create_topics:
            return found or await self._topics.ensure(name)
        with self._audit.act(principal, "topic.create", _TOPIC, name, because="it was used"):
            self.require_create(principal, name)
            return await self._topics.ensure(name)

    async def ensure_with_partitions(self, name: str, partitions: int, principal: Principal) -> None:
        """Create a topic with a number of partitions if it is missing."""
        if self._topics.find(name) is None:
            with self._audit.act(principal, "topic.create", _TOPIC, name) as act:
                self.require_create(principal, name)
                try:
                    await self._topics.create(name, partitions, {})
                except TopicExists:
                    act.discard()

    async def ensure_readable(self, principal: Principal, names: Sequence[str]) -> None:
        for name in names:
            self._access.require(principal, Operation.READ, _TOPIC, name)
        for name in names:
            await self._found_or_created(principal, name)

    async def delete(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Delete a topic, its records, and the offsets that groups committed to it.

        Raises:
            UnknownTopic, NotAuthorized
        """
        with self._audit.act(principal, "topic.delete", _TOPIC, name):
            self.require_delete(principal, name)
            await self._topics.delete(name, self._groups.topic_deleted)

    def identify_deletable(self, name: str, *, principal: Principal = ANONYMOUS) -> uuid.UUID:
        """Return the id of a topic to a principal that may describe or delete it.

        Raises:
            UnknownTopic, InvalidTopicName
            NotAuthorized: names DELETE.
        """
        if not self._access.allows(principal, Operation.DESCRIBE, _TOPIC, name):
            self.require_delete(principal, name)
        return self._topics.get(name).id

    def require_delete(self, principal: Principal, topic: str) -> None:
        """Raise NotAuthorized unless the principal may delete this topic, or all topics."""
        if topic == self._config.audit_topic:  # the right to delete all topics is not enough
            self._access.require(principal, Operation.DELETE, _TOPIC, topic)
        else:
            self._access.require_here_or_everywhere(principal, Operation.DELETE, _TOPIC, topic)

    async def configure(
        self,
        name: str,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the operation's own word
        unset: Sequence[str] = (),
        *,
        principal: Principal = ANONYMOUS,
    ) -> TopicDescription:
        """Set and unset configuration values of a topic, with immediate effect.

        Raises:
            UnknownTopic, InvalidConfig, NotAuthorized
        """
        with self._audit.act(
            principal, "topic.configure", _TOPIC, name, set=names([*(set or {})]), unset=names(unset)
        ):
            self._access.require(principal, Operation.ALTER_CONFIGS, _TOPIC, name)
            configured = await self._topics.configure(name, set or {}, unset)
            await open_all(configured.partitions)
            return configured.info()

    async def add_partitions(
        self, name: str, total: int, *, validate_only: bool = False, principal: Principal = ANONYMOUS
    ) -> TopicDescription:
        """Grow a topic to `total` partitions; with `validate_only` only check that it is possible.

        Raises:
            UnknownTopic, InvalidPartitions, NotAuthorized
        """
        with self._audit.act(principal, "topic.add_partitions", _TOPIC, name, total=total) as act:
            self._access.require(principal, Operation.ALTER, _TOPIC, name)
            if validate_only:
                act.discard()
                self._topics.check_growth(self._topics.get(name), total)
                return self._topics.get(name).listing()
            before = len(self._topics.get(name).partitions)
            grown = await self._topics.add_partitions(name, total)
            return self._shown(grown.info(new_from=before), principal)

    def describe(self, name: str, *, principal: Principal = ANONYMOUS) -> TopicDescription:
        """Return a topic with the offsets of its partitions, and each configuration with value,
        default and source if the principal may see that.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _TOPIC, name)
        return self._shown(self._topics.get(name).info(), principal)

    async def open(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Open the logs of a topic that the principal may describe, so that later operations on
        them do not block the loop.
        """
        await self.open_all([name], principal)

    async def open_all(self, names: Sequence[str], principal: Principal) -> None:
        seen = [name for name in names if self._access.allows(principal, Operation.DESCRIBE, _TOPIC, name)]
        found = (self._topics.find(name) for name in seen)
        await open_all(partition for topic in found if topic is not None for partition in topic.partitions)

    def _shown(self, info: TopicDescription, principal: Principal) -> TopicDescription:
        """Remove the configuration unless the principal may DESCRIBE_CONFIGS."""
        may_see = self._access.allows(principal, Operation.DESCRIBE_CONFIGS, _TOPIC, info.name)
        return info if may_see else replace(info, config=[])

    async def ensure_internal(self, name: str) -> None:
        """Create one of Kafka's internal topics if it is missing; see `internal_topics`.

        Raises:
            DiskFull, StorageFailed
        """
        if self._topics.find(name) is None:
            with suppress(TopicExists):  # another call has created it
                await self._topics.create(name, 1, INTERNAL_CONFIG)

    def summary(self, name: str, *, principal: Principal = ANONYMOUS) -> TopicDescription:
        """Return a topic without partitions and configuration; touch no log.

        Raises:
            UnknownTopic, InvalidTopicName, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _TOPIC, name)
        return self._topics.get(name).listing()

    def is_internal(self, name: str) -> bool:
        """Return True for Kafka's internal topics and the audit topic."""
        return self._topics.is_internal(name)

    def partition(
        self,
        topic: str,
        partition: int,
        *,
        operation: Operation = Operation.DESCRIBE,
        principal: Principal = ANONYMOUS,
    ) -> Partition:
        """Return one partition, for a principal that may do `operation` on the topic.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized
        """
        self._access.require(principal, operation, _TOPIC, topic)
        return self._topics.get(topic).partition(partition)

    def partitions(
        self,
        topic: str,
        *,
        operation: Operation = Operation.DESCRIBE,
        principal: Principal = ANONYMOUS,
    ) -> Sequence[Partition]:
        """Return all partitions of a topic. Rights and errors are those of `partition`."""
        self._access.require(principal, operation, _TOPIC, topic)
        return self._topics.get(topic).partitions

    def listing(
        self, pattern: str = "*", *, internal: bool = False, principal: Principal = ANONYMOUS
    ) -> list[TopicDescription]:
        """Return the topics that match and that the principal may describe, by name, without
        partitions and configuration. Kafka's internal topics are included if `internal` is True.
        """
        return [
            topic.listing()
            for topic in self._topics.matching(pattern, internal=internal)
            if self._access.allows(principal, Operation.DESCRIBE, _TOPIC, topic.name)
        ]

    async def listing_in_steps(
        self, pattern: str = "*", *, principal: Principal = ANONYMOUS
    ) -> list[TopicDescription]:
        """List topics as `listing` does, and let other tasks run in between: a large number
        takes long.
        """
        found = []
        for number, name in enumerate(await self._topics.find_matching(pattern), 1):
            topic = self._topics.find(name)
            if topic is not None and self._access.allows(principal, Operation.DESCRIBE, _TOPIC, name):
                found.append(topic.listing())
            if number % _LISTED_PER_SLICE == 0:
                await asyncio.sleep(0)
        return found

    async def overview(
        self, pattern: str = "*", *, limit: int, skip: int = 0, principal: Principal = ANONYMOUS
    ) -> tuple[list[TopicOverview], int]:
        """Return some of the topics that match and that the principal may describe, by name, and
        the number of all. Their logs are opened.
        """
        allows = self._access.allows
        seen = [
            topic
            for topic in self._topics.matching(pattern, internal=False)
            if allows(principal, Operation.DESCRIBE, _TOPIC, topic.name)
        ]
        shown = seen[skip : skip + limit]
        await open_all(partition for topic in shown for partition in topic.partitions)
        found = [_overview(topic) for topic in shown]
        return found, len(seen)

    # ── names and ids; no right is needed, as the operations on what they name check it ───────────

    def exists(self, name: str) -> bool:
        """Return True if there is a topic of this name."""
        return self._topics.find(name) is not None

    def id_of(self, name: str) -> uuid.UUID | None:
        """Return the id of a topic, or None if it does not exist."""
        topic = self._topics.find(name)
        return None if topic is None else topic.id

    def visible_id(self, name: str, *, principal: Principal = ANONYMOUS) -> uuid.UUID | None:
        """Return the id of a topic that exists and that the principal may describe, or None."""
        may_see = self._access.allows(principal, Operation.DESCRIBE, _TOPIC, name)
        return self.id_of(name) if may_see else None

    def name_of(self, topic_id: uuid.UUID | None) -> str | None:
        """Return the name of the topic of an id, or None if there is none."""
        topic = None if topic_id is None else self._topics.find_id(topic_id)
        return None if topic is None else topic.name

    def check_partition(self, topic: str, partition: int) -> None:
        """Raise UnknownTopic or UnknownPartition unless the partition exists."""
        self._topics.get(topic).partition(partition)

    @property
    def default_max_message_bytes(self) -> int:
        """The size of the largest batch of a topic that sets no limit of its own."""
        return TopicConfig({}, self._topics.defaults).max_message_bytes

    # ── records ───────────────────────────────────────────────────────────────────────────────────

    async def delete_records(
        self, topic: str, before: Mapping[int, int], *, principal: Principal = ANONYMOUS
    ) -> dict[int, int]:
        """Delete all records before an offset, per partition; -1 means all. Return the new log
        starts.

        Raises:
            OffsetOutOfRange: an offset is behind the end; records of partitions before it in
                `before` may be deleted already.
            PolicyViolation: the topic is compacted, and its cleanup.policy has no delete.
        """
        with self._audit.act(
            principal, "topic.delete_records", _TOPIC, topic, partitions=names([str(each) for each in before])
        ):
            self._access.require(principal, Operation.DELETE, _TOPIC, topic)
            found = self._topics.get(topic)
            partitions = {index: found.partition(index) for index in before}
            if found.config.compact and not found.config.log.delete:
                raise PolicyViolation(
                    f"records of topic {topic!r} cannot be deleted by offset: its cleanup.policy "
                    "is compact alone"
                )
            starts: dict[int, int] = {}
            await open_all(partitions.values())
            for index, partition in partitions.items():
                end = partition.visible_end
                offset = before[index] if before[index] != -1 else end
                if not 0 <= offset <= end:
                    raise OffsetOutOfRange(
                        f"records of {partition.id} cannot be deleted before offset {offset}: it "
                        f"ends at {end}"
                    )
                await partition.keep_producers()
                starts[index] = await partition.log.delete_records(offset)
            return starts

    async def skip_batch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        force: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> RemovedBatch:
        """Remove the records of the batch that holds `offset`, so that clients that cannot read it
        continue behind it.

        It needs the right to DELETE records of the topic, or to ALTER the cluster. Every removal is
        logged.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized, OffsetOutOfRange
            InvalidArgument: there is no such batch, or it can be read and `force` is False.
                DiskFull, StorageFailed, Overloaded
        """
        with self._audit.act(
            principal, "topic.skip_batch", _TOPIC, topic, partition=partition, offset=offset
        ):
            may_alter_all = self._access.allows(principal, Operation.ALTER, _CLUSTER, CLUSTER_NAME)
            if not may_alter_all or topic == self._config.audit_topic:
                self._access.require(principal, Operation.DELETE, _TOPIC, topic)
            log = self._topics.get(topic).partition(partition).log
            removed = await log.remove_batch(offset, force=force)
            _LOG.warning(
                "%s removed the batch of offsets %d to %d of %s (%d records, %d bytes; %s)",
                principal,
                removed.base_offset,
                removed.last_offset,
                log.id,
                removed.record_count,
                removed.size_bytes,
                removed.reason or "it could be read",
            )
            for removed_in in self.when_batch_removed:
                removed_in((topic, partition))
            return removed


def _overview(topic: Topic) -> TopicOverview:
    messages = size_bytes = messages_in = bytes_in = messages_out = 0
    for partition in topic.partitions:
        if partition.is_open:
            log = partition.log
            messages += log.end_offset - log.start_offset
            size_bytes += log.size_bytes
            messages_in += partition.records_in
            bytes_in += partition.bytes_in
            messages_out += partition.records_out
    return TopicOverview(
        topic.name,
        str(topic.id),
        len(topic.partitions),
        messages,
        size_bytes,
        messages_in,
        bytes_in,
        messages_out,
    )
