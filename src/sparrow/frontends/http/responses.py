"""Responses of routes: JSON by msgspec, bytes, problems, nothing; their memory; and the end of the
wait of a route.

The memory counts what a client asks for and has not read, also while a quota delays it. It is part
of the budget that all listeners share (`transport/send_budget.py`). A request for which there is no
memory waits for `PATIENCE_S` and is then refused.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.frontends.http.problems import response_parts
from sparrow.frontends.http.request import ClientGone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from sparrow.base.errors import SparrowError
    from sparrow.broker.quotas.rules import QuotaKind
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.transport.send_budget import Reservation
    from sparrow.protocol.http.heads import Headers

_encode: Final = msgspec.json.Encoder().encode
JSON: Final = "application/json"
_JSON: Final = (b"content-type", JSON.encode())
PATIENCE_S: Final = 15.0
"""Time that a request waits for memory: longer than a connection may stall while others wait."""


class Response:
    """A response of bytes: status, headers with names in lower case, and body. Its length is added
    when it is sent.
    """

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def sent(self, size_bytes: int) -> None:
        """Note that bytes were written to the socket."""

    def finish(self) -> None:
        """Release what the response holds; called in any case, also if it is not sent."""


class ReservedResponse(Response):
    """A response whose memory counts until the client has read it.

    Args:
        response: the response.
        reservation: memory of what the response was made of; resized here to its body.
    """

    __slots__ = ("_reservation",)

    def __init__(self, response: Response, reservation: Reservation) -> None:
        super().__init__(response.status, response.headers, response.body)
        self._reservation = reservation
        reservation.resize(len(self.body))

    def sent(self, size_bytes: int) -> None:
        self.body = b""
        self._reservation.sent(size_bytes)

    def finish(self) -> None:
        self._reservation.give_back()


class StreamResponse(Response):
    """A response in parts."""

    __slots__ = ()

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the parts, none of them empty. The client has taken a part when the next one is
        asked for. Not called for HEAD.
        """
        raise NotImplementedError


def json_response(
    content: bytes | object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response of JSON: bytes as they are, anything else encoded."""
    body = content if isinstance(content, bytes) else _encode(content)
    return Response(status, [_JSON, *_encoded(headers)] if headers else [_JSON], body)


def no_content() -> Response:
    """Return the response without content."""
    return Response(204, [])


def problem_response(error: SparrowError, instance: str = "") -> Response:
    """Return the response for an error; `instance` is the requested path."""
    return Response(*response_parts(error, instance))


def without_basic(response: Response) -> None:
    """Remove the challenge for a user and password: it makes browsers show a dialog of their own to
    people that a script would ask.
    """
    response.headers = [each for each in response.headers if each[1][:5] != b"Basic"]


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


@asynccontextmanager
async def watch_end(request: Request, frontend: HttpContext) -> AsyncIterator[asyncio.Future[None]]:
    """Yield a future that is completed when the client disconnects or the broker shuts down."""
    async with request.watch_disconnect() as gone:

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
    throttle_ms = frontend.count(kind, request.principal, 0)
    if not throttle_ms:
        return
    async with watch_end(request, frontend) as end:
        await asyncio.wait([end], timeout=min(throttle_ms, frontend.limits.max_wait_ms) / 1000)
    if request.is_gone:
        raise ClientGone


@contextmanager
def reserve(request: Request) -> Iterator[Reservation]:
    """Reserve memory for a response. The body returns a `ReservedResponse`, which gives it back
    when the client has read it; if the body fails, it is given back at once.
    """
    reservation = request.backlog.reservation(PATIENCE_S)
    try:
        yield reservation
    except BaseException:
        reservation.give_back()
        raise
