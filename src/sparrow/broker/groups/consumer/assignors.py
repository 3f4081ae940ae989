"""Server-side assignors (KIP-848): pure functions from what members want to what each gets.

uniform    every member about as much, as few moves as possible; the default. The engine is
           that of the native groups (`sticky_assignor`): balanced also where members want
           different topics, sticky.
range      of each topic a contiguous range for each member, in the order of instance and
           member ids; topics with the same number of partitions and the same readers are
           split alike, so that equal keys of both meet in one member. Not sticky: the order
           alone decides.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.broker.groups.consumer.member import NOTHING, Assignment
from sparrow.broker.groups.native.sticky_assignor import assign

if TYPE_CHECKING:
    from sparrow.broker.groups.consumer.topics import TopicView


class Wish(Struct, frozen=True):
    """A member as an assignor sees it. `topics` that exist; `previous`: its part of the last
    target.
    """

    topics: Collection[TopicView]
    instance_id: str | None = None
    previous: Assignment = NOTHING


Assignor = Callable[[Mapping[str, Wish]], dict[str, Assignment]]


def uniform(wishes: Mapping[str, Wish]) -> dict[str, Assignment]:
    """Return a balanced and sticky assignment."""
    # members may share one collection
    shared = {id(wish.topics): wish.topics for wish in wishes.values()}
    subscriptions = {key: frozenset(topic.name for topic in topics) for key, topics in shared.items()}
    known = {topic.name: topic for topics in shared.values() for topic in topics}
    ids = {name: topic.topic_id for name, topic in known.items()}
    names = {topic_id: name for name, topic_id in ids.items()}
    assigned = assign(
        {member: subscriptions[id(wish.topics)] for member, wish in wishes.items()},
        {name: topic.partitions for name, topic in known.items()},
        {
            member: [(names[topic_id], number) for topic_id, number in wish.previous if topic_id in names]
            for member, wish in wishes.items()
        },
    )
    return {
        member: frozenset((ids[name], number) for name, number in partitions)
        for member, partitions in assigned.items()
    }


def ranges(wishes: Mapping[str, Wish]) -> dict[str, Assignment]:
    """Return a contiguous and co-partitioned assignment."""
    readers: dict[TopicView, list[str]] = {}
    for member in sorted(wishes, key=lambda each: _rank(each, wishes[each])):
        for topic in wishes[member].topics:
            readers.setdefault(topic, []).append(member)
    result: dict[str, set[tuple[uuid.UUID, int]]] = {member: set() for member in wishes}
    for topic, members in readers.items():
        share, more = divmod(topic.partitions, len(members))
        begin = 0
        for index, member in enumerate(members):
            end = begin + share + (index < more)
            result[member].update((topic.topic_id, number) for number in range(begin, end))
            begin = end
    return {member: frozenset(partitions) for member, partitions in result.items()}


def _rank(member_id: str, wish: Wish) -> tuple[bool, str, str]:
    """Return the sort key of a member. Static members come first, by instance id, so that a
    restarted one gets its old range.
    """
    return (wish.instance_id is None, wish.instance_id or "", member_id)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": ranges}
DEFAULT_ASSIGNOR: Final = "uniform"
