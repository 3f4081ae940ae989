"""Route of WebSockets for requests that are none; `sockets/` serves the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.frontends.http.problems import UpgradeRequired
from sparrow.frontends.http.router import Route

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response

SOCKET_PATH: Final = "/v1/ws"


def routes(_: HttpContext) -> list[Route]:
    """Return the route that responds to requests that are no WebSocket."""
    return [Route("GET", SOCKET_PATH, _decline)]


async def _decline(_: Request) -> Response:
    raise UpgradeRequired(f"{SOCKET_PATH} is for WebSockets only; send the header Upgrade")
