"""One connection of a server in HTTP/1.1, without I/O.

    codec.receive_data(data)
    for event in codec.events():      RequestHead, then BodyPart …, then RequestEnd; or an error
        …
    codec.respond(200, headers, body)
    transport.writelines(codec.data_to_send())

Requests may be pipelined: their events come as soon as they are read, and a response is that of the
oldest request without one. The states of reading:

    HEAD ──▶ LENGTH ───────────────────────────────────────▶ END ──▶ HEAD
         ──▶ CHUNK_SIZE ──▶ CHUNK ──▶ CHUNK_END ──▶ CHUNK_SIZE
                        ──▶ TRAILERS ──────────────────────▶ END ──▶ HEAD
         ──▶ UPGRADE     the head offers a WebSocket: what follows is not HTTP (`unread`)
    any  ──▶ OVER        after an error, which is the last event; nothing more is read

The same events follow from the same bytes, in whatever pieces they come (parts of one body may be
divided differently): each limit is checked at the byte that exceeds it.
"""

from __future__ import annotations

import re
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from sparrow.base.errors import Overloaded, SparrowError
from sparrow.protocol.http.errors import HeadTooLarge, MalformedRequest
from sparrow.protocol.http.heads import MAX_LENGTH, RequestHead, check_start, check_trailers, parse_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.protocol.http.heads import Headers

MAX_SMALL_CHUNKS: Final = 4_096
SMALL_CHUNK_BYTES: Final = 16
"""A body may come in this many chunks of less than this many bytes on average: each chunk costs
time, however small it is.
"""
_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")
_SIZE_START: Final = re.compile(rb"[0-9A-Fa-f]{0,16}\r?")
_SIZE_BYTES: Final = 16
_CACHE_CONTROL: Final = b"cache-control"
_LINE_END: Final = b"\r\n"
_BLOCK_END: Final = b"\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES: Final[dict[int, bytes]] = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}
_BODILESS: Final = frozenset({204, 304})
"""Statuses of responses without a body, and without its length."""
_COPIED_BYTES: Final = 64 << 10
"""Smaller bodies are joined with their heads."""


class BodyPart(NamedTuple):
    """A part of the body of a request; never empty."""

    data: bytes


class RequestEnd(NamedTuple):
    """The end of a request."""


Event = RequestHead | BodyPart | RequestEnd | SparrowError
_END: Final = RequestEnd()


class _State:
    """Plain integers, as they are looked up five times for each request."""

    HEAD: Final = 0
    LENGTH: Final = 1
    CHUNK_SIZE: Final = 2
    CHUNK: Final = 3
    CHUNK_END: Final = 4
    TRAILERS: Final = 5
    END: Final = 6
    UPGRADE: Final = 7
    OVER: Final = 8


class CommonHeaders:
    """The headers of every response, as bytes; all connections of a listener share them. A response
    whose first header is cache-control has that instead of the common one.
    """

    __slots__ = ("_cacheable", "_fixed", "block", "cacheable_block")

    def __init__(self, headers: Headers) -> None:
        self._fixed = self.block = _encoded(headers)
        self._cacheable = self.cacheable_block = _encoded(
            [(name, value) for name, value in headers if name != _CACHE_CONTROL]
        )

    def set_date(self, date: str) -> None:
        """Set the date, as HTTP writes it."""
        self.block = self._fixed + b"date: %b\r\n" % date.encode()
        self.cacheable_block = self._cacheable + b"date: %b\r\n" % date.encode()


