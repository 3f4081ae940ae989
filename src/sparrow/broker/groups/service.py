"""Operations of the Kafka protocol on groups, with the same access checks as Kafka's requests have.

Where one request names several things, those that fail are returned with their errors instead of
raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import GroupSubscribedToTopic, NotAuthorized, SparrowError, UnstableOffset
from sparrow.broker.access.authz import (
    ANONYMOUS,
    CLUSTER_NAME,
    Authorizer,
    Operation,
    Principal,
    ResourceType,
    require,
)
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import names
from sparrow.broker.groups.registry import check_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sparrow.broker.groups.assembly import BrokerGroups
    from sparrow.broker.groups.classic.coordinator import ClassicDescription
    from sparrow.broker.groups.classic.protocol import (
        JoinRequest,
        JoinResponse,
        Leaver,
        SyncRequest,
        SyncResponse,
    )
    from sparrow.broker.groups.coordinator import Committer
    from sparrow.broker.groups.description import GroupInfo
    from sparrow.broker.groups.offsets import OffsetAndMetadata
    from sparrow.records.topic_partition import TopicPartition

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class GroupService:
    """`broker.group_service`. Loop thread only."""

    def __init__(
        self, groups: BrokerGroups, authorizer: Callable[[], Authorizer], audit: Audit | None = None
    ) -> None:
        self._audit = audit or Audit()
        self._groups = groups
        self._authorizer = authorizer

    # ── members of the classic protocol ───────────────────────────────────────────────────────────

    async def join(self, request: JoinRequest, *, principal: Principal = ANONYMOUS) -> JoinResponse:
        """See `ClassicGroupCoordinator.join`. Raises NotAuthorized too, as all methods here do."""
        self._require(principal, Operation.READ, _GROUP, request.group)
        return await self._groups.classic.join(request)

    async def sync(self, request: SyncRequest, *, principal: Principal = ANONYMOUS) -> SyncResponse:
        """See `ClassicGroupCoordinator.sync`."""
        self._require(principal, Operation.READ, _GROUP, request.group)
        return await self._groups.classic.sync(request)

    def heartbeat(
        self,
        group: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        principal: Principal = ANONYMOUS,
    ) -> None:
        """See `ClassicGroupCoordinator.heartbeat`."""
        self._require(principal, Operation.READ, _GROUP, group)
        self._groups.classic.heartbeat(group, member_id, generation, instance_id)

    def leave(
        self, group: str, leavers: Sequence[Leaver], *, principal: Principal = ANONYMOUS
    ) -> list[SparrowError | None]:
        """See `ClassicGroupCoordinator.leave`."""
        self._require(principal, Operation.READ, _GROUP, group)
        return self._groups.classic.leave(group, leavers)

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    def list_groups(self, *, principal: Principal = ANONYMOUS) -> list[GroupInfo]:
        """Return groups of all kinds, by name: all of them to principals that may describe the
        cluster, else those that the principal may describe.
        """
        may_see_all = self._allows(principal, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        return [
            info
            for info in self._groups.list_groups()
            if may_see_all or self._allows(principal, Operation.DESCRIBE, _GROUP, info.group)
        ]

    def describe_classic(self, group: str, *, principal: Principal = ANONYMOUS) -> ClassicDescription:
        """Return a classic group with the metadata of its members.

        Raises:
            UnknownGroup: there is none, or it is of another kind. NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, _GROUP, group)
        return self._groups.classic.describe_classic(group)

    def check_coordinator(
        self, resource_type: ResourceType, name: str, *, principal: Principal = ANONYMOUS
    ) -> None:
        """Raise an error if the principal may not find the coordinator of a group or transaction.

        Raises:
            NotAuthorized
        """
        self._require(principal, Operation.DESCRIBE, resource_type, name)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        committer: Committer,
        *,
        principal: Principal = ANONYMOUS,
    ) -> dict[TopicPartition, SparrowError | None]:
        """Commit what can be committed, durably. Return an error or None for each partition.

        Raises:
            NotAuthorized: the principal may not use the group at all.
            DiskFull, StorageFailed: nothing was committed. And what `GroupRegistry.check_commit`
                raises.
        """
        self._require(principal, Operation.READ, _GROUP, group)
        results = {
            partition: self._commit_error(principal, partition, value) for partition, value in offsets.items()
        }
        good = {partition: value for partition, value in offsets.items() if results[partition] is None}
        if good and committer.is_no_member and not self._groups.moves_on(group, good):
            topics = names(sorted({topic for topic, _ in good}))
            with self._audit.act(principal, "group.commit", _GROUP, group, topics=topics):
                await self._groups.commit(group, good, committer)
        elif good:
            await self._groups.commit(group, good, committer)
        return results

    def _commit_error(
        self, principal: Principal, partition: TopicPartition, value: OffsetAndMetadata
    ) -> SparrowError | None:
        try:
            self._require(principal, Operation.READ, _TOPIC, partition[0])
            self._groups.check_partition(partition)
            check_metadata(partition, value)
        except SparrowError as error:
            return error
        return None

    def fetch(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        require_stable: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> dict[TopicPartition, OffsetAndMetadata | SparrowError | None]:
        """Return the committed offset, None or an error for each partition. With `partitions` None,
        return all committed offsets of topics that the principal may describe.

        Raises:
            NotAuthorized, UnknownMember, StaleMemberEpoch
        """
        self._require(principal, Operation.DESCRIBE, _GROUP, group)
        self._groups.check_fetch(group, member_id, member_epoch)
        committed = self._groups.fetch_offsets(group)
        pending = self._groups.pending(group) if require_stable else ()
        wanted = sorted({*committed, *pending}) if partitions is None else partitions
        denied = {
            topic: error
            for topic in {topic for topic, _ in wanted}
            if (error := self._describe_error(principal, topic, is_asked_for=partitions is not None))
            is not None
        }
        found: dict[TopicPartition, OffsetAndMetadata | SparrowError | None] = {}
        for partition in wanted:
            if partition[0] in denied:
                if partitions is not None:
                    found[partition] = denied[partition[0]]
            elif partition in pending:
                found[partition] = UnstableOffset(
                    f"A transaction that is not decided has committed offsets of {partition[0]!r}, "
                    f"partition {partition[1]}, "
                    f"for group {group!r}; ask again."
                )
            else:
                found[partition] = committed.get(partition)
        return found

    def _describe_error(
        self, principal: Principal, topic: str, *, is_asked_for: bool
    ) -> NotAuthorized | None:
        """Return why a topic is not shown, or None. Only a topic that was asked for by name counts
        as a refusal.
        """
        if not is_asked_for:
            is_shown = self._allows(principal, Operation.DESCRIBE, _TOPIC, topic)
            return None if is_shown else NotAuthorized("", _TOPIC.value)
        try:
            self._require(principal, Operation.DESCRIBE, _TOPIC, topic)
        except NotAuthorized as error:
            return error
        return None

    async def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition], *, principal: Principal = ANONYMOUS
    ) -> dict[TopicPartition, SparrowError | None]:
        """Delete offsets of topics that no member reads. Return an error or None for each
        partition.

        Raises:
            UnknownGroup, GroupNotEmpty, NotAuthorized DiskFull, StorageFailed
        """
        with self._audit.act(
            principal,
            "group.delete_offsets",
            _GROUP,
            group,
            topics=names(sorted({topic for topic, _ in partitions})),
        ) as act:
            self._require(principal, Operation.DELETE, _GROUP, group)
            read = self._groups.subscribed_topics(group, {topic for topic, _ in partitions})
            results = {
                partition: self._deletion_error(principal, group, partition, read) for partition in partitions
            }
            await self._groups.delete_offsets(group, [p for p in partitions if results[p] is None])
            act.items((f"{topic}-{index}", each) for (topic, index), each in results.items())
            return results

    def _deletion_error(
        self, principal: Principal, group: str, partition: TopicPartition, read: Collection[str]
    ) -> SparrowError | None:
        topic = partition[0]
        try:
            self._require(principal, Operation.READ, _TOPIC, topic)
            self._groups.check_partition(partition)
        except SparrowError as error:
            return error
        if topic in read:
            return GroupSubscribedToTopic(
                f"Members of group {group!r} read {topic!r}; stop them before its offsets are deleted."
            )
        return None

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _require(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> None:
        require(self._authorizer(), principal, operation, kind, name)

    def _allows(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self._authorizer().allows(principal, operation, kind, name)
