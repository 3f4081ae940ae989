"""Route of /metrics for monitoring by Prometheus, and the metrics of the frontend's own
requests.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.broker.metrics.collector import MAX_NAMES
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import TEXT, problems, response
from sparrow.frontends.http.queries import Choice, Query, WholeNumber
from sparrow.frontends.http.responses import Response
from sparrow.frontends.http.router import Route

if TYPE_CHECKING:
    from sparrow.broker.measures import FrontendMeasures
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.exposition import Exposition
    from sparrow.frontends.http.request import Request

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER: Final = "other"
"""Name of requests without a route."""
_FIRST_ERROR: Final = 400
_BY_PARTITION: Final = "partitions"
_NAMES: Final = WholeNumber(
    "names",
    "Number of topics, groups, queues and webhooks with values of their own; the others are summed "
    "under the empty name.",
    MAX_NAMES,
    0,
    100_000,
)
_DETAIL: Final = Choice("detail", "`partitions`: values by partition as well.", ("topics", _BY_PARTITION))


class _Metrics:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._exposition: Exposition | None = None
        self._scrape_lock = asyncio.Lock()
        """One request at a time: each holds all values in memory."""

    async def show(self, request: Request) -> Response:
        # prometheus-client is loaded by the first request
        from sparrow.frontends.http.exposition import Exposition, accepts_open_metrics

        query = Query(request)
        names = query.integer(_NAMES)
        detail = query.choice(_DETAIL)
        query.refuse_others()
        is_open = accepts_open_metrics(request.header(b"accept"))
        async with self._scrape_lock:
            collected = await self._frontend.broker.metrics.collect(
                caller(request), max_names=names, by_partition=detail == _BY_PARTITION
            )
            self._exposition = self._exposition or Exposition()
            media_type, text = await self._exposition.write(collected, is_open=is_open)
        return Response(200, [(b"content-type", media_type.encode())], text)


class Observer:
    """Counter of the frontend's requests by route."""

    def __init__(self, measures: FrontendMeasures) -> None:
        self._measures = measures
        self._names: dict[tuple[str, str], str] = {}

    def __call__(self, route: str, method: str, status: int, seconds: float) -> None:
        name = self._names.get((method, route)) or self._name(method, route)
        self._measures.observe(name, seconds)
        if status >= _FIRST_ERROR or status == 0:
            self._measures.failed(name)

    def _name(self, method: str, route: str) -> str:
        if not route or method not in _METHODS:
            return _OTHER
        name = self._names[method, route] = f"{method} {route}"
        return name


def routes(frontend: HttpContext) -> list[Route]:
    """Return the route of /metrics."""
    metrics = _Metrics(frontend)
    frontend.observer = Observer(frontend.broker.measures.frontend("http", lambda: frontend.connections))
    return [
        Route(
            "GET",
            "/metrics",
            metrics.show,
            tag="metrics",
            name="show",
            summary="Metrics for monitoring",
            text=(
                "All metrics in the text format of Prometheus, or as OpenMetrics if `Accept` asks for "
                "it. Requires DESCRIBE on the cluster; topics, groups and"
                " queues that the caller may not describe are left out."
            ),
            parameters=[_NAMES, _DETAIL],
            responses={
                **problems(),
                200: response("The values.", {"text/plain": TEXT, "application/openmetrics-text": TEXT}),
            },
        )
    ]
