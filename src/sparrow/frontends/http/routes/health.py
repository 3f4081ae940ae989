"""Health and readiness of the broker, for supervisors and load balancers. No login is required."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.frontends.http.openapi import TEXT, array, members, response
from sparrow.frontends.http.responses import JSON, Response, json_response
from sparrow.frontends.http.router import Route

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request

MAX_DAMAGES = 100
_HEALTH = members(["status"], status=TEXT)
_READINESS = members(["status", "reasons"], status=TEXT, reasons=array(TEXT))


class _Health:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend

    async def is_alive(self, _: Request) -> Response:
        return json_response(b'{"status":"alive"}')

    async def is_ready(self, _: Request) -> Response:
        reasons, damages = self._reasons(), self._damages()
        status = "not ready" if reasons else "degraded" if damages else "ready"
        shown = [*reasons, *damages, *self._frontend.broker.warnings]
        return json_response({"status": status, "reasons": shown}, 503 if reasons else 200)

    def _damages(self) -> list[str]:
        """Return missing and unreadable data. Everything else is served, so it is no reason to stop
        sending requests here.
        """
        return [damage.sentence for damage in self._frontend.broker.damages.known()[:MAX_DAMAGES]]

    def _reasons(self) -> list[str]:
        """Return the reasons to stop sending requests here."""
        reasons = ["the broker is shutting down"] if self._frontend.is_stopping else []
        refusal = self._frontend.broker.refusal()
        return reasons if refusal is None else [*reasons, refusal.text]


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of /healthz and /readyz."""
    health = _Health(frontend)
    return [
        Route(
            "GET",
            "/healthz",
            health.is_alive,
            tag="health",
            name="is_alive",
            summary="Check that the process is alive",
            responses={200: response("Yes.", {JSON: _HEALTH})},
        ),
        Route(
            "GET",
            "/readyz",
            health.is_ready,
            tag="health",
            name="is_ready",
            summary="Check that the broker accepts messages",
            text="503 while it shuts down, and while its disk refuses records. The status is "
            "`degraded`, with 200, while partitions"
            " are closed or bytes are known to be damaged: `reasons` names file and offsets, "
            "everything else is served.",
            responses={
                200: response("Yes.", {JSON: _READINESS}),
                503: response("No; `reasons` says why.", {JSON: _READINESS}),
            },
        ),
    ]
