"""The workloads: name → function(runs, scale) → measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.workloads import (
    cluster,
    connections,
    console,
    http,
    kafka,
    kernels,
    latency,
    queue_parents,
    queue_sizes,
    queues,
    schedules,
    seeds,
    share_groups,
    spark,
    startup,
    tasks,
    throughput,
    topic_race,
    topics,
    webhooks,
)

if TYPE_CHECKING:
    from bench.harness import Workload

WORKLOADS: dict[str, Workload] = {
    "throughput-100B": throughput.small,
    "throughput-varied": throughput.varied,
    "throughput-1KB": throughput.large,
    "latency": latency.awaited,
    "topic-publish": topic_race.publish,
    "topic-consume": topic_race.consume,
    "topic-latency": topic_race.latency,
    "startup": startup.fresh,
    "recovery": startup.recovery,
    "connections": connections.idle,
    "topics": topics.many,
    "kafka-100B": kafka.small,
    "kafka-1KB": kafka.large,
    "kafka-latency": kafka.latency,
    "kafka-crowd": kafka.crowd,
    "queue-batches": queues.batches,
    "queue-singly": queues.singly,
    "queue-one": queues.one,
    "queue-latency": queues.latency,
    "queue-million": queue_sizes.million,
    "queue-delayed": queue_sizes.delayed,
    "queue-replay": queue_sizes.replayed,
    "queue-parented": queue_parents.drained,
    "tasks": tasks.systems,
    "queue-share": share_groups.batches,
    "queue-share-latency": share_groups.latency,
    "queue-seeds": seeds.waiting,
    "tasks-schedules": schedules.due,
    "cluster-publish": cluster.publishing,
    "cluster-consume": cluster.consuming,
    "cluster-latency": cluster.latencies,
    "cluster-takeover": cluster.takeovers,
    "cluster-engines": cluster.engines_work,
    "http-batches": http.batches,
    "http-singly": http.singly,
    "http-leases": http.leases,
    "http-events": http.events,
    "http-sockets": http.sockets,
    "console": console.looking,
    "webhooks": webhooks.deliveries,
    "seeds": seeds.publishing,
    "spark-kernels": kernels.both,
    "spark-batch": spark.reads,
    "spark-stream": spark.streams,
    "spark-write": spark.writes,
    "spark-micro-batch": spark.micro_batches,
    "spark-latency": spark.latency,
    "spark-memory": spark.memory,
}

ALONG: dict[str, tuple[str, ...]] = {"queue": ("topic-latency",)}
"""Words of `--only` → workloads that are measured along with those that have the word in their
names: queues and topics are compared with the same peers in the same run.
"""
