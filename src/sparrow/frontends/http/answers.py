"""Answers of routes: JSON by msgspec, nothing, problems; and what tells a route that waits that it need not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from sparrow.frontends.http.problems import whole_answer
from sparrow.frontends.http.serving import EXCHANGE, GONE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request

    from sparrow.base.errors import SparrowError
    from sparrow.frontends.http.frontend import HttpFrontend
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
