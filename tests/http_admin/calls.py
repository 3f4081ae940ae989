"""One request with JSON, as an administrator's program sends it."""

from __future__ import annotations

import json
from typing import Any

from tests.http_door.conftest import Http
from tests.http_door.raw import Answer


async def call(http: Http, method: str, path: str, body: Any = None, token: str = "") -> Answer:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is None:
        return await http.ask(method, path, None if method == "GET" else b"", headers)
    content = json.dumps(body).encode()
    return await http.ask(method, path, content, {**headers, "Content-Type": "application/json"})


async def done(http: Http, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    """The JSON of an answer that must have this status; None if it has no body."""
    answer = await call(http, method, path, body)
    assert answer.status == status, answer
    return answer.json if answer.body else None
