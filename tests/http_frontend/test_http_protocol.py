"""Connections below the routes: bytes, and clients that are slow, large, or disconnect."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw, request

PUBLISH = "/v1/topics/orders/messages"


async def stored(http: Http) -> list[str]:
    """Return the values in the topic."""
    page = await http.get(f"{PUBLISH}?limit=1000")
    return [each["value"] for each in page.json["messages"]] if page.status == 200 else []


async def until(condition: object) -> None:
    """Poll for a condition: there is no event for the other side of a socket."""
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nBroken\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_http_get_a_problem_and_end_the_connection(
    http: Http, garbage: bytes
) -> None:
    async with Raw(http.port) as raw:
        raw.send(garbage)
        response = await raw.response()
        assert (response.status, response.code) == (400, "MALFORMED_REQUEST")
        assert response.headers["connection"] == "close"
        assert await raw.ended() == b""


async def test_a_broken_chunk_ends_the_request(http: Http) -> None:
    async with Raw(http.port) as raw:
        raw.send(
            b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" % PUBLISH.encode()
        )
        raw.send(b"3\r\nabc\r\nnonsense\r\n")
        assert (await raw.response()).code == "MALFORMED_REQUEST"
        assert await raw.ended() == b""
    assert await stored(http) == []


async def test_chunks_are_one_body(http: Http) -> None:
    async with Raw(http.port) as raw:
        raw.send(
            b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" % PUBLISH.encode()
        )
        for chunk in (b"1\r\na\r\n", b"3\r\nbcd\r\n", b"0\r\n\r\n"):
            raw.send(chunk)
            await asyncio.sleep(0)
        assert (await raw.response()).status == 200
    assert await stored(http) == ["abcd"]


async def test_a_connection_serves_one_request_after_the_other(http: Http) -> None:
    async with Raw(http.port) as raw:
        for number in range(5):
            response = await raw.ask("POST", PUBLISH, b"%d" % number)
            assert (response.status, response.json["offset"]) == (200, number)
            assert "connection" not in response.headers


async def test_pipelined_requests_are_done_and_answered_in_order(http: Http) -> None:
    async with Raw(http.port) as raw:
        raw.send(b"".join(request("POST", PUBLISH, b"%d" % number) for number in range(50)))
        offsets = [(await raw.response()).json["offset"] for _ in range(50)]
    assert offsets == list(range(50))
    assert await stored(http) == [str(number) for number in range(50)]


async def test_an_error_comes_after_the_responses_that_are_due_before_it(http: Http) -> None:
    async with Raw(http.port) as raw:
        raw.send(request("POST", PUBLISH, b"a") + request("POST", PUBLISH, b"b") + b"garbage\r\n\r\n")
        assert [(await raw.response()).status for _ in range(3)] == [200, 200, 400]
        assert await raw.ended() == b""


async def test_too_many_pipelined_requests_are_refused(make_http: MakeHttp) -> None:
    http = await make_http(max_pipelined=3)
    async with Raw(http.port) as raw:
        raw.send(request("GET", "/healthz") * 100)
        statuses = [(await raw.response()).status for _ in range(5)]
        assert statuses == [200, 200, 200, 200, 503]
        assert await raw.ended() == b""


async def test_head_is_get_without_the_body(http: Http) -> None:
    async with Raw(http.port) as raw:
        get = await raw.ask("GET", "/healthz")
        head = await raw.ask("HEAD", "/healthz")
        assert head.headers["content-length"] == get.headers["content-length"]
        assert (await raw.ask("GET", "/healthz")).body == get.body
    async with Raw(http.port) as raw:
        raw.send(request("HEAD", "/no/such/page"))
        assert (await raw.response(has_body=False)).status == 404


async def test_options_tells_the_methods(http: Http) -> None:
    response = await http.ask("OPTIONS", PUBLISH)
    assert (response.status, response.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/topics/a/b/c/d", 404, "NO_SUCH_PAGE"),
        ("GET", "/v1/topics/%2e%2e/messages", 400, "INVALID_TOPIC_NAME"),
        ("GET", "/v1/topics/%00/messages", 400, "INVALID_TOPIC_NAME"),
        ("GET", "/v1/topics/nobody/messages", 404, "UNKNOWN_TOPIC"),
        ("DELETE", PUBLISH, 405, "METHOD_NOT_ALLOWED"),
        ("BREW", PUBLISH, 400, "MALFORMED_REQUEST"),
        ("PROPFIND", PUBLISH, 405, "METHOD_NOT_ALLOWED"),
    ],
)
async def test_missing_resource_is_a_problem(
    http: Http, method: str, path: str, status: int, code: str
) -> None:
    response = await http.ask(method, path)
    assert (response.status, response.code) == (status, code)
    if status == 405:
        assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_a_client_that_expects_continue_gets_it(http: Http) -> None:
    async with Raw(http.port) as raw:
        head = request("POST", PUBLISH, b"abc", {"Expect": "100-continue"})
        raw.send(head[:-3])
        assert (await raw.response()).status == 100
        raw.send(b"abc")
        assert (await raw.response()).status == 200


async def test_a_client_that_expects_continue_hears_a_refusal_instead(make_http: MakeHttp) -> None:
    http = await make_http(max_body_bytes=1024)
    async with Raw(http.port) as raw:
        raw.send(request("POST", PUBLISH, bytes(2000), {"Expect": "100-continue"})[:-2000])
        response = await raw.response()
        assert (response.status, response.code, response.headers["connection"]) == (
            413,
            "BODY_TOO_LARGE",
            "close",
        )
        assert await raw.ended() == b""


@pytest.mark.parametrize("pieces", [1, 2, 200])
async def test_an_offer_of_another_protocol_is_declined(http: Http, pieces: int) -> None:
    """Java's client offers HTTP/2 with its first request."""
    upgrade = "h2c"
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": upgrade, "HTTP2-Settings": "AAMAAABk"}
    sent = b"".join(request("POST", PUBLISH, b"%d" % number, headers) for number in range(3))
    async with Raw(http.port) as raw:
        size = len(sent) // pieces + 1
        for start in range(0, len(sent), size):
            raw.send(sent[start : start + size])
            await asyncio.sleep(0)
        assert [(await raw.response()).json["offset"] for _ in range(3)] == [0, 1, 2]
        chunked = {"Connection": "close, Upgrade", "Upgrade": upgrade, "Transfer-Encoding": "chunked"}
        raw.send(request("POST", PUBLISH, None, chunked) + b"1\r\n3\r\n0\r\n\r\n")
        assert (await raw.response()).json["offset"] == 3
        assert await raw.ended() == b""
    assert await stored(http) == ["0", "1", "2", "3"]


