"""Results as a run writes them, with made-up figures."""

from __future__ import annotations

import pytest

from bench.report import Report
from bench.results import OURS, RATIO, SYNCED, UNSYNCED, Measurement, Target

MACHINE = {
    "cpu": "a processor",
    "cores": 2,
    "memory_gb": 8,
    "system": "Linux",
    "file_system": "ext4",
    "disk": "virtio",
    "fdatasync_p50_ms": 0.25,
}


def beside(figure, unit, *, group, scale=1.0):
    """Return a figure of Sparrow and two peers."""
    contenders = ((OURS, "", SYNCED), ("Kafka", "confluent-kafka", UNSYNCED), ("Redis", "bytes only", SYNCED))
    return [
        Measurement(
            f"{figure}: {broker}, {client}",
            unit,
            runs=[scale * number, scale * (number + 1), scale * (number + 2)],
            durability=f"{strength} as {broker} does",
            figure=figure,
            broker=broker,
            client=client,
            strength=strength,
            group=group,
        )
        for number, (broker, client, strength) in enumerate(contenders, 1)
    ]


def some_measurements():
    """Return one measurement of each kind: beside peers, several figures of the same contenders,
    alone, a ratio, not measured, failed.
    """
    late = "topic: publish to consumer at 5,000 msg/s, "
    publish = beside("topic: publish 100 B", "msg/s", group="topic-publish", scale=123_456)
    publish[0].target = Target(100_000)
    ratio = Measurement(
        "topic: publish 100 B: sparrow, of the fastest peer's rate",
        RATIO,
        Target(1.0),
        runs=[0.5],
        figure="topic: publish 100 B",
        group="topic-publish",
    )
    return [
        *publish,
        ratio,
        *(
            row
            for word in ("p50", "p99", "p99.9")
            for row in beside(late + word, "ms", group="topic-latency")
        ),
        Measurement("spark write: topic", "", note="full run only: it takes long", group="spark-write"),
        Measurement("kafka-crowd", "", note="failed: a client | left", failed=True, group="kafka-crowd"),
    ]


@pytest.fixture
def measurements():
    return some_measurements()


@pytest.fixture
def report(measurements):
    return Report(
        quick=False,
        date="2026-05-01T12:00Z",
        machine=MACHINE,
        versions={"sparrow": "1.0", "Redis": "7"},
        settings={"Redis": "appendfsync always"},
        elapsed_s={"topic-publish": 12.5},
        measurements=measurements,
    )
