"""Pages of other sites in a browser that reaches the broker: CORS, Origin and Host."""

from __future__ import annotations

import pytest

from sparrow.frontends.http.origins import is_allowed_origin, is_local_name
from tests.http_frontend.conftest import Http, MakeHttp

PUBLISH = "/v1/topics/orders/messages"
PAGE = "https://app.example.org"


@pytest.mark.parametrize(
    "origin", [PAGE, "null", "file://", "http://127.0.0.1:1", "https://127.0.0.1.example.org"]
)
async def test_a_page_of_another_origin_may_not_write(http: Http, origin: str) -> None:
    response = await http.post(PUBLISH, b"a", origin=origin)
    assert (response.status, response.code) == (403, "ORIGIN_REFUSED")
    assert http.broker.parts.topic_registry.find("orders") is None


async def test_a_page_of_the_broker_itself_may(http: Http) -> None:
    host = f"localhost:{http.port}"
    assert (await http.post(PUBLISH, b"a", origin=f"http://{host}", Host=host)).status == 200


async def test_no_response_lets_other_origins_read_unless_that_is_configured(http: Http) -> None:
    await http.post(PUBLISH, b"a")
    response = await http.get(PUBLISH, origin=PAGE)
    assert response.status == 200
    assert not [name for name in response.headers if name.startswith("access-control")]
    preflight = await http.ask(
        "OPTIONS", PUBLISH, headers={"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    )
    assert preflight.status == 403


async def test_a_configured_origin_may_read_and_write(make_http: MakeHttp) -> None:
    http = await make_http(cors_origins=(PAGE,))
    preflight = await http.ask(
        "OPTIONS",
        PUBLISH,
        headers={
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, sparrow-key",
        },
    )
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (200, PAGE)
    response = await http.post(PUBLISH, b"a", origin=PAGE)
    assert (response.status, response.headers["access-control-allow-origin"]) == (200, PAGE)
    read = await http.get(PUBLISH, origin=PAGE)
    assert read.headers["access-control-expose-headers"] == "*"
    assert (await http.post(PUBLISH, b"a", origin="https://other.example.org")).code == "ORIGIN_REFUSED"


async def test_a_page_learns_by_cors_that_it_has_to_log_in(make_http: MakeHttp) -> None:
    http = await make_http(cors_origins=(PAGE,), tokens={"robot": "t0ken"})
    preflight = await http.ask(
        "OPTIONS",
        PUBLISH,
        headers={
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        },
    )
    assert preflight.status == 200
    refused = await http.post(PUBLISH, b"a", origin=PAGE)
    assert (refused.code, refused.headers["access-control-allow-origin"]) == ("NOT_AUTHENTICATED", PAGE)
    response = await http.post(PUBLISH, b"a", origin=PAGE, authorization="Bearer t0ken")
    assert (response.status, response.headers["access-control-allow-origin"]) == (200, PAGE)


async def test_a_star_allows_every_origin(make_http: MakeHttp) -> None:
    http = await make_http(cors_origins=("*",))
    response = await http.post(PUBLISH, b"a", origin="https://anybody.example")
    assert (response.status, response.headers["access-control-allow-origin"]) == (200, "*")


async def test_a_foreign_name_for_this_machine_is_refused_where_nobody_logs_in(http: Http) -> None:
    """DNS rebinding: the name of the page's site resolves to 127.0.0.1, so that the browser takes
    the broker for that site.
    """
    for path in (PUBLISH, "/healthz", "/docs"):
        response = await http.get(path, Host=f"evil.example:{http.port}")
        assert (response.status, response.code) == (403, "ORIGIN_REFUSED")
    for host in ("localhost", f"127.0.0.1:{http.port}", "[::1]:9095", "sparrow.localhost", ""):
        assert (await http.get("/healthz", Host=host)).status == 200


async def test_names_do_not_matter_where_login_is_required(make_http: MakeHttp) -> None:
    http = await make_http(tokens={"robot": "t0ken"})
    response = await http.get("/docs", Host="broker.example", authorization="Bearer t0ken")
    assert response.status == 200


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        (b"127.0.0.1", True),
        (b"127.0.0.1:80", True),
        (b"10.1.2.3:80", True),
        (b"[::1]", True),
        (b"[fe80::1]:80", True),
        (b"LOCALHOST:80", True),
        (b"a.localhost", True),
        (b"localhost.example", False),
        (b"127.0.0.1.example", False),
        (b"[evil]", False),
        (b"evil:1:2", False),
        (b"\xff", False),
    ],
)
def test_an_address_or_local_name_is_one(host: bytes, is_local: bool) -> None:
    assert is_local_name(host) == is_local


def test_an_origin_is_the_frontends_own_only_with_its_port() -> None:
    assert is_allowed_origin(b"http://a:1", b"a:1", ())
    assert is_allowed_origin(b"HTTP://A:1", b"a:1", ())
    assert not is_allowed_origin(b"http://a:2", b"a:1", ())
    assert not is_allowed_origin(b"a:1", b"a:1", ())
    assert not is_allowed_origin(b"", b"", ())
