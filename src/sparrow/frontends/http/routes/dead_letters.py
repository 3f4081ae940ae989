"""Dead letters of a queue: looked at, and sent back to where they came from, all that match or a single one."""

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ConfigDict, Field

from sparrow.base.errors import InvalidArgument
from sparrow.broker.queues.deadletters import DEAD_LETTER_PREFIX
from sparrow.broker.queues.redrive import RedriveFilter
from sparrow.frontends.http.answers import HeldAnswer, json_answer
from sparrow.frontends.http.fields import Body, MaybeName, Offset, Partition, QueuePath, Shown, Text, TimeMs
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.jsonroute import JsonRoute
from sparrow.frontends.http.openapi import problems
from sparrow.frontends.http.outgoing import Held
from sparrow.frontends.record_json import json_headers, members_of_record

if TYPE_CHECKING:
    from sparrow.broker.queues.letter_browsing import DeadLetter
    from sparrow.frontends.http.frontend import HttpFrontend

_MAX_SHOWN = 1000
_MAX_BYTES = 4 << 20
"""Of one page, about; one letter comes at least."""


class Where(Body):
    """Which dead letters; what is left out selects all."""

    reason: Annotated[MaybeName | None, Field(description="Such as DELIVERY_LIMIT or REJECTED.")] = None
    topic: Annotated[MaybeName | None, Field(description="That came from this topic.")] = None
    partition: Partition | None = None
    key: Annotated[Text | None, Field(description="With this key.")] = None
    key_base64: Annotated[Text | None, Field(description="The same of a key that is no text.")] = None
    error_contains: Text | None = None
    subscriber: Annotated[MaybeName | None, Field(description="Of this subscriber of an all-of queue.")] = (
        None
    )
    since_ms: Annotated[TimeMs | None, Field(description="That died at this time or later.")] = None
    until_ms: Annotated[TimeMs | None, Field(description="That died before this time.")] = None

    def filter(self) -> RedriveFilter:
        """The same as the broker has it."""
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
    model_config = ConfigDict(extra="forbid", strict=False)

    limit: Annotated[int, Field(ge=1, le=_MAX_SHOWN)] = 10
    skip: Annotated[
        int, Field(ge=0, lt=1 << 62, description="Go on where `next_skip` of the last answer says.")
    ] = 0
    encoding: Literal["text", "base64"] = "text"


class Redrive(Body):
    where: Where = Field(default_factory=Where)
    max: Annotated[
        int, Field(ge=0, lt=1 << 62, description="At most so many; 0: all that are there now.")
    ] = 0
    per_second: Annotated[float, Field(ge=0, le=1e9, description="At most so many; 0: no limit.")] = 0


class OriginShown(Shown):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    subscriber: str
    first_delivery_ms: int | None
    last_delivery_ms: int | None


class LetterShown(Shown):
    topic: str
    partition: int
    offset: int
    timestamp_ms: Annotated[int, Field(description="When it died.")]
    key: str | None = None
    key_base64: str = ""
    value: str | None = None
    value_base64: str = ""
    headers: Annotated[list[list[Any]], Field(description="Those of the message.")]
    state: str
    reason: str
    error: str
    delivery_count: int | None
    origin: OriginShown


class LetterList(Shown):
    messages: list[LetterShown]
    next_skip: Annotated[int | None, Field(description="null: there are no more.")]


class Progress(Shown):
    moved: int
    skipped: Annotated[int, Field(description="Looked at and left alone: they do not match.")]
    failed: Annotated[int, Field(description="Could not be sent; they are where they were.")]
    is_running: bool
    error: Annotated[str, Field(description="Why it ended before all were looked at.")]


