"""Request handlers for readers by offset: end offsets of topics, and size estimates. Records are
read by FETCH (`fetch_queue.py`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.watches import Known
from sparrow.frontends.native.channels import READ_COMMITTED, check_isolation
from sparrow.frontends.native.request_handler import Arguments, RequestContext, RequestHandler

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


async def _watch(context: RequestContext, a: WatchTopics) -> Any:
    check_isolation(a.isolation)
    known = {name: Known(ends, a.ids.get(name, "")) for name, ends in a.known.items()}
    found, missing = await context.broker.records.watch(
        a.topics,
        known,
        committed=a.isolation == READ_COMMITTED,
        wait_ms=0 if context.frontend.is_draining else min(a.wait_ms, MAX_WAIT_MS),
        principal=context.principal,
    )
    return {
        "topics": [{"name": each.name, "id": each.id, "partitions": each.partitions} for each in found],
        "missing": missing,
    }


async def _estimate_sizes(context: RequestContext, a: EstimateSizes) -> Any:
    return {
        "bytes": await context.broker.records.estimate_sizes(a.topic, a.ranges, principal=context.principal)
    }


async def _estimate_offsets(context: RequestContext, a: EstimateOffsets) -> Any:
    return {
        "offsets": await context.broker.records.estimate_offsets(
            a.topic, a.points, principal=context.principal
        )
    }


HANDLERS: Final[dict[str, RequestHandler]] = {
    "topic.watch": RequestHandler(WatchTopics, _watch),
    "topic.weigh": RequestHandler(EstimateSizes, _estimate_sizes),
    "topic.reach": RequestHandler(EstimateOffsets, _estimate_offsets),
}
