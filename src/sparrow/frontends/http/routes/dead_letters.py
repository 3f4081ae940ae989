"""Routes of the dead letters of a queue: browse them, and redrive them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from sparrow.frontends.admin.dead_letters import Where
from sparrow.frontends.admin.fields import choices
from sparrow.frontends.http.arguments import operation_route
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.responses import ReservedResponse, json_response, reserve
from sparrow.frontends.http.routes.administration import DEAD_LETTERS, routes_of
from sparrow.frontends.record_json import members_of_record

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response
    from sparrow.frontends.http.router import Route
    from sparrow.model.queues import DeadLetter

_MAX_SHOWN = 1000
_MAX_BYTES = 4 << 20
"""Rough limit for one page; it has at least one dead letter."""


Encoding = Literal["text", "base64"]


class Browsing(Where):
    limit: Annotated[int, Meta(ge=1, le=_MAX_SHOWN)] = 10
    skip: Annotated[int, Meta(ge=0, lt=1 << 62, description="`next_skip` of the previous page.")] = 0
    encoding: Annotated[Encoding, choices(Encoding)] = "text"


class OriginShown(Struct):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    subscriber: str
    first_delivery_ms: int | None
    last_delivery_ms: int | None


class LetterShown(Struct, kw_only=True):
    topic: str
    partition: int
    offset: int
    timestamp_ms: Annotated[int, Meta(description="Time when the message gave up.")]
    key: str | None = None
    key_base64: str = ""
    value: str | None = None
    value_base64: str = ""
    headers: Annotated[list[list[Any]], Meta(description="Headers of the message.")]
    state: str
    reason: str
    error: str
    delivery_count: int | None
    origin: OriginShown


class LetterList(Struct):
    messages: list[LetterShown]
    next_skip: Annotated[int | None, Meta(description="null: there are no more.")]


class _DeadLetters:
    def __init__(self, frontend: HttpContext) -> None:
        self._queues = frontend.broker.queues
        self._frontend = frontend

    async def browse(self, request: Request, queue: str, by: Browsing) -> Response:
        """Browse the dead letters of a queue that are not finished. Nothing changes."""
        with reserve(request) as reservation:
            found = await self._queues.dead_letters(
                queue,
                by.limit,
                where=by.filter(),
                skip=by.skip,
                max_bytes=await reservation.take(_MAX_BYTES),
                principal=caller(request),
            )
            as_base64 = by.encoding == "base64"
            response = json_response(
                {
                    "messages": [_shown(each, as_base64=as_base64) for each in found.dead_letters],
                    "next_skip": _or_null(found.next_skip),
                }
            )
            return ReservedResponse(response, reservation)


def _shown(letter: DeadLetter, *, as_base64: bool) -> dict[str, object]:
    """Return a dead letter as JSON."""
    return {
        **members_of_record(letter, as_base64=as_base64),
        "state": letter.state,
        "reason": letter.reason,
        "error": letter.error,
        "delivery_count": _or_null(letter.delivery_count),
        "origin": {
            "topic": letter.origin_topic,
            "partition": letter.origin_partition,
            "offset": letter.origin_offset,
            "timestamp_ms": _or_null(letter.origin_timestamp),
            "subscriber": letter.subscriber,
            "first_delivery_ms": _or_null(letter.first_delivery_ms),
            "last_delivery_ms": _or_null(letter.last_delivery_ms),
        },
    }


def _or_null(number: int) -> int | None:
    return None if number < 0 else number


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of dead letters."""
    letters = _DeadLetters(frontend)
    browse = operation_route(
        "GET",
        "/v1/queues/{queue}/dead-letters",
        letters.browse,
        LetterList,
        tag=DEAD_LETTERS,
        name="browse",
        text=inspect.getdoc(letters.browse) or "",
        query=Browsing,
    )
    return [browse, *routes_of(frontend, {DEAD_LETTERS})]
