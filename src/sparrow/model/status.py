"""The state of a broker at one moment, and the history of its rates."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sparrow.model.result import Result


class Attention(Result, frozen=True):
    """Something that a person should look at."""

    kind: Annotated[
        str,
        Meta(
            description="disk, damage, dead_letters, oldest_job, lag, webhook, pipeline, schedule or paused.",
        ),
    ]
    text: Annotated[str, Meta(description="A sentence for people.")]
    resource_type: Annotated[
        str, Meta(description="queue, group, pipeline, webhook, schedule or broker.")
    ] = "broker"
    resource: str = ""
    part: Annotated[str, Meta(description="Name of a webhook or a flow.")] = ""


class MessageRates(Result, frozen=True):
    """Events per second, averaged over the last sample of the history (5 s)."""

    messages_in: float = 0.0
    messages_out: Annotated[float, Meta(description="Read by offset; not deliveries of queues.")] = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    delivered: Annotated[float, Meta(description="Handed out by queues.")] = 0.0
    acknowledged: float = 0.0


class BrokerStatus(Result, frozen=True):
    """One screen about a broker: `sparrow status`, and the overview of the console."""

    status: Annotated[str, Meta(description='"ready", "degraded" or "not ready".')]
    reasons: Annotated[list[str], Meta(description="Why it is not ready, or degraded.")]
    version: str
    cluster_id: str
    started_ms: int
    uptime_ms: int
    topics: int
    partitions: int
    groups: int
    queues: int
    bytes: Annotated[int, Meta(description="Bytes of all records on the disk.")]
    unfinished: Annotated[int, Meta(description="Unfinished messages of all queues.")]
    dead: Annotated[int, Meta(description="Unfinished dead letters of all queues.")]
    free_bytes: int
    total_bytes: int
    reserve_bytes: Annotated[int, Meta(description="Free bytes below which records are refused.")]
    full_in_ms: Annotated[
        int,
        Meta(description="Forecast of the last 15 minutes: when only the reserve is left; -1: never."),
    ]
    connections: Annotated[dict[str, int], Meta(description="Open connections, by listener.")]
    rates: MessageRates
    sync_p50_ms: Annotated[
        float, Meta(description="Median of the syncs of the last minute; -1: there were none.")
    ]
    sync_p99_ms: float
    attention: list[Attention] = []


class BrokerHistory(Result, frozen=True):
    """Samples of the past, oldest first. Kept in memory: a restart of the broker loses them."""

    span: str
    interval_ms: Annotated[int, Meta(description="Time between two samples.")]
    since_ms: Annotated[int, Meta(description="When the broker started to keep it.")]
    times_ms: list[int]
    series: Annotated[
        dict[str, list[float | None]], Meta(description="Values at these times; null: not known.")
    ]
