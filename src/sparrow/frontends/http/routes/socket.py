"""The WebSocket: the route that accepts it. What is said over it is in `sockets/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response, WebSocket

from sparrow.frontends.http.identity import caller_of_socket
from sparrow.frontends.http.openapi import RawRoute
from sparrow.frontends.http.problems import UpgradeRequired
from sparrow.frontends.http.sockets.handshake import SOCKET
from sparrow.frontends.http.sockets.session import Session
from sparrow.frontends.http.sockets.sockets import Sockets

if TYPE_CHECKING:
    from sparrow.frontends.http.frontend import HttpFrontend
    from sparrow.frontends.http.sockets.protocol import SocketProtocol

PATH = "/v1/ws"


def router(door: HttpFrontend) -> APIRouter:
    """The route of WebSockets."""
    sockets = Sockets(door, door.renderings)
    door.at_sweep.append(sockets.sweep)

    async def accept(websocket: WebSocket) -> None:
        principal = caller_of_socket(websocket)
        socket: SocketProtocol = websocket.scope["extensions"][SOCKET]
        await websocket.accept()
        peer = websocket.client.host if websocket.client else ""
        session = Session(door, socket, sockets.renderings, principal=principal, peer=peer)
        socket.open(session, sockets)

    async def decline(_: Request) -> Response:
        raise UpgradeRequired(f"{PATH} is served to WebSockets alone: ask for one by the header Upgrade")

    api = APIRouter(route_class=RawRoute)
    api.add_api_websocket_route(PATH, accept)
    api.add_api_route(PATH, decline, methods=["GET"], include_in_schema=False)
    return api
