"""Route that accepts WebSockets; `sockets/` handles their frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response, WebSocket

from sparrow.frontends.http.identity import CERTIFICATE, caller_of_socket
from sparrow.frontends.http.openapi import RawRoute
from sparrow.frontends.http.problems import UpgradeRequired
from sparrow.frontends.http.sockets.handshake import SOCKET
from sparrow.frontends.http.sockets.session import SocketSession
from sparrow.frontends.http.sockets.sockets import Sockets

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.sockets.protocol import SocketProtocol

PATH = "/v1/ws"


def router(frontend: HttpContext) -> APIRouter:
    """Return the route of WebSockets."""
    sockets = Sockets(frontend, frontend.render_cache)
    frontend.at_sweep.append(sockets.sweep)

    async def accept(websocket: WebSocket) -> None:
        principal = caller_of_socket(websocket)
        socket: SocketProtocol = websocket.scope["extensions"][SOCKET]
        await websocket.accept()
        peer = websocket.client.host if websocket.client else ""
        certified = websocket.scope["state"].get(CERTIFICATE)
        session = SocketSession(
            frontend, socket, sockets.render_cache, principal=principal, peer=peer, certified=certified
        )
        socket.open(session, sockets)

    async def decline(_: Request) -> Response:
        raise UpgradeRequired(f"{PATH} is for WebSockets only; send the header Upgrade")

    api = APIRouter(route_class=RawRoute)
    api.add_api_websocket_route(PATH, accept)
    api.add_api_route(PATH, decline, methods=["GET"], include_in_schema=False)
    return api
