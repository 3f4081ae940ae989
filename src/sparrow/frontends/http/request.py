"""A request as routes get it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from sparrow.broker.access.authz import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.access.sessions import Guard
    from sparrow.frontends.transport.send_budget import Backlog
    from sparrow.protocol.http.heads import RequestHead


class ClientGone(Exception):
    """The client disconnected before it had sent the whole body; no response is possible."""


class RequestSource(Protocol):
    """The connection of a request, as the request sees it."""

    host: str

    @property
    def certified(self) -> Principal | None:
        """Return the principal of the client's certificate."""
        ...

    @property
    def is_secure(self) -> bool:
        """Return True if the connection is encrypted."""
        ...

    @property
    def backlog(self) -> Backlog:
        """Return the account of the records that were sent and that the client has not taken."""
        ...

    async def read_body(self, request: Request) -> None:
        """Wait until the body of the request is complete."""
        ...

    def authenticated(self, request: Request) -> None:
        """Note that the client of a request has logged in."""
        ...


class Request:
    """One request.

    Attributes:
        method: "GET" for HEAD, whose response is sent without its body.
        path_params: the parts of the path that the route names, decoded.
        principal: set before a route is called.
        route_path: the path of the route, as in the table; "" without one.
        guard: ends the connection when the login of the request ends.
        is_complete: True if the body has come as a whole.
        is_gone: True if no response is possible any more.
    """

    __slots__ = (
        "_gone",
        "_parts",
        "_source",
        "body_bytes",
        "guard",
        "head",
        "headers",
        "is_complete",
        "is_gone",
        "method",
        "path",
        "path_params",
        "principal",
        "query",
        "route_path",
    )

    def __init__(self, head: RequestHead, source: RequestSource) -> None:
        self._source = source
        self.head = head
        self.method = "GET" if head.method == "HEAD" else head.method
        self.path = head.path
        self.query = head.query
        self.headers = head.headers
        self.path_params: Mapping[str, str] = {}
        self.principal = ANONYMOUS
        self.route_path = ""
        self._parts: list[bytes] = []
        self.body_bytes = 0
        self.is_complete = self.is_gone = False
        self.guard: Guard | None = None
        self._gone: asyncio.Future[None] | None = None

    def header(self, name: bytes) -> str:
        """Return the first header of this name (in lower case), "" without one."""
        return self.head.by_name.get(name, b"").decode("latin-1")

    @property
    def media_type(self) -> str:
        """Return the content type without parameters, in lower case; "" without one."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    @property
    def host(self) -> str:
        """Return the address of the client, without its port."""
        return self._source.host

    @property
    def certified(self) -> Principal | None:
        """Return the principal of the client's certificate."""
        return self._source.certified

    @property
    def is_secure(self) -> bool:
        """Return True if the connection is encrypted."""
        return self._source.is_secure

    @property
    def backlog(self) -> Backlog:
        """Return the account of the connection in the send budget."""
        return self._source.backlog

    async def body(self) -> bytes:
        """Read the whole body.

        Raises:
            BodyTooLarge, Overloaded
            ClientGone: the client has disconnected.
        """
        await self._source.read_body(self)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def authenticate(self, principal: Principal) -> None:
        """Set the principal, once it is known."""
        self.principal = principal
        self._source.authenticated(self)

    # ── called by the connection ──────────────────────────────────────────────────────────────────

    def add(self, part: bytes) -> None:
        """Add a part of the body."""
        self._parts.append(part)
        self.body_bytes += len(part)

    def give_up(self) -> None:
        """Note that no response is possible any more."""
        self.is_gone = True
        self._parts.clear()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    @asynccontextmanager
    async def watch_disconnect(self) -> AsyncIterator[asyncio.Future[None]]:
        """Yield a future that is completed when the client disconnects. Use it after the body was
        read.
        """
        gone = self._gone = asyncio.get_running_loop().create_future()
        if self.is_gone:
            gone.set_result(None)
        try:
            yield gone
        finally:
            self._gone = None
            if not gone.done():
                gone.cancel()
