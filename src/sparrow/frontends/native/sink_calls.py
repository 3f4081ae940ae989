"""The verbs of REQUEST that concern sinks."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.sinks.state import Caller as Batch
from sparrow.frontends.native.verbs import Arguments, Caller, NoArguments, Verb


class OfBatch(Arguments, frozen=True):
    sink: str
    query: str
    run: str
    batch: int

    @property
    def caller(self) -> Batch:
        return Batch(self.query, self.run, self.batch)


class OpenStage(OfBatch, frozen=True):
    task: int = 0
    attempt: int = 0
    timeout_ms: int = 0
    take_over: bool = False

    @property
    def caller(self) -> Batch:
        return Batch(self.query, self.run, self.batch, self.take_over)


class CommitStages(OfBatch, frozen=True):
    stages: list[str] = msgspec.field(default_factory=list)


class AbortStages(OfBatch, frozen=True):
    stages: list[str] = msgspec.field(default_factory=list)
    """Empty: all of the batch."""


class RenewBatch(Arguments, frozen=True):
    sink: str
    run: str
    batch: int


class SinkNamed(Arguments, frozen=True):
    sink: str


async def _stage(to: Caller, a: OpenStage) -> Any:
    stage = await to.broker.sinks.stage(
        a.sink, a.caller, task=a.task, attempt=a.attempt, timeout_ms=a.timeout_ms, principal=to.principal
    )
    if stage is None:
        return {"stage": "", "producer_id": -1, "producer_epoch": -1, "is_committed": True}
    return {
        "stage": stage.stage_id,
        "producer_id": stage.producer_id,
        "producer_epoch": stage.epoch,
        "is_committed": False,
    }


async def _commit(to: Caller, a: CommitStages) -> Any:
    was_committed = await to.broker.sinks.commit(a.sink, a.caller, a.stages, principal=to.principal)
    return {"was_committed": was_committed}


async def _abort(to: Caller, a: AbortStages) -> Any:
    is_committed, aborted = await to.broker.sinks.abort(a.sink, a.caller, a.stages, principal=to.principal)
    return {"is_committed": is_committed, "aborted": aborted}


async def _renew(to: Caller, a: RenewBatch) -> Any:
    to.broker.sinks.renew(a.sink, a.run, a.batch, principal=to.principal)
    return {}


async def _list(to: Caller, _: NoArguments) -> Any:
    return {"sinks": msgspec.to_builtins(to.broker.sinks.list(principal=to.principal))}


async def _describe(to: Caller, a: SinkNamed) -> Any:
    return msgspec.to_builtins(to.broker.sinks.describe(a.sink, principal=to.principal))


async def _delete(to: Caller, a: SinkNamed) -> Any:
    return {"aborted": await to.broker.sinks.delete(a.sink, principal=to.principal)}


VERBS: Final[dict[str, Verb]] = {
    "sink.stage": Verb(OpenStage, _stage),
    "sink.commit": Verb(CommitStages, _commit),
    "sink.abort": Verb(AbortStages, _abort),
    "sink.renew": Verb(RenewBatch, _renew),
    "sink.list": Verb(NoArguments, _list),
    "sink.describe": Verb(SinkNamed, _describe),
    "sink.delete": Verb(SinkNamed, _delete),
}
