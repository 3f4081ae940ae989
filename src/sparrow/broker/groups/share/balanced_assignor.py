"""The assignment of partitions to members of a share group: the assignor "simple" (KIP-932), a pure
function.

Every partition gets its share of all members as readers, at least one. So where there are more
members than partitions, partitions have several readers, and every member that subscribed to an
existing topic gets a partition.

The number of readers of a partition: each member counts as one, divided among the partitions of its
topics; the sum of a partition, rounded up, is the number of its readers. If all members want the
same topics that is members / partitions, as in Kafka. These slots are then filled: a member keeps
what it had while there is room (sticky), free slots go to the members with the fewest, and as long
as one member has two more than another that could take over from it, directly or by a chain of
others, a slot moves. Racks play no part.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.assignors import Wish
    from sparrow.broker.groups.consumer.member import Assignment, TopicIdPartition

NAME: Final = "simple"
_ROUNDING: Final = 1e-9
_MAX_FAILED_PROBES: Final = 50_000
"""Limit of failed searches. After it the rest stays a little uneven: many members that all want
different topics must not block the broker.
"""
_Move = tuple["TopicIdPartition", str, str]
"""(partition, giver, taker)."""


def assign(wishes: Mapping[str, Wish]) -> dict[str, Assignment]:
    """Return the assignment of each member, by member id."""
    slots = _Slots(wishes)
    slots.keep_previous(wishes)
    slots.fill()
    slots.balance()
    return {member: frozenset(slots.partitions_of(member)) for member in wishes}


class _Slots:
    """The readers of each partition while the assignment is computed."""

    def __init__(self, wishes: Mapping[str, Wish]) -> None:
        self._topics = _topics_wanted(wishes)
        self._wanted_readers = _readers_wanted(wishes)
        self._members_by_topic: dict[uuid.UUID, list[str]] = {}
        for member in sorted(wishes):
            for topic_id in self._topics[member]:
                self._members_by_topic.setdefault(topic_id, []).append(member)
        self._readers: dict[uuid.UUID, list[set[str]]] = {
            topic.topic_id: [set() for _ in range(topic.partitions)]
            for topics in {id(wish.topics): wish.topics for wish in wishes.values()}.values()
            for topic in topics
        }
        self._assigned: dict[str, dict[uuid.UUID, dict[int, None]]] = {
            member: {} for member in sorted(wishes)
        }
        self._count = dict.fromkeys(self._assigned, 0)
        self._failed_probes = 0

    def partitions_of(self, member: str) -> Iterator[TopicIdPartition]:
        """Return the partitions of a member."""
        for topic_id, numbers in self._assigned[member].items():
            for number in numbers:
                yield topic_id, number

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────

    def keep_previous(self, wishes: Mapping[str, Wish]) -> None:
        """Let members keep the partitions that they had and still want. If a partition has too many
        readers, those with the most partitions lose it.
        """
        for member in self._assigned:
            for topic_id, number in sorted(wishes[member].previous):
                if topic_id in self._topics[member] and number < len(self._readers[topic_id]):
                    self._give((topic_id, number), member)
        for topic_id, partitions in self._readers.items():
            for number, readers in enumerate(partitions):
                while len(readers) > self._wanted_readers[topic_id]:
                    fullest = max(readers, key=lambda member: (self._count[member], member))
                    self._take((topic_id, number), fullest)

    def fill(self) -> None:
        """Give free slots to the members with the fewest; topics that few members want come
        first.
        """
        for topic_id in sorted(self._readers, key=lambda each: len(self._members_by_topic[each])):
            fewest = [(self._count[member], member) for member in self._members_by_topic[topic_id]]
            heapify(fewest)
            for number, readers in enumerate(self._readers[topic_id]):
                self._fill_partition((topic_id, number), readers, fewest)

    def _fill_partition(
        self, partition: TopicIdPartition, readers: set[str], fewest: list[tuple[int, str]]
    ) -> None:
        passed: list[tuple[int, str]] = []
        while len(readers) < self._wanted_readers[partition[0]]:
            count, member = heappop(fewest)
            if member not in readers:
                self._give(partition, member)
                count += 1
            passed.append((count, member))
        for each in passed:
            heappush(fewest, each)

    def balance(self) -> None:
        """Move slots until no member can take one from a member that has two more."""
        waiting = deque(sorted(self._assigned, key=lambda member: self._count[member]))
        while waiting:
            member = waiting.popleft()
            moves = self._moves_to(member)
            for partition, giver, taker in moves:
                self._take(partition, giver)
                self._give(partition, taker)
            if moves:
                waiting.append(member)

    # ── moving ────────────────────────────────────────────────────────────────────────────────────

    def _moves_to(self, member: str) -> list[_Move]:
        """Return moves that give a member one more at the cost of one that has two more than it, or
        nothing.
        """
        enough = self._count[member] + 2
        if not self._topics[member] or max(self._count.values()) < enough:
            return []
        came: dict[str, tuple[TopicIdPartition, str]] = {}
        reached = deque([member])
        while reached and self._failed_probes < _MAX_FAILED_PROBES:
            taker = reached.popleft()
            for giver in sorted(self._assigned, key=lambda each: -self._count[each]):
                if giver in came or giver in {member, taker}:
                    continue
                movable = self._movable(giver, taker)
                if movable is None:
                    self._failed_probes += 1
                    continue
                came[giver] = (movable, taker)
                if self._count[giver] >= enough:
                    return _chain(came, giver, member)
                reached.append(giver)
        return []

    def _movable(self, giver: str, taker: str) -> TopicIdPartition | None:
        """Return a partition that the giver has and the taker could have instead: the one that the
        giver got last. None: there is none.
        """
        topics = self._topics[taker]
        for topic_id, numbers in self._assigned[giver].items():
            if topic_id in topics:
                readers = self._readers[topic_id]
                for number in reversed(numbers):
                    if taker not in readers[number]:
                        return topic_id, number
        return None

    def _give(self, partition: TopicIdPartition, member: str) -> None:
        topic_id, number = partition
        self._assigned[member].setdefault(topic_id, {})[number] = None
        self._readers[topic_id][number].add(member)
        self._count[member] += 1

    def _take(self, partition: TopicIdPartition, member: str) -> None:
        topic_id, number = partition
        del self._assigned[member][topic_id][number]
        if not self._assigned[member][topic_id]:
            del self._assigned[member][topic_id]
        self._readers[topic_id][number].discard(member)
        self._count[member] -= 1


def _topics_wanted(wishes: Mapping[str, Wish]) -> dict[str, frozenset[uuid.UUID]]:
    """Return the ids of the topics that each member wants; members may share one collection."""
    shared = {id(wish.topics): wish.topics for wish in wishes.values()}
    ids = {key: frozenset(topic.topic_id for topic in topics) for key, topics in shared.items()}
    return {member: ids[id(wish.topics)] for member, wish in wishes.items()}


def _readers_wanted(wishes: Mapping[str, Wish]) -> dict[uuid.UUID, int]:
    """Return the number of readers for each partition of a topic."""
    shared = {id(wish.topics): wish.topics for wish in wishes.values()}
    members = Counter(id(wish.topics) for wish in wishes.values())
    weights: dict[uuid.UUID, float] = {}
    for key, topics in shared.items():
        partitions = sum(topic.partitions for topic in topics)
        for topic in topics:
            weights[topic.topic_id] = weights.get(topic.topic_id, 0.0) + members[key] / partitions
    return {topic_id: ceil(weight - _ROUNDING) for topic_id, weight in weights.items()}


def _chain(came: Mapping[str, tuple[TopicIdPartition, str]], giver: str, last: str) -> list[_Move]:
    """Return the moves from the giver to the member that gets one more."""
    moves: list[_Move] = []
    while giver != last:
        partition, taker = came[giver]
        moves.append((partition, giver, taker))
        giver = taker
    return moves
