"""Routes of the subscribers of a queue: names for which consumers lease, and webhooks, to which the
broker delivers messages itself.

A subscriber with a `url` is a webhook. On an all-of queue it is one of the queue's subscribers; on
another queue it competes with the consumers that lease, and its name only identifies it. A
subscriber without a `url` is a name among the subscribers of an all-of queue.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from sparrow.base.errors import UnknownWebhook
from sparrow.frontends.http.arguments import CONFLICTING, operation
from sparrow.frontends.http.fields import Body, Text, given
from sparrow.frontends.http.identity import caller
from sparrow.model.queues import SubscriberStatistics
from sparrow.model.webhooks import WebhookDescription

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Route
    from sparrow.model.queues import QueueDescription

_Number = (
    Annotated[int, Meta(gt=-(10**15), lt=10**15)]
    | Annotated[float, Meta(gt=-1e15, lt=1e15)]
    | None
    | UnsetType
)
_Duration = Annotated[
    _Number | Text, Meta(description='With a unit, such as "10s"; a bare number is milliseconds.')
]
_Text = Text | None | UnsetType
_Secrets = Annotated[list[Text], Meta(max_length=100)] | None | UnsetType


class Subscriber(Body):
    """Settings of a subscriber. Settings that are left out stay unchanged, or get their defaults
    for a new webhook. null is the default.
    """

    url: Annotated[_Text, Meta(description="Address to which the broker POSTs messages.")] = UNSET
    format: _Text = UNSET
    accept: _Text = UNSET
    headers: Annotated[dict[str, Text], Meta(max_length=100)] | UnsetType | None = UNSET
    concurrency: _Number = UNSET
    rate: _Number = UNSET
    timeout: _Duration = UNSET
    backoff_delay: _Duration = UNSET
    backoff_max: _Duration = UNSET
    jitter: _Number = UNSET
    timeout_ms: _Number = UNSET
    backoff_ms: _Number = UNSET
    backoff_max_ms: _Number = UNSET
    backoff_jitter: _Number = UNSET
    pause_after: _Number = UNSET
    secrets: Annotated[
        _Secrets,
        Meta(description="whsec_…, newest first; []: no signatures; left out: the broker creates one."),
    ] = UNSET
    add_subscriber: Annotated[
        bool,
        Meta(
            description="Make the name a subscriber of the queue, which becomes an all-of queue if "
            "it is not one."
        ),
    ] = False

    def settings(self) -> dict[str, Any]:
        """Return the given settings."""
        found = given(self)
        del found["add_subscriber"]
        return found


class Keeping(Struct):
    keep_subscriber: Annotated[
        bool,
        Meta(description="Delete only the webhook: its share of an all-of queue waits for consumers."),
    ] = False


class Rotation(Body):
    secret: Annotated[Text | None, Meta(description="The new secret; left out: the broker creates it.")] = (
        None
    )
    keep_ms: (
        Annotated[
            int,
            Meta(ge=0, lt=1 << 53, description="Time that the old secrets sign beside it; default: a day."),
        ]
        | None
    ) = None


class SubscriberShown(Struct):
    name: str
    is_subscriber: Annotated[bool, Meta(description="True if the queue delivers every message to it.")]
    messages: SubscriberStatistics | None
    webhook: WebhookDescription | None


class SubscriberList(Struct):
    subscribers: list[SubscriberShown]


class _Subscribers:
    def __init__(self, frontend: HttpContext) -> None:
        self._queues = frontend.broker.queues
        self._webhooks = frontend.broker.webhooks

    async def list_subscribers(self, request: Request, queue: str) -> object:
        """List the subscribers of a queue, and its webhooks."""
        principal = caller(request)
        info = self._queues.describe(queue, principal=principal)
        webhooks = {each.name: each for each in self._webhooks.listing(queue, principal=principal)}
        names = dict.fromkeys([*info.statistics.subscribers, *webhooks])
        return {"subscribers": [_shown(name, info, webhooks.get(name)) for name in names]}

    async def describe(self, request: Request, queue: str, subscriber: str) -> object:
        """Describe one subscriber."""
        return self._described(queue, subscriber, caller(request))

    def _described(self, queue: str, name: str, principal: Principal) -> dict[str, Any]:
        info = self._queues.describe(queue, principal=principal)
        webhook = self._maybe_webhook(queue, name, principal)
        if webhook is None and name not in info.statistics.subscribers:
            raise UnknownWebhook(f"queue {queue!r} has no subscriber {name[:200]!r}")
        return _shown(name, info, webhook)

    def _maybe_webhook(self, queue: str, name: str, principal: Principal) -> WebhookDescription | None:
        try:
            return self._webhooks.describe(queue, name, principal=principal)
        except UnknownWebhook:
            return None

    async def put(self, request: Request, queue: str, subscriber: str, body: Subscriber) -> object:
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
            return _shown(subscriber, self._queues.describe(queue, principal=principal), put)
        await self._queues.set_subscriber(queue, subscriber, is_one=True, principal=principal)
        return self._described(queue, subscriber, principal)

    async def delete(self, request: Request, queue: str, subscriber: str, by: Keeping) -> None:
        """Delete a subscriber: its webhook, and its share of an all-of queue, whose messages it no
        longer has to handle.
        """
        principal = caller(request)
        self._described(queue, subscriber, principal)
        if self._maybe_webhook(queue, subscriber, principal) is not None:
            await self._webhooks.delete(
                queue, subscriber, remove_subscriber=not by.keep_subscriber, principal=principal
            )
        elif not by.keep_subscriber:
            await self._queues.set_subscriber(queue, subscriber, is_one=False, principal=principal)

    async def pause(self, request: Request, queue: str, subscriber: str) -> object:
        """Stop deliveries to a webhook until `resume`."""
        return await self._webhooks.pause(queue, subscriber, principal=caller(request))

    async def resume(self, request: Request, queue: str, subscriber: str) -> object:
        """Resume deliveries to a webhook: after `pause`, or at once after failures."""
        return await self._webhooks.resume(queue, subscriber, principal=caller(request))

    async def rotate(self, request: Request, queue: str, subscriber: str, body: Rotation) -> object:
        """Sign with a new secret; the old ones sign beside it for a while. The response contains a
        secret that the broker created. It is not shown again.
        """
        options = {} if body.keep_ms is None else {"keep_ms": body.keep_ms}
        return await self._webhooks.rotate_secret(
            queue, subscriber, body.secret, **options, principal=caller(request)
        )


def _shown(name: str, info: QueueDescription, webhook: WebhookDescription | None) -> dict[str, Any]:
    messages = info.statistics.subscribers.get(name)
    return {
        "name": name,
        "is_subscriber": messages is not None,
        "messages": messages,
        "webhook": webhook,
    }


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of subscribers."""
    subscribers = _Subscribers(frontend)
    serve = partial(operation, tag="subscribers")
    all_of_them = "/v1/queues/{queue}/subscribers"
    one = f"{all_of_them}/{{subscriber}}"
    rotate = f"{one}/rotate-secret"
    return [
        serve("GET", all_of_them, subscribers.list_subscribers, SubscriberList),
        serve("GET", one, subscribers.describe, SubscriberShown),
        serve("PUT", one, subscribers.put, SubscriberShown, body=Subscriber, refusals=CONFLICTING),
        serve("DELETE", one, subscribers.delete, query=Keeping, status=204, refusals=CONFLICTING),
        serve("POST", f"{one}/pause", subscribers.pause, WebhookDescription),
        serve("POST", f"{one}/resume", subscribers.resume, WebhookDescription),
        serve("POST", rotate, subscribers.rotate, WebhookDescription, body=Rotation, needs_body=False),
    ]
