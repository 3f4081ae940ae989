"""The API's description: /openapi.json for programs, /docs for people.

The page is Swagger UI. Its files come from the package fastapi-offline where that is installed, so that the page works without the internet and runs no script of
another host; without it the page loads them from where FastAPI does.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse

from sparrow.frontends.http.answers import json_answer
from sparrow.frontends.http.openapi import RawRoute
from sparrow.frontends.http.problems import NoSuchPage

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from sparrow.frontends.http.frontend import HttpFrontend

OPENAPI: Final = "/openapi.json"
DOCS: Final = "/docs"
_PACKAGE: Final = "fastapi_offline"
_SCRIPT: Final = "swagger-ui-bundle.js"
_STYLE: Final = "swagger-ui.css"
_ICON: Final = "favicon.png"
_FILES: Final = {_SCRIPT: "text/javascript", _STYLE: "text/css", _ICON: "image/png"}


class _Documents:
    def __init__(self, door: HttpFrontend) -> None:
        self._door = door
        self._making = asyncio.Lock()
        self._document = b""
        self._files = _maybe_files()

    async def describe(self, request: Request) -> Response:
        """The document, made in a thread when it is first asked for."""
        async with self._making:
            if not self._document:
                make = request.app.openapi
                self._document = await self._door.in_thread(lambda: msgspec.json.encode(make()))
        return json_answer(self._document)

    async def show(self, _: Request) -> Response:
        if self._files is None:
            return get_swagger_ui_html(openapi_url=OPENAPI, title="Sparrow")
        return get_swagger_ui_html(
            openapi_url=OPENAPI,
            title="Sparrow",
            swagger_js_url=f"{DOCS}/{_SCRIPT}",
            swagger_css_url=f"{DOCS}/{_STYLE}",
            swagger_favicon_url=f"{DOCS}/{_ICON}",
        )

    async def file(self, request: Request) -> Response:
        name = request.path_params["file"]
        if self._files is None or name not in _FILES:
            raise NoSuchPage(f"nothing is served at {request.scope['path']}; see {DOCS}")
        return FileResponse(self._files / name, media_type=_FILES[name])


def _maybe_files() -> Path | None:
    """Where Swagger UI's files are, None if they are not here."""
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        return None
    files = Path(found.origin).parent / "static"
    return files if all((files / name).is_file() for name in _FILES) else None


def router(door: HttpFrontend) -> APIRouter:
    """/openapi.json and /docs."""
    documents = _Documents(door)
    api = APIRouter(route_class=RawRoute, include_in_schema=False)
    api.add_api_route(OPENAPI, documents.describe, methods=["GET"])
    api.add_api_route(DOCS, documents.show, methods=["GET"])
    api.add_api_route(f"{DOCS}/{{file}}", documents.file, methods=["GET"])
    return api
