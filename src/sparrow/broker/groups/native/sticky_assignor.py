"""A uniform, sticky, deterministic assignment of partitions to the members of a group.

Strategy: every member keeps what it had and may still have. Partitions without a member go to the
least loaded member that wants their topic. Then, while one member has at least two partitions more
than another that could take one of them, one is moved. Each move lowers the sum of squared loads,
so the loop ends. Ties go by member id, so that the same input gives the same result on every
broker.

The result: every partition of a topic that any member wants has exactly one member, and that member
wants the topic; members with the same subscription differ by at most one partition; no partition
moves without need.

Topics that the same members want form one class and are treated together: a group whose members all
want the same topics is one class, however many topics there are.

Rejected: a range per topic (Kafka's RangeAssignor): the first members get the remainder of every
topic.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparrow.records.topic_partition import TopicPartition


class _TopicClass(Struct, frozen=True):
    """Topics that the same members want; both sorted."""

    topics: tuple[str, ...]
    members: tuple[str, ...]


def assign(
    subscriptions: Mapping[str, frozenset[str]],
    partition_counts: Mapping[str, int],
    previous: Mapping[str, Collection[TopicPartition]],
) -> dict[str, set[TopicPartition]]:
    """Return the partitions of each member.

    Args:
        subscriptions: wanted topics by member id.
        partition_counts: partitions by topic; a topic that is missing has none.
        previous: what each member had; no partition occurs twice.
    """
    result = {
        member: {
            p for p in previous.get(member, ()) if p[0] in topics and p[1] < partition_counts.get(p[0], 0)
        }
        for member, topics in subscriptions.items()
    }
    classes = _classes(subscriptions)
    taken = set().union(*result.values())
    if len(taken) < sum(partition_counts.get(topic, 0) for c in classes for topic in c.topics):
        for topic_class in classes:
            _fill(topic_class, partition_counts, taken, result)
    while any(_level(topic_class, result) for topic_class in classes):
        pass
    return result


def _classes(subscriptions: Mapping[str, frozenset[str]]) -> list[_TopicClass]:
    """Return the classes of topics, those with the fewest members first: they have the least
    choice.
    """
    members_by_subscription: dict[frozenset[str], list[str]] = defaultdict(list)
    for member, topics in subscriptions.items():
        members_by_subscription[topics].append(member)
    wanted_by: dict[str, list[frozenset[str]]] = defaultdict(list)
    for subscription in members_by_subscription:
        for topic in subscription:
            wanted_by[topic].append(subscription)
    topics_by_wanting: dict[tuple[frozenset[str], ...], list[str]] = defaultdict(list)
    for topic, wanting in wanted_by.items():
        topics_by_wanting[tuple(wanting)].append(topic)
    classes = [
        _TopicClass(
            tuple(sorted(topics)), tuple(sorted(m for s in wanting for m in members_by_subscription[s]))
        )
        for wanting, topics in topics_by_wanting.items()
    ]
    return sorted(classes, key=lambda c: (len(c.members), c.topics))


def _fill(
    topic_class: _TopicClass,
    partition_counts: Mapping[str, int],
    taken: set[TopicPartition],
    result: dict[str, set[TopicPartition]],
) -> None:
    """Assign each partition without a member to the least loaded member."""
    loads = [(len(result[member]), member) for member in topic_class.members]
    heapq.heapify(loads)
    for partition in _partitions(topic_class, partition_counts):
        if partition not in taken:
            load, member = loads[0]
            result[member].add(partition)
            heapq.heapreplace(loads, (load + 1, member))


def _level(topic_class: _TopicClass, result: dict[str, set[TopicPartition]]) -> bool:
    """Move partitions of the class from its most to its least loaded members. Return True if any
    was moved.
    """
    loads = {member: len(result[member]) for member in topic_class.members}
    if max(loads.values()) - min(loads.values()) < 2:
        return False
    topics = set(topic_class.topics)
    givers = [(-load, member) for member, load in loads.items()]
    takers = [(load, member) for member, load in loads.items()]
    heapq.heapify(givers)
    heapq.heapify(takers)
    movable: dict[str, list[TopicPartition]] = {}
    moved = False
    while givers and -givers[0][0] - takers[0][0] >= 2:
        giver, taker = givers[0][1], takers[0][1]
        if giver not in movable:
            movable[giver] = sorted(p for p in result[giver] if p[0] in topics)
        if not movable[giver]:
            heapq.heappop(givers)
            continue
        partition = movable[giver].pop()
        result[giver].remove(partition)
        result[taker].add(partition)
        heapq.heapreplace(givers, (-len(result[giver]), giver))
        heapq.heapreplace(takers, (len(result[taker]), taker))
        moved = True
    return moved


def _partitions(topic_class: _TopicClass, partition_counts: Mapping[str, int]) -> Iterator[TopicPartition]:
    for topic in topic_class.topics:
        for number in range(partition_counts.get(topic, 0)):
            yield topic, number
