"""Events of a history: one for each act or observation of a client, in order."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """Kinds of events. A queue's settlements are recorded twice: when the client sends them, and
    when the broker confirms them.
    """

    SENT = "sent"
    """The client is about to publish the message; recorded again for each attempt."""
    ACKNOWLEDGED = "acknowledged"
    """The broker confirmed the publish; `place` is the position, if the broker named it."""
    READ = "read"
    """A reader received the message from `place`."""
    RESUMED = "resumed"
    """A member of a group begins to read at `place`."""
    COMMITTING = "committing"
    """A member of a group requests to commit `place`."""
    COMMITTED = "committed"
    """The commit was confirmed."""
    HANDED_OUT = "handed out"
    """A worker received the message; `count` is the delivery, `asked_s` the time of its request."""
    UNANSWERED = "unanswered"
    """A worker requested a lease at `asked_s`, and received no response."""
    SETTLING = "settling"
    """A worker settles the message: `what`."""
    SETTLED = "settled"
    """The settlement was confirmed."""


Place = tuple[int, int]
"""Partition and offset."""


class Event(NamedTuple):
    at_s: float
    """Monotonic time."""
    kind: Kind
    number: int
    """Number of the message; -1 if the event concerns none."""
    place: Place | None = None
    by: str = ""
    """The worker, member or subscriber."""
    count: int = 0
    asked_s: float = 0.0
    what: str = ""
    wall_s: float = 0.0
    """Wall time, in seconds since 1970."""


class Found(NamedTuple):
    """A message in the log at the end."""

    number: int
    partition: int
    offset: int


class History:
    """The events of one load. Any thread may add events."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._events: list[Event] = []
        self._numbers: dict[Kind, set[int]] = {kind: set() for kind in Kind}
        for each in events:
            self._add(each)

    def note(
        self,
        kind: Kind,
        number: int = -1,
        place: Place | None = None,
        *,
        by: str = "",
        count: int = 0,
        asked_s: float = 0.0,
        what: str = "",
    ) -> None:
        """Add an event that happens now."""
        self._add(Event(time.monotonic(), kind, number, place, by, count, asked_s, what, time.time()))

    def _add(self, event: Event) -> None:
        self._events.append(event)
        self._numbers[event.kind].add(event.number)

    def __len__(self) -> int:
        return len(self._events)

    def of(self, *kinds: Kind) -> list[Event]:
        """Return the events of some kinds, in order."""
        return [each for each in self._events if each.kind in kinds]

    def numbers(self, kind: Kind) -> set[int]:
        """Return the messages to which this happened so far."""
        return set(self._numbers[kind])

    def count(self, kind: Kind) -> int:
        """Return the number of events of a kind."""
        return len(self._numbers[kind])
