"""Members of a consumer group (KIP-848), their heartbeats and the responses.

Partitions are named by topic id and number, so that a topic that was deleted and created again is
another topic. All classes are frozen: a change of a member is a new member, so that changes are
found by comparison.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

TopicIdPartition = tuple[uuid.UUID, int]
"""(topic id, partition number)."""
Assignment = frozenset[TopicIdPartition]
NOTHING: Final[Assignment] = frozenset()

DEFAULT_REBALANCE_MS: Final = 300_000
"""The clients' own default (max.poll.interval.ms), for a member that does not send one."""
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves for a while: its partitions are kept for the next member with its instance
id.
"""


class MemberState(Enum):
    """A member's progress towards its target assignment. Values are stored: do not change them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was asked to give up partitions and has not confirmed."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up."""


class ClassicMetadata(Struct, frozen=True):
    """The last JoinGroup of a member that speaks the classic protocol to a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Assignors in the order of preference, each with its subscription in the consumer protocol's
    bytes.
    """


class ConsumerMember(Struct, frozen=True):
    """A member of a consumer group."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    topics: tuple[str, ...] = ()
    """Topics subscribed by name; sorted, each once."""
    regex: str | None = None
    """Regular expression of the subscription; None or "": none."""
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    pending_revocation: Assignment = NOTHING

    @property
    def held(self) -> Assignment:
        """Return the partitions that no other member may have now."""
        return self.assigned | self.pending_revocation if self.pending_revocation else self.assigned

    @property
    def is_away(self) -> bool:
        """Return True if this is a static member that left for a while."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return True if it has everything that the target assignment of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at_epoch(self, epoch: int) -> ConsumerMember:
        """Return the member at another epoch. The former epoch is kept, in case a response got
        lost.
        """
        return replace(self, epoch=epoch, previous_epoch=self.epoch)


class Heartbeat(Struct, frozen=True):
    """A ConsumerGroupHeartbeat. None (and -1 for the timeout) means: unchanged."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Iterable[str] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    """The partitions that the member reports to have."""
    client_id: str = ""
    client_host: str = ""
    must_have_id: bool = True
    """True if members create their ids themselves (from version 1 of the protocol on, KIP-1082)."""

    @property
    def is_full(self) -> bool:
        """Return True if the heartbeat has all fields: when the member joins, and after an
        error.
        """
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None

    def applied_to(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member with the values of this heartbeat.

        A member that joins sends all values: it does not inherit the subscription of its
        predecessor with the same instance id.
        """
        is_join = self.member_epoch == JOIN_EPOCH
        topics = () if self.topics is None and is_join else self.topics
        return replace(
            member,
            instance_id=member.instance_id if self.instance_id is None else self.instance_id,
            rack_id=member.rack_id if self.rack_id is None else self.rack_id,
            rebalance_timeout_ms=self._rebalance_timeout_ms(member),
            server_assignor=(
                member.server_assignor if self.server_assignor is None else self.server_assignor
            ),
            topics=member.topics if topics is None else tuple(sorted(set(topics))),
            regex=member.regex if self.regex is None and not is_join else self.regex,
            client_id=self.client_id,
            client_host=self.client_host,
            classic=None,
        )

    def _rebalance_timeout_ms(self, member: ConsumerMember) -> int:
        if self.rebalance_timeout_ms != -1:
            return self.rebalance_timeout_ms
        return member.rebalance_timeout_ms if member.rebalance_timeout_ms != -1 else DEFAULT_REBALANCE_MS


class HeartbeatResponse(Struct, frozen=True):
    """The response to a heartbeat. `assignment` is None if the member knows it already."""

    member_id: str
    member_epoch: int
    assignment: Assignment | None = None


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[uuid.UUID, list[int]]:
    """Return the partition numbers of each topic, in order."""
    result: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        result.setdefault(topic_id, []).append(number)
    return result


def flatten(partitions: Mapping[uuid.UUID, Iterable[int]]) -> Assignment:
    """Return the partitions of a mapping as `by_topic` makes it."""
    return frozenset((topic_id, number) for topic_id, numbers in partitions.items() for number in numbers)
