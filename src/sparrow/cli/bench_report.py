"""Result of a measurement, as a sentence or as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

_QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max"))


@dataclass(slots=True)
class Figures:
    """Figures of one run. Latencies are in seconds, each counted from the time when its message was
    due, so that a message that waits behind a slow one counts as late.
    """

    messages: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    failed: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def quantiles_ms(self) -> dict[str, float]:
        """Return quantiles of the latencies in ms, by name; empty when nothing was timed."""
        times = sorted(self.latencies_s)
        last = len(times) - 1
        return {name: times[round(last * share)] * 1000 for share, name in _QUANTILES} if times else {}

    @property
    def rate(self) -> float:
        """Return messages per second."""
        return self.messages / max(self.seconds, 1e-9)

    def as_json(self, **fields: object) -> str:
        """Return one line of JSON."""
        found: dict[str, Any] = {
            **fields,
            "messages": self.messages,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.rate, 3),
            "failed": self.failed,
            "latency_ms": {name: round(value, 3) for name, value in self.quantiles_ms().items()},
        }
        return json.dumps(found)

    def sentence(self, done: str) -> str:
        """Return a sentence. `done`: what happened to the messages, such as "published"."""
        rate_mb = self.size_bytes / max(self.seconds, 1e-9) / 1e6
        return (
            f"{self.messages:,} messages ({self.size_bytes / 1e6:,.1f} MB) {done} in {self.seconds:.2f} s: "
            f"{self.rate:,.0f}/s, {rate_mb:,.1f} MB/s"
        )

    def latency_line(self, what: str) -> str:
        """Return the line with the latencies. `what`: from which event to which."""
        found = ", ".join(f"{name} {value:,.2f} ms" for name, value in self.quantiles_ms().items())
        return f"{what}: {found} (of {len(self.latencies_s):,} messages)"
