"""Routes of the broker itself: version, statistics, reload, and quotas of its clients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from sparrow.base.version import version
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.frontends.http.arguments import operation
from sparrow.frontends.http.fields import Body, Name
from sparrow.frontends.http.identity import caller
from sparrow.model.access import Quota
from sparrow.model.broker import ReloadedConfig

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Route


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


class QuotaChanged(Body):
    entity: Annotated[
        dict[Name, Name | None],
        Meta(max_length=3, description="user, client-id or ip → its name; null is the default of the type."),
    ]
    values: Annotated[
        dict[Name, float | None],
        Meta(max_length=10, description="Such as producer_byte_rate; null removes the limit."),
    ]


class QuotaList(Struct):
    quotas: list[Quota]


class _Broker:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._broker = frontend.broker

    async def describe(self, request: Request) -> object:
        """Return the version, identity and statistics of the broker."""
        broker = self._broker
        return {
            **broker.statistics(principal=caller(request)),
            "version": version(),
            "cluster_id": broker.cluster_id,
            "uptime_ms": broker.clock.wall_ms() - broker.started_at_ms,
            "connections": self._frontend.connections,
        }

    async def reload(self, request: Request) -> object:
        """Load certificates, tokens and log level again. If one of them is invalid, nothing
        changes.
        """
        return await self._broker.reload(principal=caller(request))

    async def list_quotas(self, request: Request) -> object:
        """List all quotas."""
        found = self._broker.quotas.describe([], principal=caller(request))
        return {"quotas": [Quota(dict(entity), values) for entity, values in found]}

    async def alter_quota(self, request: Request, body: QuotaChanged) -> None:
        """Set or remove limits of one entity. They apply immediately."""
        change = QuotaChange(tuple(body.entity.items()), tuple(body.values.items()))
        (refused,) = await self._broker.quotas.alter([change], principal=caller(request))
        if refused is not None:
            raise refused


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of the broker and its quotas."""
    broker = _Broker(frontend)
    serve = partial(operation, tag="broker", refusals=(403,))
    return [
        serve("GET", "/v1/broker", broker.describe, BrokerShown),
        serve("POST", "/v1/broker/reload", broker.reload, ReloadedConfig),
        serve("GET", "/v1/quotas", broker.list_quotas, QuotaList),
        serve("PATCH", "/v1/quotas", broker.alter_quota, body=QuotaChanged, status=204),
    ]
