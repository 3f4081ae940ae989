"""Responses of routes: JSON by msgspec, bytes, problems, nothing; their memory; and futures that
end the wait of a route.

The memory counts what a client asks for and has not read, also while a quota delays it. It is part
of the budget that all listeners share (`transport/send_budget.py`). A request for which there is no
memory waits for `PATIENCE_S` and is then refused.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.frontends.http.bodies import ClientGone
from sparrow.frontends.http.context import EXCHANGE, GONE
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.problems import response_parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sparrow.base.errors import SparrowError
    from sparrow.broker.quotas.rules import QuotaKind
    from sparrow.frontends.http.asgi import Send
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.problems import Headers
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.transport.send_budget import Backlog, Reservation

_encode: Final = msgspec.json.Encoder().encode
JSON: Final = "application/json"
_JSON: Final = (b"content-type", JSON.encode())
PATIENCE_S: Final = 15.0
"""Time that a request waits for memory: longer than a connection may stall while others wait."""


class Response:
    """A response of bytes: status, headers with names in lower case, and body."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def send(self, send: Send) -> None:
        """Send the response."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


def json_response(
    content: bytes | object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response of JSON: bytes as they are, anything else encoded."""
    body = content if isinstance(content, bytes) else _encode(content)
    own = [_JSON, *_encoded(headers)] if headers else [_JSON]
    return bytes_response(body, status, own)


def bytes_response(body: bytes, status: int, headers: Headers) -> Response:
    """Return a response of bytes, with their length."""
    return Response(status, [*headers, (b"content-length", b"%d" % len(body))], body)


class ReservedResponse(Response):
    """A response whose memory counts until the client has read it.

    Args:
        response: the response; it has its own body, which only this class sends.
        reservation: memory of what the response was made of; resized here to its body.
    """

    __slots__ = ("_reservation",)

    def __init__(self, response: Response, reservation: Reservation) -> None:
        super().__init__(response.status, response.headers, response.body)
        self._reservation = reservation
        reservation.resize(len(self.body))

    async def send(self, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            self.body = b""
            self._reservation.sent()
            # Wait until the body has been written to the socket.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._reservation.give_back()


def no_content() -> Response:
    """Return the response without content."""
    return Response(204, [])


def problem_response(error: SparrowError, instance: str = "") -> Response:
    """Return the response for an error."""
    return Response(*response_parts(error, instance))


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


@asynccontextmanager
async def watch_disconnect(request: Request) -> AsyncIterator[asyncio.Future[None]]:
    """Yield a future that is completed when the client disconnects. Use it after the body was
    read.
    """
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    state = request.state
    state[GONE] = gone
    if state[EXCHANGE].disconnected:
        gone.set_result(None)
    try:
        yield gone
    finally:
        del state[GONE]
        if not gone.done():
            gone.cancel()


@asynccontextmanager
async def watch_end(request: Request, frontend: HttpContext) -> AsyncIterator[asyncio.Future[None]]:
    """Yield a future that is completed when the client disconnects or the broker shuts down."""
    async with watch_disconnect(request) as gone:

        def stop(_: asyncio.Future[None]) -> None:
            if not gone.done():
                gone.set_result(None)

        frontend.stopping.add_done_callback(stop)
        try:
            yield gone
        finally:
            frontend.stopping.remove_done_callback(stop)


async def wait_for_quota(request: Request, frontend: HttpContext, kind: QuotaKind) -> None:
    """Wait as long as a quota demands (at most `max_wait_ms`) or until the broker shuts down,
    before any work is done. Waiting afterwards would be too late: a client that gives up would not
    know what was done, and its leases would expire.

    Raises:
        ClientGone
    """
    throttle_ms = frontend.count(kind, caller(request), 0)
    if not throttle_ms:
        return
    async with watch_end(request, frontend) as end:
        await asyncio.wait([end], timeout=min(throttle_ms, frontend.limits.max_wait_ms) / 1000)
    if request.state[EXCHANGE].disconnected:
        raise ClientGone


# ── the memory of responses ───────────────────────────────────────────────────────────────────────


def backlog_of(request: Request, frontend: HttpContext) -> Backlog:
    """Return the account of the request's connection."""
    backlog: Backlog = request.state[EXCHANGE].transport.backlog_in(frontend.send_budget)
    return backlog


def reserve(request: Request, frontend: HttpContext) -> Reservation:
    """Return an empty reservation for the memory of the response. The caller releases it, or gives
    it to a `ReservedResponse`.
    """
    return backlog_of(request, frontend).reservation(PATIENCE_S)
