"""The console: its files in `sparrow/console`, under /ui/.

The page is the same for everybody and holds nothing that is secret, so it needs no login; all that
it shows comes from /v1 as the principal of the browser. Files have a version in their path, the
hash of all of them, and are cached for ever; the page itself is asked for each time, which costs a
304. They are read and compressed when the first browser asks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.frontends.http.problems import NoSuchPage
from sparrow.frontends.http.responses import Response
from sparrow.frontends.http.router import Route

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.protocol.http.heads import Headers

PREFIX: Final = "/ui"
_STATIC: Final = f"{PREFIX}/static/"
_FOLDER: Final = os.path.abspath(f"{__file__}/../../../../console")
_PAGE: Final = "index.html"
_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_LEAST_COMPRESSED_BYTES: Final = 500
_MOST_PARTS: Final = 8
"""Parts of a deep link behind /ui."""
POLICY: Final = (
    b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: nothing from another host, and no script or style in a
page.
"""
_FOR_EVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_ASK_AGAIN: Final = (b"cache-control", b"no-cache")


class _File(NamedTuple):
    media_type: bytes
    content: bytes
    compressed: bytes | None


class _Console:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._files: dict[str, _File] = {}
        self._version = ""

    async def show(self, request: Request) -> Response:
        """Return a file, or the page for every deep link."""
        if not self._files:
            self._files, self._version = await self._frontend.in_thread(_read)
        if not request.path.startswith(_STATIC):
            return self._page(request)
        version, _, name = request.path.removeprefix(_STATIC).partition("/")
        file = self._files.get(name)
        if file is None or version != self._version or name == _PAGE:
            raise NoSuchPage(f"nothing is served at {request.path}; load the console again")
        return _response(request, file, [_FOR_EVER])

    def _page(self, request: Request) -> Response:
        tag = f'"{self._version}"'
        headers = [
            _ASK_AGAIN,
            (b"etag", tag.encode()),
            (b"content-security-policy", POLICY),
            (b"referrer-policy", b"no-referrer"),
        ]
        if request.header(b"if-none-match") == tag:
            return Response(304, headers)
        return _response(request, self._files[_PAGE], headers)


def _response(request: Request, file: _File, headers: Headers) -> Response:
    headers = [*headers, (b"content-type", file.media_type)]
    if file.compressed is None:
        return Response(200, headers, file.content)
    headers.append((b"vary", b"accept-encoding"))
    if "gzip" not in request.header(b"accept-encoding"):
        return Response(200, headers, file.content)
    return Response(200, [*headers, (b"content-encoding", b"gzip")], file.compressed)


def _read() -> tuple[dict[str, _File], str]:
    """Return all files by their paths below the folder, and their common version."""
    import hashlib

    found: dict[str, bytes] = {}
    for folder, _, names in sorted(os.walk(_FOLDER)):
        for name in sorted(names):
            if os.path.splitext(name)[1] in _TYPES:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, _FOLDER).replace(os.sep, "/")] = file.read()
    digest = hashlib.sha256()
    for name, content in found.items():
        digest.update(b"%b %d " % (name.encode(), len(content)) + content)
    version = digest.hexdigest()[:16]
    found[_PAGE] = found[_PAGE].replace(b"{version}", version.encode())
    return {name: _file(name, content) for name, content in found.items()}, version


def _file(name: str, content: bytes) -> _File:
    import gzip

    compressed = gzip.compress(content, 9, mtime=0) if len(content) >= _LEAST_COMPRESSED_BYTES else None
    return _File(_TYPES[os.path.splitext(name)[1]], content, compressed)


def is_of_console(path: str) -> bool:
    """Return True for the page and its files, which need no login."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def wants_page(request: Request) -> bool:
    """Return True if a browser asks for a page, and not a program."""
    return "text/html" in request.header(b"accept")


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of the console; none if it is switched off."""
    if frontend.limits.console == "off":
        return []
    console = _Console(frontend)
    deep = ["".join(f"/{{part{i}}}" for i in range(count)) for count in range(_MOST_PARTS + 1)]
    return [Route("GET", f"{PREFIX}{path}", console.show) for path in (*deep, "/")]
