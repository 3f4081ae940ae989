"""Leasing from a queue, and settling what was leased.

A lease waits as a long poll does. When the client is gone before it has its answer, what was leased for it is given back at once and the delivery does not count; after the
answer has left, only the end of the lease brings the messages back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from fastapi import APIRouter

from sparrow.broker.queues.settlement import Verb
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http import forms
from sparrow.frontends.http.answers import (
    HeldAnswer,
    ending,
    json_answer,
    no_content,
    problem_answer,
    wait_for_quota,
)
from sparrow.frontends.http.bodies import read_body
from sparrow.frontends.http.deliveries import Showing, unpacked
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.leases import (
    Consumers,
    LeaseRequest,
    Settling,
)
from sparrow.frontends.http.openapi import (
    BYTES,
    PROBLEM,
    TEXT,
    RawRoute,
    answer,
    array,
    body,
    choice,
    integer,
    members,
    path_parameter,
    problems,
    query_parameter,
)
from sparrow.frontends.http.outgoing import Held
from sparrow.frontends.http.problems import problem_of
from sparrow.frontends.http.queries import Query
from sparrow.frontends.http.rawform import raw_answer
from sparrow.frontends.http.serving import EXCHANGE
from sparrow.frontends.http.settlements import (
    MAX_DELAY_MS,
    MAX_LEASE_MS,
    MAX_LEASES,
    MAX_TEXT_CHARACTERS,
    Extend,
    Leases,
    Nack,
    Reject,
    asked_to_settle,
)
from sparrow.frontends.record_json import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.settlement import Leased
    from sparrow.frontends.http.deliveries import Delivery, Unpacked
    from sparrow.frontends.http.frontend import HttpFrontend
    from sparrow.frontends.http.openapi import Schema

MAX_BYTES: Final = 16 << 20
DEFAULT_MAX_BYTES: Final = 1 << 20
_RENDERED_PER_TURN: Final = 256
_LARGE_BYTES: Final = 1 << 20
_OCTETS: Final = "application/octet-stream"
_OK: Final = {"ok": True}


class _Routes:
    def __init__(self, door: HttpFrontend) -> None:
        self._door = door
        self._clock = door.broker.clock
        self._consumers = Consumers(door.broker)
        door.at_sweep.append(self._consumers.sweep)
        door.at_close.append(self._consumers.close)

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def lease(self, request: Request) -> Response:
        await read_body(request)
        query = Query(request)
        is_raw = _OCTETS in request.headers.get("accept", "")
        asked = LeaseRequest(
            request.path_params["queue"],
            1 if is_raw else query.integer("max", 1, 1, self._door.limits.max_messages),
            max(1, self._door.outgoing.share(query.integer("max_bytes", DEFAULT_MAX_BYTES, 1, MAX_BYTES))),
            query.text("consumer", ""),
            query.text("subscriber", ""),
            _client_name(request),
        )
        wait_ms = query.integer("wait_ms", 0, 0, self._door.limits.max_wait_ms)
        as_base64 = query.choice("encoding", "text", ("text", "base64")) == "base64"
        query.refuse_others()
        await wait_for_quota(request, self._door, QuotaKind.FETCH)
        self._door.outgoing.check()
        held = Held(self._door.outgoing)
        try:
            shown = await self._answer(request, asked, wait_ms, held, (is_raw, as_base64))
        except BaseException:
            held.release()
            raise
        self._door.count(QuotaKind.FETCH, caller(request), len(shown.body))
        return HeldAnswer(shown, held)

    async def _answer(
        self, request: Request, asked: LeaseRequest, wait_ms: int, held: Held, form: tuple[bool, bool]
    ) -> Response:
        """What could be leased; a client that is gone has leased nothing. `form`: raw, and base64 throughout."""
        is_raw, as_base64 = form
        consumer, leased = await self._leased(request, asked, wait_ms, caller(request))
        held.add(sum(len(each.data) for each in leased))
        found = await self._unpacked(consumer, leased)
        held.add(found.content_bytes)
        if is_raw:
            shown = self._raw(consumer, found.deliveries)
        else:
            shown = json_answer(await self._shown(consumer, found, as_base64=as_base64))
        if leased and request.scope["state"][EXCHANGE].disconnected:
            await self._consumers.give_back(consumer, leased)
        return shown

    async def _leased(
        self, request: Request, asked: LeaseRequest, wait_ms: int, principal: Principal
    ) -> tuple[QueueConsumer, list[Leased]]:
        """What could be leased."""
        consumer, leased = await self._consumers.lease(asked, wait_ms=0, principal=principal)
        if not leased and wait_ms and not self._door.is_draining:
            async with ending(request, self._door) as end:
                consumer, leased = await self._waited(asked, wait_ms, principal, end) or (consumer, [])
        return consumer, leased

    async def _waited(
        self, asked: LeaseRequest, wait_ms: int, principal: Principal, end: asyncio.Future[None]
    ) -> tuple[QueueConsumer, list[Leased]] | None:
        """A lease that waits until there is something or the time is over; None: the client is gone, or the broker stops."""
        leasing: asyncio.Task[tuple[QueueConsumer, list[Leased]]] = asyncio.create_task(
            self._consumers.lease(asked, wait_ms=wait_ms, principal=principal)
        )
        try:
            await asyncio.wait(
                cast("set[asyncio.Future[Any]]", {leasing, end}), return_when=asyncio.FIRST_COMPLETED
            )
            leasing.cancel()
            await asyncio.wait({leasing})
        except asyncio.CancelledError:
            leasing.cancel()
            leasing.add_done_callback(self._abandoned)
            raise
        return None if leasing.cancelled() else leasing.result()

    def _abandoned(self, leasing: asyncio.Future[tuple[QueueConsumer, list[Leased]]]) -> None:
        """The request was cut off in the very moment in which it got something."""
        if not leasing.cancelled() and leasing.exception() is None:
            self._door.spawn(self._consumers.give_back(*leasing.result()))

    async def _unpacked(self, consumer: QueueConsumer, leased: Sequence[Leased]) -> Unpacked:
        """The messages themselves; what cannot be delivered with them is the queue's again."""
        found = await unpacked(leased)
        if found.returned:
            await self._consumers.give_back(consumer, found.returned)
        for refused in found.refused:
            self._door.logger.warning(
                "queue %r, partition %d of %r: %s",
                consumer.queue_name,
                refused.leased.partition,
                refused.leased.topic,
                refused.error.text,
            )
            await self._consumers.refuse(consumer, *refused)
        return found

    # ── what a client gets ────────────────────────────────────────────────────────────────────────

    async def _shown(self, consumer: QueueConsumer, found: Unpacked, *, as_base64: bool) -> bytes:
        """The answer as JSON; many messages with pauses, large ones in a thread."""
        showing = Showing(consumer, self._clock.wall_ms())
        pieces: list[bytes] = []
        for start in range(0, len(found.deliveries), _RENDERED_PER_TURN):
            some = found.deliveries[start : start + _RENDERED_PER_TURN]
            if found.content_bytes > _LARGE_BYTES:
                pieces += await asyncio.to_thread(showing.rendered, some, as_base64=as_base64)
                continue
            if start:
                await asyncio.sleep(0)
            pieces += showing.rendered(some, as_base64=as_base64)
        head = encode({"consumer": consumer.id, "lease_ms": consumer.lease_ms})
        return b'%s,"messages":[%s]}' % (head[:-1], b",".join(pieces))

    def _raw(self, consumer: QueueConsumer, deliveries: Sequence[Delivery]) -> Response:
        if not deliveries:
            return no_content()
        lease = Showing(consumer, self._clock.wall_ms()).members_of(deliveries[0])
        return raw_answer(
            deliveries[0].record,
            [
                (f"sparrow-{name.replace('_', '-')}".encode(), str(value).encode())
                for name, value in lease.items()
            ],
        )

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    async def ack(self, request: Request) -> Response:
        asked = await asked_to_settle(request, Leases)
        return await self._settle(request, asked, Settling(_queue(request), Verb.ACK))

    async def nack(self, request: Request) -> Response:
        asked = await asked_to_settle(request, Nack)
        delay_ms = -1 if asked.delay_ms is None else asked.delay_ms
        return await self._settle(request, asked, Settling(_queue(request), Verb.NACK, delay_ms, asked.error))

    async def reject(self, request: Request) -> Response:
        asked = await asked_to_settle(request, Reject)
        return await self._settle(request, asked, Settling(_queue(request), Verb.REJECT, text=asked.reason))

    async def extend(self, request: Request) -> Response:
        asked = await asked_to_settle(request, Extend)
        lease_ms = -1 if asked.lease_ms is None else asked.lease_ms
        return await self._settle(request, asked, Settling(_queue(request), Verb.EXTEND, lease_ms))

    async def release(self, request: Request) -> Response:
        asked = await asked_to_settle(request, Leases)
        return await self._settle(request, asked, Settling(_queue(request), Verb.RETURN))

    async def _settle(self, request: Request, asked: Leases, wanted: Settling) -> Response:
        named = wanted._replace(client_name=_client_name(request))
        outcomes = await self._consumers.settle(named, asked.leases, principal=caller(request))
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures and len(failures) == len(outcomes) and len({each.code for each in failures}) == 1:
            return problem_answer(failures[0], request.scope["path"])
        return json_answer(
            {"leases": [_OK if each is None else {"error": problem_of(each)} for each in outcomes]},
            207 if failures else 200,
        )


