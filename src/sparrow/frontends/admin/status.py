"""Operations that tell people how the broker is, and who they are to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, field

from sparrow.frontends.admin.fields import MaybeName, Text  # noqa: TC001 - msgspec reads it
from sparrow.frontends.admin.operation import Arguments, NoArguments, OperationContext

if TYPE_CHECKING:
    from sparrow.model.status import BrokerHistory, BrokerStatus

DEFAULT_SPAN = "15m"


class AskHistory(Arguments, frozen=True):
    series: list[str] = field(default_factory=list)
    span: str = DEFAULT_SPAN
    queue: str = ""


class HistoryQuery(Struct):
    series: Annotated[Text, Meta(description="Names, separated by commas; empty: all.")] = ""
    span: Annotated[
        str, Meta(max_length=20, description="`15m` in steps of 5 s, or `24h` in steps of 5 min.")
    ] = DEFAULT_SPAN
    queue: Annotated[MaybeName, Meta(description="History of this queue, instead of the broker.")] = ""


async def describe(context: OperationContext, _: NoArguments) -> BrokerStatus:
    """Show the state of the broker on one screen: readiness, disk, rates, times of syncs, and what
    needs attention.
    """
    return await context.broker.status.describe(principal=context.principal)


async def history(context: OperationContext, a: AskHistory) -> BrokerHistory:
    """Return samples of rates and sizes of the last 15 minutes or 24 hours. They are kept in memory
    and lost at a restart.
    """
    return context.broker.status.history(a.series, a.span, a.queue, principal=context.principal)


def history_of(_: OperationContext, by: HistoryQuery) -> AskHistory:
    """Return the arguments of `history`."""
    return AskHistory([each for each in by.series.split(",") if each], by.span, by.queue)
