"""Route of /v1/topics/{topic}/search: messages of a topic, newest first, with conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http import forms
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import (
    TEXT,
    array,
    choice,
    integer,
    members,
    problems,
    query_parameter,
    response,
)
from sparrow.frontends.http.positions import format_positions
from sparrow.frontends.http.queries import Query
from sparrow.frontends.http.responses import JSON, ReservedResponse, Response, reserve, wait_for_quota
from sparrow.frontends.http.router import Route

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.message_search import MessageSearch, SearchPage, SearchRequest
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Schema

_MAX_PARTITION: Final = (1 << 31) - 1
_MAX_SHOWN: Final = 1_000
NEWEST: Final = "newest"
_ORDERS: Final = (NEWEST, "oldest")
_MAX_MS: Final = 10_000
_MAX_BYTES: Final = 256 << 20


class _Search:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._search: MessageSearch | None = None

    async def search(self, request: Request) -> Response:
        # the search is loaded by the first request
        from sparrow.frontends.http.message_search import MessageSearch, SearchRequest

        if self._search is None:
            self._search = MessageSearch(self._frontend)
        wanted = self._wanted(request, SearchRequest)
        await wait_for_quota(request, self._frontend, QuotaKind.FETCH)
        with reserve(request) as reservation:
            page = await self._search.search(wanted, reservation=reservation, principal=caller(request))
            body = _body(page)
            self._frontend.count(QuotaKind.FETCH, caller(request), len(body))
            return ReservedResponse(Response(200, [(b"content-type", JSON.encode())], body), reservation)

    def _wanted(self, request: Request, make: type[SearchRequest]) -> SearchRequest:
        query = Query(request)
        wanted = make(
            topic=request.path_params["topic"],
            order=query.choice("order", NEWEST, _ORDERS),
            start=query.text("from"),
            partition=query.integer("partition", -1, 0, _MAX_PARTITION),
            limit=query.integer("limit", 50, 1, _MAX_SHOWN),
            key=query.text("key") if "key" in query else None,
            contains=query.text("contains"),
            header=query.text("header"),
            committed=query.choice("isolation", "uncommitted", ("uncommitted", "committed")) == "committed",
            as_base64=query.choice("encoding", "text", ("text", "base64")) == "base64",
            max_read_bytes=query.integer("max_read_bytes", 16 << 20, 1, _MAX_BYTES),
            max_ms=query.integer("max_ms", 1_000, 1, _MAX_MS),
            max_value_bytes=query.integer("max_value_bytes", 0, 0, _MAX_BYTES),
        )
        query.text("key")
        query.refuse_others()
        return wanted


def _body(page: SearchPage) -> bytes:
    messages = b",".join([each.text for each in page.found])
    return b'{"messages":[%b],"next":"%b","total":%d,"left":%d,"corrupt":%d}' % (
        messages,
        format_positions(page.positions).encode(),
        page.total,
        page.left,
        page.corrupt,
    )


_MESSAGE: Final[Schema] = {
    "allOf": [
        forms.RECORD,
        members(
            ["value_bytes", "is_cut"],
            value_bytes={**integer(), "description": "Size of the whole value; -1: it is null."},
            is_cut={"type": "boolean", "description": "True if only the beginning of the value is here."},
        ),
    ]
}
_PAGE: Final[Schema] = members(
    ["messages", "next", "total", "left", "corrupt"],
    messages=array(_MESSAGE),
    next={**TEXT, "description": "`from` of the next request."},
    total={**integer(), "description": "Messages of the partitions, roughly."},
    left={**integer(), "description": "Messages that were not looked at yet; 0: the search is complete."},
    corrupt={**integer(), "description": "Batches that could not be read."},
)
_TEXT_OF_ROUTE: Final = (
    "Messages, newest first (over all partitions by time) or oldest first, that meet all conditions. A "
    "request ends after some time or bytes, with what it found; go on with `next` while `left` is not 0."
)


def routes(frontend: HttpContext) -> list[Route]:
    """Return the route."""
    return [
        Route(
            "GET",
            "/v1/topics/{topic}/search",
            _Search(frontend).search,
            tag="messages",
            name="search",
            summary="Search messages, newest first",
            text=_TEXT_OF_ROUTE,
            parameters=[
                query_parameter("order", "Which come first.", choice(NEWEST, *_ORDERS)),
                query_parameter(
                    "from",
                    "`next` of the request before; or a start position: `beginning`, `end`, an offset, or "
                    "`timestamp:<ms>`. Without it from the newest (oldest) message on.",
                ),
                query_parameter("partition", "Only this partition.", integer(least=0, most=_MAX_PARTITION)),
                query_parameter("limit", "Largest number of messages.", integer(50, 1, _MAX_SHOWN)),
                query_parameter("key", "Only messages with this key."),
                query_parameter("contains", "Only messages with this text in key, value or a header."),
                query_parameter("header", "Only messages with this header: `name` or `name=value`."),
                query_parameter(
                    "isolation",
                    "`committed`: without records of transactions that are open or were aborted.",
                    choice("uncommitted", "uncommitted", "committed"),
                ),
                query_parameter(
                    "encoding",
                    "`base64`: keys, values and headers in base64 throughout.",
                    choice("text", "text", "base64"),
                ),
                query_parameter(
                    "max_read_bytes", "Bytes to read, roughly.", integer(16 << 20, 1, _MAX_BYTES)
                ),
                query_parameter("max_ms", "Time to search.", integer(1_000, 1, _MAX_MS)),
                query_parameter(
                    "max_value_bytes", "Longer values are cut; 0: none.", integer(0, 0, _MAX_BYTES)
                ),
            ],
            responses=problems(404) | {200: response("The messages that were found.", {JSON: _PAGE})},
        )
    ]
