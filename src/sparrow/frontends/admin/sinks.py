"""Operations on sinks of data pipelines."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from sparrow.broker.sinks.state import Caller
from sparrow.frontends.admin.operation import Arguments, NoArguments, OperationContext
from sparrow.model.sinks import SinkDescription  # noqa: TC001 - msgspec reads it


class BatchArguments(Arguments, frozen=True):
    sink: str
    query: str
    run: str
    batch: int

    @property
    def caller(self) -> Caller:
        return Caller(self.query, self.run, self.batch)


class OpenStage(BatchArguments, frozen=True):
    task: int = 0
    attempt: int = 0
    timeout_ms: int = 0
    take_over: bool = False

    @property
    def caller(self) -> Caller:
        return Caller(self.query, self.run, self.batch, self.take_over)


class CommitStages(BatchArguments, frozen=True):
    stages: list[str] = field(default_factory=list)


class AbortStages(BatchArguments, frozen=True):
    stages: list[str] = field(default_factory=list)
    """Empty: all stages of the batch."""


class RenewBatch(Arguments, frozen=True):
    sink: str
    run: str
    batch: int


class SinkList(Struct):
    sinks: list[SinkDescription]


class SinkNamed(Arguments, frozen=True):
    sink: str


async def stage(context: OperationContext, a: OpenStage) -> Any:
    """Open a stage: uncommitted records of one task."""
    opened = await context.broker.sinks.stage(
        a.sink, a.caller, task=a.task, attempt=a.attempt, timeout_ms=a.timeout_ms, principal=context.principal
    )
    if opened is None:
        return {"stage": "", "producer_id": -1, "producer_epoch": -1, "is_committed": True}
    return {
        "stage": opened.stage_id,
        "producer_id": opened.producer_id,
        "producer_epoch": opened.epoch,
        "is_committed": False,
    }


async def commit(context: OperationContext, a: CommitStages) -> Any:
    """Publish a batch: commit its stages, and abort all others."""
    was_committed = await context.broker.sinks.commit(a.sink, a.caller, a.stages, principal=context.principal)
    return {"was_committed": was_committed}


async def abort(context: OperationContext, a: AbortStages) -> Any:
    """Drop stages of a batch."""
    is_committed, aborted = await context.broker.sinks.abort(
        a.sink, a.caller, a.stages, principal=context.principal
    )
    return {"is_committed": is_committed, "aborted": aborted}


async def renew(context: OperationContext, a: RenewBatch) -> Any:
    """Report that a batch is still in work."""
    context.broker.sinks.renew(a.sink, a.run, a.batch, principal=context.principal)
    return {}


async def list_sinks(context: OperationContext, _: NoArguments) -> Any:
    """List the sinks that you may describe, without their stages."""
    return {"sinks": context.broker.sinks.list(principal=context.principal)}


async def describe(context: OperationContext, a: SinkNamed) -> Any:
    """Describe a sink with its open stages."""
    return context.broker.sinks.describe(a.sink, principal=context.principal)


async def delete(context: OperationContext, a: SinkNamed) -> Any:
    """Delete a sink, and drop its stages."""
    return {"aborted": await context.broker.sinks.delete(a.sink, principal=context.principal)}
