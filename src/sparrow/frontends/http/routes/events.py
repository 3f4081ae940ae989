"""Events of the broker for pages that are open: /v1/events, by Server-Sent Events.

    event: statistics   each second: rates, sizes and connections; as /v1/status, without the rest
    event: changed      something was created, deleted or configured; says of which kind, not which
    event: alert        what needs attention is different now

One task computes each event once for all streams. It runs only while there is a stream. Statistics
and alerts are for those who may describe the cluster; the others get `changed` alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import Draining, SparrowError
from sparrow.broker.audit.event import AuditOutcome
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import problems, response
from sparrow.frontends.http.queries import Query
from sparrow.frontends.http.responses import Response, StreamResponse
from sparrow.frontends.http.router import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.audit.event import AuditEvent
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request

INTERVAL_S: Final = 1.0
ALERTS_EVERY: Final = 5
"""Ticks between two looks at what needs attention."""
MAX_UNSENT: Final = 8
"""Events that wait for a slow client; the oldest are dropped, as newer ones say more."""
_HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
_BEGIN: Final = b"retry: 2000\n\n"
_KINDS: Final = frozenset({"topic", "queue", "group", "user", "acl", "quota", "webhook", "sink"})


class _Hub:
    """The task, and the streams that it serves. Loop thread only."""

    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._streams: set[StatusStream] = set()
        self._task: asyncio.Task[None] | None = None
        self._changed: set[str] = set()
        self._alerts = b""
        self._statistics = b""

    async def stream(self, request: Request) -> Response:
        """Start a stream.

        Raises:
            Draining
        """
        Query(request).refuse_others()
        if self._frontend.is_stopping:
            raise Draining("The broker is shutting down; connect again later.")
        return StatusStream(self, request, self._frontend)

    def add(self, stream: StatusStream) -> None:
        """Serve a stream from now on."""
        self._streams.add(stream)
        if self._task is None:
            self._frontend.broker.audit.channels.append(self._note)
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif self._statistics:
            stream.put(self._statistics, for_all=False)
            stream.put(self._alerts, for_all=False)

    def remove(self, stream: StatusStream) -> None:
        """Serve a stream no longer; without streams nothing is done."""
        self._streams.discard(stream)
        if not self._streams and self._task is not None:
            self._task.cancel()
            self._task = None
            self._statistics = self._alerts = b""
            self._changed.clear()
            self._frontend.broker.audit.channels.remove(self._note)

    def _note(self, event: AuditEvent) -> None:
        kind = event.action.partition(".")[0]
        if event.outcome is AuditOutcome.DONE and kind in _KINDS:
            self._changed.add(kind)

    async def _run(self) -> None:
        tick = 0
        while True:
            try:
                await self._tick(tick)
            except SparrowError as error:
                self._frontend.logger.debug("no statistics now: %s", error.text)
            except Exception:
                self._frontend.logger.exception("a bug in the events of the broker")
            tick += 1
            await asyncio.sleep(INTERVAL_S)

    async def _tick(self, tick: int) -> None:
        if any(each.sees_all for each in self._streams):
            status = self._frontend.broker.status
            self._statistics = _event(b"statistics", status.moment())
            self._send(self._statistics, for_all=False)
            if tick % ALERTS_EVERY == 0:
                alerts = _event(b"alert", await status.attention())
                if alerts != self._alerts:
                    self._alerts = alerts
                    self._send(alerts, for_all=False)
        if self._changed:
            kinds, self._changed = sorted(self._changed), set()
            self._send(_event(b"changed", {"kinds": kinds}), for_all=True)

    def _send(self, event: bytes, *, for_all: bool) -> None:
        for stream in list(self._streams):
            stream.put(event, for_all=for_all)


class StatusStream(StreamResponse):
    """The events of one client."""

    __slots__ = ("_frontend", "_hub", "_is_over", "_more", "_request", "_unsent", "principal")

    def __init__(self, hub: _Hub, request: Request, frontend: HttpContext) -> None:
        super().__init__(200, list(_HEADERS))
        self._hub = hub
        self._request = request
        self._frontend = frontend
        self.principal: Principal = caller(request)
        self._unsent: deque[bytes] = deque(maxlen=MAX_UNSENT)
        self._more = asyncio.Event()
        self._is_over = False

    @property
    def sees_all(self) -> bool:
        """Return True if the client may see the state of the whole broker, by the rules of now."""
        return self._frontend.broker.status.is_visible(self.principal)

    def put(self, event: bytes, *, for_all: bool) -> None:
        """Send an event soon, if it is for this client."""
        if event and (for_all or self.sees_all):
            self._unsent.append(event)
            self._more.set()

    def _end(self, _: object = None) -> None:
        self._is_over = True
        self._more.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        stopping = self._frontend.stopping
        stopping.add_done_callback(self._end)
        try:
            async with self._request.watch_disconnect() as gone:
                gone.add_done_callback(self._end)
                yield _BEGIN
                self._hub.add(self)
                while not self._is_over:
                    try:
                        async with asyncio.timeout(15):
                            await self._more.wait()
                    except TimeoutError:
                        yield b":\n\n"
                        continue
                    self._more.clear()
                    chunk = b"".join(self._unsent)
                    self._unsent.clear()
                    if chunk:
                        yield chunk
        finally:
            stopping.remove_done_callback(self._end)
            self._hub.remove(self)

    def finish(self) -> None:
        self._hub.remove(self)


def _event(name: bytes, content: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, msgspec.json.encode(content))


def routes(frontend: HttpContext) -> list[Route]:
    """Return the route of /v1/events."""
    return [
        Route(
            "GET",
            "/v1/events",
            _Hub(frontend).stream,
            tag="broker",
            name="events",
            summary="Follow the state of the broker by Server-Sent Events",
            text=_TEXT,
            responses=problems()
            | {
                200: response(
                    "Events, until the client disconnects.", {"text/event-stream": {"type": "string"}}
                )
            },
        )
    ]


_TEXT: Final = (
    "`statistics`: each second rates, sizes and connections, and `alert`: what needs attention, when it "
    "differs; both for those who may describe the cluster. `changed`: kinds of what was created, "
    "deleted or configured. Nothing is computed while nobody listens."
)
