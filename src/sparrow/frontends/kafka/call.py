"""A request in progress, as handlers see it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparrow.frontends.kafka.codec.responses import write_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.frontends.kafka.codec.requests import Header
    from sparrow.frontends.kafka.codec.responses import Piece
    from sparrow.frontends.kafka.connection import KafkaConnection
    from sparrow.frontends.kafka.context import KafkaContext
    from sparrow.frontends.transport.send_budget import Reservation

NO_THROTTLE = timedelta()
"""Value of `throttle_time` in responses; `throttle.with_throttle_time` replaces it if a quota
applies.
"""

MAX_ENTRIES_ON_LOOP: Final = 2_000
"""Encoding an entry takes some microseconds."""


class Call(Struct):
    """A request in progress: everything that a handler may need besides the body."""

    connection: KafkaConnection
    header: Header

    def reserve(self) -> Reservation:
        """Return a reservation for the response's records. The connection keeps it until the client
        has taken them, or the connection is closed.
        """
        reservation = self.connection.reservation = self.connection.backlog.reservation()
        return reservation

    @property
    def broker(self) -> Broker:
        return self.connection.context.broker

    @property
    def frontend(self) -> KafkaContext:
        """The frontend that received the request."""
        return self.connection.context

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
        return "/" + self.connection.host

    def frame(self, response: Any) -> list[Piece]:
        """Encode a response, for handlers that return frames."""
        header = self.header
        return write_response(header.api_key, header.version, header.correlation_id, response)


async def encode_large(build: Callable[[], Any], entries: int, call: Call) -> Any:
    """Return the response of `build`, or its encoded frame if it has more than a few entries.

    `build` may run in a thread, so it must not read anything that changes.
    """
    if entries <= MAX_ENTRIES_ON_LOOP:
        return build()
    return await asyncio.to_thread(lambda: call.frame(build()))
