"""A request as routes get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.frontends.http.bodies import ClientGone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.frontends.http.asgi import Receive, Scope


class Request:
    """One request.

    Args:
        path_params: the parts of the path that a route names, decoded.
    """

    __slots__ = ("_receive", "path_params", "scope")

    def __init__(self, scope: Scope, receive: Receive, path_params: Mapping[str, str]) -> None:
        self.scope = scope
        self.path_params = path_params
        self._receive = receive

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    @property
    def state(self) -> dict[str, Any]:
        """Return what connection and gate left for the routes (`context.EXCHANGE` and others)."""
        state: dict[str, Any] = self.scope["state"]
        return state

    def header(self, name: bytes) -> str:
        """Return the first header of this name (in lower case), "" without one."""
        return next((value.decode("latin-1") for key, value in self.scope["headers"] if key == name), "")

    @property
    def media_type(self) -> str:
        """Return the content type without parameters, in lower case; "" without one."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    async def body(self) -> bytes:
        """Read the whole body.

        Raises:
            BodyTooLarge, Overloaded
            ClientGone: the client has disconnected.
        """
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message["body"]
            return body
        parts = []
        while message["type"] == "http.request":
            parts.append(message["body"])
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self._receive()
        raise ClientGone
