"""Routes of the subscribers of a queue: names for which consumers lease, and webhooks, to which the
broker delivers messages itself.

A subscriber with a `url` is a webhook. On an all-of queue it is one of the queue's subscribers; on
another queue it competes with the consumers that lease, and its name only identifies it. A
subscriber without a `url` is a name among the subscribers of an all-of queue.
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from sparrow.base.errors import UnknownWebhook
from sparrow.frontends.http.fields import MAX_NAME_CHARACTERS, Body, QueuePath, Shown, Text
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.jsonroute import JsonRoute
from sparrow.frontends.http.openapi import problems
from sparrow.frontends.http.responses import json_response, no_content
from sparrow.frontends.http.routes.admin_queues import LaneShown

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.queues.description import QueueInfo
    from sparrow.broker.webhooks.description import EndpointInfo
    from sparrow.frontends.http.context import HttpContext

SubscriberPath = Annotated[str, Path(description="Name of the subscriber.", max_length=MAX_NAME_CHARACTERS)]
_Number = Annotated[int | float | None, Field(lt=1e15, gt=-1e15)]
_Duration = Annotated[
    _Number | Text, Field(description='With a unit, such as "10s"; a bare number is milliseconds.')
]


class Subscriber(Body):
    """Settings of a subscriber. Settings that are left out stay unchanged, or get their defaults
    for a new webhook. null is the default.
    """

    url: Annotated[Text | None, Field(description="Address to which the broker POSTs messages.")] = None
    format: Text | None = None
    accept: Text | None = None
    headers: Annotated[dict[str, Text] | None, Field(max_length=100)] = None
    concurrency: _Number = None
    rate: _Number = None
    timeout: _Duration = None
    backoff_delay: _Duration = None
    backoff_max: _Duration = None
    jitter: _Number = None
    timeout_ms: _Number = None
    backoff_ms: _Number = None
    backoff_max_ms: _Number = None
    backoff_jitter: _Number = None
    pause_after: _Number = None
    secrets: Annotated[
        list[Text] | None,
        Field(
            max_length=100,
            description="whsec_…, newest first; []: no signatures; left out: the broker creates one.",
        ),
    ] = None
    add_subscriber: Annotated[
        bool,
        Field(
            description="Make the name a subscriber of the queue, which becomes an all-of queue if "
            "it is not one."
        ),
    ] = False

    def settings(self) -> dict[str, Any]:
        """Return the given settings."""
        return self.model_dump(include=self.model_fields_set - {"add_subscriber"})


class Rotation(Body):
    secret: Annotated[Text | None, Field(description="The new secret; left out: the broker creates it.")] = (
        None
    )
    keep_ms: Annotated[
        int | None,
        Field(ge=0, lt=1 << 53, description="Time that the old secrets sign beside it; default: a day."),
    ] = None


class WebhookShown(Shown):
    queue: str
    name: str
    settings: dict[str, Any]
    secrets: list[int]
    owner: str
    is_trusted: bool
    is_paused: bool
    paused_because: str
    created_ms: int
    statistics: dict[str, Any]
    secret: Annotated[str, Field(description="A secret that was just created. It is not shown again.")]


class SubscriberShown(Shown):
    name: str
    is_subscriber: Annotated[bool, Field(description="True if the queue delivers every message to it.")]
    messages: LaneShown | None
    webhook: WebhookShown | None


class SubscriberList(Shown):
    subscribers: list[SubscriberShown]


class _Subscribers:
    def __init__(self, frontend: "HttpContext") -> None:
        self._queues = frontend.broker.queues
        self._webhooks = frontend.broker.webhooks

    async def list_subscribers(self, request: Request, queue: QueuePath) -> Response:
        """List the subscribers of a queue, and its webhooks."""
        principal = caller(request)
        info = self._queues.describe(queue, principal=principal)
        webhooks = {each.name: each for each in self._webhooks.listing(queue, principal=principal)}
        names = dict.fromkeys([*info.statistics.subscribers, *webhooks])
        return json_response({"subscribers": [_shown(name, info, webhooks.get(name)) for name in names]})

    async def describe(self, request: Request, queue: QueuePath, subscriber: SubscriberPath) -> Response:
        """Describe one subscriber."""
        return json_response(self._described(queue, subscriber, caller(request)))

    def _described(self, queue: str, name: str, principal: "Principal") -> dict[str, Any]:
        info = self._queues.describe(queue, principal=principal)
        webhook = self._maybe_webhook(queue, name, principal)
        if webhook is None and name not in info.statistics.subscribers:
            raise UnknownWebhook(f"queue {queue!r} has no subscriber {name[:200]!r}")
        return _shown(name, info, webhook)

    def _maybe_webhook(self, queue: str, name: str, principal: "Principal") -> "EndpointInfo | None":
        try:
            return self._webhooks.describe(queue, name, principal=principal)
        except UnknownWebhook:
            return None

    async def put(
        self, request: Request, queue: QueuePath, subscriber: SubscriberPath, body: Subscriber
    ) -> Response:
        """Create a subscriber, or change a webhook. With a `url` it is a webhook; an empty object
        creates a plain subscriber.

        The response contains the secret of a new webhook. It is not shown again.
        """
        principal = caller(request)
        settings = body.settings()
        self._queues.describe(
            queue, principal=principal
        )  # otherwise the change would be made and the response refused
        if settings or body.add_subscriber:
            put = await self._webhooks.put(
                queue, subscriber, settings, add_subscriber=body.add_subscriber, principal=principal
            )
            return json_response(_shown(subscriber, self._queues.describe(queue, principal=principal), put))
        await self._queues.set_subscriber(queue, subscriber, is_one=True, principal=principal)
        return json_response(self._described(queue, subscriber, principal))

    async def delete(
        self,
        request: Request,
        queue: QueuePath,
        subscriber: SubscriberPath,
        keep_subscriber: Annotated[
            bool,
            Query(description="Delete only the webhook: its share of an all-of queue waits for consumers."),
        ] = False,
    ) -> Response:
        """Delete a subscriber: its webhook, and its share of an all-of queue, whose messages it no
        longer has to handle.
        """
        principal = caller(request)
        self._described(queue, subscriber, principal)
        if self._maybe_webhook(queue, subscriber, principal) is not None:
            await self._webhooks.delete(
                queue, subscriber, remove_subscriber=not keep_subscriber, principal=principal
            )
        elif not keep_subscriber:
            await self._queues.set_subscriber(queue, subscriber, is_one=False, principal=principal)
        return no_content()

    async def pause(self, request: Request, queue: QueuePath, subscriber: SubscriberPath) -> Response:
        """Stop deliveries to a webhook until `resume`."""
        return _webhook_response(await self._webhooks.pause(queue, subscriber, principal=caller(request)))

    async def resume(self, request: Request, queue: QueuePath, subscriber: SubscriberPath) -> Response:
        """Resume deliveries to a webhook: after `pause`, or at once after failures."""
        return _webhook_response(await self._webhooks.resume(queue, subscriber, principal=caller(request)))

    async def rotate(
        self, request: Request, queue: QueuePath, subscriber: SubscriberPath, body: Rotation | None = None
    ) -> Response:
        """Sign with a new secret; the old ones sign beside it for a while. The response contains a
        secret that the broker created. It is not shown again.
        """
        rotation = body or Rotation()
        options = {} if rotation.keep_ms is None else {"keep_ms": rotation.keep_ms}
        rotated = await self._webhooks.rotate_secret(
            queue, subscriber, rotation.secret, **options, principal=caller(request)
        )
        return _webhook_response(rotated)


def _webhook_response(info: "EndpointInfo") -> Response:
    return json_response(msgspec.to_builtins(info))


def _shown(name: str, info: "QueueInfo", webhook: "EndpointInfo | None") -> dict[str, Any]:
    messages = info.statistics.subscribers.get(name)
    return {
        "name": name,
        "is_subscriber": messages is not None,
        "messages": None if messages is None else msgspec.to_builtins(messages),
        "webhook": None if webhook is None else msgspec.to_builtins(webhook),
    }


def router(frontend: "HttpContext") -> APIRouter:
    """Return the routes of subscribers."""
    routes = _Subscribers(frontend)
    api = APIRouter(tags=["subscribers"], route_class=JsonRoute)
    all_of_them = "/v1/queues/{queue}/subscribers"
    one = f"{all_of_them}/{{subscriber}}"
    wrong = problems(400, 403, 404)
    api.add_api_route(
        all_of_them,
        routes.list_subscribers,
        methods=["GET"],
        response_model=SubscriberList,
        responses=wrong,
    )
    api.add_api_route(one, routes.describe, methods=["GET"], response_model=SubscriberShown, responses=wrong)
    api.add_api_route(
        one,
        routes.put,
        methods=["PUT"],
        response_model=SubscriberShown,
        responses=problems(400, 403, 404, 409),
    )
    api.add_api_route(
        one, routes.delete, methods=["DELETE"], status_code=204, responses=problems(400, 403, 404, 409)
    )
    for action, handler in (
        ("pause", routes.pause),
        ("resume", routes.resume),
        ("rotate-secret", routes.rotate),
    ):
        api.add_api_route(
            f"{one}/{action}", handler, methods=["POST"], response_model=WebhookShown, responses=wrong
        )
    return api
