"""The head of a request: its grammar, and every rule that decides where its body ends.

A head is parsed when it is complete, so it does not matter in which pieces it came. Two readers
look at it: a regular expression has the grammar of RFC 9112 to the letter, and httptools parses. A
head that one of them refuses is refused. httptools alone accepts what another server on the way may
read differently: repeated spaces, HTTP/0.9 and RTSP, empty lines before a request, a fragment, a
target in absolute form, chunks in HTTP/1.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import httptools

from sparrow.protocol.http.errors import MalformedRequest, MethodNotAllowed, UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import Mapping

Headers = list[tuple[bytes, bytes]]

MAX_LENGTH: Final = (1 << 63) - 1
"""Largest Content-Length and size of a chunk."""
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_REQUEST_LINE: Final = re.compile(rb"[A-Z][A-Z-]*+ [\x21\x22\x24-\x7e]++ HTTP/1\.[01]\r\n")
_FIELD: Final = re.compile(_TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n")
_HEAD: Final = re.compile(b"%b(?:%b)*+\r\n" % (_REQUEST_LINE.pattern, _FIELD.pattern))
_WRONG_BYTE: Final = re.compile(rb"[^\t\r\n\x20-\x7e\x80-\xff]|\r(?![\n]|\Z)|(?<!\r)\n")
_HOST: Final = re.compile(rb"[0-9A-Za-z._~%!$&'()*+,;=:\[\]-]*+")
_CODING: Final = re.compile(rb"(?:(?:x-)?(?:gzip|compress)|deflate)", re.IGNORECASE)
_ONCE: Final = (b"host", b"content-length", b"transfer-encoding")
_IN_NO_TRAILER: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"trailer", b"te"}
)
_SHOWN_BYTES: Final = 60


class RequestHead:
    """The head of a request.

    Attributes:
        path: decoded; `target` is as it came.
        query: without the question mark.
        headers: names in lower case, values without spaces around them.
        by_name: the first value of each name.
        content_length: size of the body in bytes; -1: it comes in chunks.
        upgrade: the protocol that a GET offers, in lower case; b"" without an offer.
    """

    __slots__ = (
        "by_name",
        "content_length",
        "expects_continue",
        "headers",
        "keeps_alive",
        "method",
        "path",
        "query",
        "target",
        "upgrade",
        "version",
    )

    method: str
    target: bytes
    path: str
    query: bytes
    version: str
    headers: Headers
    by_name: Mapping[bytes, bytes]
    content_length: int
    keeps_alive: bool
    expects_continue: bool
    upgrade: bytes

    def __init__(self) -> None:
        self.headers = []
        self.target = self.upgrade = b""

    # called by httptools

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.rstrip(b" \t")))


def parse_head(data: bytes) -> RequestHead:
    """Parse a head, with the empty line at its end.

    Raises:
        MalformedRequest, MethodNotAllowed
        UnsupportedMediaType: the body has a transfer coding other than chunked.
    """
    if _HEAD.fullmatch(data) is None:
        raise _malformed(data)
    head = RequestHead()
    parser = httptools.HttpRequestParser(head)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise MalformedRequest(f"not a valid request of HTTP/1.1: {error}") from None
    head.method = parser.get_method().decode()
    head.version = version = parser.get_http_version()
    head.by_name = by_name = dict(reversed(head.headers))
    if len(by_name) < len(head.headers):
        _check_single(head.headers)
    _check_host(by_name.get(b"host"), version)
    _check_target(head)
    head.content_length = _content_length(by_name, version)
    head.expects_continue = by_name.get(b"expect", b"").lower() == b"100-continue"
    head.keeps_alive = version == "1.1"
    if b"connection" in by_name:
        _read_connection(head)
    return head


def check_start(data: bytes | bytearray, start: int, end: int, checked_bytes: int, *, is_head: bool) -> None:
    """Check what has come of a head, or of trailers, that are not complete or too large.

    Args:
        start, end: where they are in `data`.
        checked_bytes: those that the last call has seen.

    Raises:
        MalformedRequest: they cannot become valid.
    """
    if _WRONG_BYTE.search(data, start + max(0, checked_bytes - 1), end) is not None:
        raise _malformed(bytes(data[start:end]))
    if is_head:
        line_end = data.find(b"\r\n", start, end)
        is_new = line_end + 2 > start + checked_bytes
        if line_end >= 0 and is_new and not _REQUEST_LINE.match(data, start, line_end + 2):
            raise _malformed(bytes(data[start:end]))


def check_trailers(data: bytes) -> None:
    """Check the lines behind a chunked body; they are ignored (RFC 9110, section 6.5.1).

    Raises:
        MalformedRequest: they are not header fields, or one would say where a body ends.
    """
    for line in data.splitlines(keepends=True):
        if _FIELD.fullmatch(line) is None or line.partition(b":")[0].lower() in _IN_NO_TRAILER:
            raise MalformedRequest(f"a trailer is not valid: {line[:_SHOWN_BYTES]!r}")


def _malformed(data: bytes) -> MalformedRequest:
    """Return the error for a head that is not in the grammar, with its first wrong line."""
    first, *others = data.split(b"\n")
    wrong = first
    if _REQUEST_LINE.fullmatch(first + b"\n"):
        wrong = next((line for line in others if not _FIELD.fullmatch(line + b"\n")), first)
    return MalformedRequest(f"not a valid request of HTTP/1.1: {wrong[:_SHOWN_BYTES]!r}")


def _read_connection(head: RequestHead) -> None:
    """Set what the client wants of the connection."""
    values = b",".join(value for name, value in head.headers if name == b"connection")
    options = {each.strip(b" \t") for each in values.lower().split(b",")}
    if b"close" in options:
        head.keeps_alive = False
    if b"upgrade" in options:
        head.upgrade = head.by_name.get(b"upgrade", b"").lower()
        if head.upgrade == b"websocket" and head.content_length:
            raise MalformedRequest("a request that offers a WebSocket must have no body")
        if head.method != "GET" or head.version != "1.1":
            head.upgrade = b""  # an offer that is declined


def _check_single(headers: Headers) -> None:
    names = [name for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise MalformedRequest(f"the request has the header {name.decode()} more than once")


def _check_host(host: bytes | None, version: str) -> None:
    if host is None and version == "1.1":
        raise MalformedRequest(
            "a request of HTTP/1.1 must have exactly one Host header (RFC 9112, section 3.2)"
        )
    if host is not None and _HOST.fullmatch(host) is None:
        raise MalformedRequest(f"the Host header {host[:_SHOWN_BYTES]!r} is not a name or address")


def _check_target(head: RequestHead) -> None:
    """Set path and query."""
    if head.method == "CONNECT":
        raise MethodNotAllowed("CONNECT is not supported: this is not a proxy")
    if not head.target.startswith(b"/") and (head.method, head.target) != ("OPTIONS", b"*"):
        raise MalformedRequest(
            f"the target of the request is {head.target[:_SHOWN_BYTES]!r}; it must be a path, as this is not "
            "a proxy"
        )
    raw_path, _, head.query = head.target.partition(b"?")
    path = raw_path.decode("ascii")
    head.path = unquote(path) if "%" in path else path


def _content_length(by_name: Mapping[bytes, bytes], version: str) -> int:
    """Return the size of the body; -1 for chunks."""
    length = by_name.get(b"content-length")
    coding = by_name.get(b"transfer-encoding")
    if coding is None:
        if length is None:
            return 0
        if not length.isdigit() or len(length) > len(str(MAX_LENGTH)) or int(length) > MAX_LENGTH:
            raise MalformedRequest(f"Content-Length is {length[:_SHOWN_BYTES]!r}; it must be a whole number")
        return int(length)
    if length is not None or version != "1.1":
        raise MalformedRequest("Transfer-Encoding with Content-Length or in HTTP/1.0 can be read in two ways")
    *others, last = (each.strip(b" \t") for each in coding.split(b","))
    if last.lower() != b"chunked" or not all(map(_CODING.fullmatch, others)):
        raise MalformedRequest(f"the transfer coding is {coding[:_SHOWN_BYTES]!r}; it must be 'chunked'")
    if others:
        raise UnsupportedMediaType(
            f"the transfer coding {coding.decode('latin-1')!r} is not supported; use 'chunked'"
        )
    return -1
