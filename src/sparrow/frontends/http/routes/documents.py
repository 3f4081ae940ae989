"""The API's description: /openapi.json for programs, /docs for people, with a redirect from /.
/favicon.ico is for browsers.

The page is Swagger UI. Its files come from the package fastapi-offline if that is installed, so
that the page works without the internet and runs no script of another host. Without it, the page
loads them from where FastAPI does.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, RedirectResponse

from sparrow.frontends.http.openapi import RawRoute
from sparrow.frontends.http.problems import NoSuchPage
from sparrow.frontends.http.responses import json_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from sparrow.frontends.http.context import HttpContext

OPENAPI: Final = "/openapi.json"
DOCS: Final = "/docs"
FAVICON: Final = "/favicon.ico"
_PACKAGE: Final = "fastapi_offline"
_SCRIPT: Final = "swagger-ui-bundle.js"
_STYLE: Final = "swagger-ui.css"
_OWN_ICON: Final = Path(__file__).parents[1] / "favicon.svg"
_FILES: Final = {_SCRIPT: "text/javascript", _STYLE: "text/css"}


class _Documents:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._build_lock = asyncio.Lock()
        self._document = b""
        self._files = _maybe_files()

    async def describe(self, request: Request) -> Response:
        """Return the document, created in a thread by the first request."""
        async with self._build_lock:
            if not self._document:
                make = request.app.openapi
                self._document = await self._frontend.in_thread(lambda: msgspec.json.encode(make()))
        return json_response(self._document)

    async def show(self, _: Request) -> Response:
        if self._files is None:
            return get_swagger_ui_html(openapi_url=OPENAPI, title="Sparrow", swagger_favicon_url=FAVICON)
        return get_swagger_ui_html(
            openapi_url=OPENAPI,
            title="Sparrow",
            swagger_js_url=f"{DOCS}/{_SCRIPT}",
            swagger_css_url=f"{DOCS}/{_STYLE}",
            swagger_favicon_url=FAVICON,
        )

    async def lead(self, _: Request) -> Response:
        """Redirect a browser from / to the page."""
        return RedirectResponse(DOCS, 307)

    async def icon(self, _: Request) -> Response:
        return FileResponse(_OWN_ICON, media_type="image/svg+xml", headers={"cache-control": "max-age=86400"})

    async def file(self, request: Request) -> Response:
        name = request.path_params["file"]
        if self._files is None or name not in _FILES:
            raise NoSuchPage(f"nothing is served at {request.scope['path']}; see {DOCS}")
        return FileResponse(self._files / name, media_type=_FILES[name])


def _maybe_files() -> Path | None:
    """Return the directory of Swagger UI's files, None if they are not installed."""
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        return None
    files = Path(found.origin).parent / "static"
    return files if all((files / name).is_file() for name in _FILES) else None


def router(frontend: HttpContext) -> APIRouter:
    """Return the routes of /openapi.json and /docs."""
    documents = _Documents(frontend)
    api = APIRouter(route_class=RawRoute, include_in_schema=False)
    api.add_api_route(OPENAPI, documents.describe, methods=["GET"])
    api.add_api_route("/", documents.lead, methods=["GET"])
    api.add_api_route(FAVICON, documents.icon, methods=["GET"])
    api.add_api_route(DOCS, documents.show, methods=["GET"])
    api.add_api_route(f"{DOCS}/{{file}}", documents.file, methods=["GET"])
    return api