class _DeadLetters:
    def __init__(self, door: "HttpFrontend") -> None:
        self._queues = door.broker.queues
        self._outgoing = door.outgoing

    async def browse(self, request: Request, queue: QueuePath, by: Annotated[Browsing, Query()]) -> Response:
        """The dead letters of a queue that are not finished. Nothing changes."""
        self._outgoing.check()
        found = await self._queues.dead_letters(
            queue,
            by.limit,
            where=by.filter(),
            skip=by.skip,
            max_bytes=max(1, self._outgoing.share(_MAX_BYTES)),
            principal=caller(request),
        )
        as_base64 = by.encoding == "base64"
        shown = json_answer(
            {
                "messages": [_shown(each, as_base64=as_base64) for each in found.letters],
                "next_skip": _or_null(found.next_skip),
            }
        )
        return HeldAnswer(shown, Held(self._outgoing))

    async def redrive(self, request: Request, queue: QueuePath, body: Redrive | None = None) -> Response:
        """Begin to send dead letters back to where they came from, each exactly once. The work goes on in the broker."""
        asked = body or Redrive()
        progress = await self._queues.redrive(
            queue,
            asked.where.filter(),
            max_records=asked.max,
            per_second=asked.per_second,
            principal=caller(request),
        )
        return json_answer(msgspec.to_builtins(progress), 202)

    async def redrive_one(
        self,
        request: Request,
        queue: QueuePath,
        partition: Annotated[Partition, Path(description="Of the dead letter.")],
        offset: Annotated[Offset, Path(description="Of the dead letter.")],
    ) -> Response:
        """Send a single dead letter back."""
        where = RedriveFilter(letter=(partition, offset))
        progress = await self._queues.redrive(queue, where, principal=caller(request))
        return json_answer(msgspec.to_builtins(progress), 202)

    async def progress(self, request: Request, queue: QueuePath) -> Response:
        """How far the redrive is that runs, or ran last since the broker started."""
        found = self._queues.redrive_progress(queue, principal=caller(request))
        return json_answer(msgspec.to_builtins(found))

    async def stop(self, request: Request, queue: QueuePath) -> Response:
        """End the redrive that runs; what was sent is sent."""
        found = await self._queues.stop_redrive(queue, principal=caller(request))
        return json_answer(msgspec.to_builtins(found))


def _key(where: Where) -> bytes | None:
    if where.key_base64 is None:
        return None if where.key is None else where.key.encode()
    if where.key is not None:
        raise InvalidArgument("key and key_base64 are two ways to say the same; give one of them")
    try:
        return b64decode(where.key_base64, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(f"key_base64 is {where.key_base64[:80]!r}, which is no base64") from None


def _shown(letter: "DeadLetter", *, as_base64: bool) -> dict[str, object]:
    """A letter with what it tells of its record; its own headers say that once more and are left out."""
    peeked, origin = letter
    own = [each for each in peeked.record.headers if not each[0].startswith(DEAD_LETTER_PREFIX)]
    return {
        **members_of_record(peeked.record, as_base64=as_base64),
        "headers": json_headers(own, as_base64=as_base64),
        "state": peeked.state,
        "reason": origin.reason,
        "error": origin.error,
        "delivery_count": _or_null(origin.delivery_count),
        "origin": {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "timestamp_ms": _or_null(origin.timestamp_ms),
            "subscriber": origin.subscriber,
            "first_delivery_ms": _or_null(origin.first_delivery_ms),
            "last_delivery_ms": _or_null(origin.last_delivery_ms),
        },
    }


def _or_null(number: int) -> int | None:
    return None if number < 0 else number


def router(door: "HttpFrontend") -> APIRouter:
    """The routes of dead letters."""
    routes = _DeadLetters(door)
    api = APIRouter(tags=["dead letters"], route_class=JsonRoute)
    letters, redrive = "/v1/queues/{queue}/dead-letters", "/v1/queues/{queue}/redrive"
    wrong = problems(400, 403, 404)
    api.add_api_route(letters, routes.browse, methods=["GET"], response_model=LetterList, responses=wrong)
    api.add_api_route(
        f"{letters}/{{partition}}/{{offset}}/redrive",
        routes.redrive_one,
        methods=["POST"],
        status_code=202,
        response_model=Progress,
        responses=problems(400, 403, 404, 409),
    )
    api.add_api_route(
        redrive,
        routes.redrive,
        methods=["POST"],
        status_code=202,
        response_model=Progress,
        responses=problems(400, 403, 404, 409),
    )
    api.add_api_route(redrive, routes.progress, methods=["GET"], response_model=Progress, responses=wrong)
    api.add_api_route(redrive, routes.stop, methods=["DELETE"], response_model=Progress, responses=wrong)
    return api