async def test_http_1_0_is_answered_and_closed(http: Http) -> None:
    async with Raw(http.port) as raw:
        raw.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await raw.response()).status == 200
        assert await raw.ended() == b""


# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_body_over_the_limit_is_refused_before_it_is_read(make_http: MakeHttp) -> None:
    http = await make_http(max_body_bytes=1000)
    async with Raw(http.port) as raw:
        raw.send(request("POST", PUBLISH, bytes(1001))[:-1001])
        response = await raw.response()
        assert (response.status, response.code) == (413, "BODY_TOO_LARGE")
    assert (await http.post(PUBLISH, b"x" * 1000)).status == 200


async def test_a_chunked_body_over_the_limit_is_refused_while_it_comes(make_http: MakeHttp) -> None:
    http = await make_http(max_body_bytes=100_000)
    async with Raw(http.port) as raw:
        raw.send(
            b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" % PUBLISH.encode()
        )
        raw.send(b"".join(b"fff\r\n%b\r\n" % bytes(0xFFF) for _ in range(1000)))  # 4 MB, and no end
        response = await raw.response()
        assert (response.status, response.code, response.headers["connection"]) == (
            413,
            "BODY_TOO_LARGE",
            "close",
        )
        assert await raw.ended() == b""
    assert http.frontend.receive_budget.reserved_bytes == 0


