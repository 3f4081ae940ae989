"""Events per second over the last ten seconds, from samples."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sparrow.broker.queues.rules.state import QueueState

WINDOW_S: Final = 10.0


class _Sample(NamedTuple):
    at_s: float
    published: int
    delivered: int
    acknowledged: int


class Rates:
    """Rates of one queue."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def sample(self, now_s: float, published: int, state: QueueState) -> None:
        """Add a sample. A source that comes or goes makes a jump, which the window forgets."""
        tallies = [subscriber.tally for subscriber in state.subscribers.values()]
        self._samples.append(
            _Sample(now_s, published, sum(t.delivered for t in tallies), sum(t.acknowledged for t in tallies))
        )
        while len(self._samples) > 2 and self._samples[0].at_s < now_s - WINDOW_S:
            self._samples.popleft()

    def per_second(self) -> tuple[float, float, float]:
        """Return (published, delivered, acknowledged) per second."""
        if len(self._samples) < 2:
            return 0.0, 0.0, 0.0
        first, last = self._samples[0], self._samples[-1]
        span_s = last.at_s - first.at_s
        if span_s <= 0:
            return 0.0, 0.0, 0.0
        return (
            max(0, last.published - first.published) / span_s,
            max(0, last.delivered - first.delivered) / span_s,
            max(0, last.acknowledged - first.acknowledged) / span_s,
        )
