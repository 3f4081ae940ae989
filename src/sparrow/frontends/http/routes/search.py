"""Route of /v1/topics/{topic}/search: messages of a topic, newest first, with conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http import forms
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.openapi import (
    TEXT,
    array,
    integer,
    members,
    problems,
    response,
)
from sparrow.frontends.http.positions import format_positions
from sparrow.frontends.http.queries import (
    BASE64,
    COMMITTED,
    ENCODING,
    ISOLATION,
    PARTITION,
    Choice,
    Query,
    Text,
    WholeNumber,
)
from sparrow.frontends.http.responses import JSON, ReservedResponse, Response, reserve, wait_for_quota
from sparrow.frontends.http.router import Route

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.message_search import MessageSearch, SearchPage, SearchRequest
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Schema

NEWEST: Final = "newest"
_MAX_BYTES: Final = 256 << 20
_ORDER: Final = Choice("order", "Which come first.", (NEWEST, "oldest"))
_START: Final = Text(
    "from",
    "`next` of the request before; or a start position: `beginning`, `end`, an offset, or "
    "`timestamp:<ms>`. Without it from the newest (oldest) message on.",
)
_LIMIT: Final = WholeNumber("limit", "Largest number of messages.", 50, 1, 1_000)
_KEY: Final = Text("key", "Only messages with this key.")
_CONTAINS: Final = Text("contains", "Only messages with this text in key, value or a header.")
_HEADER: Final = Text("header", "Only messages with this header: `name` or `name=value`.")
_MAX_READ_BYTES: Final = WholeNumber("max_read_bytes", "Bytes to read, roughly.", 16 << 20, 1, _MAX_BYTES)
_MAX_MS: Final = WholeNumber("max_ms", "Time to search.", 1_000, 1, 10_000)
_MAX_VALUE_BYTES: Final = WholeNumber("max_value_bytes", "Longer values are cut; 0: none.", 0, 0, _MAX_BYTES)
_PARAMETERS: Final = (
    _ORDER,
    _START,
    PARTITION,
    _LIMIT,
    _KEY,
    _CONTAINS,
    _HEADER,
    ISOLATION,
    ENCODING,
    _MAX_READ_BYTES,
    _MAX_MS,
    _MAX_VALUE_BYTES,
)


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
            order=query.choice(_ORDER),
            start=query.value(_START),
            partition=query.integer(PARTITION),
            limit=query.integer(_LIMIT),
            key=query.value(_KEY) if _KEY.name in query else None,
            contains=query.value(_CONTAINS),
            header=query.value(_HEADER),
            committed=query.choice(ISOLATION) == COMMITTED,
            as_base64=query.choice(ENCODING) == BASE64,
            max_read_bytes=query.integer(_MAX_READ_BYTES),
            max_ms=query.integer(_MAX_MS),
            max_value_bytes=query.integer(_MAX_VALUE_BYTES),
        )
        query.value(_KEY)
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
            parameters=_PARAMETERS,
            responses=problems(404) | {200: response("The messages that were found.", {JSON: _PAGE})},
        )
    ]
