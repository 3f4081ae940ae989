"""The opening handshake of a WebSocket: the library `websockets` checks the request."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from websockets.datastructures import Headers as HandshakeHeaders
from websockets.http11 import Request as HandshakeRequest
from websockets.server import ServerProtocol

from sparrow.frontends.http.responses import Response

if TYPE_CHECKING:
    from sparrow.protocol.http.heads import Headers, RequestHead

_SWITCHING_PROTOCOLS: Final = 101
_OWN_HEADERS: Final = frozenset({"date", "connection", "content-length"})
"""Headers that a refusal gets when it is sent."""
LOG: Final = logging.getLogger("sparrow.http.sockets.codec")
LOG.setLevel(logging.ERROR)  # the library logs every connection


def shake_hands(head: RequestHead) -> Headers | Response:
    """Return the headers of the response that accepts a WebSocket, or the response that refuses
    the request.
    """
    headers = HandshakeHeaders(
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers]
    )
    found = ServerProtocol(logger=LOG).accept(HandshakeRequest(head.target.decode("ascii"), headers))
    is_accepted = found.status_code == _SWITCHING_PROTOCOLS
    left_out = {"date"} if is_accepted else _OWN_HEADERS
    pairs = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in found.headers.raw_items()
        if name.lower() not in left_out
    ]
    return pairs if is_accepted else Response(found.status_code, pairs, bytes(found.body or b""))
