"""Route that accepts WebSockets; `sockets/` handles their frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.frontends.http.identity import CERTIFICATE, caller_of_socket
from sparrow.frontends.http.problems import UpgradeRequired
from sparrow.frontends.http.router import Route
from sparrow.frontends.http.sockets.handshake import SOCKET
from sparrow.frontends.http.sockets.session import SocketSession
from sparrow.frontends.http.sockets.sockets import Sockets

if TYPE_CHECKING:
    from sparrow.frontends.http.asgi import App, Receive, Scope, Send
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response
    from sparrow.frontends.http.sockets.protocol import SocketProtocol

PATH = "/v1/ws"


def sockets_of(frontend: HttpContext) -> App:
    """Return the application that accepts WebSockets."""
    sockets = Sockets(frontend, frontend.render_cache)
    frontend.at_sweep.append(sockets.sweep)

    async def accept(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            await send({"type": "websocket.close"})
            return
        principal = caller_of_socket(scope)
        socket: SocketProtocol = scope["extensions"][SOCKET]
        await receive()
        await send({"type": "websocket.accept"})
        peer = scope["client"][0] if scope["client"] else ""
        certified = scope["state"].get(CERTIFICATE)
        session = SocketSession(
            frontend, socket, sockets.render_cache, principal=principal, peer=peer, certified=certified
        )
        socket.open(session, sockets)

    return accept


def routes(_: HttpContext) -> list[Route]:
    """Return the route that responds to requests that are no WebSocket."""
    return [Route("GET", PATH, _decline)]


async def _decline(_: Request) -> Response:
    raise UpgradeRequired(f"{PATH} is for WebSockets only; send the header Upgrade")
