"""Syncbrok's protocol without I/O: the server's side of HTTP/1.1, as Go's `net/http` responds, with
limits; and the meaning of its requests.

    POST /queue      queue: NAME                    create the queue if it does not exist
    POST /subscrib   queue: NAME, endpoint: URL     POST its messages to the URL, too
    POST /msg        queue: NAME, ParentId: UUID    the body is a message; the response is its UUID

The original considers the path and these headers, never the method. Its responses are plain text
without a line break. Grammar, framing, keep-alive, pipelining and "100-continue" are the library
h11's; the limits are here: of a request's head, and of its body, over which nothing is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import h11

from sparrow.base.errors import InvalidArgument

MAX_HEAD_BYTES: Final = 16 << 10
"""Limit of a request line and its headers; of a chunk's head and of trailers, too."""
MAX_SMALL_PIECES: Final = 4_096
SMALL_BYTES: Final = 16
"""A body may come in so many pieces of less than so many bytes on average: each chunk costs time,
however small it is.
"""
TEXT: Final = (b"Content-Type", b"text/plain; charset=utf-8")
NOT_SNIFFED: Final = (b"X-Content-Type-Options", b"nosniff")
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
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._max_body_bytes = max_body_bytes
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._output: list[bytes] = []
        self._pieces = 0
        self._is_head = False
        self._is_over = False

    @property
    def bytes_wanted(self) -> int:
        """Largest size of the unfinished body, 1 for a head; 0: no request is unfinished."""
        if self._is_over:
            return 0
        if self._request is not None:
            return self._announced_bytes + 1
        return int(self._http.their_state is h11.IDLE and bool(self._http.trailing_data[0]))

    @property
    def _announced_bytes(self) -> int:
        """Announced size of the body; the largest permitted one if it is not announced."""
        request = self._request
        length = None if request is None else dict(request.headers).get(b"content-length")
        return self._max_body_bytes if length is None else int(length)

    @property
    def must_close(self) -> bool:
        """True if the connection ends when all is sent."""
        return self._is_over or self._http.our_state in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)

    def receive_data(self, data: bytes) -> None:
        """Take more bytes."""
        if data and not self._is_over and self._http.their_state not in (h11.CLOSED, h11.ERROR):
            self._http.receive_data(data)

    def next_event(self) -> Event | None:
        """Return the next event to be answered; None if more bytes are needed."""
        if self.must_close:
            return None
        try:
            return self._next()
        except h11.RemoteProtocolError as error:
            why = str(error).partition(": bytearray")[0]
            return self._refuse(error.error_status_hint, f"this is no request of HTTP/1.1: {why}")

    def _next(self) -> Event | None:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._request, self._is_head, self._pieces = event, event.method == b"HEAD", 0
                if event.method == b"CONNECT":
                    return self._refuse(405, "this is no proxy")
                if self._announced_bytes > self._max_body_bytes:
                    return self._too_large()
                self._continue()
            elif isinstance(event, h11.Data):
                self._body += event.data
                self._pieces += 1
                if len(self._body) > self._max_body_bytes:
                    return self._too_large()
                if self._pieces > MAX_SMALL_PIECES and len(self._body) < SMALL_BYTES * self._pieces:
                    return self._refuse(400, "the body comes in too many tiny chunks; send larger ones")
            elif isinstance(event, h11.EndOfMessage):
                return self._whole()
            else:
                return None

    def _continue(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))

    def _too_large(self) -> Refusal:
        return self._refuse(413, f"the body is too large; a message has at most {self._max_body_bytes} bytes")

    def _refuse(self, status: int, text: str) -> Refusal:
        self._is_over = True
        self._body.clear()
        return Refusal(status, f"{text}\n")

    def _whole(self) -> Event:
        request, body = self._request, bytes(self._body)
        self._request = None
        self._body.clear()
        assert request is not None
        headers: dict[bytes, bytes] = {}
        for name, value in request.headers:
            headers.setdefault(bytes(name), bytes(value))
        try:
            path = unquote(urlsplit(request.target).path.decode("latin-1"), errors="replace")
        except ValueError:
            path = ""  # which nothing is at
        return Request(path, headers, body)

    def respond(self, status: int, text: bytes, date: str) -> None:
        """Respond to the last event.

        Args:
            date: now, as HTTP writes it.
        """
        headers = [(b"Date", date.encode()), (b"Content-Length", b"%d" % len(text))]
        headers = [*headers, TEXT] if status == HTTPStatus.OK else [TEXT, NOT_SNIFFED, *headers]
        if self._is_over:
            headers.append((b"Connection", b"close"))
        self._send(h11.Response(status_code=status, headers=headers, reason=_reason(status)))
        if text and not self._is_head:
            self._send(h11.Data(data=text))
        self._send(h11.EndOfMessage())
        if not self.must_close:
            self._http.start_next_cycle()

    def _send(self, event: h11.Event) -> None:
        self._output.append(self._http.send(event) or b"")

    def data_to_send(self) -> bytes:
        """Return the bytes to write now."""
        output, self._output = self._output, []
        return b"".join(output)


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
