"""Whether the process lives, and whether it can take messages: for supervisors and load balancers. Anybody may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from sparrow.frontends.http.answers import json_answer
from sparrow.frontends.http.openapi import TEXT, RawRoute, answer, array, members

if TYPE_CHECKING:
    from sparrow.frontends.http.frontend import HttpFrontend

_HEALTH = members(["status"], status=TEXT)
_READINESS = members(["status", "reasons"], status=TEXT, reasons=array(TEXT))


class _Health:
    def __init__(self, door: HttpFrontend) -> None:
        self._door = door

    async def is_alive(self, _: Request) -> Response:
        return json_answer(b'{"status":"alive"}')

    async def is_ready(self, _: Request) -> Response:
        reasons = self._reasons()
        status = "ready" if not reasons else "not ready"
        return json_answer({"status": status, "reasons": reasons}, 200 if not reasons else 503)

    def _reasons(self) -> list[str]:
        """Why nothing should be sent here."""
        reasons = ["the broker is shutting down"] if self._door.is_draining else []
        refusal = self._door.broker.refusal()
        return reasons if refusal is None else [*reasons, refusal.text]


def router(door: HttpFrontend) -> APIRouter:
    """/healthz and /readyz."""
    health = _Health(door)
    api = APIRouter(route_class=RawRoute, tags=["health"])
    api.add_api_route(
        "/healthz",
        health.is_alive,
        methods=["GET"],
        summary="Whether the process answers",
        responses={200: answer("It does.", {"application/json": _HEALTH})},
    )
    api.add_api_route(
        "/readyz",
        health.is_ready,
        methods=["GET"],
        summary="Whether the broker takes messages",
        description="503 while it shuts down, and while its disk refuses records.",
        responses={
            200: answer("It does.", {"application/json": _READINESS}),
            503: answer("It does not; `reasons` says why.", {"application/json": _READINESS}),
        },
    )
    return api
