"""From a frame to a handler and back: find the API and version, and check that the client may ask
now.

A handler is a function of (request, call). It returns a response, a coroutine that returns one or,
for Produce, a future of the encoded frame; None if the protocol sends no response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from sparrow.base.errors import NotAuthenticated
from sparrow.frontends.kafka.apis import APIS, Api, Route
from sparrow.frontends.kafka.call import Call
from sparrow.frontends.kafka.codec.requests import PRODUCE, Header, lift, read_header, read_request
from sparrow.frontends.kafka.codec.schema import LOADING, request_class
from sparrow.frontends.kafka.frame_receiver import MalformedRequest
from sparrow.frontends.kafka.throttle import counts_requests, timed

if TYPE_CHECKING:
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.connection import KafkaConnection

Begun = list["Piece"] | asyncio.Future[list["Piece"]] | Coroutine[Any, Any, list["Piece"] | None] | None
Handler = Callable[[Any, Call], Any]
FindHandler = Callable[[Api, Route], tuple[Handler, int]]

_LARGE_BYTES = 128 << 10


def begin(connection: KafkaConnection, frame: bytes | memoryview, find: FindHandler | None = None) -> Begun:
    """Begin a request.

    Args:
        find: returns the handler of a route, and the version of the classes that it is written for
            (-1: of the request); None: `handler_of`.

    Raises:
        MalformedRequest: the connection must be closed.
    """
    raw = connection.state.get("raw")
    if raw is not None:  # SASL tokens without a header, after SaslHandshake version 0
        handled: Begun = raw(connection, frame)
        return handled
    header = read_header(frame)
    api = APIS.get(header.api_key)
    if api is None:
        raise MalformedRequest(f"API key {header.api_key} is not served here")
    connection.api_key = header.api_key
    if api.needs_authentication and not connection.may_ask:
        when = "after its session had ended" if connection.is_known else "before authentication"
        why = f"{api.name} was asked for {when}"
        connection.context.broker.audit.login_refused(
            connection.listener.name, connection.host, NotAuthenticated(why), mechanism="none"
        )
        raise MalformedRequest(why)
    call = Call(connection, header)
    route = api.route(header.version)
    if route is None:
        return _unsupported(api, call)
    handler, schema = (find or handler_of)(api, route)
    if len(frame) > _LARGE_BYTES and header.api_key != PRODUCE:
        return _begin_large(frame, schema, handler, call)
    request, handle = _read(frame, schema, header), _timed(handler, call)
    return _begun(handle(request, call), call)


def _read(frame: bytes | memoryview, schema: int, header: Header) -> Any:
    request = read_request(frame, header)
    if schema >= 0 and schema != header.version:
        request = lift(request, request_class(header.api_key, schema))
    return request


async def _begin_large(
    frame: bytes | memoryview, schema: int, handler: Handler, call: Call
) -> list[Piece] | None:
    """Decode a request with very many elements in a thread, so that the loop is not blocked."""
    request = await asyncio.to_thread(_read, frame, schema, call.header)
    begun = _begun(_timed(handler, call)(request, call), call)
    return begun if begun is None or isinstance(begun, list) else await begun


def _timed(handler: Handler, call: Call) -> Handler:
    """Return the handler, with its time counted if a quota limits that."""
    return partial(timed, handler) if counts_requests(call.broker.quotas) else handler


def handler_of(_: Api, route: Route) -> tuple[Handler, int]:
    """Return the handler of a route, and the version of its classes."""
    return _handler(route), route.schema


def _begun(result: Any, call: Call) -> Begun:
    """Return the result of a handler as the connection takes it."""
    if result is None:
        return None
    if asyncio.iscoroutine(result):
        return _finish(call, result)
    if isinstance(result, (list, asyncio.Future)):
        return result
    return call.frame(result)


async def _finish(call: Call, working: Coroutine[Any, Any, Any]) -> list[Piece] | None:
    response = await working
    if response is None or isinstance(response, list):
        return response
    return call.frame(response)


def _unsupported(api: Api, call: Call) -> Begun:
    if api.key == 18:
        return cast("Begun", _function("api_versions:unsupported")(call))
    raise MalformedRequest(
        f"{api.name} version {call.version} is not served; versions {api.first} to {api.last} are"
    )


@cache
def _handler(route: Route) -> Handler:
    handler: Handler = _function(route.handler)
    return handler


def _function(name: str) -> Any:
    """Return a function of the handlers by "module:function"; loads the module."""
    module, _, function = name.partition(":")
    with LOADING:
        return getattr(import_module(f"sparrow.frontends.kafka.handlers.{module}"), function)


def preload() -> None:
    """Load what nearly every client asks for first, so that the first client does not wait for it.
    Thread-safe.
    """
    for key in (18, 3, 0, 1, 10):
        if key in APIS:
            for route in APIS[key].routes:
                _handler(route)
                request_class(key, route.last)
