"""Recorded responses of the HTTP listener: how they are got, written and compared.

`recorded/NAME.json` has the requests of the scenario `NAME` in order, each with its response. The
body of a response is recorded as

- a JSON value, if the body is exactly what msgspec writes for that value (members in order), which
  makes the comparison one of bytes;
- a text otherwise, and `base64:…` if it is not UTF-8.

Values that are different in each run are replaced, by these rules alone: members of JSON in
`VARYING` by `<name>`, headers in `VARYING_HEADERS` by `<name>`, pages in `CONTENTS_ELSEWHERE` by a
placeholder (other tests read them), and addresses of memory by `0x…`. The headers `date` and
`content-length` are left out, as are those of every response when they have their usual values.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sparrow.base.clock import ManualClock
from tests.http_frontend.conftest import Http, _make
from tests.http_frontend.raw import Raw, Response, request

RECORDED = Path(__file__).parent / "recorded"
VARYING = frozenset(
    {
        "id",
        "cluster_id",
        "secret",
        "lease",
        "free_bytes",
        "total_bytes",
        "bytes",
        "number",
        "open_ms",
        "received_bytes",
    }
)
VARYING_HEADERS = frozenset({"set-cookie", "etag", "last-modified", "sparrow-lease"})
CONTENTS_ELSEWHERE = ("/openapi.json", "/docs", "/favicon.ico", "/metrics")
ADDRESS = re.compile(r"0x[0-9a-f]{8,}")
LEFT_OUT = frozenset({"date", "content-length"})
USUAL = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "frame-ancestors 'none'",
    "cache-control": "no-store",
}
MAX_SHOWN = 60
"""Characters of a text in a recorded request; the rest is counted."""


@dataclass(frozen=True)
class Ask:
    """One request. `{lease}` in path and body is the first lease of the last response with one.

    Args:
        body: None: none; bytes: as they are; anything else: as JSON.
        kind: content type of a body.
        until: the request is repeated until its response contains this text.
    """

    method: str
    target: str
    body: Any = None
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    until: str = ""

    def content(self) -> bytes | None:
        if self.body is None or isinstance(self.body, bytes):
            found: bytes | None = self.body
            return found
        return json.dumps(self.body).encode()


@dataclass(frozen=True)
class Scenario:
    """Requests to one broker, in order. `options` are those of the fixture `make_http`."""

    asks: list[Ask]
    options: dict[str, Any]


async def recorded(scenario: Scenario, directory: Path) -> list[str]:
    """Return the entry of each request, from a broker of its own below `directory`."""
    async with AsyncExitStack() as stack:
        http = await _make(stack, directory, clock=ManualClock(), **scenario.options)
        lease = ""
        entries = []
        for ask in scenario.asks:
            response = await _response(http, ask, lease)
            entries.append(entry(ask, response))
            lease = _lease(response) or lease
        return entries


async def _response(http: Http, ask: Ask, lease: str) -> Response:
    body = ask.content()
    if body is not None:
        body = body.replace(b"{lease}", lease.encode())
    headers = dict(ask.headers)
    if body is not None and ask.kind:
        headers.setdefault("Content-Type", ask.kind)
    while True:
        async with Raw(http.port) as raw:
            raw.send(request(ask.method, ask.target.replace("{lease}", lease), body, headers))
            response = await raw.response(has_body=ask.method != "HEAD")
        if ask.until.encode() in response.body:
            return response


def _lease(response: Response) -> str:
    """Return the first lease of a response, "" without one."""
    in_header = response.headers.get("sparrow-lease")
    if in_header:
        return in_header
    _, found, rest = response.body.partition(b'"lease":"')
    return rest.partition(b'"')[0].decode() if found else ""


# ── entries ───────────────────────────────────────────────────────────────────────────────────────


def entry(ask: Ask, response: Response) -> str:
    """Return a request and its response as the recorded text."""
    members: dict[str, Any] = {"ask": f"{ask.method} {_short(ask.target)}"}
    if ask.headers:
        members["headers"] = [f"{name}: {_short(value)}" for name, value in ask.headers]
    if ask.body is not None:
        members["send"] = _shortened(ask.body)
        if ask.kind != "application/json":
            members["as"] = ask.kind
    members["status"] = response.status
    members["answer"] = sorted(_header(name, value) for name, value in response.pairs if _counts(name, value))
    if response.body:
        is_elsewhere = ask.target.startswith(CONTENTS_ELSEWHERE) and response.status == 200
        members["body"] = "<read by other tests>" if is_elsewhere else _body(response.body)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members.items()]
    return ADDRESS.sub("0x…", "{" + ",\n ".join(lines) + "}")


def _counts(name: str, value: str) -> bool:
    return name not in LEFT_OUT and USUAL.get(name) != value


def _header(name: str, value: str) -> str:
    return f"{name}: <{name}>" if name in VARYING_HEADERS else f"{name}: {value}"


def _body(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
        if msgspec.json.encode(value) == body:
            return _placed(value)
    except (msgspec.DecodeError, UnicodeError):
        pass
    try:
        return body.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(body).decode()


def _placed(value: Any) -> Any:
    if isinstance(value, list):
        return [_placed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: f"<{name}>" if name in VARYING and isinstance(each, str | int) and each else _placed(each)
        for name, each in value.items()
    }


def _shortened(value: Any) -> Any:
    """Return a body of a request with long texts cut off."""
    if isinstance(value, bytes):
        return _short(value.decode("latin-1"))
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, list):
        return [_shortened(each) for each in value[:10]] + ([f"… {len(value)}"] if len(value) > 10 else [])
    if isinstance(value, dict):
        listed = list(value.items())
        shown = {_short(name): _shortened(each) for name, each in listed[:20]}
        return shown if len(listed) <= 20 else {**shown, "…": len(listed)}
    return value


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN * 2 else f"{text[:MAX_SHOWN]}… {len(text)}"


# ── files ─────────────────────────────────────────────────────────────────────────────────────────


def file_of(name: str) -> Path:
    return RECORDED / f"{name}.json"


def write(name: str, entries: list[str]) -> None:
    file_of(name).write_text("[\n" + ",\n".join(entries) + "\n]\n")


def read(name: str) -> list[str]:
    """Return the recorded entries of a scenario, as `entry` writes them."""
    text = file_of(name).read_text()
    return text.removeprefix("[\n").removesuffix("\n]\n").split(",\n{")


def joined(entries: list[str]) -> list[str]:
    """Return entries in the form of `read`."""
    return ",\n".join(entries).split(",\n{")
