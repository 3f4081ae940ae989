"""Counters and times of a running broker, read by `metrics/`, with those of requests by frontend.

Values that can be read at any time (sizes, offsets, states of queues) are not counted here; the
collector reads them when it is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from sparrow.base.histogram import Histogram
from sparrow.broker.corrupt_batches import CorruptBatches

if TYPE_CHECKING:
    from sparrow.model.connections import ConnectionDescription


class Peer(Protocol):
    """An open connection, as `connections.Connections` shows it."""

    number: int

    def describe(self) -> ConnectionDescription: ...

    def abort(self) -> None: ...


def _no_peers() -> Iterable[Peer]:
    return ()


class FrontendMeasures:
    """Counters of one frontend. Loop thread only.

    Args:
        name: "native", "kafka", "http", or the name of a seed.
        connections: returns the current number of connections.
    """

    __slots__ = ("connections", "failures", "name", "peers", "refusals", "requests")

    def __init__(self, name: str, connections: Callable[[], int]) -> None:
        self.name = name
        self.connections = connections
        self.peers: Callable[[], Iterable[Peer]] = _no_peers
        """Returns the open connections."""
        self.requests: dict[str, Histogram] = {}
        """Durations of each kind of request, in seconds. Each frontend has its own kinds, a few
        dozen.
        """
        self.failures: Counter[str] = Counter()
        """The number of requests that failed, by kind."""
        self.refusals: Counter[str] = Counter()
        """Connections that were refused or closed to make room, by reason: "limit", "address",
        "files", "stranger".
        """

    def observe(self, request: str, seconds: float) -> None:
        """Record the duration of a request."""
        self.times_of(request).observe(seconds)

    def times_of(self, request: str) -> Histogram:
        """Return the durations of one kind of request."""
        times = self.requests.get(request)
        if times is None:
            times = self.requests[request] = Histogram()
        return times

    def failed(self, request: str) -> None:
        """Count a failed request."""
        self.failures[request] += 1


class Measures:
    """Counters of a broker, `broker.measures`. Loop thread only."""

    def __init__(self) -> None:
        self.append = Histogram()
        """Seconds from the arrival of a publish at its partition to the page cache."""
        self.publish = Histogram()
        """Seconds from the arrival of a publish that waits for stable storage until it is there."""
        self.schedule_lateness = Histogram()
        """Seconds from the time at which a job of a schedule was due until it is stored."""
        self.messages_in = self.bytes_in = 0
        """Records and bytes that were published to all partitions together, as each of them counts
        its own: rates of the broker are known without a walk over its topics.
        """
        self.messages_out = self.bytes_out = 0
        """Records and bytes that were read by offset from all partitions together."""
        self.appended = self.append.observe
        self.published = self.publish.observe
        self.failed_logins: Counter[str] = Counter()
        """Failed logins by reason: "credentials" (wrong), "waiting" (too many waited)."""
        self.audit_events: Counter[str] = Counter()
        """Audit events by outcome."""
        self.lost_audit_events: Counter[str] = Counter()
        """Lost audit events by reason: "limited" (too many), "queue_full" and "write_failed" (both
        of the topic alone).
        """
        self.frontends: dict[str, FrontendMeasures] = {}
        self.corrupt_batches = CorruptBatches()
        self.send_budget: Callable[[], int] = int
        """Returns the bytes that were sent to clients and that they have not received."""

    def frontend(self, name: str, connections: Callable[[], int]) -> FrontendMeasures:
        """Return the counters of a frontend; one that is started again continues to count."""
        frontend = self.frontends.get(name)
        if frontend is None:
            frontend = self.frontends[name] = FrontendMeasures(name, connections)
        frontend.connections = connections
        return frontend