@pytest.mark.parametrize("pieces", [1, 50])
@pytest.mark.parametrize("where", ["path", "name", "value", "count"])
async def test_a_head_over_the_limit_is_refused(make_http: MakeHttp, where: str, pieces: int) -> None:
    http = await make_http(max_head_bytes=4096)
    head = {
        "path": b"GET /%b" % (b"a" * 600_000),
        "name": b"GET / HTTP/1.1\r\n%b" % (b"a" * 600_000),
        "value": b"GET / HTTP/1.1\r\nA: %b" % (b"a" * 600_000),
        "count": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 100_000,
    }[where]
    async with Raw(http.port) as raw:
        size = len(head) // pieces
        for start in range(0, len(head), size):
            raw.send(head[start : start + size])
            await asyncio.sleep(0)
        response = await raw.response()
        assert (response.status, response.code) == (431, "HEAD_TOO_LARGE")
        assert await raw.ended() == b""


async def test_a_head_with_too_many_headers_is_refused(make_http: MakeHttp) -> None:
    http = await make_http(max_headers=10)
    async with Raw(http.port) as raw:
        assert (await raw.ask("GET", "/healthz", headers={f"X-{n}": "a" for n in range(5)})).status == 200
        raw.send(request("GET", "/healthz", headers={f"X-{n}": "a" for n in range(10)}))
        response = await raw.response()
        assert (response.status, response.code) == (431, "HEAD_TOO_LARGE")
        assert await raw.ended() == b""


async def test_large_bodies_wait_for_room_and_all_are_stored(make_http: MakeHttp) -> None:
    http = await make_http(receive_budget_bytes=400_000, small_body_bytes=1000)
    most = 0

    def look(now: float) -> None:
        nonlocal most
        most = max(most, http.frontend.receive_budget.reserved_bytes)

    http.frontend.at_sweep.append(look)
    body = b"x" * 200_000
    responses = [asyncio.ensure_future(http.post(PUBLISH, body)) for _ in range(10)]
    while not all(each.done() for each in responses):
        http.frontend.sweep()
        await asyncio.sleep(0)
    assert [each.result().status for each in responses] == [200] * 10
    assert 200_000 <= most <= 400_000
    assert http.frontend.receive_budget.reserved_bytes == http.frontend.receive_budget.waiting == 0


async def test_a_large_body_that_finds_no_room_in_time_is_refused(make_http: MakeHttp) -> None:
    http = await make_http(receive_budget_bytes=100_000, small_body_bytes=1000, body_timeout_ms=200)
    async with Raw(http.port) as hog:
        hog.send(request("POST", PUBLISH, bytes(100_000))[:-1])
        await until(lambda: http.frontend.receive_budget.reserved_bytes == 100_000)
        response = await http.post(PUBLISH, bytes(50_000))
        assert (response.status, response.code, response.headers["retry-after"]) == (503, "OVERLOADED", "1")
    await until(lambda: http.frontend.receive_budget.reserved_bytes == 0)
    assert http.frontend.receive_budget.waiting == 0


async def test_a_flood_of_refused_connections_hinders_nobody(make_http: MakeHttp) -> None:
    http = await make_http(max_connections=2)
    async with Raw(http.port) as first, AsyncExitStack() as stack:
        assert (await first.ask("GET", "/healthz")).status == 200
        async with Raw(http.port) as second:
            assert (await second.ask("GET", "/healthz")).status == 200
            for _ in range(150):
                await stack.enter_async_context(Raw(http.port))
        await until(lambda: http.frontend.connections == 1)
        assert (await http.get("/healthz")).status == 200


async def test_connections_above_the_limit_are_refused(make_http: MakeHttp) -> None:
    http = await make_http(max_connections=3)
    raws = [Raw(http.port) for _ in range(3)]
    for raw in raws:
        await raw.__aenter__()
        assert (await raw.ask("GET", "/healthz")).status == 200
    async with Raw(http.port) as raw:
        response = await raw.response()
        assert (response.status, response.code) == (503, "OVERLOADED")
        assert await raw.ended() == b""
    await raws.pop().__aexit__()
    await until(lambda: http.frontend.connections == 2)
    assert (await http.get("/healthz")).status == 200
    for raw in raws:
        await raw.__aexit__()


