"""From a frame to a handler and back: which API, which version, may it be asked now.

A handler is a function of (request, call). It returns a response, a coroutine that ends with one, or, for Produce, a future of
the finished frame; None where the protocol sends no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparrow.frontends.kafka.apis import APIS, Api, Route
from sparrow.frontends.kafka.codec.requests import PRODUCE, Header, lift, read_header, read_request
from sparrow.frontends.kafka.codec.responses import write_response
from sparrow.frontends.kafka.codec.schema import LOADING, request_class
from sparrow.frontends.kafka.malformed import MalformedRequest
from sparrow.frontends.kafka.throttle import counts_requests, timed

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.connection import Connection
    from sparrow.frontends.kafka.frontend import KafkaFrontend

Begun = list["Piece"] | asyncio.Future[list["Piece"]] | Coroutine[Any, Any, list["Piece"] | None] | None
Handler = Callable[[Any, "Call"], Any]

_LARGE_BYTES = 128 << 10
NO_THROTTLE = timedelta()
"""For `throttle_time` of responses; `throttle.told` fills in what a quota asks for."""


@dataclass(slots=True)
class Call:
    """A request on its way: what a handler may want to know beside the body."""

    connection: Connection
    header: Header

    @property
    def broker(self) -> Broker:
        return self.connection.frontend.broker

    @property
    def frontend(self) -> KafkaFrontend:
        return self.connection.frontend

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.connection.principal

    @property
    def version(self) -> int:
        """The version that the client speaks."""
        return self.header.version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it, "/127.0.0.1"."""
        return "/" + self.connection.peer_host

    def frame(self, response: Any) -> list[Piece]:
        """A response as bytes, for handlers that answer with frames."""
        header = self.header
        return write_response(header.api_key, header.version, header.correlation_id, response)


def begin(connection: Connection, frame: bytes | memoryview) -> Begun:
    """Begin a request.

    Raises:
        MalformedRequest: the connection is to be closed.
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
        when = "after its session had ended" if connection.is_authenticated else "before authentication"
        raise MalformedRequest(f"{api.name} was asked for {when}")
    call = Call(connection, header)
    route = api.route(header.version)
    if route is None:
        return _unsupported(api, call)
    if len(frame) > _LARGE_BYTES and header.api_key != PRODUCE:
        return _begin_large(frame, route, call)
    return _call(_read(frame, route, header), route, call)


def _read(frame: bytes | memoryview, route: Route, header: Header) -> Any:
    request = read_request(frame, header)
    if route.schema >= 0 and route.schema != header.version:
        request = lift(request, request_class(header.api_key, route.schema))
    return request


async def _begin_large(frame: bytes | memoryview, route: Route, call: Call) -> list[Piece] | None:
    """Reading a request of very many elements takes a while: in a thread, so that the loop goes on."""
    begun = _call(await asyncio.to_thread(_read, frame, route, call.header), route, call)
    return begun if begun is None or isinstance(begun, list) else await begun


def _call(request: Any, route: Route, call: Call) -> Begun:
    handler = _handler(route)
    answer = timed(handler, request, call) if counts_requests(call.broker.quotas) else handler(request, call)
    if answer is None:
        return None
    if asyncio.iscoroutine(answer):
        return _finish(call, answer)
    if isinstance(answer, (list, asyncio.Future)):
        return answer
    return call.frame(answer)


async def _finish(call: Call, working: Coroutine[Any, Any, Any]) -> list[Piece] | None:
    response = await working
    if response is None or isinstance(response, list):
        return response
    return call.frame(response)


def _unsupported(api: Api, call: Call) -> Begun:
    if api.key == 18:
        from sparrow.frontends.kafka.handlers.api_versions import unsupported

        return unsupported(call)
    raise MalformedRequest(
        f"{api.name} version {call.version} is not served; versions {api.first} to {api.last} are"
    )


@cache
def _handler(route: Route) -> Handler:
    module, _, function = route.handler.partition(":")
    with LOADING:
        handler: Handler = getattr(import_module(f"sparrow.frontends.kafka.handlers.{module}"), function)
    return handler


def preload() -> None:
    """Load what nearly every client asks for first, so that the first of them does not wait for it. Thread-safe."""
    for key in (18, 3, 0, 1, 10):
        if key in APIS:
            for route in APIS[key].routes:
                _handler(route)
                request_class(key, route.last)
