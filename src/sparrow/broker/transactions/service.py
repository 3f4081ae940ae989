"""Operations on transactions, with the same access checks as Kafka's requests have.

Where one request names several things, those that cannot take part are returned with their errors
instead of raised.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import names
from sparrow.broker.groups.registry import check_metadata
from sparrow.broker.groups.topic_regexes import compile_regex
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.broker.sinks.stage import is_reserved
from sparrow.broker.topics import name_matches
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sparrow.base.clock import Clock
    from sparrow.broker.access.access import Access
    from sparrow.broker.groups.offsets import Committer, OffsetAndMetadata
    from sparrow.broker.groups.registry import GroupRegistry
    from sparrow.broker.producers import ProducerInfo
    from sparrow.broker.publishes import Admit
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.broker.transactions.coordinator import TransactionCoordinator
    from sparrow.broker.transactions.state import Transaction, TransactionState
    from sparrow.records.batch import BatchHeader
    from sparrow.records.topic_partition import TopicPartition
    from sparrow.storage.store import LogId

_TOPIC, _GROUP, _ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_CLUSTER = ResourceType.CLUSTER


class TransactionFilter(Struct, frozen=True):
    """A filter of transactional ids; empty fields match all (KIP-664, KIP-994, KIP-1152)."""

    states: Collection[TransactionState] = ()
    producer_ids: Collection[int] = ()
    min_duration_ms: int = -1
    """Begun longer ago than this, or never; negative: any time."""
    pattern: str = ""
    """A regular expression that the whole id must match."""


class TransactionService:
    """`broker.transactions`. Loop thread only."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        topics: TopicRegistry,
        groups: GroupRegistry,
        clock: Clock,
        access: Access,
        *,
        audit: Audit | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._audit = audit or Audit()
        self._access = access

    # ── producers ─────────────────────────────────────────────────────────────────────────────────

    async def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        *,
        principal: Principal = ANONYMOUS,
    ) -> ProducerIdentity:
        """Return an identity for a transactional producer; the producer that had the id before is
        fenced. See `TransactionCoordinator.initialize`.

        Raises:
            InvalidArgument: an empty id. NotAuthorized, and what the coordinator raises.
        """
        self._access.require(principal, Operation.WRITE, _ID, transactional_id)
        self._check_id(principal, transactional_id)
        return await self._coordinator.initialize(transactional_id, timeout_ms, expected)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        principal: Principal = ANONYMOUS,
    ) -> dict[TopicPartition, SparrowError]:
        """Add partitions to the transaction. If some cannot take part, none does; these are
        returned.

        Raises:
            NotAuthorized: to use the transactional id. InvalidArgument, and what
                `TransactionCoordinator.add_partitions` raises.
        """
        self._access.require(principal, Operation.WRITE, _ID, transactional_id)
        self._check_id(principal, transactional_id)
        wanted = list(partitions)
        refused = self._refused(principal, Operation.WRITE, wanted)
        if not refused:
            await self._coordinator.add_partitions(transactional_id, producer, wanted)
        return refused

    async def add_group(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        group: str,
        *,
        principal: Principal = ANONYMOUS,
    ) -> None:
        """Add the offsets of a group to the transaction.

        Raises:
            NotAuthorized, InvalidArgument, and what `TransactionCoordinator.add_group` raises.
        """
        self._access.require(principal, Operation.WRITE, _ID, transactional_id)
        self._access.require(principal, Operation.READ, _GROUP, group)
        self._check_id(principal, transactional_id)
        await self._coordinator.add_group(transactional_id, producer, group)

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        committer: Committer,
        adds_group: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> dict[TopicPartition, SparrowError]:
        """Commit offsets when the transaction commits. Those that cannot be are returned; the
        others are stored.

        Args:
            adds_group: the group takes part from now on (KIP-890); else `add_group` came before.

        Raises:
            NotAuthorized: to use the transactional id or the group. UnknownMember, StaleMember,
                FencedInstance, …: the committer is not what it says (KIP-447). InvalidArgument, and
                what `TransactionCoordinator.commit_offsets` raises.
        """
        self._access.require(principal, Operation.WRITE, _ID, transactional_id)
        self._access.require(principal, Operation.READ, _GROUP, group)
        self._check_id(principal, transactional_id)
        refused = self._refused(principal, Operation.READ, offsets)
        for key, value in offsets.items():
            if key not in refused:
                try:
                    check_metadata(key, value)
                except SparrowError as error:
                    refused[key] = error
        kept = {key: value for key, value in offsets.items() if key not in refused}
        if kept:
            await self._coordinator.commit_offsets(
                transactional_id,
                producer,
                group,
                kept,
                adds_group=adds_group,
                check=lambda: self._groups.check_commit(group, committer, kept),
            )
        return refused

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        bumps_epoch: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> ProducerIdentity:
        """Commit or abort. See `TransactionCoordinator.end`.

        Raises:
            NotAuthorized, InvalidArgument, and what the coordinator raises.
        """
        self._access.require(principal, Operation.WRITE, _ID, transactional_id)
        self._check_id(principal, transactional_id)
        return await self._coordinator.end(transactional_id, producer, commit=commit, bumps_epoch=bumps_epoch)

    def admission(self, transactional_id: str | None, *, principal: Principal = ANONYMOUS) -> Admit:
        """Return the check that `RecordService.publish` calls for each transactional batch of a
        producer that names `transactional_id`.

        Raises:
            NotAuthorized: also if it names none.
        """
        if transactional_id is None:
            text = "transactional batches in a request that names no transactional id"
            raise self._access.refusal(principal, Operation.WRITE, _ID, "", text=text)
        self._access.require(principal, Operation.WRITE, _ID, transactional_id)
        self._check_not_reserved(principal, transactional_id)
        check_partition = self._coordinator.check_partition

        def admit(header: BatchHeader, log_id: LogId) -> None:
            producer = ProducerIdentity(header.producer_id, header.producer_epoch)
            check_partition(transactional_id, producer, (log_id.topic, log_id.partition))

        return admit

    def check_partition(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> None:
        """Raise NotInTransaction, or why the producer may not write, unless the partition takes
        part in the producer's transaction; see `TransactionCoordinator.check_partition`. It needs
        no right: each batch is checked by `admission`.
        """
        self._coordinator.check_partition(transactional_id, producer, partition)

    async def abort_producer(
        self,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        principal: Principal = ANONYMOUS,
    ) -> dict[TopicPartition, SparrowError]:
        """Abort the transaction that a producer has open in partitions (KIP-664). Return the
        partitions that failed, with their errors.

        The transaction ends in all of its partitions, so that it is never half aborted. If the
        producer has none open, nothing is done: transactions without a transactional id are aborted
        when their partition is opened.

        Raises:
            NotAuthorized: the principal has neither CLUSTER_ACTION nor ALTER on the cluster.
        """
        with self._audit.act(
            principal, "transaction.abort", _CLUSTER, CLUSTER_NAME, producer_id=producer.producer_id
        ) as act:
            if not self._access.allows(principal, Operation.CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME):
                self._access.require_cluster(principal, Operation.ALTER)
            refused: dict[TopicPartition, SparrowError] = {}
            for topic, partition in partitions:
                try:
                    self._topics.get(topic).partition(partition)
                    await self._coordinator.abort_open(producer, (topic, partition))
                except SparrowError as error:
                    refused[topic, partition] = error
            if refused:
                act.note(
                    failed=names([f"{topic}-{index}: {e.code}" for (topic, index), e in refused.items()])
                )
            return refused

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def describe(self, transactional_id: str, *, principal: Principal = ANONYMOUS) -> Transaction:
        """Return a transactional id, without partitions of topics that the principal may not
        describe.

        Raises:
            NotAuthorized, UnknownTransaction
            InvalidArgument: an empty id.
        """
        self._access.require(principal, Operation.DESCRIBE, _ID, transactional_id)
        if not transactional_id:
            raise InvalidArgument("a transactional id must not be empty")
        found = self._coordinator.find(transactional_id)
        allows = self._access.allows
        visible = (key for key in found.partitions if allows(principal, Operation.DESCRIBE, _TOPIC, key[0]))
        return replace(found, partitions=frozenset(visible))

    async def list(
        self, wanted: TransactionFilter | None = None, *, principal: Principal = ANONYMOUS
    ) -> Sequence[Transaction]:
        """Return the ids that the principal may describe, by name. Other tasks run in between: a
        large number takes long.

        Raises:
            InvalidRegularExpression
        """
        wanted = wanted or TransactionFilter()
        matches = _matcher(wanted, self._clock.wall_ms())
        allows = self._access.allows
        found = []
        for number, each in enumerate(self._coordinator.all(), 1):
            if matches(each) and allows(principal, Operation.DESCRIBE, _ID, each.transactional_id):
                found.append(each)
            if number % name_matches.SLICE == 0:
                await asyncio.sleep(0)
        return found

    def producers(
        self, topic: str, partition: int, *, principal: Principal = ANONYMOUS
    ) -> Sequence[ProducerInfo]:
        """Return the producers that recently wrote to a partition.

        Raises:
            NotAuthorized, UnknownTopic, UnknownPartition
        """
        self._access.require(principal, Operation.READ, _TOPIC, topic)
        return self._topics.get(topic).partition(partition).producers()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _check_id(self, principal: Principal, transactional_id: str) -> None:
        if not transactional_id:
            raise InvalidArgument("a transactional id must not be empty")
        self._check_not_reserved(principal, transactional_id)

    def _check_not_reserved(self, principal: Principal, transactional_id: str) -> None:
        if is_reserved(transactional_id):
            text = (
                f"transactional id {transactional_id[:80]!r} is reserved: the broker stages "
                "batches of sinks under"
                " such ids; choose another one"
            )
            raise self._access.refusal(principal, Operation.WRITE, _ID, transactional_id, text=text)

    def _refused(
        self, principal: Principal, operation: Operation, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, SparrowError]:
        refused: dict[TopicPartition, SparrowError] = {}
        for topic, partition in partitions:
            try:
                self._access.require(principal, operation, _TOPIC, topic)
                self._topics.get(topic).partition(partition)
            except SparrowError as error:
                refused[topic, partition] = error
        return refused


def _matcher(wanted: TransactionFilter, now_ms: int) -> Callable[[Transaction], bool]:
    pattern = compile_regex(wanted.pattern) if wanted.pattern else None

    def matches(each: Transaction) -> bool:
        return (
            (not wanted.states or each.state in wanted.states)
            and (not wanted.producer_ids or each.producer_id in wanted.producer_ids)
            and (wanted.min_duration_ms < 0 or now_ms - each.started_ms > wanted.min_duration_ms)
            and (pattern is None or pattern.fullmatch(each.transactional_id) is not None)
        )

    return matches
