"""Operations on the broker itself: version, statistics, reload, and quotas of its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from sparrow.base.version import VERSION
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.frontends.admin.fields import Body, Name
from sparrow.frontends.admin.operation import Arguments, NoArguments, OperationContext
from sparrow.model.access import Quota

if TYPE_CHECKING:
    from sparrow.model.broker import ReloadedConfig


class AlterQuota(Arguments, frozen=True):
    """`entity` maps types ("user", "client-id", "ip") to names; null is the default. A null in
    `values` removes the value.
    """

    entity: dict[str, str | None]
    values: dict[str, float | None]


class QuotaChanged(Body):
    entity: Annotated[
        dict[Name, Name | None],
        Meta(max_length=3, description="user, client-id or ip → its name; null is the default of the type."),
    ]
    values: Annotated[
        dict[Name, float | None],
        Meta(max_length=10, description="Such as producer_byte_rate; null removes the limit."),
    ]


class BrokerShown(Struct):
    version: str
    cluster_id: str
    uptime_ms: int
    connections: Annotated[int, Meta(description="Connections of the HTTP listener.")]
    topics: int
    partitions: int
    bytes: int
    groups: int
    free_bytes: int


class QuotaList(Struct):
    quotas: list[Quota]


async def describe(context: OperationContext, _: NoArguments) -> dict[str, Any]:
    """Return the version, identity and statistics of the broker."""
    broker = context.broker
    return {
        **broker.statistics(principal=context.principal),
        "version": VERSION,
        "cluster_id": broker.cluster_id,
        "uptime_ms": broker.clock.wall_ms() - broker.started_at_ms,
        "connections": context.connections,
    }


async def reload(context: OperationContext, _: NoArguments) -> ReloadedConfig:
    """Load certificates, tokens and log level again. If one of them is invalid, nothing
    changes.
    """
    return await context.broker.reload(principal=context.principal)


async def list_quotas(context: OperationContext, _: NoArguments) -> QuotaList:
    """List all quotas."""
    found = context.broker.quotas.describe([], principal=context.principal)
    return QuotaList([Quota(dict(entity), values) for entity, values in found])


async def alter_quota(context: OperationContext, a: AlterQuota) -> None:
    """Set or remove limits of one entity. They apply immediately."""
    change = QuotaChange(tuple(a.entity.items()), tuple(a.values.items()))
    (refused,) = await context.broker.quotas.alter([change], principal=context.principal)
    if refused is not None:
        raise refused
