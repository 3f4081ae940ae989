"""Messages of a topic: publishing them and reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request, Response

from sparrow.base.errors import InvalidArgument
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http import forms
from sparrow.frontends.http.answers import HeldAnswer, ending, plain_answer, wait_for_quota
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import (
    AS_STORED,
    RawRoute,
    answer,
    choice,
    integer,
    path_parameter,
    problems,
    query_parameter,
)
from sparrow.frontends.http.outgoing import Held
from sparrow.frontends.http.places import PLACE_TEXT
from sparrow.frontends.http.positions import format_positions
from sparrow.frontends.http.posting import post
from sparrow.frontends.http.queries import Query, maybe_integer
from sparrow.frontends.http.rawform import raw_answer
from sparrow.frontends.http.reading import Page, ReadRequest, TopicReader
from sparrow.frontends.http.records import JSON, NDJSON

if TYPE_CHECKING:
    from sparrow.frontends.http.frontend import HttpFrontend

NEXT: Final = b"sparrow-next"
"""The header of an answer that says from where to read on."""
DEFAULT_LIMIT: Final = 100
DEFAULT_BYTES: Final = 1 << 20
MAX_PARTITION: Final = (1 << 31) - 1
MAX_OFFSET: Final = (1 << 62) - 1
_TOPIC: Final = path_parameter("topic", "Name of the topic.")


class _Messages:
    def __init__(self, door: HttpFrontend) -> None:
        self._door = door
        self._reader = TopicReader(door)

    async def publish(self, request: Request) -> Response:
        return await post(self._door, request, request.path_params["topic"])

    async def read(self, request: Request) -> Response:
        wanted = self._wanted(request)
        await wait_for_quota(request, self._door, QuotaKind.FETCH)
        held = Held(self._door.outgoing)
        try:
            shown = await self._page(request, wanted, held)
        except BaseException:
            held.release()
            raise
        self._door.count(QuotaKind.FETCH, caller(request), len(shown.body))
        return HeldAnswer(shown, held)

    async def _page(self, request: Request, wanted: ReadRequest, held: Held) -> Response:
        principal = caller(request)
        if wanted.wait_ms:
            async with ending(request, self._door) as stop:
                page = await self._reader.read(wanted, held=held, principal=principal, stop=stop)
        else:
            page = await self._reader.read(wanted, held=held, principal=principal)
        body, kind = _shown(page, request.headers.get("accept", ""))
        headers = [
            (b"content-type", kind.encode()),
            (b"cache-control", b"no-store"),
            (NEXT, format_positions(page.positions).encode()),
        ]
        return plain_answer(body, 200, headers)

    async def read_one(self, request: Request) -> Response:
        Query(request).refuse_others()
        await wait_for_quota(request, self._door, QuotaKind.FETCH)
        place = request.path_params
        record = await self._reader.record(
            place["topic"],
            _number("partition", place["partition"], MAX_PARTITION),
            _number("offset", place["offset"], MAX_OFFSET),
            principal=caller(request),
        )
        self._door.count(QuotaKind.FETCH, caller(request), len(record.value or b""))
        return HeldAnswer(raw_answer(record), Held(self._door.outgoing))

    def _wanted(self, request: Request) -> ReadRequest:
        query, limits = Query(request), self._door.limits
        wanted = ReadRequest(
            topic=request.path_params["topic"],
            start=query.text("from", "beginning"),
            partition=query.integer("partition", -1, 0, MAX_PARTITION),
            limit=query.integer("limit", DEFAULT_LIMIT, 1, limits.max_messages),
            max_bytes=query.integer("max_bytes", DEFAULT_BYTES, 1, limits.max_body_bytes),
            wait_ms=query.integer("wait_ms", 0, 0, limits.max_wait_ms),
            committed=query.choice("isolation", "uncommitted", ("uncommitted", "committed")) == "committed",
            as_base64=query.choice("encoding", "text", ("text", "base64")) == "base64",
        )
        query.refuse_others()
        return wanted


def _number(name: str, text: str, most: int) -> int:
    number = maybe_integer(text)
    if number is None or not 0 <= number <= most:
        raise InvalidArgument(f"{name} is {text!r}; it is a whole number from 0 to {most}")
    return number


def _shown(page: Page, accept: str) -> tuple[bytes, str]:
    """The body and its content type."""
    if NDJSON in accept.lower():
        return b"".join([piece + b"\n" for piece in page.pieces]), NDJSON
    places = b",".join([b'"%d":%d' % place for place in page.positions.items()])
    return b'{"messages":[%b],"next":{%b}}' % (b",".join(page.pieces), places), JSON


# ── the document ──────────────────────────────────────────────────────────────────────────────────


def _reading_parameters(door: HttpFrontend) -> list[dict[str, Any]]:
    limits = door.limits
    return [
        _TOPIC,
        query_parameter(
            "from",
            f"Where to begin: {PLACE_TEXT} Or what the header Sparrow-Next of an earlier answer says, such as `0:17,1:4`.",
            {"type": "string", "default": "beginning"},
        ),
        query_parameter("partition", "This partition alone.", integer(least=0, most=MAX_PARTITION)),
        query_parameter("limit", "At most so many messages.", integer(DEFAULT_LIMIT, 1, limits.max_messages)),
        query_parameter(
            "max_bytes",
            "About so many bytes are read; one batch at least.",
            integer(DEFAULT_BYTES, 1, limits.max_body_bytes),
        ),
        query_parameter(
            "wait_ms", "Wait so long for a message if there is none.", integer(0, 0, limits.max_wait_ms)
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
    ]


def router(door: HttpFrontend) -> APIRouter:
    """/v1/topics/{topic}/messages and below."""
    messages = _Messages(door)
    api = APIRouter(route_class=RawRoute, prefix="/v1/topics/{topic}/messages", tags=["messages"])
    api.add_api_route(
        "",
        messages.publish,
        methods=["POST"],
        summary="Publish one message or many",
        description=forms.PUBLISHING_TEXT,
        **forms.publishing(_TOPIC),
    )
    api.add_api_route(
        "",
        messages.read,
        methods=["GET"],
        summary="Read messages",
        description="A page of messages and where to go on. The broker keeps nothing between two requests.",
        responses=problems(404, 413)
        | {200: answer("A page, maybe an empty one.", {JSON: forms.PAGE, NDJSON: forms.RECORD})},
        openapi_extra={"parameters": _reading_parameters(door)},
    )
    api.add_api_route(
        "/{partition}/{offset}",
        messages.read_one,
        methods=["GET"],
        summary="Read one message as it is",
        description="The value is the body; key, headers, time and place stand in headers `Sparrow-…`.",
        responses=problems(404) | {200: answer("The value.", {"*/*": AS_STORED})},
        openapi_extra={
            "parameters": [
                _TOPIC,
                path_parameter("partition", "Number of the partition.", integer(least=0, most=MAX_PARTITION)),
                path_parameter("offset", "Offset of the message.", integer(least=0, most=MAX_OFFSET)),
            ]
        },
    )
    return api
