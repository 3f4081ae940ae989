"""The opening handshake of a WebSocket as an ASGI application: the gate checks Origin and
credentials, the route accepts.

Once the socket is accepted, the application returns and nothing of the handshake is left: a session
takes the frames, without a task of its own.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from websockets.datastructures import Headers
from websockets.http11 import Response

from sparrow.frontends.http.problems import NoSuchPage, response_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from websockets.http11 import Request

    from sparrow.frontends.http.sockets.protocol import SocketProtocol

    Message = MutableMapping[str, Any]

SOCKET: Final = "sparrow.socket"
"""The extension of the scope with the connection, for the route."""


class Handshake:
    """The handshake of one connection. `receive` and `send` are those of ASGI."""

    __slots__ = ("_gone", "_has_begun", "_refusal", "_socket")

    def __init__(self, socket: SocketProtocol) -> None:
        self._socket = socket
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._has_begun = False
        self._refusal: tuple[int, list[tuple[bytes, bytes]], bytes] | None = None

    def end(self) -> None:
        """End the handshake after a disconnect, or when the application is done."""
        if not self._gone.done():
            self._gone.set_result(None)

    async def receive(self) -> Message:
        if not self._has_begun:
            self._has_begun = True
            return {"type": "websocket.connect"}
        await self._gone
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "websocket.accept":
            self._socket.accept(list(message.get("headers", ())))
        elif kind == "websocket.http.response.start":
            self._refusal = (message["status"], list(message.get("headers", ())), b"")
        elif kind == "websocket.http.response.body" and self._refusal is not None:
            self._refuse(message)
        elif kind == "websocket.close":
            self._socket.refuse(
                response_of(*response_parts(NoSuchPage("no WebSocket is served here; it is at /v1/ws")))
            )

    def _refuse(self, message: Message) -> None:
        assert self._refusal is not None
        status, headers, body = self._refusal
        self._refusal = (status, headers, body + message.get("body", b""))
        if not message.get("more_body"):
            self._socket.refuse(response_of(*self._refusal))


def scope_of(socket: SocketProtocol, request: Request, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scope of the application."""
    path, _, query = request.path.partition("?")
    transport = socket.transport
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "wss" if transport.get_extra_info("sslcontext") else "ws",
        "server": _address(transport.get_extra_info("sockname")),
        "client": _address(transport.get_extra_info("peername")),
        "root_path": "",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": [
            (name.lower().encode("latin-1"), _raw(value)) for name, value in request.headers.raw_items()
        ],
        "subprotocols": [],
        "state": dict(state),
        "extensions": {"websocket.http.response": {}, SOCKET: socket},
    }


def _raw(value: str) -> bytes:
    """Return a header's bytes; the library reads them as ISO-8859-1."""
    return value.encode("latin-1", "surrogateescape")


def _address(found: Any) -> tuple[str, int] | None:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) > 1 else None


def response_of(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Response:
    """Return a response that refuses the socket."""
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    built = Headers([(name, value) for name, value in pairs if name not in {"connection", "content-length"}])
    built["connection"] = "close"
    built["content-length"] = str(len(body))
    return Response(status, HTTPStatus(status).phrase, built, body)
