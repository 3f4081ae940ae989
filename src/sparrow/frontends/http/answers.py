"""Answers of routes: JSON by msgspec, nothing, problems; and what tells a route that waits that it need not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from sparrow.frontends.http.bodies import ClientGone
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.problems import whole_answer
from sparrow.frontends.http.serving import EXCHANGE, GONE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from sparrow.base.errors import SparrowError
    from sparrow.broker.quotas.rules import QuotaKind
    from sparrow.frontends.http.frontend import HttpFrontend
    from sparrow.frontends.http.outgoing import Held
    from sparrow.frontends.http.problems import Headers

_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = (b"content-type", b"application/json")


def json_answer(
    content: bytes | object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer of JSON: bytes as they are, anything else encoded."""
    body = content if isinstance(content, bytes) else _encode(content)
    own = [_JSON, *_encoded(headers)] if headers else [_JSON]
    return plain_answer(body, status, own)


def plain_answer(body: bytes, status: int, headers: Headers) -> Response:
    """An answer of bytes. Starlette's constructor would encode each header anew."""
    answer = Response.__new__(Response)
    answer.status_code = status
    answer.background = None
    answer.body = body
    answer.raw_headers = [*headers, (b"content-length", b"%d" % len(body))]
    return answer


class HeldAnswer(Response):
    """An answer whose memory counts until the client has taken it.

    Args:
        made: the answer; it has a body of its own, and no other than `HeldAnswer` sends it.
        held: counts what the answer was made of; here it becomes its body, and nothing when that is sent.
    """

    def __init__(self, made: Response, held: Held) -> None:
        self.status_code = made.status_code
        self.background = None
        self.body = made.body
        self.raw_headers = made.raw_headers
        self._held = held
        held.become(len(self.body))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's form
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            self.body = b""
            # Waits until what was written before has left.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._held.release()


def no_content() -> Response:
    """It is done, and there is nothing to say."""
    return Response(status_code=204)


def problem_answer(error: SparrowError, instance: str = "") -> Response:
    """An answer that is the problem."""
    status, headers, body = whole_answer(error, instance)
    return plain_answer(body, status, [each for each in headers if each[0] != b"content-length"])


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


@asynccontextmanager
async def disconnecting(request: Request) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done when the client is gone. Use it after the body was read."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    state: dict[str, Any] = request.scope["state"]
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
async def ending(request: Request, door: HttpFrontend) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done when the client is gone or the broker shuts down: what waits need not any more."""
    async with disconnecting(request) as gone:

        def stop(_: asyncio.Future[None]) -> None:
            if not gone.done():
                gone.set_result(None)

        door.stopping.add_done_callback(stop)
        try:
            yield gone
        finally:
            door.stopping.remove_done_callback(stop)


async def wait_for_quota(request: Request, door: HttpFrontend, kind: QuotaKind) -> None:
    """Wait, before anything is done, for as long as a quota says (a minute at most), or until the broker shuts down. Afterwards would be too late: a client
    that is tired of waiting would not know what was done, and what it had leased would run out.

    Raises:
        ClientGone
    """
    throttle_ms = door.count(kind, caller(request), 0)
    if not throttle_ms:
        return
    async with ending(request, door) as end:
        await asyncio.wait([end], timeout=min(throttle_ms, door.limits.max_wait_ms) / 1000)
    if request.scope["state"][EXCHANGE].disconnected:
        raise ClientGone
