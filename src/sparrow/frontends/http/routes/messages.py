"""Routes that publish and read messages of a topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http import forms
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import (
    AS_STORED,
    problems,
    response,
)
from sparrow.frontends.http.positions import format_positions
from sparrow.frontends.http.publishes import publish
from sparrow.frontends.http.queries import (
    BASE64,
    COMMITTED,
    ENCODING,
    ISOLATION,
    PARTITION,
    Choice,
    Parameter,
    Query,
    Text,
    WholeNumber,
    maybe_integer,
    wait_parameter,
)
from sparrow.frontends.http.rawform import raw_response
from sparrow.frontends.http.records import NDJSON
from sparrow.frontends.http.responses import (
    JSON,
    ReservedResponse,
    Response,
    reserve,
    wait_for_quota,
    watch_end,
)
from sparrow.frontends.http.router import Route
from sparrow.frontends.http.topic_reader import Page, ReadRequest, TopicReader
from sparrow.frontends.start_position import START_POSITION_TEXT
from sparrow.records.readable import ON_CORRUPT

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.transport.send_budget import Reservation

NEXT: Final = b"sparrow-next"
"""Header of a response with the positions of the next page."""
DEFAULT_LIMIT: Final = 100
DEFAULT_BYTES: Final = 1 << 20
MAX_OFFSET: Final = (1 << 62) - 1
_START: Final = Text(
    "from",
    f"Start position: {START_POSITION_TEXT} Or the header Sparrow-Next of an earlier page, "
    "such as `0:17,1:4`.",
    "beginning",
)
_ON_CORRUPT: Final = Choice(
    "on_corrupt",
    "For a batch that cannot be read: `fail` with CORRUPT_BATCH, which has `next_offset`, or `skip` it.",
    ON_CORRUPT,
)


class _Messages:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._reader = TopicReader(frontend)
        limits = frontend.limits
        self._limit = WholeNumber(
            "limit", "Largest number of messages.", DEFAULT_LIMIT, 1, limits.max_messages
        )
        self._max_bytes = WholeNumber(
            "max_bytes",
            "Rough limit in bytes; at least one batch is read.",
            DEFAULT_BYTES,
            1,
            limits.max_body_bytes,
        )
        self._wait_ms = wait_parameter(limits)

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of `read`."""
        return [
            _START,
            PARTITION,
            self._limit,
            self._max_bytes,
            self._wait_ms,
            ENCODING,
            ISOLATION,
            _ON_CORRUPT,
        ]

    async def read(self, request: Request) -> Response:
        read_request = self._read_request(request)
        await wait_for_quota(request, self._frontend, QuotaKind.FETCH)
        with reserve(request) as reservation:
            response = await self._page(request, read_request, reservation)
            self._frontend.count(QuotaKind.FETCH, caller(request), len(response.body))
            return ReservedResponse(response, reservation)

    async def _page(self, request: Request, read_request: ReadRequest, reservation: Reservation) -> Response:
        principal = caller(request)
        if read_request.wait_ms:
            async with watch_end(request, self._frontend) as stop:
                page = await self._reader.read(
                    read_request, reservation=reservation, principal=principal, stop=stop
                )
        else:
            page = await self._reader.read(read_request, reservation=reservation, principal=principal)
        body, kind = _shown(page, request.header(b"accept"))
        headers = [
            (b"content-type", kind.encode()),
            (NEXT, format_positions(page.positions).encode()),
        ]
        return Response(200, headers, body)

    async def read_one(self, request: Request) -> Response:
        Query(request).refuse_others()
        await wait_for_quota(request, self._frontend, QuotaKind.FETCH)
        path = request.path_params
        with reserve(request) as reservation:
            record = await self._reader.record(
                path["topic"],
                _number("partition", path["partition"], PARTITION.most),
                _number("offset", path["offset"], MAX_OFFSET),
                reservation=reservation,
                principal=caller(request),
            )
            self._frontend.count(QuotaKind.FETCH, caller(request), len(record.value or b""))
            return ReservedResponse(raw_response(record), reservation)

    def _read_request(self, request: Request) -> ReadRequest:
        query = Query(request)
        read_request = ReadRequest(
            topic=request.path_params["topic"],
            start=query.value(_START),
            partition=query.integer(PARTITION),
            limit=query.integer(self._limit),
            max_bytes=query.integer(self._max_bytes),
            wait_ms=query.integer(self._wait_ms),
            committed=query.choice(ISOLATION) == COMMITTED,
            as_base64=query.choice(ENCODING) == BASE64,
            on_corrupt=query.choice(_ON_CORRUPT),
        )
        query.refuse_others()
        return read_request


def _number(name: str, text: str, most: int) -> int:
    number = maybe_integer(text)
    if number is None or not 0 <= number <= most:
        raise InvalidArgument(f"{name} is {text!r}; it must be a whole number from 0 to {most}")
    return number


def _shown(page: Page, accept: str) -> tuple[bytes, str]:
    """Return the body and its content type."""
    if NDJSON in accept.lower():
        return b"".join([piece + b"\n" for piece in page.pieces]), NDJSON
    positions = b",".join([b'"%d":%d' % position for position in page.positions.items()])
    return b'{"messages":[%b],"next":{%b}}' % (b",".join(page.pieces), positions), JSON


# ── the document ──────────────────────────────────────────────────────────────────────────────────


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of /v1/topics/{topic}/messages and below."""
    messages = _Messages(frontend)
    path = "/v1/topics/{topic}/messages"
    return [
        forms.publishing_route(
            path,
            partial(publish, frontend),
            tag="messages",
            summary="Publish one message or many",
            text=forms.PUBLISH_TEXT,
        ),
        Route(
            "GET",
            path,
            messages.read,
            tag="messages",
            name="read",
            summary="Read messages",
            text="A page of messages, and the positions of the next page. The broker keeps no "
            "state between two requests.",
            parameters=messages.parameters,
            responses=problems(404, 413)
            | {200: response("A page, which may be empty.", {JSON: forms.PAGE, NDJSON: forms.RECORD})},
        ),
        Route(
            "GET",
            f"{path}/{{partition}}/{{offset}}",
            messages.read_one,
            tag="messages",
            name="read_one",
            summary="Read one message as it is",
            text="The body is the value; key, headers, time and position are in headers `Sparrow-…`.",
            responses=problems(404) | {200: response("The value.", {"*/*": AS_STORED})},
        ),
    ]
