"""The verbs of REQUEST that concern pipelines, and streams that have the offsets of a group."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.pipelines.report import Report
from sparrow.frontends.native.verbs import Arguments, Caller, NoArguments, Verb


class ReportPipeline(Arguments, frozen=True):
    name: str
    flow: str
    run: str = ""
    state: str = "running"
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: float = 0.0
    lag: int | None = None
    batch: int = -1
    error: str = ""
    started_ms: int = 0


class Introduce(Arguments, frozen=True):
    reader: str
    group: str


class Introduced(Arguments, frozen=True):
    reader: str


async def _report(to: Caller, a: ReportPipeline) -> Any:
    to.broker.pipelines.report(Report(**msgspec.structs.asdict(a)), principal=to.principal)
    return {}


async def _list(to: Caller, _: NoArguments) -> Any:
    return {"pipelines": msgspec.to_builtins(to.broker.pipelines.listing(principal=to.principal))}


async def _introduce(to: Caller, a: Introduce) -> Any:
    to.broker.pipelines.introduce(a.reader, a.group, principal=to.principal)
    return {}


async def _introduced(to: Caller, a: Introduced) -> Any:
    return {"group": to.broker.pipelines.introduced(a.reader)}


VERBS: Final[dict[str, Verb]] = {
    "pipeline.report": Verb(ReportPipeline, _report),
    "pipeline.list": Verb(NoArguments, _list),
    "group.introduce": Verb(Introduce, _introduce),
    "group.introduced": Verb(Introduced, _introduced),
}
