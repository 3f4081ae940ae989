"""Routes that lease messages of a queue, and settle them.

A lease waits as a long poll does. If the client disconnects before the response is complete, its
messages are released at once and the delivery does not count; after the response was sent, only the
end of the lease brings them back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from sparrow.broker.queues.rules.settlement import Verb
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http import forms
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.leased_messages import LeaseRenderer, unpack
from sparrow.frontends.http.leases import (
    Consumers,
    LeaseRequest,
    SettleOptions,
)
from sparrow.frontends.http.openapi import (
    BYTES,
    PROBLEM,
    TEXT,
    array,
    body,
    integer,
    members,
    problems,
    query_parameter,
    response,
)
from sparrow.frontends.http.problems import problem_of
from sparrow.frontends.http.queries import (
    BASE64,
    ENCODING,
    Query,
    Text,
    WholeNumber,
    wait_parameter,
)
from sparrow.frontends.http.rawform import raw_response
from sparrow.frontends.http.responses import (
    JSON,
    ReservedResponse,
    json_response,
    no_content,
    problem_response,
    reserve,
    wait_for_quota,
    watch_end,
)
from sparrow.frontends.http.router import Route
from sparrow.frontends.http.settlements import (
    MAX_DELAY_MS,
    MAX_LEASE_MS,
    MAX_LEASES,
    MAX_TEXT_CHARACTERS,
    ExtendBody,
    Leases,
    NackBody,
    RejectBody,
    read_settle_body,
)
from sparrow.frontends.record_json import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.broker.queues.rules.settlement import Leased
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.leased_messages import LeasedMessage, UnpackedLeases
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response
    from sparrow.frontends.http.router import Handler, Schema
    from sparrow.frontends.transport.send_budget import Reservation

MAX_BYTES: Final = 16 << 20
_MAX_BYTES: Final = WholeNumber(
    "max_bytes", "Rough limit in bytes; at least one message.", 1 << 20, 1, MAX_BYTES
)
_CONSUMER: Final = Text(
    "consumer",
    "Id of the consumer. Requests without one share one consumer per user, and with it the "
    "queue's `prefetch`.",
    max_characters=200,
)
_SUBSCRIBER: Final = Text("subscriber", "Subscriber of an all-of queue.")
_RENDERED_PER_ITERATION: Final = 256
_LARGE_BYTES: Final = 1 << 20
_OCTETS: Final = "application/octet-stream"
_OK: Final = {"ok": True}


class _Routes:
    def __init__(self, frontend: HttpContext) -> None:
        self._frontend = frontend
        self._clock = frontend.broker.clock
        self._consumers = Consumers(frontend.broker)
        frontend.at_sweep.append(self._consumers.sweep)
        frontend.at_close.append(self._consumers.close)
        limits = frontend.limits
        self._max = WholeNumber("max", "Largest number of messages.", 1, 1, limits.max_messages)
        self._wait_ms = wait_parameter(limits)
        self.parameters = (self._max, self._wait_ms, _MAX_BYTES, _CONSUMER, _SUBSCRIBER, ENCODING)

    # ── leasing ───────────────────────────────────────────────────────────────────────────────────

    async def lease(self, request: Request) -> Response:
        await request.body()
        query = Query(request)
        is_raw = _OCTETS in request.header(b"accept")
        lease_request = LeaseRequest(
            request.path_params["queue"],
            1 if is_raw else query.integer(self._max),
            query.integer(_MAX_BYTES),
            query.value(_CONSUMER),
            query.value(_SUBSCRIBER),
            _client_name(request),
        )
        wait_ms = query.integer(self._wait_ms)
        as_base64 = query.choice(ENCODING) == BASE64
        query.refuse_others()
        await wait_for_quota(request, self._frontend, QuotaKind.FETCH)
        with reserve(request) as reservation:
            response = await self._respond(request, lease_request, wait_ms, reservation, (is_raw, as_base64))
            self._frontend.count(QuotaKind.FETCH, caller(request), len(response.body))
            return ReservedResponse(response, reservation)

    async def _respond(
        self,
        request: Request,
        lease_request: LeaseRequest,
        wait_ms: int,
        reservation: Reservation,
        form: tuple[bool, bool],
    ) -> Response:
        """Return the response with leased messages; release them if the client has disconnected.
        `form`: raw, and base64 throughout.
        """
        is_raw, as_base64 = form
        consumer, leased = await self._leased(request, lease_request, wait_ms, reservation)
        found = await self._unpacked(consumer, leased)
        reservation.add(found.content_bytes)
        if is_raw:
            response = self._raw(consumer, found.deliveries)
        else:
            response = json_response(await self._shown(consumer, found, as_base64=as_base64))
        if leased and request.is_gone:
            await self._consumers.release(consumer, leased)
        return response

    async def _leased(
        self, request: Request, lease_request: LeaseRequest, wait_ms: int, reservation: Reservation
    ) -> tuple[QueueConsumer, list[Leased]]:
        """Lease what is available, or wait for it."""
        principal = caller(request)
        consumer, leased = await self._consumers.lease(
            lease_request, wait_ms=0, memory=reservation, principal=principal
        )
        if not leased and wait_ms and not self._frontend.is_stopping:
            async with watch_end(request, self._frontend) as end:
                consumer, leased = await self._lease_or_end(
                    lease_request, wait_ms, reservation, principal, end
                ) or (
                    consumer,
                    [],
                )
        return consumer, leased

    async def _lease_or_end(
        self,
        lease_request: LeaseRequest,
        wait_ms: int,
        reservation: Reservation,
        principal: Principal,
        end: asyncio.Future[None],
    ) -> tuple[QueueConsumer, list[Leased]] | None:
        """Lease with a wait. Return None if the client disconnects or the broker stops before."""
        leasing: asyncio.Task[tuple[QueueConsumer, list[Leased]]] = asyncio.create_task(
            self._consumers.lease(lease_request, wait_ms=wait_ms, memory=reservation, principal=principal)
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
        """Release the leases of a request that was cancelled while it got them."""
        if not leasing.cancelled() and leasing.exception() is None:
            self._frontend.spawn(self._consumers.release(*leasing.result()))

    async def _unpacked(self, consumer: QueueConsumer, leased: Sequence[Leased]) -> UnpackedLeases:
        """Decode the messages; give back to the queue what cannot be delivered with them."""
        found = await unpack(leased)
        if found.released:
            await self._consumers.release(consumer, found.released)
        for refused in found.refused:
            self._frontend.logger.warning(
                "queue %r, partition %d of %r: %s",
                consumer.queue_name,
                refused.leased.partition,
                refused.leased.topic,
                refused.error.text,
            )
            await self._consumers.refuse(consumer, *refused)
        return found

    # ── responses ─────────────────────────────────────────────────────────────────────────────────

    async def _shown(self, consumer: QueueConsumer, found: UnpackedLeases, *, as_base64: bool) -> bytes:
        """Return the body as JSON. Many messages are rendered with pauses, large ones in a
        thread.
        """
        showing = LeaseRenderer(consumer, self._clock.wall_ms())
        pieces: list[bytes] = []
        for start in range(0, len(found.deliveries), _RENDERED_PER_ITERATION):
            some = found.deliveries[start : start + _RENDERED_PER_ITERATION]
            if found.content_bytes > _LARGE_BYTES:
                pieces += await asyncio.to_thread(showing.rendered, some, as_base64=as_base64)
                continue
            if start:
                await asyncio.sleep(0)
            pieces += showing.rendered(some, as_base64=as_base64)
        head = encode({"consumer": consumer.id, "lease_ms": consumer.lease_ms})
        return b'%s,"messages":[%s]}' % (head[:-1], b",".join(pieces))

    def _raw(self, consumer: QueueConsumer, deliveries: Sequence[LeasedMessage]) -> Response:
        if not deliveries:
            return no_content()
        lease = LeaseRenderer(consumer, self._clock.wall_ms()).members_of(deliveries[0])
        return raw_response(
            deliveries[0].record,
            [
                (f"sparrow-{name.replace('_', '-')}".encode(), str(value).encode())
                for name, value in lease.items()
            ],
        )

    # ── settling ──────────────────────────────────────────────────────────────────────────────────

    async def ack(self, request: Request) -> Response:
        settle_body = await read_settle_body(request, Leases)
        return await self._settle(request, settle_body, SettleOptions(_queue(request), Verb.ACK))

    async def nack(self, request: Request) -> Response:
        settle_body = await read_settle_body(request, NackBody)
        delay_ms = -1 if settle_body.delay_ms is None else settle_body.delay_ms
        return await self._settle(
            request, settle_body, SettleOptions(_queue(request), Verb.NACK, delay_ms, settle_body.error)
        )

    async def reject(self, request: Request) -> Response:
        settle_body = await read_settle_body(request, RejectBody)
        return await self._settle(
            request, settle_body, SettleOptions(_queue(request), Verb.REJECT, text=settle_body.reason)
        )

    async def extend(self, request: Request) -> Response:
        settle_body = await read_settle_body(request, ExtendBody)
        lease_ms = -1 if settle_body.lease_ms is None else settle_body.lease_ms
        return await self._settle(request, settle_body, SettleOptions(_queue(request), Verb.EXTEND, lease_ms))

    async def release(self, request: Request) -> Response:
        settle_body = await read_settle_body(request, Leases)
        return await self._settle(request, settle_body, SettleOptions(_queue(request), Verb.RELEASE))

    async def _settle(self, request: Request, settle_body: Leases, options: SettleOptions) -> Response:
        named = options._replace(client_name=_client_name(request))
        outcomes = await self._consumers.settle(named, settle_body.leases, principal=caller(request))
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures and len(failures) == len(outcomes) and len({each.code for each in failures}) == 1:
            return problem_response(failures[0], request.path)
        return json_response(
            {"leases": [_OK if each is None else {"error": problem_of(each)} for each in outcomes]},
            207 if failures else 200,
        )


def _queue(request: Request) -> str:
    queue: str = request.path_params["queue"]
    return queue


def _client_name(request: Request) -> str:
    """Return the name of the client in statistics."""
    name = request.header(b"user-agent")[:80]
    return name if name.isprintable() else ""


# ── the routes and their document ─────────────────────────────────────────────────────────────────

_TOKENS: Final = {**array(TEXT), "maxItems": MAX_LEASES}
_MESSAGE: Final = {
    "allOf": [
        forms.RECORD,
        members(
            ["lease", "delivery_count", "priority", "leased_until_ms"],
            lease={**TEXT, "description": "Send it back to settle the message."},
            delivery_count={**integer(), "description": "Number of this delivery, from 1."},
            priority=integer(),
            leased_until_ms={**integer(), "description": "When the lease ends, in ms since the epoch."},
        ),
    ]
}
_LEASED: Final = members(
    ["consumer", "lease_ms", "messages"],
    consumer={**TEXT, "description": "Consumer of the queue that has the leases."},
    lease_ms=integer(),
    messages=array(_MESSAGE),
)
_OUTCOME: Final = members(
    ok={"type": "boolean"},
    error={**PROBLEM, "description": "Reason why this one had no effect."},
)
_SETTLED: Final = members(
    ["leases"], leases={**array(_OUTCOME), "description": "One entry for each lease, in order."}
)
_DELAY: Final = integer(least=0, most=MAX_DELAY_MS)
_LEASE_MS: Final = integer(least=1, most=MAX_LEASE_MS)
_SOME_TEXT: Final = {**TEXT, "maxLength": MAX_TEXT_CHARACTERS}


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of leases."""
    leases = _Routes(frontend)
    return [
        Route(
            "POST",
            "/v1/queues/{queue}/lease",
            leases.lease,
            tag="queues",
            name="lease",
            summary="Lease",
            text=_LEASE_TEXT,
            parameters=leases.parameters,
            responses=problems(400, 403, 404, 409)
            | {
                200: response(
                    "The leased messages; empty if there were none.", {JSON: _LEASED, _OCTETS: BYTES}
                ),
                204: response(f"There was no message (requested as {_OCTETS})."),
            },
        ),
        _settling(leases.ack, "Acknowledge messages: they are handled and never delivered again."),
        _settling(
            leases.nack,
            "Report a failure: the messages are retried after `delay_ms` (left out: the delay of the "
            "queue's policy) until the delivery limit.",
            delay_ms=_DELAY,
            error=_SOME_TEXT,
        ),
        _settling(
            leases.reject,
            "Reject messages that can never be handled: they go to the dead letters with the reason.",
            reason=_SOME_TEXT,
        ),
        _settling(
            leases.extend,
            "Extend leases: they end `lease_ms` from now (left out: the queue's lease time).",
            lease_ms=_LEASE_MS,
        ),
        _settling(
            leases.release,
            "Release unused messages: they are ready again at once, and the delivery does not count.",
        ),
    ]


