"""The memory of pages that are read and sent: what a client asks for and then does not take stays in it.

The more of it is in use, the less a page may hold; one batch it has always. So many slow readers make the pages of all smaller, and none of them waits for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from sparrow.frontends.http.problems import Headers

_SHARE: Final = 8
"""One page takes at most this part of what is free: one eighth."""


class Outgoing:
    """What is being read and what is not sent, all pages together; a `broker.fetch.ReadMemory`. Loop thread only."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._reading_bytes = 0
        self.unsent_bytes = 0

    def take(self, wanted_bytes: int) -> int:
        """How much of it may be read now; `give_back` it after reading."""
        free = self._total_bytes - self.unsent_bytes - self._reading_bytes
        granted = max(0, min(wanted_bytes, free // _SHARE))
        self._reading_bytes += granted
        return granted

    def give_back(self, granted_bytes: int) -> None:
        """What was granted has been read."""
        self._reading_bytes -= granted_bytes


class PageAnswer(Response):
    """An answer that counts as unsent until the client has taken it."""

    def __init__(self, body: bytes, headers: Headers, outgoing: Outgoing) -> None:
        super().__init__()
        self.body = body
        self.raw_headers = [*headers, (b"content-length", b"%d" % len(body))]
        self._outgoing = outgoing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's form
        size_bytes = len(self.body)
        self._outgoing.unsent_bytes += size_bytes
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            self.body = b""
            # Waits until what was written before has left.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._outgoing.unsent_bytes -= size_bytes
