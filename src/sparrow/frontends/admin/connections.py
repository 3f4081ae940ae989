"""Operations on open connections."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from sparrow.frontends.admin.operation import Arguments, OperationContext
from sparrow.model.connections import ConnectionDescription  # noqa: TC001 - msgspec reads it

MAX_LISTED = 1000


class ListConnections(Arguments, frozen=True):
    limit: int = 100
    skip: int = 0


class CloseConnection(Arguments, frozen=True):
    number: int


class ConnectionsQuery(Struct):
    limit: Annotated[int, Meta(ge=1, le=MAX_LISTED)] = 100
    skip: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class ConnectionList(Struct):
    connections: list[ConnectionDescription]
    total: Annotated[int, Meta(description="Number of all.")]


async def list_connections(context: OperationContext, a: ListConnections) -> ConnectionList:
    """List the open connections of all listeners, oldest first."""
    found, total = context.broker.client_connections.listing(
        limit=a.limit, skip=a.skip, principal=context.principal
    )
    return ConnectionList(found, total)


async def close(context: OperationContext, a: CloseConnection) -> None:
    """Close a connection. Its client may connect again."""
    context.broker.client_connections.close(a.number, principal=context.principal)
