"""Ambiguous requests: two readers on the way to the broker could see different requests in them.

Each is refused with 400, and the connection ends, so that nothing behind it is taken for a request.
"""

from __future__ import annotations

PATH = "/v1/topics/orders/messages"
_POST = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\n" % PATH.encode()
_GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
_SOCKET = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def _line(line: bytes) -> bytes:
    return line + b"\r\nHost: 127.0.0.1\r\n\r\n"


def _length(*values: bytes) -> bytes:
    return _POST + b"".join(b"Content-Length: %b\r\n" % value for value in values) + b"\r\na"


def _coding(*values: bytes, others: bytes = b"") -> bytes:
    codings = b"".join(b"Transfer-Encoding: %b\r\n" % value for value in values)
    return _POST + codings + others + b"\r\n1\r\na\r\n0\r\n\r\n"


def _header(line: bytes) -> bytes:
    return _GET + line + b"\r\n\r\n"


AMBIGUOUS: dict[str, bytes] = {
    # the request line
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/0.9 with its version": _line(b"GET /healthz HTTP/0.9"),
    "HTTP/1.2": _line(b"GET /healthz HTTP/1.2"),
    "HTTP/2.0": _line(b"GET /healthz HTTP/2.0"),
    "HTTP/1.10": _line(b"GET /healthz HTTP/1.10"),
    "HTTP/01.1": _line(b"GET /healthz HTTP/01.1"),
    "HTTP/1": _line(b"GET /healthz HTTP/1"),
    "HTTP/1,1": _line(b"GET /healthz HTTP/1,1"),
    "version in lower case": _line(b"GET /healthz http/1.1"),
    "RTSP": _line(b"GET /healthz RTSP/1.0"),
    "ICE": _line(b"SOURCE /healthz ICE/1.0"),
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "method in lower case": _line(b"get /healthz HTTP/1.1"),
    "unknown method": _line(b"BREW /healthz HTTP/1.1"),
    "two spaces after the method": _line(b"GET  /healthz HTTP/1.1"),
    "two spaces before the version": _line(b"GET /healthz  HTTP/1.1"),
    "tab after the method": _line(b"GET\t/healthz HTTP/1.1"),
    "space before the method": _line(b" GET /healthz HTTP/1.1"),
    "space after the version": _line(b"GET /healthz HTTP/1.1 "),
    "space in the target": _line(b"GET /heal thz HTTP/1.1"),
    "no target": _line(b"GET HTTP/1.1"),
    "absolute form": _line(b"GET http://127.0.0.1/healthz HTTP/1.1"),
    "absolute form of another host": _line(b"GET http://evil.example/healthz HTTP/1.1"),
    "asterisk form of another method": _line(b"GET * HTTP/1.1"),
    "relative target": _line(b"GET healthz HTTP/1.1"),
    "fragment": _line(b"GET /healthz#top HTTP/1.1"),
    "byte above ASCII in the target": _line(b"GET /healthz\xff HTTP/1.1"),
    "NUL in the target": _line(b"GET /healthz\x00 HTTP/1.1"),
    "DEL in the target": _line(b"GET /healthz\x7f HTTP/1.1"),
    "two empty lines before the request": b"\r\n\r\n" + _GET + b"\r\n",
    "line feed before the request": b"\n" + _GET + b"\r\n",
    # lines
    "line feeds alone": b"GET /healthz HTTP/1.1\nHost: 127.0.0.1\n\n",
    "line feed after a header": _GET + b"X-A: b\nX-C: d\r\n\r\n",
    "line feed at the end of the head": _GET + b"X-A: b\n\r\n",
    "line feed for the empty line": _GET + b"X-A: b\r\n\n",
    "carriage return in a value": _header(b"X-A: b\rX-C: d"),
    "carriage returns alone": b"GET /healthz HTTP/1.1\rHost: 127.0.0.1\r\r",
    "two carriage returns": _GET + b"X-A: b\r\r\n\r\n",
    "folded header": _header(b"X-A: b\r\n c"),
    "header folded by a tab": _header(b"X-A: b\r\n\tc"),
    "folded Content-Length": _POST + b"Content-Length:\r\n 1\r\n\r\na",
    "space before the first header": b"GET /healthz HTTP/1.1\r\n Host: 127.0.0.1\r\n\r\n",
    # names and values
    "space before the colon": _POST + b"Content-Length : 1\r\n\r\na",
    "tab before the colon": _POST + b"Content-Length\t: 1\r\n\r\na",
    "space before the colon of Transfer-Encoding": _POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "no colon": _header(b"X-A"),
    "no name": _header(b": b"),
    "space in a name": _header(b"X A: b"),
    "NUL in a name": _header(b"X\x00A: b"),
    "NUL in a value": _header(b"X-A: b\x00c"),
    "control byte in a name": _header(b"X\x01A: b"),
    "control byte in a value": _header(b"X-A: b\x0bc"),
    "DEL in a value": _header(b"X-A: b\x7f"),
    "byte above ASCII in a name": _header(b"X\xc3A: b"),
    "brackets in a name": _header(b"X(A): b"),
    # Host
    "no Host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two Hosts": _header(b"Host: 127.0.0.1"),
    "two different Hosts": _header(b"host: localhost"),
    "two Hosts of HTTP/1.0": b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\nHost: localhost\r\n\r\n",
    "list of Hosts": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1, localhost\r\n\r\n",
    "Host with a user": b"GET /healthz HTTP/1.1\r\nHost: a@127.0.0.1\r\n\r\n",
    "Host with a path": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1/a\r\n\r\n",
    # Content-Length
    "two lengths": _length(b"1", b"2"),
    "the same length twice": _length(b"1", b"1"),
    "list of lengths": _length(b"1, 1"),
    "length with a plus": _length(b"+1"),
    "negative length": _length(b"-1"),
    "length in hexadecimal": _length(b"0x1"),
    "length with a fraction": _length(b"1.0"),
    "length with an underscore": _length(b"0_1"),
    "length of digits that are not ASCII": _length(b"\xb9"),
    "empty length": _length(b""),
    "length that is no number": _length(b"one"),
    "length with a space inside": _length(b"1 1"),
    "length of 2^63": _length(b"%d" % (1 << 63)),
    "length of 2^64 + 1": _length(b"%d" % ((1 << 64) + 1)),
    # Transfer-Encoding
    "length and chunks": _coding(b"chunked", others=b"Content-Length: 1\r\n"),
    "chunks and length": _POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two codings": _coding(b"chunked", b"chunked"),
    "two different codings": _coding(b"chunked", b"identity"),
    "chunked twice": _coding(b"chunked, chunked"),
    "not chunked at last": _coding(b"chunked, identity"),
    "identity": _coding(b"identity"),
    "identity, then chunked": _coding(b"identity, chunked"),
    "unknown coding": _coding(b"xchunked"),
    "coding with a parameter": _coding(b"chunked;q=1"),
    "coding in quotes": _coding(b'"chunked"'),
    "coding after a control byte": _coding(b"\x0bchunked"),
    "empty coding": _coding(b""),
    "empty element of the codings": _coding(b"chunked,"),
    "gzip without chunked": _coding(b"gzip"),
    "coding with a length of no number": _coding(b"xchunked", others=b"Content-Length: 1\r\n"),
    "chunks in HTTP/1.0": _coding(b"chunked").replace(b"HTTP/1.1", b"HTTP/1.0"),
    # chunks
    "chunk extension": _CHUNKED + b"1;a=b\r\na\r\n0\r\n\r\n",
    "extension of the last chunk": _CHUNKED + b"1\r\na\r\n0;a\r\n\r\n",
    "extension without a name": _CHUNKED + b"1;\r\na\r\n0\r\n\r\n",
    "extension with a line feed": _CHUNKED + b"1;a\nb\r\na\r\n0\r\n\r\n",
    "space after the size": _CHUNKED + b"1 \r\na\r\n0\r\n\r\n",
    "space before the size": _CHUNKED + b" 1\r\na\r\n0\r\n\r\n",
    "size with a sign": _CHUNKED + b"+1\r\na\r\n0\r\n\r\n",
    "negative size": _CHUNKED + b"-1\r\na\r\n0\r\n\r\n",
    "size with 0x": _CHUNKED + b"0x1\r\na\r\n0\r\n\r\n",
    "size with an underscore": _CHUNKED + b"0_1\r\na\r\n0\r\n\r\n",
    "empty size": _CHUNKED + b"\r\na\r\n0\r\n\r\n",
    "size that is no number": _CHUNKED + b"g\r\na\r\n0\r\n\r\n",
    "size of 2^63": _CHUNKED + b"8000000000000000\r\na\r\n0\r\n\r\n",
    "size above 2^64": _CHUNKED + b"10000000000000001\r\na\r\n0\r\n\r\n",
    "size that ends with a line feed": _CHUNKED + b"1\na\n0\n\n",
    "chunk that ends with a line feed": _CHUNKED + b"1\r\na\n0\r\n\r\n",
    "chunk that is too long": _CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    "chunk without an end": _CHUNKED + b"1\r\na0\r\n\r\n",
    "last chunk that ends with a line feed": _CHUNKED + b"1\r\na\r\n0\n\n",
    # trailers
    "trailer Content-Length": _CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
    "trailer Transfer-Encoding": _CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "trailer Connection": _CHUNKED + b"0\r\nConnection: close\r\n\r\n",
    "trailer Upgrade": _CHUNKED + b"0\r\nUpgrade: websocket\r\n\r\n",
    "trailer with a space before the colon": _CHUNKED + b"0\r\nX-A : b\r\n\r\n",
    "folded trailer": _CHUNKED + b"0\r\nX-A: b\r\n c\r\n\r\n",
    "trailer that ends with a line feed": _CHUNKED + b"0\r\nX-A: b\n\r\n",
    "trailer without a colon": _CHUNKED + b"0\r\nGET /healthz HTTP/1.1\r\n\r\n",
    "NUL in a trailer": _CHUNKED + b"0\r\nX-A: \x00\r\n\r\n",
    # upgrades
    "WebSocket with a body": _SOCKET + b"Content-Length: 3\r\n\r\nabc",
    "WebSocket with chunks": _SOCKET + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "WebSocket by POST with a body": _SOCKET.replace(b"GET", b"POST") + b"Content-Length: 3\r\n\r\nabc",
}
