"""The API's description: /openapi.json for programs, /docs for people, with a redirect from /.
/favicon.ico is for browsers.

The page is Swagger UI, whose files are in `viewer/`: it works without the internet and asks no
other host.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.frontends.http.openapi import document
from sparrow.frontends.http.problems import NoSuchPage
from sparrow.frontends.http.responses import Response, json_response
from sparrow.frontends.http.router import Route
from sparrow.frontends.http.routes.console import PREFIX, wants_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request

OPENAPI: Final = "/openapi.json"
DOCS: Final = "/docs"
FAVICON: Final = "/favicon.ico"
_OWN_ICON: Final = Path(__file__).parents[1] / "favicon.svg"
_VIEWER: Final = Path(__file__).parents[1] / "viewer"
_FILES: Final = {
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
    "swagger-ui.css": b"text/css; charset=utf-8",
}
_PAGE: Final = f"""\
<!DOCTYPE html>
<html>
<head>
<meta name="viewport" content="width=device-width, initial-scale=1.0">
<link type="text/css" rel="stylesheet" href="{DOCS}/swagger-ui.css">
<link rel="shortcut icon" href="{FAVICON}">
<title>Sparrow</title>
</head>
<body>
<div id="swagger-ui"></div>
<script src="{DOCS}/swagger-ui-bundle.js"></script>
<script>
SwaggerUIBundle({{url: "{OPENAPI}", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null}})
</script>
</body>
</html>
"""


class _Documents:
    def __init__(self, frontend: HttpContext, described: Sequence[Route]) -> None:
        self._frontend = frontend
        self._described = described
        self._build_lock = asyncio.Lock()
        self._document = b""

    async def describe(self, _: Request) -> Response:
        """Return the document, created in a thread by the first request."""
        async with self._build_lock:
            if not self._document:
                self._document = await self._frontend.in_thread(
                    lambda: msgspec.json.encode(document(self._described))
                )
        return json_response(self._document)

    async def show(self, _: Request) -> Response:
        return Response(200, [(b"content-type", b"text/html; charset=utf-8")], _PAGE.encode())

    async def lead(self, request: Request) -> Response:
        """Redirect from / to the console; to this page if it is switched off, and programs."""
        is_console = self._frontend.limits.console != "off" and wants_page(request)
        headers = [(b"location", f"{PREFIX}/".encode() if is_console else DOCS.encode())]
        return Response(307, [*headers, (b"vary", b"accept")], b"")

    async def icon(self, _: Request) -> Response:
        content = await self._frontend.in_thread(_OWN_ICON.read_bytes)
        headers = [(b"content-type", b"image/svg+xml"), (b"cache-control", b"max-age=86400")]
        return Response(200, headers, content)

    async def file(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name not in _FILES:
            raise NoSuchPage(f"nothing is served at {request.path}; see {DOCS}")
        content = await self._frontend.in_thread((_VIEWER / name).read_bytes)
        return Response(200, [(b"content-type", _FILES[name])], content)


def routes(frontend: HttpContext, described: Sequence[Route]) -> list[Route]:
    """Return the routes of /openapi.json and /docs. `described` are those in the document."""
    documents = _Documents(frontend, described)
    return [
        Route("GET", OPENAPI, documents.describe),
        Route("GET", "/", documents.lead),
        Route("GET", FAVICON, documents.icon),
        Route("GET", DOCS, documents.show),
        Route("GET", f"{DOCS}/{{file}}", documents.file),
    ]
