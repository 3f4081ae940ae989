"""What is counted while a broker runs, for whoever watches it (`metrics/`): times, and requests by door.

Whatever can be seen at any time (sizes, offsets, states of queues) is not counted here; the watcher looks when it wants to know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sparrow.base.histogram import Histogram


class DoorMeasures:
    """Of one door. Loop thread only.

    Args:
        name: "native", "kafka", "http", or the name of a seed.
        connections: how many there are now.
    """

    __slots__ = ("connections", "failures", "name", "requests")

    def __init__(self, name: str, connections: Callable[[], int]) -> None:
        self.name = name
        self.connections = connections
        self.requests: dict[str, Histogram] = {}
        """How long each kind of request took, in seconds. The kinds are the door's own, a few dozen."""
        self.failures: Counter[str] = Counter()
        """How many were answered with an error."""

    def observe(self, request: str, seconds: float) -> None:
        """A request was answered."""
        self.times_of(request).observe(seconds)

    def times_of(self, request: str) -> Histogram:
        """The times of one kind of request."""
        times = self.requests.get(request)
        if times is None:
            times = self.requests[request] = Histogram()
        return times

    def failed(self, request: str) -> None:
        """... with an error."""
        self.failures[request] += 1


class Measures:
    """`broker.measures`. Loop thread only."""

    def __init__(self) -> None:
        self.append = Histogram()
        """From the arrival of a publish at its partition to the page cache."""
        self.publish = Histogram()
        """... to stable storage, of publishes that wait for it."""
        self.appended = self.append.observe
        self.published = self.publish.observe
        self.doors: dict[str, DoorMeasures] = {}

    def door(self, name: str, connections: Callable[[], int]) -> DoorMeasures:
        """A door that opens; one of the same name that was closed before goes on counting."""
        door = self.doors.get(name)
        if door is None:
            door = self.doors[name] = DoorMeasures(name, connections)
        door.connections = connections
        return door