def _queue(request: Request) -> str:
    queue: str = request.path_params["queue"]
    return queue


def _client_name(request: Request) -> str:
    """How the statistics call the client."""
    name = request.headers.get("user-agent", "")[:80]
    return name if name.isprintable() else ""


# ── the routes and their document ─────────────────────────────────────────────────────────────────

_QUEUE: Final = path_parameter("queue", "Name of the queue.")
_TOKENS: Final = {**array(TEXT), "maxItems": MAX_LEASES}
_MESSAGE: Final = {
    "allOf": [
        forms.RECORD,
        members(
            ["lease", "delivery_count", "priority", "leased_until_ms"],
            lease={**TEXT, "description": "Send it back to settle the message."},
            delivery_count={**integer(), "description": "Which delivery this is, from 1."},
            priority=integer(),
            leased_until_ms={**integer(), "description": "When the lease ends, in ms since the epoch."},
        ),
    ]
}
_LEASED: Final = members(
    ["consumer", "lease_ms", "messages"],
    consumer={**TEXT, "description": "Which consumer of the queue holds them."},
    lease_ms=integer(),
    messages=array(_MESSAGE),
)
_OUTCOME: Final = members(
    ok={"type": "boolean"},
    error={**PROBLEM, "description": "This one had no effect."},
)
_SETTLED: Final = members(
    ["leases"], leases={**array(_OUTCOME), "description": "One entry for each lease, in order."}
)
_DELAY: Final = integer(least=0, most=MAX_DELAY_MS)
_LEASE_MS: Final = integer(least=1, most=MAX_LEASE_MS)
_SOME_TEXT: Final = {**TEXT, "maxLength": MAX_TEXT_CHARACTERS}


