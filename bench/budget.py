"""The size of each workload in a run.

A quick run ends in about ten minutes on two cores, with everything in it: one round of each,
fewer messages, and what starts slowly (RabbitMQ, Kafka, Spark's JVM) is shared by the workloads of
a family (the word before the dash) instead of being fresh in each. Its figures show that everything
works, and their size; figures to quote come from a full run.
"""

from __future__ import annotations

from dataclasses import dataclass

QUICK_SCALE = 0.1
"""Scale of workloads that `_QUICK` does not name."""
_QUICK = {
    "throughput-100B": 0.25,
    "throughput-varied": 0.25,
    "throughput-1KB": 0.25,
    "latency": 0.25,
    "topic-publish": 0.05,
    "topic-consume": 0.05,
    "recovery": 0.04,
    "queue-parented": 0.05,
    "http-sockets": 0.2,
    "seeds": 0.2,
    "spark-batch": 0.05,
}
_FULL_ONLY = {
    "spark-stream": "a stream's rate is that of many batches",
    "spark-latency": "percentiles need some hundred batches",
    "spark-memory": "a worker's memory is told by reading 10 GB",
}
"""Workload → why it cannot be short."""


@dataclass(frozen=True)
class Budget:
    """Rounds, and how many messages of those of a full run."""

    runs: int = 5
    is_quick: bool = False

    def scale(self, workload: str) -> float:
        """1.0: as in a full run."""
        return _QUICK.get(workload, QUICK_SCALE) if self.is_quick else 1.0

    def left_out(self, workload: str) -> str:
        """Why the workload is not done; "" when it is."""
        return _FULL_ONLY.get(workload, "") if self.is_quick else ""
