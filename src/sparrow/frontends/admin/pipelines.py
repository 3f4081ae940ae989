"""Operations for pipelines, and for streams that read by the offsets of a group."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sparrow.frontends.admin.operation import Arguments, NoArguments, OperationContext
from sparrow.model.pipelines import Report  # noqa: TC001 - msgspec reads it


class Introduce(Arguments, frozen=True):
    reader: str
    group: str


class Introduced(Arguments, frozen=True):
    reader: str


async def report(context: OperationContext, a: Report) -> Any:
    """Replace the report of a flow of a pipeline."""
    context.broker.pipelines.report(a, principal=context.principal)
    return {}


class PipelineList(Struct):
    pipelines: list[Report]


async def list_pipelines(context: OperationContext, _: NoArguments) -> Any:
    """List the reports of pipelines that you may see."""
    return {"pipelines": context.broker.pipelines.listing(principal=context.principal)}


async def introduce(context: OperationContext, a: Introduce) -> Any:
    """Name the group whose offsets a reader has."""
    context.broker.pipelines.introduce(a.reader, a.group, principal=context.principal)
    return {}


async def introduced(context: OperationContext, a: Introduced) -> Any:
    """Return the group of a reader."""
    return {"group": context.broker.pipelines.introduced(a.reader)}
