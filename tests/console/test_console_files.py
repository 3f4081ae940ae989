"""The console as files: what is served, how it is cached, how large it is, and its types."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import sparrow
from sparrow.frontends.http.routes.console import POLICY
from tests.http_frontend.conftest import Http, MakeHttp, http, make_http
from tests.http_frontend.raw import Raw

__all__ = ["http", "make_http"]
FOLDER = Path(sparrow.__file__).parent / "console"
OWN = sorted(each for each in FOLDER.rglob("*.js") if "vendor" not in each.parts)
MAX_LINES = 4_000
TSC = shutil.which("tsc")


async def test_the_page_and_its_files_are_cached_by_their_version(make_http: MakeHttp) -> None:
    http = await make_http(tokens={"ann": "token"})
    page = await http.get("/ui/topics/anything/at/all")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["cache-control"] == "no-cache"
    async with Raw(http.port) as raw:
        tag = page.headers["etag"]
        raw.send(f"GET /ui/ HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n".encode())
        assert (await raw.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 304 ")
    links = re.findall(rb'(?:href|src)="(/ui/static/[^"]+)"', page.body)
    assert len(links) > 5
    for each in links:
        file = await http.get(each.decode(), accept_encoding="gzip, br")
        assert file.status == 200
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        if file.headers.get("content-encoding") == "gzip":
            plain = await http.get(each.decode())
            assert gzip.decompress(file.body) == plain.body
    old = re.sub(rb"/static/\w+/", b"/static/0000/", links[0]).decode()
    missing = await http.get(old)
    assert (missing.status, missing.headers["cache-control"]) == (404, "no-store")
    for path in ("/ui/static/x/../../__init__.py", f"{links[0].decode()}/../index.html"):
        assert (await http.get(path)).status == 404, path


async def test_the_page_allows_nothing_but_its_own_files(make_http: MakeHttp) -> None:
    page = await (await make_http()).get("/ui/")
    policies = [value for name, value in page.pairs if name == "content-security-policy"]
    assert POLICY.decode() in policies
    assert b"default-src 'self'" in POLICY
    assert b"frame-ancestors 'none'" in POLICY
    assert b"unsafe" not in POLICY
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert not re.search(rb"<script(?![^>]* src=)|<style| style=| on\w+=", page.body)


async def test_it_is_switched_off(make_http: MakeHttp) -> None:
    http = await make_http(console="off")
    assert (await http.get("/ui/")).status == 404
    led = await http.get("/", accept="text/html")
    assert led.headers["location"] == "/docs"


async def test_read_only_refuses_changes_by_pages_and_by_nobody_else(make_http: MakeHttp) -> None:
    http = await make_http(console="read-only")
    for headers in ({"sec_fetch_site": "same-origin"}, {"cookie": "sparrow-session=x"}):
        refused = await http.post("/v1/queues/x/pause", **headers)
        assert (refused.status, refused.code) == (403, "CONSOLE_READ_ONLY")
    assert (await http.post("/v1/queues/x/pause")).status == 404


async def test_a_page_of_another_site_may_not_use_a_session(make_http: MakeHttp) -> None:
    http = await make_http(tokens={"ann": "token"})
    body = b'{"token": "token"}'
    kind = "application/json"
    foreign = await http.post("/v1/session", body, content_type=kind, origin="https://evil.example")
    assert (foreign.status, foreign.code) == (403, "ORIGIN_REFUSED")
    made = await http.post("/v1/session", body, content_type=kind)
    assert made.json == {"principal": "User:ann"}
    cookie = made.headers["set-cookie"].partition(";")[0]
    assert re.search(r"; HttpOnly; SameSite=Strict$", made.headers["set-cookie"])
    mine = await http.get("/v1/me", cookie=cookie)
    assert (mine.status, mine.json["login"]) == (200, "token")
    stolen = await http.post("/v1/topics", b"{}", cookie=cookie, origin="https://evil.example")
    assert (stolen.status, stolen.code) == (403, "ORIGIN_REFUSED")
    assert (await http.ask("DELETE", "/v1/session", headers={"cookie": cookie})).status == 204
    assert (await http.get("/v1/me", cookie=cookie)).status == 401


async def test_a_script_without_a_login_gets_no_challenge_that_opens_a_dialog(make_http: MakeHttp) -> None:
    http = await make_http(tokens={"ann": "token"})
    refused = await http.get("/v1/me", sec_fetch_dest="empty")
    challenges = [value for name, value in refused.pairs if name == "www-authenticate"]
    assert refused.status == 401
    assert [each.split()[0] for each in challenges] == ["Bearer"]


def test_the_script_is_short_and_every_file_says_what_it_is_for() -> None:
    lines = {each: each.read_text().splitlines() for each in OWN}
    assert sum(map(len, lines.values())) < MAX_LINES
    assert [each.name for each, text in lines.items() if not text[0].startswith("// ")] == []
    assert [each.name for each, text in lines.items() if max(map(len, text)) > 300] == []
    dangerous = re.compile(r"innerHTML|dangerouslySet|insertAdjacentHTML|document\.write|\beval\(")
    assert [each.name for each in OWN if dangerous.search(each.read_text())] == []


def test_libraries_are_named_with_their_versions_and_licences() -> None:
    text = (FOLDER / "vendor" / "LICENCES.md").read_text()
    for each in (FOLDER / "vendor").glob("*.js"):
        assert f"| `{each.name}` |" in text
        assert "sourceMappingURL" not in each.read_text()


@pytest.mark.slow
@pytest.mark.skipif(TSC is None, reason="tsc is missing; on Debian: apt install node-typescript")
def test_types_are_right() -> None:
    assert TSC is not None
    done = subprocess.run([TSC, "-p", FOLDER], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


async def test_the_api_is_the_whole_of_it(http: Http) -> None:
    """Each path that the console calls is in the document."""
    paths = (await http.get("/openapi.json")).json["paths"]
    known = [re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths]
    for each in OWN:
        for called in re.findall(r'"(/v1/[a-z/-]+)"', each.read_text()):
            assert any(path.fullmatch(called) for path in known), (each.name, called)
