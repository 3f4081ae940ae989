"""GET /metrics: what a monitor (Prometheus) sees; and the observation of the door's own requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request, Response

from sparrow.broker.metrics.gathering import MAX_NAMES
from sparrow.frontends.http.exposition import Exposition, accepts_open_metrics
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import (
    TEXT,
    RawRoute,
    answer,
    choice,
    integer,
    problems,
    query_parameter,
)
from sparrow.frontends.http.queries import Query

if TYPE_CHECKING:
    from sparrow.broker.measures import DoorMeasures
    from sparrow.frontends.http.frontend import HttpFrontend

_MOST_NAMES: Final = 100_000
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER: Final = "other"
"""What is asked for without there being a route for it."""
_FIRST_ERROR: Final = 400
_DETAILS: Final = ("topics", "partitions")


class _Metrics:
    def __init__(self, door: HttpFrontend) -> None:
        self._door = door
        self._exposition = Exposition()
        self._scraping = asyncio.Lock()
        """One at a time: each holds all values in memory."""

    async def show(self, request: Request) -> Response:
        query = Query(request)
        names = query.integer("names", MAX_NAMES, 0, _MOST_NAMES)
        detail = query.choice("detail", _DETAILS[0], _DETAILS)
        query.refuse_others()
        is_open = accepts_open_metrics(request.headers.get("accept", ""))
        async with self._scraping:
            gathered = await self._door.broker.metrics.gather(
                caller(request), max_names=names, by_partition=detail == _DETAILS[1]
            )
            media_type, text = await self._exposition.write(gathered, is_open=is_open)
        return Response(text, headers={"content-type": media_type})


class Observer:
    """Counts the door's requests by route."""

    def __init__(self, measures: DoorMeasures) -> None:
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


def router(door: HttpFrontend) -> APIRouter:
    """/metrics."""
    metrics = _Metrics(door)
    door.observer = Observer(door.broker.measures.door("http", lambda: door.connections))
    api = APIRouter(route_class=RawRoute, tags=["metrics"])
    api.add_api_route(
        "/metrics",
        metrics.show,
        methods=["GET"],
        summary="What a monitor sees",
        description=(
            "In the text format of Prometheus, or as OpenMetrics where `Accept` asks for it. Takes DESCRIBE on the cluster; topics, groups and"
            " queues that the caller may not describe are left out."
        ),
        openapi_extra={
            "parameters": [
                query_parameter(
                    "names",
                    "How many topics, groups, queues and webhooks have values of their own; the others are summed under the empty name.",
                    integer(MAX_NAMES, 0, _MOST_NAMES),
                ),
                query_parameter("detail", "Values by partition, too.", choice(_DETAILS[0], *_DETAILS)),
            ]
        },
        responses={
            **problems(),
            200: answer("The values.", {"text/plain": TEXT, "application/openmetrics-text": TEXT}),
        },
    )
    return api
