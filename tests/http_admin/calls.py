"""Requests with JSON, as administration programs send them."""

from __future__ import annotations

import json
from typing import Any

from tests.http_frontend.conftest import Http
from tests.http_frontend.raw import Response


async def call(http: Http, method: str, path: str, body: Any = None, token: str = "") -> Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is None:
        return await http.ask(method, path, None if method == "GET" else b"", headers)
    content = json.dumps(body).encode()
    return await http.ask(method, path, content, {**headers, "Content-Type": "application/json"})


async def done(http: Http, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    """Return the JSON of a response that must have this status; None if it has no body."""
    response = await call(http, method, path, body)
    assert response.status == status, response
    return response.json if response.body else None
