"""The listener of `sparrow worker` for health and metrics: `/health`, `/ready`, `/metrics`.

It answers three paths and nothing else, so it needs no HTTP library.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.tasks.errors import TaskError

if TYPE_CHECKING:
    from sparrow.tasks.supervisor.supervisor import Supervisor

_TIMEOUT_S: Final = 5.0
_MAX_HEAD_BYTES: Final = 16 << 10
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


async def serve(supervisor: Supervisor, host: str, port: int) -> None:
    """Serve until cancelled.

    Raises:
        TaskError: the port cannot be had.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(response(supervisor, head))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise TaskError(
            f"the port {port} for health and metrics cannot be had: {error.strerror or error}"
        ) from None
    async with server:
        await server.serve_forever()


def response(supervisor: Supervisor, head: bytes) -> bytes:
    """Return the response to a request's head."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return _response(400, b"text/plain", b"a request of HTTP/1.1 is expected\n")
    method, target = words[0], words[1].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return _response(405, b"text/plain", b"GET or HEAD\n")
    if target == b"/metrics":
        found = _response(200, b"text/plain; version=0.0.4", metrics(supervisor).encode())
    elif target in (b"/health", b"/ready"):
        is_good = supervisor.is_healthy or (target == b"/health" and supervisor.is_stopping)
        found = _response(
            200 if is_good else 503, b"application/json", msgspec.json.encode(status(supervisor))
        )
    else:
        found = _response(404, b"text/plain", b"there are /health, /ready and /metrics\n")
    return found if method == b"GET" else found.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def status(supervisor: Supervisor) -> dict[str, object]:
    """Return the state of all processes."""
    word = "working" if supervisor.is_healthy else "degraded"
    return {
        "status": "stopping" if supervisor.is_stopping else word,
        "processes": [
            {
                "pid": child.pid,
                "state": "ending" if child.is_ending else child.report.state,
                "done": child.report.done,
                "failed": child.report.failed,
                "running": child.report.running,
                "rss_bytes": child.report.rss_bytes,
                "reported_s_ago": round(time.monotonic() - child.heard_at, 1),
            }
            for child in sorted(supervisor.children, key=lambda each: each.pid)
        ],
    }


def metrics(supervisor: Supervisor) -> str:
    """Return metrics in Prometheus' text format."""
    totals, children = supervisor.totals, supervisor.children
    rows = [
        (
            "jobs_done_total",
            "counter",
            "Jobs that were done.",
            totals.done + sum(c.report.done for c in children),
        ),
        (
            "attempts_failed_total",
            "counter",
            "Attempts that failed.",
            totals.failed + sum(c.report.failed for c in children),
        ),
        (
            "dead_letters_total",
            "counter",
            "Jobs that were given up.",
            totals.rejected + sum(c.report.rejected for c in children),
        ),
        ("jobs_running", "gauge", "Jobs that run now.", sum(c.report.running for c in children)),
        ("processes", "gauge", "Worker processes that take jobs.", sum(c.is_working for c in children)),
        (
            "restarts_total",
            "counter",
            "Processes that ended by themselves and were replaced.",
            totals.restarts,
        ),
        ("recycled_total", "counter", "Processes that were replaced at a limit.", totals.recycled),
        (
            "resident_bytes",
            "gauge",
            "Memory of all worker processes.",
            sum(c.report.rss_bytes for c in children),
        ),
    ]
    lines = []
    for name, kind, text, value in rows:
        lines += [
            f"# HELP sparrow_worker_{name} {text}",
            f"# TYPE sparrow_worker_{name} {kind}",
            f"sparrow_worker_{name} {value}",
        ]
    return "\n".join(lines) + "\n"


def _response(code: int, kind: bytes, body: bytes) -> bytes:
    return (
        b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
        b"Connection: close\r\nCache-Control: no-store\r\n\r\n"
        % (code, _REASONS[code].encode(), kind, len(body))
    ) + body