class HttpCodec:
    """One connection. It never waits and never raises for what a client sends.

    Args:
        common: headers of all responses.
        max_head_bytes: limit of request line and headers, and of trailers; may be changed later.
        max_headers: limit of their number.
        max_pipelined: requests that may wait while another one has no response yet.
    """

    __slots__ = (
        "_at",
        "_body_bytes",
        "_buffer",
        "_checked_bytes",
        "_chunks",
        "_common",
        "_is_after_line",
        "_is_chunked",
        "_left_bytes",
        "_max_headers",
        "_max_pipelined",
        "_output",
        "_reading",
        "_state",
        "_unanswered",
        "has_begun_response",
        "limit_note",
        "max_head_bytes",
    )

    def __init__(
        self, common: CommonHeaders, *, max_head_bytes: int, max_headers: int, max_pipelined: int
    ) -> None:
        self._common = common
        self.max_head_bytes = max_head_bytes
        self.limit_note = ""
        """Added to the error of a head with too many bytes."""
        self._max_headers = max_headers
        self._max_pipelined = max_pipelined
        self._state: int = _State.HEAD
        self._buffer: bytes | bytearray = b""
        self._at = 0
        """Position in the buffer; bytes before it are read."""
        self._checked_bytes = 0
        """Bytes of an incomplete head that were looked at."""
        self._is_after_line = False
        """True if an empty line was skipped before the next head."""
        self._left_bytes = 0
        """Missing bytes of the body, or of its current chunk."""
        self._chunks = self._body_bytes = 0
        self._reading: RequestHead | None = None
        """The request that is not complete."""
        self._unanswered: deque[RequestHead] = deque()
        self._output: list[bytes] = []
        self.has_begun_response = False
        """True while a response is sent in parts."""
        self._is_chunked = False

    # ── in ────────────────────────────────────────────────────────────────────────────────────────

    def receive_data(self, data: bytes) -> None:
        """Take more bytes of the client; those after an error are dropped."""
        if self._state == _State.OVER:
            return
        rest, at = self._buffer, self._at
        if at == len(rest):
            self._buffer, self._at = data, 0
        elif isinstance(rest, bytearray):
            del rest[:at]
            rest += data
            self._at = 0
        else:
            self._buffer = bytearray(memoryview(rest)[at:])
            self._buffer += data
            self._at = 0

    def events(self) -> Iterator[Event]:
        """Yield the events of the received bytes. An error is the last one."""
        while True:
            state = self._state
            try:
                event = self._steps[state](self)
            except SparrowError as error:
                self.refuse()
                yield error
                return
            if event is not None:
                yield event
            elif self._state == state:
                return

    @property
    def is_in_head(self) -> bool:
        """Return True if a head has begun and is not complete."""
        return self._state == _State.HEAD and self._at < len(self._buffer)

    @property
    def is_in_body(self) -> bool:
        """Return True if a request has begun and its body is not complete."""
        return self._reading is not None

    @property
    def unread(self) -> bytes:
        """Return the bytes behind a head that offers a WebSocket."""
        return bytes(memoryview(self._buffer)[self._at :])

    def _head(self) -> Event | None:
        if not self._is_after_line and self._buffer.startswith(_LINE_END, self._at):
            self._at += 2
            self._is_after_line = True
        data = self._block(is_head=True)
        if data is None:
            return None
        head = parse_head(data)
        if len(head.headers) > self._max_headers:
            raise HeadTooLarge(f"the request has more than {self._max_headers} headers; send fewer")
        if len(self._unanswered) > self._max_pipelined:
            raise Overloaded(
                f"{self._max_pipelined} requests of this connection are waiting already; read some "
                "responses first"
            )
        self._is_after_line = False
        self._unanswered.append(head)
        self._reading = head
        if head.upgrade == b"websocket":
            self._state = _State.UPGRADE
        elif head.content_length:
            self._chunks = self._body_bytes = 0
            self._left_bytes = head.content_length
            self._state = _State.LENGTH if head.content_length > 0 else _State.CHUNK_SIZE
        else:
            self._state = _State.END
        return head

    def _block(self, *, is_head: bool) -> bytes | None:
        """Return lines up to an empty one; None if they are not complete."""
        data, at = self._buffer, self._at
        if at == len(data):
            return None
        end = data.find(_BLOCK_END, at + max(0, self._checked_bytes - 3)) + len(_BLOCK_END)
        stop = at + self.max_head_bytes
        if end < len(_BLOCK_END) or end > stop:
            check_start(data, at, min(stop, len(data)), self._checked_bytes, is_head=is_head)
            if len(data) > stop:
                raise HeadTooLarge(
                    f"request line and headers are more than {self.max_head_bytes} bytes{self.limit_note}; "
                    "send less, such as fewer headers"
                )
            self._checked_bytes = len(data) - at
            return None
        self._at, self._checked_bytes = end, 0
        return bytes(data[at:end])

    def _part(self) -> BodyPart | None:
        """Return the next part of a body or chunk."""
        data, at = self._buffer, self._at
        size = min(len(data) - at, self._left_bytes)
        if not size:
            return None
        self._left_bytes -= size
        self._at += size
        if not self._left_bytes:
            self._state = _State.END if self._state == _State.LENGTH else _State.CHUNK_END
        if size == len(data) and isinstance(data, bytes):
            return BodyPart(data)
        return BodyPart(bytes(memoryview(data)[at : at + size]))

    def _chunk_size(self) -> None:
        data, at = self._buffer, self._at
        end = data.find(_LINE_END, at, at + _SIZE_BYTES + len(_LINE_END))
        grammar, stop = (_SIZE_START, at + _SIZE_BYTES + 1) if end < 0 else (_SIZE, end)
        found = grammar.fullmatch(data, at, min(stop, len(data)))
        if found is None or (end < 0 and len(data) > stop):
            raise MalformedRequest("the size of a chunk is not valid (chunk extensions are not supported)")
        if end < 0:
            return
        self._left_bytes = int(found.group(), 16)
        self._at = end + len(_LINE_END)
        if not self._left_bytes:
            self._state = _State.TRAILERS
            return
        self._state = _State.CHUNK
        self._chunks += 1
        self._body_bytes += self._left_bytes
        if self._left_bytes > MAX_LENGTH:
            raise MalformedRequest("the size of a chunk is too large")
        if self._chunks > MAX_SMALL_CHUNKS and self._body_bytes < SMALL_CHUNK_BYTES * self._chunks:
            raise MalformedRequest("the body comes in too many tiny chunks; send larger ones")

    def _chunk_end(self) -> None:
        if self._takes_line_end():
            self._state = _State.CHUNK_SIZE
        elif not _LINE_END.startswith(self._buffer[self._at : self._at + 2]):
            raise MalformedRequest("a chunk is longer than its size says")

    def _trailers(self) -> None:
        if not self._checked_bytes and self._takes_line_end():
            self._state = _State.END
            return
        if len(self._buffer) - self._at < len(_LINE_END):
            return
        data = self._block(is_head=False)
        if data is not None:
            check_trailers(data[: -len(_LINE_END)])
            self._state = _State.END

    def _takes_line_end(self) -> bool:
        if not self._buffer.startswith(_LINE_END, self._at):
            return False
        self._at += len(_LINE_END)
        return True

    def _end(self) -> Event:
        assert self._reading is not None
        self._state = _State.HEAD if self._reading.keeps_alive else _State.OVER
        self._reading = None
        return _END

    def _nothing(self) -> None:
        """Read nothing more."""

    _steps: ClassVar[tuple[Callable[[HttpCodec], Event | None], ...]] = (
        _head,  # HEAD
        _part,  # LENGTH
        _chunk_size,  # CHUNK_SIZE
        _part,  # CHUNK
        _chunk_end,  # CHUNK_END
        _trailers,  # TRAILERS
        _end,  # END
        _nothing,  # UPGRADE
        _nothing,  # OVER
    )

    # ── out ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def must_close(self) -> bool:
        """Return True if the connection ends when everything is sent."""
        return self._state == _State.OVER and not self._unanswered

    def close_when_done(self) -> None:
        """Serve no request after those that have begun."""
        if self._unanswered:
            self._unanswered[-1].keeps_alive = False
        elif self._state != _State.UPGRADE:
            self._state = _State.OVER

    def refuse(self) -> None:
        """Stop reading. An error is the next response: that of the request that is not complete, or
        one of its own behind those that are due.
        """
        if self._state == _State.OVER and self._reading is None and self._unanswered:
            return
        self._state = _State.OVER
        self._buffer, self._at = b"", 0
        if self._reading is None:
            self._unanswered.append(_refused_head())
        self._reading = None
        self._unanswered[-1].keeps_alive = False

    def switch_protocols(self, headers: Headers) -> bytes:
        """Accept the offer of the oldest request, which ends HTTP on this connection. Return the
        bytes behind it.
        """
        lines = (_STATUS_LINES[101], self._common.block, _encoded(headers), _LINE_END)
        self._output.append(b"".join(lines))
        self._unanswered.popleft()
        self._state = _State.OVER
        return self.unread

    def send_continue(self) -> None:
        """Tell a client that waits for it to send the body of the request that is being read."""
        if self._reading is not None and self._reading.expects_continue:
            self._reading.expects_continue = False
            self._output.append(_CONTINUE)

    @property
    def is_last_response(self) -> bool:
        """Return True if the connection ends with the next response: its request says so, or is not
        complete, and its rest is not read.
        """
        request = self._unanswered[0]
        return request is self._reading or not request.keeps_alive

    def respond(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Send a whole response to the oldest request without one."""
        length = b"" if status in _BODILESS else b"content-length: %d\r\n" % len(body)
        self.send_response(self._head_of_response(status, headers, length), body)

    def send_response(self, head: bytes, body: bytes) -> None:
        """Send a whole response whose head is complete."""
        if self._unanswered[0].method == "HEAD":
            body = b""
        if len(body) < _COPIED_BYTES:
            self._output.append(head + body)
        else:
            self._output += (head, body)
        self._finish()

    def start_response(self, status: int, headers: Headers) -> None:
        """Start a response that is sent in parts; without chunks it ends with the connection."""
        request = self._unanswered[0]
        self._is_chunked = request.version == "1.1" and request.method != "HEAD"
        self.has_begun_response = True
        framing = b"transfer-encoding: chunked\r\n" if self._is_chunked else b""
        self._output.append(self._head_of_response(status, headers, framing))

    def send_part(self, data: bytes) -> None:
        """Send a part of the response, not empty."""
        if self._unanswered[0].method == "HEAD":
            return
        if self._is_chunked:
            self._output += (b"%x\r\n" % len(data), data, _LINE_END)
        else:
            self._output.append(data)

    def end_response(self) -> None:
        """End a response that was sent in parts."""
        if self._is_chunked:
            self._output.append(b"0\r\n\r\n")
        self._finish()

    def data_to_send(self) -> list[bytes]:
        """Return the bytes to write now."""
        output, self._output = self._output, []
        return output

    def _head_of_response(self, status: int, headers: Headers, framing: bytes) -> bytes:
        closing = b"connection: close\r\n" if self.is_last_response else b""
        own = _encoded(headers)
        is_cacheable = bool(headers) and headers[0][0] == _CACHE_CONTROL
        common = self._common.cacheable_block if is_cacheable else self._common.block
        return b"".join((_STATUS_LINES[status], common, own, framing, closing, _LINE_END))

    def _finish(self) -> None:
        is_last = self.is_last_response
        self._unanswered.popleft()
        self.has_begun_response = False
        if is_last:
            self._state = _State.OVER
            self._unanswered.clear()


def _refused_head() -> RequestHead:
    """Return a head for the response to bytes that are no request."""
    head = RequestHead()
    head.method, head.version = "", "1.1"
    return head


def _encoded(headers: Headers) -> bytes:
    block = b"".join([b"%b: %b\r\n" % header for header in headers])
    if not block.count(b"\r") == block.count(b"\n") == len(headers):
        raise ValueError("a header of a response contains a line break")
    return block
