"""What a consumer group (KIP-848) knows of a member, and what members and group say to each other.

Partitions are named by topic id and number, so that a topic that was deleted and made again is another topic. All classes are
frozen: a change of a member is a new member, which makes "has anything changed" a comparison.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

Partition = tuple[uuid.UUID, int]
"""Topic id and partition number."""
Assignment = frozenset[Partition]
NOTHING: Final[Assignment] = frozenset()

DEFAULT_REBALANCE_MS: Final = 300_000
"""The clients' own default (max.poll.interval.ms), for one that did not say."""
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member goes for a while: what it has is kept for whoever comes next with its instance id."""


class MemberState(Enum):
    """How far a member is on its way to its target assignment. Values are stored: do not change them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was told to give up partitions and has not confirmed."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """Of a member that speaks the classic protocol to a consumer group: its last JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Assignors in the order of the member's preference, each with its subscription in the consumer protocol's bytes."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a consumer group."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    topics: tuple[str, ...] = ()
    """Subscribed by name; sorted, each once."""
    regex: str | None = None
    """Subscribed by a regular expression; None or "": by none."""
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    pending_revocation: Assignment = NOTHING

    @property
    def held(self) -> Assignment:
        """Partitions that nobody else may have now."""
        return self.assigned | self.pending_revocation if self.pending_revocation else self.assigned

    @property
    def is_away(self) -> bool:
        """Whether this is a static member that left for a while."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has what the target assignment of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at_epoch(self, epoch: int) -> ConsumerMember:
        """The member moved to an epoch; where it was is remembered for an answer that got lost."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat. None (and -1 for the timeout) means: as said before."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Iterable[str] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    """What the member says that it has."""
    client_id: str = ""
    client_host: str = ""
    must_have_id: bool = True
    """Whether members make their ids themselves (from version 1 of the protocol on, KIP-1082)."""

    @property
    def is_full(self) -> bool:
        """Whether the member says everything: when it joins, and after an error."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None

    def applied_to(self, member: ConsumerMember) -> ConsumerMember:
        """The member after what this heartbeat says of it.

        One that joins says all: it does not inherit the subscription of who had its instance id before.
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


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What the group says. `assignment` is None when it is as the member knows it."""

    member_id: str
    member_epoch: int
    assignment: Assignment | None = None


def by_topic(partitions: Iterable[Partition]) -> dict[uuid.UUID, list[int]]:
    """Partition numbers of each topic, in order."""
    result: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        result.setdefault(topic_id, []).append(number)
    return result


def flatten(partitions: Mapping[uuid.UUID, Iterable[int]]) -> Assignment:
    """The opposite of `by_topic`."""
    return frozenset((topic_id, number) for topic_id, numbers in partitions.items() for number in numbers)
