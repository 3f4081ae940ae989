"""Routes that publish to a queue's first topic, and look at its messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrow.broker.queues.peek import PEEKED_STATES, size_of
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
from sparrow.frontends.http.publishes import publish
from sparrow.frontends.http.queries import BASE64, ENCODING, Query, Text, WholeNumber
from sparrow.frontends.http.responses import JSON, ReservedResponse, json_response, reserve
from sparrow.frontends.http.router import Route
from sparrow.frontends.record_json import encode, members_of_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response
    from sparrow.model.queues import PeekedRecord

MAX_SHOWN: Final = 1000
MAX_BYTES: Final = 16 << 20
_LARGE_BYTES: Final = 1 << 20
_LIMIT: Final = WholeNumber("limit", "Largest number of messages.", 10, 1, MAX_SHOWN)
_SKIP: Final = WholeNumber("skip", "Number of messages to skip.", 0, 0)
_MAX_BYTES: Final = WholeNumber(
    "max_bytes", "Rough limit in bytes; at least one message.", 1 << 20, 1, MAX_BYTES
)
_STATE: Final = Text(
    "state",
    f"States, separated by commas: {', '.join(PEEKED_STATES)}.",
    "ready,leased,delayed,blocked",
)
_SUBSCRIBER: Final = Text("subscriber", "Only of this subscriber of an all-of queue.")


class _Queues:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._queues = frontend.broker.queues

    async def publish(self, request: Request) -> Response:
        topic = self._queues.first_topic(request.path_params["queue"], principal=caller(request))
        return await publish(self._frontend, request, topic)

    async def peek(self, request: Request) -> Response:
        query = Query(request)
        limit, skip, max_bytes = map(query.integer, (_LIMIT, _SKIP, _MAX_BYTES))
        states = tuple(query.value(_STATE).split(","))
        subscriber = query.value(_SUBSCRIBER)
        as_base64 = query.choice(ENCODING) == BASE64
        query.refuse_others()
        with reserve(request) as reservation:
            found = await self._queues.peek(
                request.path_params["queue"],
                limit,
                states=states,
                subscriber=subscriber,
                skip=skip,
                max_bytes=await reservation.take(max_bytes),
                principal=caller(request),
            )
            reservation.resize(sum(size_of(each) for each in found))
            if reservation.size_bytes > _LARGE_BYTES:
                shown = await asyncio.to_thread(_page, found, as_base64=as_base64)
            else:
                shown = _page(found, as_base64=as_base64)
            return ReservedResponse(json_response(shown), reservation)


def _page(found: Sequence[PeekedRecord], *, as_base64: bool) -> bytes:
    shown = [encode(_shown(each, as_base64=as_base64)) for each in found]
    return b'{"messages":[%s]}' % b",".join(shown)


def _shown(peeked: PeekedRecord, *, as_base64: bool) -> dict[str, object]:
    return {
        **members_of_record(peeked, as_base64=as_base64),
        "state": peeked.state,
        "delivery_count": peeked.delivery_count,
        "priority": peeked.priority,
        "consumer": peeked.consumer,
        "deliver_at_ms": peeked.deliver_at_ms,
        "error": peeked.error,
    }


_MESSAGE: Final = {
    "allOf": [
        forms.RECORD,
        members(
            ["state", "delivery_count", "priority", "consumer", "deliver_at_ms", "error"],
            state={**TEXT, "enum": list(PEEKED_STATES)},
            delivery_count=integer(),
            priority=integer(),
            consumer={**TEXT, "description": "Consumer that has it leased, or had it last."},
            deliver_at_ms={**integer(), "description": "Time of delivery; 0: not delayed by its publisher."},
            error={**TEXT, "description": "Error of the last delivery."},
        ),
    ]
}


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of a queue's messages, except leases."""
    queues = _Queues(frontend)
    path = "/v1/queues/{queue}/messages"
    return [
        forms.publishing_route(
            path,
            queues.publish,
            tag="queues",
            summary="Publish to a queue",
            text="Publish to the queue's first topic.",
        ),
        Route(
            "GET",
            path,
            queues.peek,
            tag="queues",
            name="peek",
            summary="Look at messages",
            text="Browse messages in their current state, ready ones in the order in which they "
            "will be leased. Nothing changes.",
            parameters=[_LIMIT, _SKIP, _MAX_BYTES, _STATE, _SUBSCRIBER, ENCODING],
            responses=problems(400, 403, 404)
            | {200: response("Some messages.", {JSON: members(["messages"], messages=array(_MESSAGE))})},
        ),
    ]
