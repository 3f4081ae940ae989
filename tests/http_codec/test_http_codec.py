"""The codec of HTTP/1.1: any pieces give the same events; limits; framing of responses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrow.protocol.http.codec import MAX_SMALL_CHUNKS, BodyPart, HttpCodec, RequestEnd
from sparrow.protocol.http.errors import HeadTooLarge, MalformedRequest, UnsupportedMediaType
from sparrow.protocol.http.heads import RequestHead
from tests.http_codec.corpus import AMBIGUOUS
from tests.http_codec.driver import codec, events_of, in_two

GET = b"GET /a?b=c HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = (
    b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\na\r\n02\r\nbc\r\n0\r\nX-A: b\r\n\r\n"
)
PIECES = [GET, POST, CHUNKED, b"\r\n", *AMBIGUOUS.values()]


def start(*requests: bytes, **limits: Any) -> tuple[HttpCodec, list[Any]]:
    reader = codec(**limits)
    reader.receive_data(b"".join(requests))
    return reader, list(reader.events())


def sent(reader: HttpCodec) -> bytes:
    return b"".join(reader.data_to_send())


# ── in ────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Return requests back to back, some with a byte changed, dropped or doubled."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1))
        replaced = draw(st.sampled_from([b"", b"\r", b"\n", b" ", b":", b"0", b"\x00", b"\xff", b"a" * 60]))
        data[at : at + 1] = replaced
        if not data:
            break
    return bytes(data)


@given(streams(), st.data())
def test_any_division_of_the_bytes_gives_the_same_events(data: bytes, drawn: st.DataObject) -> None:
    cuts = sorted(drawn.draw(st.sets(st.integers(0, len(data)), max_size=12)))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    limits = {"max_head_bytes": drawn.draw(st.sampled_from([70, 120, 4096])), "max_headers": 4}
    whole = events_of([data], **limits)
    assert events_of(pieces, **limits) == whole
    assert events_of([data[at : at + 1] for at in range(len(data))], **limits) == whole


@given(st.binary(max_size=300))
@example(b"\r\n\r\n")
def test_any_bytes_give_events_and_never_an_exception(data: bytes) -> None:
    whole = events_of([data])
    assert events_of([data[at : at + 1] for at in range(len(data))]) == whole


def test_requests_come_with_their_parts() -> None:
    head, end = start(GET)[1]
    assert (head.method, head.path, head.query, head.version) == ("GET", "/a", b"b=c", "1.1")
    assert (head.headers, head.by_name) == ([(b"host", b"a")], {b"host": b"a"})
    assert (head.keeps_alive, head.content_length, head.upgrade) == (True, 0, b"")
    assert end == RequestEnd()
    assert events_of([POST])[1:] == [b"abc", "end"]
    assert events_of([CHUNKED])[1:] == [b"abc", "end"]


def test_a_path_is_decoded_and_values_have_no_spaces_around_them() -> None:
    head = start(b"GET /%C3%A4%20%zz HTTP/1.1\r\nHost: \t a \t\r\nX:\r\nX: 2\r\n\r\n")[1][0]
    assert (head.path, head.target) == ("/ä %zz", b"/%C3%A4%20%zz")
    assert head.headers == [(b"host", b"a"), (b"x", b""), (b"x", b"2")]
    assert head.by_name[b"x"] == b"", "the first one counts"


@pytest.mark.parametrize("pieces", list(in_two(GET + POST + CHUNKED + GET)))
def test_pipelined_requests_come_in_order(pieces: list[bytes]) -> None:
    assert [each["path"] for each in events_of(pieces) if isinstance(each, dict)] == ["/a", "/p", "/c", "/a"]


def test_nothing_is_read_behind_a_request_that_ends_the_connection() -> None:
    for last in (GET.replace(b"1.1", b"1.0"), GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")):
        assert [each["path"] for each in events_of([GET + last + POST]) if isinstance(each, dict)] == [
            "/a"
        ] * 2


def test_bytes_behind_the_offer_of_a_websocket_are_not_read() -> None:
    offer = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    reader, (head,) = start(offer + b"Content-Length: 0\r\n\r\n" + GET)
    assert head.upgrade == b"websocket"
    assert reader.unread == GET
    reader.receive_data(b"x")
    assert not list(reader.events())
    assert reader.unread == GET + b"x"


def test_an_offer_of_another_protocol_is_declined() -> None:
    offer = b"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
    for request in (GET, POST, CHUNKED):
        changed = request.replace(b"\r\n\r\n", offer, 1)
        assert events_of([changed + GET])[1:] == [*events_of([request])[1:], *events_of([GET])]


def test_a_coding_that_nobody_undoes_is_no_ambiguity() -> None:
    error = start(POST.replace(b"Content-Length: 3", b"Transfer-Encoding: gzip, chunked"))[1][-1]
    assert isinstance(error, UnsupportedMediaType)


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["target", "name", "value"])
def test_a_head_has_a_limit_of_bytes(where: str) -> None:
    def head(size: int) -> bytes:
        filling = b"a" * size
        return {
            "target": b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n",
            "name": b"GET / HTTP/1.1\r\nHost: a\r\n%b: b\r\n\r\n",
            "value": b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n",
        }[where] % filling

    largest = 300 - len(head(0))
    for data, expected in ((head(largest), "end"), (head(largest + 1), ("HeadTooLarge", "HEAD_TOO_LARGE"))):
        for pieces in in_two(data):
            assert events_of(pieces, max_head_bytes=300)[-1] == expected
    assert events_of([head(1000)[:301]], max_head_bytes=300)[-1] == ("HeadTooLarge", "HEAD_TOO_LARGE")


def test_a_head_has_a_limit_of_headers() -> None:
    lines = [b"X-%d: a\r\n" % number for number in range(10)]
    whole = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(lines) + b"\r\n"
    assert start(whole, max_headers=11)[1][-1] == RequestEnd()
    assert isinstance(start(whole, max_headers=10)[1][-1], HeadTooLarge)


def test_trailers_have_the_limit_of_a_head() -> None:
    whole = CHUNKED.replace(b"X-A: b", b"X-A: " + b"b" * 300)
    for pieces in in_two(whole):
        assert events_of(pieces, max_head_bytes=200)[-1] == ("HeadTooLarge", "HEAD_TOO_LARGE")


def test_tiny_chunks_are_limited() -> None:
    head = CHUNKED[: CHUNKED.index(b"1\r\na")]
    tiny = b"1\r\na\r\n"
    assert start(head, tiny * MAX_SMALL_CHUNKS, b"0\r\n\r\n")[1][-1] == RequestEnd()
    assert isinstance(start(head, tiny * (MAX_SMALL_CHUNKS + 1))[1][-1], MalformedRequest)
    large = b"10\r\n" + b"a" * 16 + b"\r\n"
    assert start(head, large * (MAX_SMALL_CHUNKS + 100), b"0\r\n\r\n")[1][-1] == RequestEnd()


def test_pipelined_requests_are_limited() -> None:
    reader, events = start(GET * 100, max_pipelined=3)
    assert [type(each) for each in events[::2]] == [RequestHead] * 4 + [type(events[-1])]
    assert events[-1].code == "OVERLOADED"
    for status in (200, 200, 200, 200, 503):
        assert not reader.must_close
        reader.respond(status, [])
    assert reader.must_close
    assert re.findall(rb"HTTP/1.1 (\d+)", sent(reader)) == [b"200"] * 4 + [b"503"]


# ── out ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_response_has_its_length_and_keeps_the_connection() -> None:
    reader = start(GET)[0]
    reader.respond(200, [(b"x-a", b"b")], b"body")
    assert sent(reader) == b"HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 4\r\n\r\nbody"
    assert not reader.must_close
    reader.receive_data(GET)
    assert len(list(reader.events())) == 2


@pytest.mark.parametrize(
    ("method", "version", "expected"),
    [
        (b"GET", b"1.1", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
        (b"HEAD", b"1.1", b"\r\n"),
        (b"GET", b"1.0", b"connection: close\r\n\r\nabcde"),
        (b"HEAD", b"1.0", b"connection: close\r\n\r\n"),
    ],
)
def test_a_response_in_parts(method: bytes, version: bytes, expected: bytes) -> None:
    reader = start(GET.replace(b"GET", method).replace(b"1.1", version))[0]
    reader.start_response(200, [])
    for part in (b"abc", b"de"):
        reader.send_part(part)
    assert reader.has_begun_response
    reader.end_response()
    assert sent(reader) == b"HTTP/1.1 200 OK\r\n" + expected
    assert reader.must_close is (version == b"1.0")


def test_the_response_to_head_has_no_body_and_no_content_has_no_length() -> None:
    reader = start(GET.replace(b"GET", b"HEAD"), GET)[0]
    reader.respond(200, [], b"body")
    reader.respond(204, [])
    assert sent(reader) == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"


def test_a_response_before_the_end_of_the_request_ends_the_connection() -> None:
    for cut in (POST[:-1], CHUNKED[:-1]):
        reader = start(cut)[0]
        reader.respond(413, [], b"")
        assert b"connection: close" in sent(reader)
        assert reader.must_close
        reader.receive_data(b"c" + GET)
        assert not list(reader.events())


def test_an_error_in_a_body_is_the_response_of_its_request() -> None:
    reader, events = start(GET, CHUNKED.replace(b"02", b"xx"), GET)
    assert isinstance(events[-1], MalformedRequest)
    assert isinstance(events[-2], BodyPart)
    reader.respond(200, [])
    reader.respond(400, [])
    assert reader.must_close
    assert re.findall(rb"HTTP/1.1 (\d+)", sent(reader)) == [b"200", b"400"]


def test_a_client_that_waits_for_it_is_told_to_continue_once() -> None:
    reader = start(POST[:-3].replace(b"Host", b"Expect: 100-continue\r\nHost"))[0]
    reader.send_continue()
    reader.send_continue()
    assert sent(reader) == b"HTTP/1.1 100 Continue\r\n\r\n"
    whole = start(POST.replace(b"Host", b"Expect: 100-continue\r\nHost"))[0]
    whole.send_continue()
    assert not sent(whole)


def test_a_connection_is_closed_after_the_responses_that_are_due() -> None:
    reader = start(GET, GET)[0]
    reader.close_when_done()
    reader.respond(200, [])
    assert not reader.must_close
    reader.respond(200, [])
    assert reader.must_close
    idle = codec()
    idle.close_when_done()
    assert idle.must_close


def test_a_header_with_a_line_break_is_not_sent() -> None:
    reader = start(GET)[0]
    for value in (b"b\r\nSet-Cookie: c", b"b\n", b"\r"):
        with pytest.raises(ValueError, match="line break"):
            reader.respond(200, [(b"x-a", value)])
