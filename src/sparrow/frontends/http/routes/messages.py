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
    choice,
    integer,
    problems,
    query_parameter,
    response,
)
from sparrow.frontends.http.positions import format_positions
from sparrow.frontends.http.publishes import publish
from sparrow.frontends.http.queries import Query, maybe_integer
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
from sparrow.frontends.http.router import Route, Schema
from sparrow.frontends.http.topic_reader import Page, ReadRequest, TopicReader
from sparrow.frontends.start_position import START_POSITION_TEXT
from sparrow.records.readable import FAIL, ON_CORRUPT

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.transport.send_budget import Reservation

NEXT: Final = b"sparrow-next"
"""Header of a response with the positions of the next page."""
DEFAULT_LIMIT: Final = 100
DEFAULT_BYTES: Final = 1 << 20
MAX_PARTITION: Final = (1 << 31) - 1
MAX_OFFSET: Final = (1 << 62) - 1


class _Messages:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._reader = TopicReader(frontend)

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
                _number("partition", path["partition"], MAX_PARTITION),
                _number("offset", path["offset"], MAX_OFFSET),
                reservation=reservation,
                principal=caller(request),
            )
            self._frontend.count(QuotaKind.FETCH, caller(request), len(record.value or b""))
            return ReservedResponse(raw_response(record), reservation)

    def _read_request(self, request: Request) -> ReadRequest:
        query, limits = Query(request), self._frontend.limits
        read_request = ReadRequest(
            topic=request.path_params["topic"],
            start=query.text("from", "beginning"),
            partition=query.integer("partition", -1, 0, MAX_PARTITION),
            limit=query.integer("limit", DEFAULT_LIMIT, 1, limits.max_messages),
            max_bytes=query.integer("max_bytes", DEFAULT_BYTES, 1, limits.max_body_bytes),
            wait_ms=query.integer("wait_ms", 0, 0, limits.max_wait_ms),
            committed=query.choice("isolation", "uncommitted", ("uncommitted", "committed")) == "committed",
            as_base64=query.choice("encoding", "text", ("text", "base64")) == "base64",
            on_corrupt=query.choice("on_corrupt", FAIL, ON_CORRUPT),
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


def _reading_parameters(frontend: HttpContext) -> list[Schema]:
    limits = frontend.limits
    return [
        query_parameter(
            "from",
            f"Start position: {START_POSITION_TEXT} Or the header Sparrow-Next of an earlier page, "
            "such as `0:17,1:4`.",
            {"type": "string", "default": "beginning"},
        ),
        query_parameter("partition", "Only this partition.", integer(least=0, most=MAX_PARTITION)),
        query_parameter(
            "limit", "Largest number of messages.", integer(DEFAULT_LIMIT, 1, limits.max_messages)
        ),
        query_parameter(
            "max_bytes",
            "Rough limit in bytes; at least one batch is read.",
            integer(DEFAULT_BYTES, 1, limits.max_body_bytes),
        ),
        query_parameter(
            "wait_ms", "Time to wait for a message if there is none.", integer(0, 0, limits.max_wait_ms)
        ),
        query_parameter(
            "encoding",
            "`base64`: keys, values and headers in base64 throughout.",
            choice("text", "text", "base64"),
        ),
        query_parameter(
            "isolation",
            "`committed`: without records of transactions that are open or were aborted.",
            choice("uncommitted", "uncommitted", "committed"),
        ),
        query_parameter(
            "on_corrupt",
            "For a batch that cannot be read: `fail` with CORRUPT_BATCH, which has `next_offset`, "
            "or `skip` it.",
            choice(FAIL, *ON_CORRUPT),
        ),
    ]


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
            parameters=_reading_parameters(frontend),
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
