"""A broker on a disk that outlives it, and a task's use of a stage."""

from __future__ import annotations

from sparrow.broker.broker import Broker
from sparrow.broker.sinks.stage import Stage
from sparrow.broker.sinks.state import Caller
from tests.transactions.machine import Machine

SINK, QUERY = "copy", "q-1"
TIMEOUT_MS = 60_000


def caller(batch: int, run: str = "r-1", query: str = QUERY, *, take_over: bool = False) -> Caller:
    return Caller(query, run, batch, take_over)


async def open_stage(
    broker: Broker, batch: int, run: str = "r-1", *, sink: str = SINK, task: int = 0
) -> Stage:
    stage = await broker.sinks.stage(sink, caller(batch, run), task=task, attempt=0, timeout_ms=TIMEOUT_MS)
    assert stage is not None
    return stage


async def put(
    machine: Machine, broker: Broker, stage: Stage, topic: str, *values: bytes, sequence: int = 0
) -> None:
    """Publish into a stage, as the native frontend does."""
    publishing = broker.sinks.publisher(stage.stage_id)
    key = (topic, 0)
    publishing.check(key)
    await publishing.join([key])
    await publishing.publish(key, machine.batch(stage.producer, sequence, *values))
    publishing.end(is_complete=True)


async def commit(broker: Broker, batch: int, *stages: Stage, run: str = "r-1", sink: str = SINK) -> bool:
    return await broker.sinks.commit(sink, caller(batch, run), [each.stage_id for each in stages])
