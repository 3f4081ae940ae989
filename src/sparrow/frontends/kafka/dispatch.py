"""From a frame to a handler and back: find the API and version, and check that the client may ask
now.

A handler is a function of (request, call). It returns a response, a coroutine that returns one or,
for Produce, a future of the encoded frame; None if the protocol sends no response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from sparrow.base.errors import NotAuthenticated
from sparrow.frontends.kafka.apis import APIS, Api, Route
from sparrow.frontends.kafka.codec.requests import PRODUCE, Header, lift, read_header, read_request
from sparrow.frontends.kafka.codec.responses import write_response
from sparrow.frontends.kafka.codec.schema import LOADING, request_class
from sparrow.frontends.kafka.frame_receiver import MalformedRequest
from sparrow.frontends.kafka.throttle import counts_requests, timed

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.connection import Connection
    from sparrow.frontends.kafka.frontend import KafkaFrontend
    from sparrow.frontends.transport.send_budget import Reservation

Begun = list["Piece"] | asyncio.Future[list["Piece"]] | Coroutine[Any, Any, list["Piece"] | None] | None
Handler = Callable[[Any, "Call"], Any]

_LARGE_BYTES = 128 << 10
NO_THROTTLE = timedelta()
"""Value of `throttle_time` in responses; `throttle.with_throttle_time` replaces it if a quota
applies.
"""

MAX_ENTRIES_ON_LOOP: Final = 2_000
"""Encoding an entry takes some microseconds."""


@dataclass(slots=True)
class Call:
    """A request in progress: everything that a handler may need besides the body."""

    connection: Connection
    header: Header

    def reserve(self) -> Reservation:
        """Return a reservation for the response's records. The connection keeps it until the client
        has taken them, or the connection is closed.
        """
        reservation = self.connection.reservation = self.connection.backlog.reservation()
        return reservation

    @property
    def broker(self) -> Broker:
        return self.connection.frontend.broker

    @property
    def frontend(self) -> KafkaFrontend:
        return self.connection.frontend

    @property
    def principal(self) -> Principal:
        """The principal that sent the request."""
        return self.connection.principal

    @property
    def version(self) -> int:
        """The version of the request."""
        return self.header.version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it, "/127.0.0.1"."""
        return "/" + self.connection.peer_host

    def frame(self, response: Any) -> list[Piece]:
        """Encode a response, for handlers that return frames."""
        header = self.header
        return write_response(header.api_key, header.version, header.correlation_id, response)


def begin(connection: Connection, frame: bytes | memoryview) -> Begun:
    """Begin a request.

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
        when = "after its session had ended" if connection.is_authenticated else "before authentication"
        why = f"{api.name} was asked for {when}"
        connection.frontend.broker.audit.login_refused(
            connection.listener.name, connection.peer_host, NotAuthenticated(why), mechanism="none"
        )
        raise MalformedRequest(why)
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
    """Decode a request with very many elements in a thread, so that the loop is not blocked."""
    begun = _call(await asyncio.to_thread(_read, frame, route, call.header), route, call)
    return begun if begun is None or isinstance(begun, list) else await begun


def _call(request: Any, route: Route, call: Call) -> Begun:
    handler = _handler(route)
    result = timed(handler, request, call) if counts_requests(call.broker.quotas) else handler(request, call)
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


async def encode_large(build: Callable[[], Any], entries: int, call: Call) -> Any:
    """Return the response of `build`, or its encoded frame if it has more than a few entries.

    `build` may run in a thread, so it must not read anything that changes.
    """
    if entries <= MAX_ENTRIES_ON_LOOP:
        return build()
    return await asyncio.to_thread(lambda: call.frame(build()))


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
