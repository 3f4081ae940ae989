"""Routes of the dead letters of a queue: browse them, and redrive all that match or a single one to
where they came from.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, field

from sparrow.base.errors import InvalidArgument
from sparrow.broker.queues.dead_letters.redrive import RedriveFilter
from sparrow.frontends.http.arguments import CONFLICTING, operation
from sparrow.frontends.http.fields import Body, MaybeName, Partition, Text, TimeMs, choices
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.responses import ReservedResponse, json_response, reserve
from sparrow.frontends.record_json import members_of_record
from sparrow.model.queues import RedriveProgress

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


class Where(Body):
    """A selection of dead letters; members that are left out match everything."""

    reason: Annotated[MaybeName | None, Meta(description="Such as DELIVERY_LIMIT or REJECTED.")] = None
    topic: Annotated[MaybeName | None, Meta(description="Only from this topic.")] = None
    partition: Partition | None = None
    key: Annotated[Text | None, Meta(description="Only with this key.")] = None
    key_base64: Annotated[Text | None, Meta(description="The same for a key that is not text.")] = None
    error_contains: Text | None = None
    subscriber: Annotated[
        MaybeName | None, Meta(description="Only of this subscriber of an all-of queue.")
    ] = None
    since_ms: Annotated[TimeMs | None, Meta(description="Only those that gave up at this time or later.")] = (
        None
    )
    until_ms: Annotated[TimeMs | None, Meta(description="Only those that gave up before this time.")] = None

    def filter(self) -> RedriveFilter:
        """Return the selection in the broker's form."""
        return RedriveFilter(
            self.reason,
            self.topic,
            self.partition,
            _key(self),
            self.error_contains,
            self.subscriber,
            self.since_ms,
            self.until_ms,
        )


class Browsing(Where):
    limit: Annotated[int, Meta(ge=1, le=_MAX_SHOWN)] = 10
    skip: Annotated[int, Meta(ge=0, lt=1 << 62, description="`next_skip` of the previous page.")] = 0
    encoding: Annotated[Encoding, choices(Encoding)] = "text"


class Redrive(Body):
    where: Where = field(default_factory=Where)
    max: Annotated[
        int, Meta(ge=0, lt=1 << 62, description="Largest number of messages; 0: all that exist now.")
    ] = 0
    per_second: Annotated[float, Meta(ge=0, le=1e9, description="Messages per second; 0: no limit.")] = 0


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
        reservation = reserve(request, self._frontend)
        try:
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
        except BaseException:
            reservation.give_back()
            raise
        return ReservedResponse(response, reservation)

    async def redrive(self, request: Request, queue: str, body: Redrive) -> object:
        """Start to redrive dead letters to where they came from, each exactly once. The broker does
        it in the background.
        """
        return await self._queues.redrive(
            queue,
            body.where.filter(),
            max_records=body.max,
            per_second=body.per_second,
            principal=caller(request),
        )

    async def redrive_one(self, request: Request, queue: str, partition: int, offset: int) -> object:
        """Redrive a single dead letter."""
        where = RedriveFilter(letter=(partition, offset))
        return await self._queues.redrive(queue, where, principal=caller(request))

    async def progress(self, request: Request, queue: str) -> object:
        """Return the progress of the current redrive, or of the last one since the broker
        started.
        """
        return self._queues.redrive_progress(queue, principal=caller(request))

    async def stop(self, request: Request, queue: str) -> object:
        """Stop the current redrive. Messages that it has moved stay moved."""
        return await self._queues.stop_redrive(queue, principal=caller(request))


def _key(where: Where) -> bytes | None:
    if where.key_base64 is None:
        return None if where.key is None else where.key.encode()
    if where.key is not None:
        raise InvalidArgument("key and key_base64 are both given; give one of them")
    try:
        return b64decode(where.key_base64, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(f"key_base64 is {where.key_base64[:80]!r}, which is not base64") from None


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
    serve = partial(operation, tag="dead letters")
    path, redrive = "/v1/queues/{queue}/dead-letters", "/v1/queues/{queue}/redrive"
    started: dict[str, Any] = {"result": RedriveProgress, "status": 202, "refusals": CONFLICTING}
    return [
        serve("GET", path, letters.browse, LetterList, query=Browsing),
        serve("POST", f"{path}/{{partition}}/{{offset}}/redrive", letters.redrive_one, **started),
        serve("POST", redrive, letters.redrive, body=Redrive, needs_body=False, **started),
        serve("GET", redrive, letters.progress, RedriveProgress),
        serve("DELETE", redrive, letters.stop, RedriveProgress),
    ]
