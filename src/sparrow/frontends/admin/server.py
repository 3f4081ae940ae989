"""Operations that show the options and the log of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from sparrow.model.server import LogLine, OptionDescription  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from sparrow.frontends.admin.operation import NoArguments, OperationContext


class OptionList(Struct):
    options: list[OptionDescription]


class LogShown(Struct):
    lines: list[LogLine]


async def options(context: OperationContext, _: NoArguments) -> OptionList:
    """List all options of the server with their values and where they come from; secrets are
    hidden.
    """
    return OptionList(context.broker.server.options(principal=context.principal))


async def recent_log(context: OperationContext, _: NoArguments) -> LogShown:
    """Show the last 500 lines of the log."""
    return LogShown(context.broker.server.recent_log(principal=context.principal))
