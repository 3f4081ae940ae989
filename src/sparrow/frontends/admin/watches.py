"""Operations for readers by offset: end offsets of topics, and size estimates."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.reading.watches import Known
from sparrow.frontends.admin.operation import Arguments, OperationContext
from sparrow.frontends.isolation import READ_COMMITTED, check_isolation

MAX_WAIT_MS: Final = 5000


class WatchTopics(Arguments, frozen=True):
    topics: list[str]
    known: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    ids: dict[str, str] = msgspec.field(default_factory=dict)
    isolation: str = "read_uncommitted"
    wait_ms: int = 0


class EstimateSizes(Arguments, frozen=True):
    topic: str
    ranges: list[tuple[int, int, int]]


class EstimateOffsets(Arguments, frozen=True):
    topic: str
    points: list[tuple[int, int, int]]


async def watch(context: OperationContext, a: WatchTopics) -> Any:
    """Wait until the ends of topics change, and return them."""
    check_isolation(a.isolation)
    known = {name: Known(ends, a.ids.get(name, "")) for name, ends in a.known.items()}
    found, missing = await context.broker.records.watch(
        a.topics,
        known,
        committed=a.isolation == READ_COMMITTED,
        wait_ms=0 if context.is_draining else min(a.wait_ms, MAX_WAIT_MS),
        principal=context.principal,
    )
    return {
        "topics": [{"name": each.name, "id": each.id, "partitions": each.partitions} for each in found],
        "missing": missing,
    }


async def estimate_sizes(context: OperationContext, a: EstimateSizes) -> Any:
    """Return roughly how many bytes ranges of offsets have."""
    return {
        "bytes": await context.broker.records.estimate_sizes(a.topic, a.ranges, principal=context.principal)
    }


async def estimate_offsets(context: OperationContext, a: EstimateOffsets) -> Any:
    """Return where roughly this many bytes end."""
    return {
        "offsets": await context.broker.records.estimate_offsets(
            a.topic, a.points, principal=context.principal
        )
    }
