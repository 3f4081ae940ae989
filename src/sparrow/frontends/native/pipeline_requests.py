"""Request handlers for pipelines, and for streams that read by the offsets of a group."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.pipelines.report import Report
from sparrow.frontends.native.request_handler import Arguments, NoArguments, RequestContext, RequestHandler


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


async def _report(context: RequestContext, a: ReportPipeline) -> Any:
    context.broker.pipelines.report(Report(**msgspec.structs.asdict(a)), principal=context.principal)
    return {}


async def _list(context: RequestContext, _: NoArguments) -> Any:
    return {"pipelines": msgspec.to_builtins(context.broker.pipelines.listing(principal=context.principal))}


async def _introduce(context: RequestContext, a: Introduce) -> Any:
    context.broker.pipelines.introduce(a.reader, a.group, principal=context.principal)
    return {}


async def _introduced(context: RequestContext, a: Introduced) -> Any:
    return {"group": context.broker.pipelines.introduced(a.reader)}


HANDLERS: Final[dict[str, RequestHandler]] = {
    "pipeline.report": RequestHandler(ReportPipeline, _report),
    "pipeline.list": RequestHandler(NoArguments, _list),
    "group.introduce": RequestHandler(Introduce, _introduce),
    "group.introduced": RequestHandler(Introduced, _introduced),
}