# ── time ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /heal",
        b"GET / HTTP/1.1\r\nHo",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nabc",
    ],
)
async def test_a_slow_request_gets_the_reason_and_is_ended(make_http: MakeHttp, sent: bytes) -> None:
    http = await make_http(head_timeout_ms=50, body_timeout_ms=50, sweep_interval_ms=10)
    sent = sent.replace(b"POST /", b"POST " + PUBLISH.encode())
    async with Raw(http.port) as raw:
        raw.send(sent)
        response = await raw.response()
        assert (response.status, response.code, response.json["retriable"]) == (408, "TOO_SLOW", True)
        assert await raw.ended() == b""
    assert await stored(http) == []


async def test_the_clock_stands_still_while_the_broker_does_not_read(make_http: MakeHttp) -> None:
    http = await make_http(head_timeout_ms=100, body_timeout_ms=100, sweep_interval_ms=10)
    await http.broker.topics.create("orders")
    async with Raw(http.port) as raw:
        raw.send(request("GET", f"{PUBLISH}?wait_ms=300") + request("GET", "/healthz") + b"GET /healthz HT")
        assert [(await raw.response()).status for _ in range(2)] == [200, 200]
        raw.send(b"TP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await raw.response()).status == 200


async def test_a_client_that_says_nothing_is_disconnected(make_http: MakeHttp) -> None:
    http = await make_http(head_timeout_ms=50, body_timeout_ms=50, idle_timeout_ms=50, sweep_interval_ms=10)
    async with Raw(http.port) as raw:
        assert await raw.ended() == b""
    async with Raw(http.port) as raw:
        assert (await raw.ask("GET", "/healthz")).status == 200
        assert await raw.ended() == b""


async def test_a_request_that_waits_is_not_idle(make_http: MakeHttp) -> None:
    http = await make_http(head_timeout_ms=50, body_timeout_ms=50, idle_timeout_ms=50, sweep_interval_ms=10)
    await http.broker.topics.create("orders")
    waited = await http.get(f"{PUBLISH}?wait_ms=200")
    assert (waited.status, waited.json["messages"]) == (200, [])


@pytest.mark.slow
async def test_a_client_that_does_not_read_its_response_is_disconnected(make_http: MakeHttp) -> None:
    http = await make_http(stall_timeout_ms=100, sweep_interval_ms=10, max_pipelined=1000)
    value = b"x" * 1_000_000
    assert (await http.post(PUBLISH, value)).status == 200
    async with Raw(http.port) as raw:
        raw.send(request("GET", PUBLISH) * 100)
        await until(lambda: http.frontend.connections == 0)


async def test_a_client_that_reads_slowly_gets_its_whole_response(make_http: MakeHttp) -> None:
    http = await make_http(stall_timeout_ms=500, sweep_interval_ms=10)
    value = b"x" * 1_000_000
    assert (await http.post(PUBLISH, value)).status == 200
    async with Raw(http.port) as raw:
        raw.send(request("GET", f"{PUBLISH}/0/0", headers={"Connection": "close"}))
        head = await raw.reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        got = b""
        while piece := await raw.reader.read(150_000):
            got += piece
            await asyncio.sleep(0.01)
        assert got == value


async def test_client_that_hangs_up_while_waiting_leaves_nothing_behind(http: Http) -> None:
    await http.broker.topics.create("orders")
    async with Raw(http.port) as raw:
        raw.send(request("GET", f"{PUBLISH}?wait_ms=60000"))
        await until(lambda: http.frontend.connections == 1)
    await until(lambda: http.frontend.connections == 0)
    await until(lambda: not http.frontend.is_busy)


async def test_a_publish_whose_client_hangs_up_is_stored_all_the_same(http: Http) -> None:
    async with Raw(http.port) as raw:
        raw.send(request("POST", PUBLISH, b"last words"))
        await until(lambda: http.broker.parts.topic_registry.find("orders") is not None)
    await until(lambda: http.broker.parts.topic_registry.get("orders").partitions[0].visible_end == 1)
    assert await stored(http) == ["last words"]


async def test_a_request_cut_in_its_body_stores_nothing(http: Http) -> None:
    await http.broker.topics.create("orders")
    async with Raw(http.port) as raw:
        raw.send(request("POST", PUBLISH, b"half of it")[:-5])
        await until(lambda: http.frontend.connections == 1)
    await until(lambda: http.frontend.connections == 0)
    assert await stored(http) == []
