"""Request handlers for sinks."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.sinks.state import Caller
from sparrow.frontends.native.request_handler import Arguments, NoArguments, RequestContext, RequestHandler


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
    stages: list[str] = msgspec.field(default_factory=list)


class AbortStages(BatchArguments, frozen=True):
    stages: list[str] = msgspec.field(default_factory=list)
    """Empty: all stages of the batch."""


class RenewBatch(Arguments, frozen=True):
    sink: str
    run: str
    batch: int


class SinkNamed(Arguments, frozen=True):
    sink: str


async def _stage(context: RequestContext, a: OpenStage) -> Any:
    stage = await context.broker.sinks.stage(
        a.sink, a.caller, task=a.task, attempt=a.attempt, timeout_ms=a.timeout_ms, principal=context.principal
    )
    if stage is None:
        return {"stage": "", "producer_id": -1, "producer_epoch": -1, "is_committed": True}
    return {
        "stage": stage.stage_id,
        "producer_id": stage.producer_id,
        "producer_epoch": stage.epoch,
        "is_committed": False,
    }


async def _commit(context: RequestContext, a: CommitStages) -> Any:
    was_committed = await context.broker.sinks.commit(a.sink, a.caller, a.stages, principal=context.principal)
    return {"was_committed": was_committed}


async def _abort(context: RequestContext, a: AbortStages) -> Any:
    is_committed, aborted = await context.broker.sinks.abort(
        a.sink, a.caller, a.stages, principal=context.principal
    )
    return {"is_committed": is_committed, "aborted": aborted}


async def _renew(context: RequestContext, a: RenewBatch) -> Any:
    context.broker.sinks.renew(a.sink, a.run, a.batch, principal=context.principal)
    return {}


async def _list(context: RequestContext, _: NoArguments) -> Any:
    return {"sinks": context.broker.sinks.list(principal=context.principal)}


async def _describe(context: RequestContext, a: SinkNamed) -> Any:
    return context.broker.sinks.describe(a.sink, principal=context.principal)


async def _delete(context: RequestContext, a: SinkNamed) -> Any:
    return {"aborted": await context.broker.sinks.delete(a.sink, principal=context.principal)}


HANDLERS: Final[dict[str, RequestHandler]] = {
    "sink.stage": RequestHandler(OpenStage, _stage),
    "sink.commit": RequestHandler(CommitStages, _commit),
    "sink.abort": RequestHandler(AbortStages, _abort),
    "sink.renew": RequestHandler(RenewBatch, _renew),
    "sink.list": RequestHandler(NoArguments, _list),
    "sink.describe": RequestHandler(SinkNamed, _describe),
    "sink.delete": RequestHandler(SinkNamed, _delete),
}
