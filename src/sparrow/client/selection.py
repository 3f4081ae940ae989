"""The selection of a subscription, as selectors: kept by the client, so that it can be sent on a
new connection, with the positions to continue from.

- A name with `*` or `?` is a pattern.
- Without a group every known position is given explicitly. A topic that began to match a pattern
  while there was no connection is read from its beginning, as it would have been with a connection;
  the same applies to partitions.
- In a group committed offsets take precedence, because other members may have read on meanwhile. A
  position is given only where nothing was committed, so that `start` does not skip records.

Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument
from sparrow.protocol.native.messages import Selector, Start

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sparrow.records.topic_partition import TopicPartition


_BEGINNING = Start("beginning")


def is_pattern(name: str) -> bool:
    """Return True if a name is a pattern, for all topics that match it."""
    return "*" in name or "?" in name


def matches(pattern: str, topic: str) -> bool:
    """Return True if a topic's name matches: `*` is any run of characters, `?` one."""
    expression = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(expression, topic, re.DOTALL) is not None


class TopicSelection:
    """The names of one subscription, each with its start position."""

    def __init__(self, names: Sequence[str], start: Start) -> None:
        self.version = 0
        """Grows with each change."""
        self._starts: dict[str, Start] = {}
        self._implied: set[str] = set()
        """Topics that were sent to the broker only with a position; a pattern of the user selects
        them.
        """
        self.add(names, start)
        if not names:
            raise InvalidArgument("a subscription needs at least one topic or pattern")

    @property
    def names(self) -> list[str]:
        return list(self._starts)

    @property
    def patterns(self) -> list[str]:
        return [name for name in self._starts if is_pattern(name)]

    @property
    def has_topics(self) -> bool:
        """True if a topic is selected by its name."""
        return any(not is_pattern(name) for name in self._starts)

    def add(self, names: Iterable[str], start: Start) -> list[Selector]:
        """Add names and return the selectors to send.

        Raises:
            InvalidArgument: an empty name, or a value that is not text, such as a list; nothing was
                added.
        """
        names = list(names)
        for name in names:
            _check_name(name)
        self.version += 1
        for name in names:
            self._starts[name] = start
            self._implied.discard(name)
        return [Selector(name, is_pattern(name), start) for name in names]

    def drop(self, names: Sequence[str]) -> list[str]:
        """Remove names. Return those that the broker must forget: these, and topics that only these
        patterns selected.

        Raises:
            InvalidArgument: a name is not subscribed to.
        """
        for name in names:
            if name not in self._starts:
                raise InvalidArgument(
                    f"{name!r} is not subscribed to; subscribed are {', '.join(self._starts)}"
                )
        self.version += 1
        for name in names:
            del self._starts[name]
        orphans = [t for t in self._implied if not any(matches(p, t) for p in self.patterns)]
        self._implied.difference_update(orphans)
        return [*names, *orphans]

    def first(self) -> list[Selector]:
        """Return the selectors of the first connection."""
        self._implied.clear()
        return [Selector(name, is_pattern(name), start) for name, start in self._starts.items()]

    def again(self, positions: Mapping[TopicPartition, int], existing: Collection[str]) -> list[Selector]:
        """Return the selectors of a later connection, outside any group.

        Args:
            positions: the next offset of every partition that was read.
            existing: the topics that match the patterns now.
        """
        by_topic = _by_topic(positions)
        selectors = [
            Selector(name, False, _BEGINNING if name in by_topic else start, by_topic.get(name, {}))
            for name, start in self._starts.items()
            if not is_pattern(name)
        ]
        self._implied = {topic for topic in existing if topic not in self._starts}
        selectors += [Selector(t, False, _BEGINNING, by_topic.get(t, {})) for t in sorted(self._implied)]
        return selectors + self._pattern_selectors()

    def again_in_group(
        self, uncommitted: Mapping[TopicPartition, int], existing: Collection[str]
    ) -> list[Selector]:
        """Return the selectors of a later connection of a group's member.

        Args:
            uncommitted: the next offset of the partitions that were read and have no committed
                offset.
        """
        by_topic = _by_topic(uncommitted)
        selectors = [
            Selector(name, False, start, by_topic.get(name, {}))
            for name, start in self._starts.items()
            if not is_pattern(name)
        ]
        self._implied = {topic for topic in by_topic if topic in existing and topic not in self._starts}
        selectors += [Selector(t, False, self._start_of(t), by_topic[t]) for t in sorted(self._implied)]
        return selectors + self._pattern_selectors()

    def _pattern_selectors(self) -> list[Selector]:
        return [Selector(name, True, self._starts[name]) for name in self.patterns]

    def _start_of(self, topic: str) -> Start:
        return next((self._starts[p] for p in self.patterns if matches(p, topic)), Start())


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidArgument(
            f"{name!r} cannot be subscribed to: topics and patterns are texts, one by one, as in "
            "subscribe('orders', 'audit.*')"
        )
    if not name:
        raise InvalidArgument("an empty name cannot be subscribed to")


def _by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in positions.items():
        found.setdefault(topic, {})[partition] = offset
    return found