def router(door: HttpFrontend) -> APIRouter:
    """The routes of leases."""
    routes = _Routes(door)
    api = APIRouter(tags=["queues"], route_class=RawRoute)
    api.add_api_route(
        "/v1/queues/{queue}/lease",
        routes.lease,
        methods=["POST"],
        summary="Lease",
        description=_LEASE_TEXT,
        responses=problems(400, 403, 404, 409)
        | {
            200: answer(
                "What was leased; no messages where there was nothing.",
                {"application/json": _LEASED, _OCTETS: BYTES},
            ),
            204: answer(f"There was nothing (asked for as {_OCTETS})."),
        },
        openapi_extra={"parameters": [_QUEUE, *_lease_parameters(door)]},
    )
    _add(api, "ack", routes.ack, "Acknowledge: the messages are done, and are never delivered again.", {})
    _add(
        api,
        "nack",
        routes.nack,
        "Not handled: try again after `delay_ms` (left out: as the queue's policy says) until the delivery limit.",
        {"delay_ms": _DELAY, "error": _SOME_TEXT},
    )
    _add(
        api,
        "reject",
        routes.reject,
        "Can never be handled: to the dead letters, with the reason.",
        {"reason": _SOME_TEXT},
    )
    _add(
        api,
        "extend",
        routes.extend,
        "Still at work: the leases begin anew, for `lease_ms` from now (left out: the queue's lease time).",
        {"lease_ms": _LEASE_MS},
    )
    _add(
        api, "release", routes.release, "Not begun: ready again at once, and the delivery does not count.", {}
    )
    return api


_LEASE_TEXT: Final = (
    "Take messages that no other consumer gets as long as the lease lasts. Settle each by its `lease` (ack, nack, reject, extend, release);"
    " what is not settled in time is delivered again.\n\n"
    f"With `Accept: {_OCTETS}` one message comes as the body itself, what belongs to it in headers (`Sparrow-Lease`, …)."
)


def _lease_parameters(door: HttpFrontend) -> list[dict[str, Any]]:
    limits = door.limits
    return [
        query_parameter("max", "At most so many messages.", integer(1, 1, limits.max_messages)),
        query_parameter(
            "wait_ms", "How long to wait while there is nothing.", integer(0, 0, limits.max_wait_ms)
        ),
        query_parameter(
            "max_bytes",
            "About so many bytes of messages, but one at least.",
            integer(DEFAULT_MAX_BYTES, 1, MAX_BYTES),
        ),
        query_parameter(
            "consumer",
            "Who leases. Requests that name none share one consumer for each user, and so the queue's `prefetch`.",
            {**TEXT, "maxLength": 200},
        ),
        query_parameter("subscriber", "For which subscriber of an all-of queue."),
        query_parameter(
            "encoding",
            "base64: keys, values and headers in base64 throughout.",
            choice("text", "text", "base64"),
        ),
    ]


def _add(api: APIRouter, verb: str, handler: Any, text: str, others: dict[str, Schema]) -> None:
    schema = {**members(["leases"], leases=_TOKENS, **others), "additionalProperties": False}
    in_query = [query_parameter("lease", "One lease, instead of a body.")]
    in_query += [query_parameter(name, "As in the body.", each) for name, each in others.items()]
    api.add_api_route(
        f"/v1/queues/{{queue}}/{verb}",
        handler,
        methods=["POST"],
        summary=verb.capitalize(),
        description=f"{text} The answer comes when it is on stable storage.",
        responses=problems(400, 403, 404, 409, 413)
        | {
            200: answer("All of it holds.", {"application/json": _SETTLED}),
            207: answer("Some of it holds.", {"application/json": _SETTLED}),
        },
        openapi_extra={
            "parameters": [_QUEUE, *in_query],
            "requestBody": body("The leases.", {"application/json": schema}, is_required=False),
        },
    )
