"""Syncbrok's protocol without I/O: the server's side of HTTP/1.1, as Go's `net/http` responds, with
limits; and the meaning of its requests.

    POST /queue      queue: NAME                    create the queue if it does not exist
    POST /subscrib   queue: NAME, endpoint: URL     POST its messages to the URL, too
    POST /msg        queue: NAME, ParentId: UUID    the body is a message; the response is its UUID

The original considers the path and these headers, never the method. Its responses are plain text
without a line break. HTTP is read as on the broker's own HTTP port (`protocol/http/`); the limits
are here: of a request's head, and of its body, over which nothing is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from sparrow.base.errors import InvalidArgument
from sparrow.protocol.http.codec import BodyPart, CommonHeaders, HttpCodec, RequestEnd
from sparrow.protocol.http.errors import HeadTooLarge, MethodNotAllowed
from sparrow.protocol.http.heads import RequestHead

MAX_HEAD_BYTES: Final = 16 << 10
"""Limit of a request line and its headers; of a chunk's head and of trailers, too."""
MAX_HEADERS: Final = 100
TEXT: Final = (b"Content-Type", b"text/plain; charset=utf-8")
NOT_SNIFFED: Final = (b"X-Content-Type-Options", b"nosniff")
_NO_HEADERS: Final = CommonHeaders([])
_STATUSES: Final[dict[type, int]] = {HeadTooLarge: 431, MethodNotAllowed: 405}
"""The status of an error; 400 for others."""
NOT_FOUND: Final = b"404 page not found\n"
NO_QUEUE_NAME: Final = b"You posted empty queue name, queue name shall be provided"


class Request(NamedTuple):
    """A whole request."""

    path: str
    headers: Mapping[bytes, bytes]
    """Headers by their names in lower case; the first of those that occur more than once."""
    body: bytes

    def header(self, name: bytes) -> bytes:
        """Return the header's value; b"" if it is missing."""
        return self.headers.get(name, b"")


class Refusal(NamedTuple):
    """A request that is refused; nothing behind it is read."""

    status: int
    text: str


Event = Request | Refusal


class Server:
    """One connection. Respond to each event before you call for the next.

    Args:
        max_body_bytes: limit of one request.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._http = HttpCodec(
            _NO_HEADERS, max_head_bytes=MAX_HEAD_BYTES, max_headers=MAX_HEADERS, max_pipelined=0
        )
        self._max_body_bytes = max_body_bytes
        self._head: RequestHead | None = None
        self._parts: list[bytes] = []
        self._body_bytes = 0
        self._is_over = False

    @property
    def bytes_wanted(self) -> int:
        """Largest size of the unfinished body, 1 for a head; 0: no request is unfinished."""
        if self._is_over:
            return 0
        if self._http.is_in_body:
            return self._announced_bytes + 1
        return int(self._http.is_in_head)

    @property
    def _announced_bytes(self) -> int:
        """Announced size of the body; the largest permitted one if it is not announced."""
        length = -1 if self._head is None else self._head.content_length
        return self._max_body_bytes if length < 0 else length

    @property
    def must_close(self) -> bool:
        """True if the connection ends when all is sent."""
        return self._is_over or self._http.must_close

    def receive_data(self, data: bytes) -> None:
        """Take more bytes."""
        if not self._is_over:
            self._http.receive_data(data)

    def next_event(self) -> Event | None:
        """Return the next event to be answered; None if more bytes are needed."""
        if self._is_over:
            return None
        for event in self._http.events():
            if isinstance(event, RequestHead):
                self._head, self._parts, self._body_bytes = event, [], 0
                if self._announced_bytes > self._max_body_bytes:
                    return self._too_large()
                self._http.send_continue()
            elif isinstance(event, BodyPart):
                self._parts.append(event.data)
                self._body_bytes += len(event.data)
                if self._body_bytes > self._max_body_bytes:
                    return self._too_large()
            elif isinstance(event, RequestEnd):
                return self._whole()
            else:
                text = f"this is no request of HTTP/1.1: {event.text}"
                return self._refuse(_STATUSES.get(type(event), 400), text)
        return None

    def _too_large(self) -> Refusal:
        return self._refuse(413, f"the body is too large; a message has at most {self._max_body_bytes} bytes")

    def _refuse(self, status: int, text: str) -> Refusal:
        self._parts = []
        self._is_over = True
        return Refusal(status, f"{text}\n")

    def _whole(self) -> Request:
        head, self._head = self._head, None
        assert head is not None
        body, self._parts = b"".join(self._parts), []
        return Request(head.path, head.by_name, body)

    def respond(self, status: int, text: bytes, date: str) -> None:
        """Respond to the last event.

        Args:
            date: now, as HTTP writes it.
        """
        headers = [(b"Date", date.encode()), (b"Content-Length", b"%d" % len(text))]
        headers = [*headers, TEXT] if status == HTTPStatus.OK else [TEXT, NOT_SNIFFED, *headers]
        if self._http.is_last_response:
            headers.append((b"Connection", b"close"))
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self._http.send_response(b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, _reason(status), lines), text)

    def data_to_send(self) -> bytes:
        """Return the bytes to write now."""
        return b"".join(self._http.data_to_send())


def _reason(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode() if status in HTTPStatus._value2member_map_ else b""


# ── what the requests mean ────────────────────────────────────────────────────────────────────────


def queue_made(name: bytes) -> bytes:
    """Return the response that the queue exists."""
    return b"You posted new queue with name : " + name


def subscriber_made(queue: bytes) -> bytes:
    """Return the response that an endpoint gets the messages of the queue."""
    return b"You posted new subscriber for queue  : " + queue


def parent_of(request: Request) -> str:
    """Return the UUID of the message that the request's message waits for, in its form in a
    response; "" if it waits for none.

    Raises:
        InvalidArgument: it is no UUID. (The original would deliver the message at once.)
    """
    text = request.header(b"parentid").decode("latin-1").strip()
    if not text:
        return ""
    try:
        parent = uuid.UUID(text)
    except ValueError:
        raise InvalidArgument(
            f"the header ParentId is {text[:80]!r}, which is no UUID; it is what POST /msg "
            "answered for the parent"
        ) from None
    return str(parent) if parent.int else ""