_LEASE_TEXT: Final = (
    "Lease messages: no other consumer gets them as long as the lease lasts. Settle each by its "
    "`lease` (ack, nack, reject, extend, release);"
    " messages that are not settled in time are delivered again.\n\n"
    f"With `Accept: {_OCTETS}` one message comes as the body itself, with its lease in headers "
    "(`Sparrow-Lease`, …)."
)


def _settling(handler: Handler, text: str, **others: Schema) -> Route:
    """Return the route of an operation on leases; `others` are its arguments beside them."""
    name: str = handler.__name__
    schema = {**members(["leases"], leases=_TOKENS, **others), "additionalProperties": False}
    return Route(
        "POST",
        f"/v1/queues/{{queue}}/{name}",
        handler,
        tag="queues",
        name=name,
        summary=name.capitalize(),
        text=f"{text} The response comes when the change is on stable storage.",
        parameters=[
            query_parameter("lease", "One lease, instead of a body."),
            *(query_parameter(each, "As in the body.", others[each]) for each in others),
        ],
        request_body=body("The leases.", {JSON: schema}, is_required=False),
        responses=problems(400, 403, 404, 409, 413)
        | {
            200: response("All leases were settled.", {JSON: _SETTLED}),
            207: response("Some leases were settled.", {JSON: _SETTLED}),
        },
    )
