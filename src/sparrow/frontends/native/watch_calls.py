"""The verbs of REQUEST for readers by offset: where topics end, and how many bytes lie where. The records come by FETCH (`fetching.py`)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.watching import Known
from sparrow.frontends.native.isolation import READ_COMMITTED, check_isolation
from sparrow.frontends.native.verbs import Arguments, Caller, Verb

MAX_WAIT_MS: Final = 5000


class Watch(Arguments, frozen=True):
    topics: list[str]
    known: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    ids: dict[str, str] = msgspec.field(default_factory=dict)
    isolation: str = "read_uncommitted"
    wait_ms: int = 0


class Weigh(Arguments, frozen=True):
    topic: str
    ranges: list[tuple[int, int, int]]


class Reach(Arguments, frozen=True):
    topic: str
    points: list[tuple[int, int, int]]


async def _watch(to: Caller, a: Watch) -> Any:
    check_isolation(a.isolation)
    known = {name: Known(ends, a.ids.get(name, "")) for name, ends in a.known.items()}
    found, missing = await to.broker.watch(
        a.topics,
        known,
        committed=a.isolation == READ_COMMITTED,
        wait_ms=0 if to.frontend.is_draining else min(a.wait_ms, MAX_WAIT_MS),
        principal=to.principal,
    )
    return {
        "topics": [{"name": each.name, "id": each.id, "partitions": each.partitions} for each in found],
        "missing": missing,
    }


async def _weigh(to: Caller, a: Weigh) -> Any:
    return {"bytes": await to.broker.weigh(a.topic, a.ranges, principal=to.principal)}


async def _reach(to: Caller, a: Reach) -> Any:
    return {"offsets": await to.broker.reach(a.topic, a.points, principal=to.principal)}


VERBS: Final[dict[str, Verb]] = {
    "topic.watch": Verb(Watch, _watch),
    "topic.weigh": Verb(Weigh, _weigh),
    "topic.reach": Verb(Reach, _reach),
}
