"""The contents of `docs/benchmarks.md`: its sections with their workloads, and the panels of its
chart. Every workload is in one section.
"""

from __future__ import annotations

from typing import NamedTuple

SECTIONS: dict[str, tuple[str, ...]] = {
    "topics": ("topic-publish", "topic-consume", "topic-latency"),
    "queues": (
        "queue-batches",
        "queue-singly",
        "queue-one",
        "queue-latency",
        "queue-share",
        "queue-share-latency",
    ),
    "starting": ("startup", "recovery"),
    "client": ("throughput-100B", "throughput-varied", "throughput-1KB", "latency", "connections", "topics"),
    "queue-costs": ("queue-million", "queue-delayed", "queue-replay", "queue-parented"),
    "tasks": ("tasks", "tasks-schedules"),
    "cluster": (
        "cluster-publish",
        "cluster-consume",
        "cluster-latency",
        "cluster-takeover",
        "cluster-engines",
    ),
    "kafka": ("kafka-100B", "kafka-1KB", "kafka-latency", "kafka-crowd"),
    "http": (
        "http-batches",
        "http-singly",
        "http-leases",
        "http-events",
        "http-sockets",
        "console",
        "webhooks",
    ),
    "seeds": ("seeds", "queue-seeds"),
    "spark": (
        "spark-batch",
        "spark-stream",
        "spark-write",
        "spark-micro-batch",
        "spark-latency",
        "spark-memory",
        "spark-kernels",
    ),
}
"""Marker in the document → workloads."""


class Panel(NamedTuple):
    """One small chart: the rows of one or more figures."""

    title: str
    unit: str
    figures: tuple[str, ...]
    """Beginnings of the figures' names; of latencies the middle one and the late one."""
    is_latency: bool = False


_TOPIC_LATENCY = "topic: publish to consumer at 5,000 msg/s, "
_QUEUE_LATENCY = "queue: publish to worker at 2,000 msg/s, "
_BUSY_LATENCY = "queue: publish to worker at 10,000 msg/s, "
PANELS = (
    Panel("Publish to a topic, 100 B", "msg/s", ("topic: publish 100 B",)),
    Panel("Consume a topic, 100 B", "msg/s", ("topic: consume 100 B",)),
    Panel("Publish to a topic, 1 KB", "msg/s", ("topic: publish 1 KB",)),
    Panel("Consume a topic, 1 KB", "msg/s", ("topic: consume 1 KB",)),
    Panel("Queue: publish + lease + ack in batches", "msg/s", ("queue: 100 B, publish + lease",)),
    Panel("Queue: 8 workers, each message by itself", "msg/s", ("queue: 100 B, 8 workers",)),
    Panel(
        "Topic: publish to consumer at 5,000 msg/s",
        "ms",
        (f"{_TOPIC_LATENCY}p50", f"{_TOPIC_LATENCY}p99"),
        is_latency=True,
    ),
    Panel(
        "Queue: publish to worker at 2,000 msg/s",
        "ms",
        (f"{_QUEUE_LATENCY}p50", f"{_QUEUE_LATENCY}p99"),
        is_latency=True,
    ),
    Panel("Queue: one worker, one message at a time", "msg/s", ("queue: 100 B, one worker",)),
    Panel(
        "Queue: publish to worker at 10,000 msg/s",
        "ms",
        (f"{_BUSY_LATENCY}p50", f"{_BUSY_LATENCY}p99"),
        is_latency=True,
    ),
    Panel("Start to first answer", "s", ("start to first answer",)),
    Panel("Memory, idle", "MB", ("idle memory",)),
    Panel("kill -9, restart, right end served", "s", ("kill -9, restart, right end",)),
    Panel("Spark: batch read, all columns", "M rows/s", ("spark batch: all columns",)),
    Panel("Spark: stream to Parquet", "M rows/s", ("spark stream: all columns → Parquet",)),
    Panel("Spark: write to a topic", "M rows/s", ("spark write: topic",)),
)
