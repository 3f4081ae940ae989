"""Operations on records: publish, fetch, subscribe, and find offsets.

Each operation checks the rights of its principal and leaves the work to the module that has the
rules. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidTopicName, SparrowError
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.publishes import ACKS_ALL, Admit, Published, refuse_transactional
from sparrow.broker.reading import fetch as fetching
from sparrow.broker.reading import size_estimate
from sparrow.broker.reading.positions import TIMESTAMP, StartPosition, check_start, locate
from sparrow.broker.reading.subscription import Selector, Subscription, SubscriptionListener
from sparrow.broker.reading.watches import Known, Watched, Watches, look_at_all
from sparrow.broker.topics.internal_topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    import uuid

    from sparrow.broker.access.access import Access
    from sparrow.broker.groups.assembly import BrokerGroups
    from sparrow.broker.groups.native.coordinator import Membership
    from sparrow.broker.partition import Partition
    from sparrow.broker.producer_ids import ProducerIdentity, ProducerIds
    from sparrow.broker.reading.fetch import Fetched, FetchRequest, ReadMemory
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.broker.topics.service import TopicService
    from sparrow.records.topic_partition import TopicPartition

_TOPIC = ResourceType.TOPIC
_GROUP = ResourceType.GROUP


class RecordService:
    """The service of records, `broker.records`.

    Args:
        watch_rules: calls its argument after each change of the access rules; returns a function
            that stops that.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        groups: BrokerGroups,
        producer_ids: ProducerIds,
        topic_service: TopicService,
        *,
        access: Access,
        watch_rules: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        self.watches = Watches(topics)
        self._topics = topics
        self._groups = groups
        self._producer_ids = producer_ids
        self._topic_service = topic_service
        self._access = access
        self._watch_rules = watch_rules

    def publish(
        self,
        topic: str,
        partition: int,
        data: bytes | memoryview,
        *,
        acks: int = ACKS_ALL,
        admit: Admit = refuse_transactional,
        principal: Principal = ANONYMOUS,
        is_built_here: bool = False,
    ) -> asyncio.Future[Published]:
        """Append record batches to a partition.

        Args:
            data: one record batch (idempotent producers) or several, back to back. The buffer may
                be reused when this returns.
            acks: -1: the future is done when the batch is on stable storage; 1: when it is in the
                page cache; 0: as 1, and no caller is expected to look at it.
            admit: the check of a transactional producer, from `transactions.admission`.
            is_built_here: True if a frontend built the batches from messages. Their records and
                producer ids are not checked, so it is never True for batches of clients.

        Raises, at once:
            UnknownTopic, UnknownPartition, NotAuthorized, and what `Partition.publish` raises.
            InvalidTopicName: the topic is one of Kafka's internal topics.
        """
        self._access.require(principal, Operation.WRITE, _TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicName(f"{topic} is internal and cannot be written to")
        return (
            self._topics.get(topic)
            .partition(partition)
            .publish(
                data,
                acks,
                admit,
                owns=partial(self._producer_ids.check, principal),
                is_built_here=is_built_here,
            )
        )

    def publish_limits(
        self, topic: str, partition: int = 0, *, principal: Principal = ANONYMOUS
    ) -> tuple[int, int]:
        """Return the number of partitions of a topic and the size of its largest batch in bytes, to
        a principal that may write to it.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized
        """
        self._access.require(principal, Operation.WRITE, _TOPIC, topic)
        found = self._topics.get(topic)
        found.partition(partition)
        return len(found.partitions), found.config.max_message_bytes

    def log_start_offset(self, topic: str | uuid.UUID, partition: int) -> int:
        """Return the first offset of a partition to which was just published; -1 if its topic was
        deleted since.
        """
        found = self._topics.find(topic) if isinstance(topic, str) else self._topics.find_id(topic)
        return -1 if found is None or found.is_deleted else found.partitions[partition].start_offset

    async def open_producer(self, *, principal: Principal = ANONYMOUS) -> ProducerIdentity:
        """Return a new identity for an idempotent producer. It needs no right.

        An identity alone writes nothing: each batch needs WRITE on its topic, and the error of a
        producer without it names the topic. Refusing the identity, as Kafka does for principals
        that may write nowhere, would name IdempotentWrite on the cluster, which helps no user.

        Raises:
            DiskFull, StorageFailed
        """
        return await self._producer_ids.allocate(str(principal))

    def resume_producer(
        self, producer_id: int, epoch: int, *, principal: Principal = ANONYMOUS
    ) -> ProducerIdentity:
        """Return the identity of a producer that reconnects.

        Raises:
            UnknownProducer: this broker never gave it to the principal.
        """
        return self._producer_ids.resume(producer_id, epoch, principal)

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
        is_patient: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> list[Fetched]:
        """Read several partitions at given offsets, with long poll; errors are per partition, in
        the results.

        Args:
            committed: read only records before the last stable offset, and return which of their
                transactions were aborted.
            stop: ends the wait when it is done.
            memory: limits the bytes that are read at a time.
            is_patient: True if closed partitions do not end the wait.
        """
        for topic in {request.topic for request in requests}:
            self._access.require(principal, Operation.READ, _TOPIC, topic)
        return await fetching.fetch(
            self._topics,
            requests,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            committed=committed,
            stop=stop,
            memory=memory,
            is_patient=is_patient,
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

        `listener` is called about partitions after this has returned. `committed_only` leaves out
        records of open and aborted transactions.
        """
        subscription = Subscription(
            self._topics,
            listener,
            ensure=partial(self._topic_service.ensure_readable, principal),
            allowed=lambda topic: self._access.allows(principal, Operation.READ, _TOPIC, topic),
            refused=lambda names: self._refused_reading(principal, group, names),
            watch_rules=self._watch_rules,
            committed=partial(self._committed_offset, group),
            committed_only=committed_only,
        )
        try:
            if not group:
                await subscription.start(selectors)
                return subscription
            self._access.require(principal, Operation.READ, _GROUP, group)
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
        """Return the error that ends a subscription; None if the principal may still read."""
        if group and not self._access.allows(principal, Operation.READ, _GROUP, group):
            return self._access.refusal(principal, Operation.READ, _GROUP, group)
        for name in names:
            if not self._access.allows(principal, Operation.READ, _TOPIC, name):
                return self._access.refusal(principal, Operation.READ, _TOPIC, name)
        return None

    async def offsets(
        self, topic: str, at: str, value: int = -1, partition: int = -1, *, principal: Principal = ANONYMOUS
    ) -> list[tuple[int, int, int]]:
        """Return (partition, offset, timestamp) of a start position for one partition or (-1) all.

        `at` is "beginning", "end" or "timestamp" with `value` in ms; the offset is -1 if no record
        is that late.
        """
        self._access.require(principal, Operation.DESCRIBE, _TOPIC, topic)
        found = self._topics.get(topic)
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
        """Return topics as they are, and the names that are missing. If the topics differ from
        `known`, or `known` is empty, return at once; else at the first change, or when the wait is
        over. With `committed`, partitions end at the last stable offset.

        Raises:
            NotAuthorized, InvalidTopicName, InvalidArgument, Overloaded
        """

        def require_description(name: str) -> None:
            self._access.require(principal, Operation.DESCRIBE, _TOPIC, name)

        for name in names:
            require_description(name)
        await self.watches.wait(names, known, committed=committed, wait_s=wait_ms / 1000)
        await self._topic_service.open_all(names, principal)
        return look_at_all(self._topics, names, committed=committed, require=require_description)

    async def estimate_sizes(
        self, topic: str, ranges: Sequence[tuple[int, int, int]], *, principal: Principal = ANONYMOUS
    ) -> list[int]:
        """Estimate the bytes in ranges of offsets, each (partition, first, behind the last).

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized
            InvalidArgument: there are too many, or negative numbers.
        """
        self._access.require(principal, Operation.DESCRIBE, _TOPIC, topic)
        return await size_estimate.estimate_sizes(self._topics.get(topic), ranges)

    async def estimate_offsets(
        self, topic: str, points: Sequence[tuple[int, int, int]], *, principal: Principal = ANONYMOUS
    ) -> list[int]:
        """Estimate the offset at which a number of bytes ends, for each (partition, offset, bytes);
        see `PartitionLog.estimate_offset`.

        Raises:
            UnknownTopic, UnknownPartition, NotAuthorized, OffsetOutOfRange
            InvalidArgument: there are too many, or negative numbers.
        """
        self._access.require(principal, Operation.DESCRIBE, _TOPIC, topic)
        return await size_estimate.estimate_offsets(self._topics.get(topic), points)

    async def _committed_offset(self, group: str | None, partition: TopicPartition) -> int | None:
        if not group:
            return None
        await self._groups.commits_settled()
        return self._groups.committed_offset(group, partition)

    def _join(
        self, topics: list[str], subscription: Subscription, *, group: str, **options: Any
    ) -> Membership:
        return self._groups.native.join(group, topics, subscription, **options)


async def _offset_at(partition: Partition, at: str, value: int) -> tuple[int, int, int]:
    """Return (partition, offset, timestamp); unlike a reader's start, a time after all records has
    no offset.
    """
    index = partition.id.partition
    if at == TIMESTAMP:
        check_start(StartPosition(at, value))
        found = await (await partition.opened()).offset_for_timestamp(value)
        return (index, *found) if found else (index, -1, -1)
    return (index, *await locate(partition, StartPosition(at, value)))
