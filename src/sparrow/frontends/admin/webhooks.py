"""Operations on webhooks, and on subscribers of queues.

By HTTP a webhook is a subscriber with a `url`. On an all-of queue it is one of the queue's
subscribers; on another queue it competes with the consumers that lease, and its name only
identifies it. A subscriber without a `url` is a name among the subscribers of an all-of queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from sparrow.base.errors import UnknownWebhook
from sparrow.broker.webhooks.service import KEPT_MS
from sparrow.frontends.admin.fields import Body, Text, given
from sparrow.frontends.admin.operation import Arguments, OperationContext
from sparrow.model.queues import SubscriberStatistics  # noqa: TC001 - msgspec reads it
from sparrow.model.webhooks import WebhookDescription  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
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


class WebhookNamed(Arguments, frozen=True):
    queue: str
    name: str


class PutWebhook(WebhookNamed, frozen=True):
    settings: dict[str, Any] = field(default_factory=dict)
    add_subscriber: bool = False


class DeleteWebhook(WebhookNamed, frozen=True):
    remove_subscriber: bool = False


class DeleteSubscriber(WebhookNamed, frozen=True):
    keep_subscriber: bool = False


class ListWebhooks(Arguments, frozen=True):
    queue: str | None = None


class ListSubscribers(Arguments, frozen=True):
    queue: str


class RotateSecret(WebhookNamed, frozen=True):
    secret: str | None = None
    keep_ms: int = KEPT_MS


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


# ── webhooks ──────────────────────────────────────────────────────────────────────────────────────


async def put_webhook(context: OperationContext, a: PutWebhook) -> WebhookDescription:
    """Create a webhook of a queue, or change one."""
    return await context.broker.webhooks.put(
        a.queue, a.name, a.settings, add_subscriber=a.add_subscriber, principal=context.principal
    )


async def delete_webhook(context: OperationContext, a: DeleteWebhook) -> None:
    """Delete a webhook; an all-of queue may forget its share."""
    await context.broker.webhooks.delete(
        a.queue, a.name, remove_subscriber=a.remove_subscriber, principal=context.principal
    )


async def describe_webhook(context: OperationContext, a: WebhookNamed) -> WebhookDescription:
    """Describe a webhook: its settings and statistics."""
    return context.broker.webhooks.describe(a.queue, a.name, principal=context.principal)


async def list_webhooks(context: OperationContext, a: ListWebhooks) -> dict[str, list[WebhookDescription]]:
    """List the webhooks of a queue, or all that you may describe."""
    return {"webhooks": context.broker.webhooks.listing(a.queue, principal=context.principal)}


async def pause(context: OperationContext, a: WebhookNamed) -> WebhookDescription:
    """Stop deliveries to a webhook until `resume`."""
    return await context.broker.webhooks.pause(a.queue, a.name, principal=context.principal)


async def resume(context: OperationContext, a: WebhookNamed) -> WebhookDescription:
    """Resume deliveries to a webhook: after `pause`, or at once after failures."""
    return await context.broker.webhooks.resume(a.queue, a.name, principal=context.principal)


async def rotate(context: OperationContext, a: RotateSecret) -> WebhookDescription:
    """Sign with a new secret; the old ones sign beside it for a while. The response contains a
    secret that the broker created. It is not shown again.
    """
    return await context.broker.webhooks.rotate_secret(
        a.queue, a.name, a.secret, keep_ms=a.keep_ms, principal=context.principal
    )


# ── subscribers ───────────────────────────────────────────────────────────────────────────────────


async def list_subscribers(context: OperationContext, a: ListSubscribers) -> SubscriberList:
    """List the subscribers of a queue, and its webhooks."""
    broker, principal = context.broker, context.principal
    info = broker.queues.describe(a.queue, principal=principal)
    webhooks = {each.name: each for each in broker.webhooks.listing(a.queue, principal=principal)}
    names = dict.fromkeys([*info.statistics.subscribers, *webhooks])
    return SubscriberList([_shown(name, info, webhooks.get(name)) for name in names])


async def describe(context: OperationContext, a: WebhookNamed) -> SubscriberShown:
    """Describe one subscriber."""
    info = context.broker.queues.describe(a.queue, principal=context.principal)
    webhook = _maybe_webhook(context, a)
    if webhook is None and a.name not in info.statistics.subscribers:
        raise UnknownWebhook(f"queue {a.queue!r} has no subscriber {a.name[:200]!r}")
    return _shown(a.name, info, webhook)


async def put(context: OperationContext, a: PutWebhook) -> SubscriberShown:
    """Create a subscriber, or change a webhook. With a `url` it is a webhook; an empty object
    creates a plain subscriber.

    The response contains the secret of a new webhook. It is not shown again.
    """
    queues, principal = context.broker.queues, context.principal
    # otherwise the change would be made and the response refused
    queues.describe(a.queue, principal=principal)
    if a.settings or a.add_subscriber:
        made = await put_webhook(context, a)
        return _shown(a.name, queues.describe(a.queue, principal=principal), made)
    await queues.set_subscriber(a.queue, a.name, is_one=True, principal=principal)
    return await describe(context, a)


async def delete(context: OperationContext, a: DeleteSubscriber) -> None:
    """Delete a subscriber: its webhook, and its share of an all-of queue, whose messages it no
    longer has to handle.
    """
    await describe(context, a)
    if _maybe_webhook(context, a) is not None:
        await delete_webhook(context, DeleteWebhook(a.queue, a.name, not a.keep_subscriber))
    elif not a.keep_subscriber:
        await context.broker.queues.set_subscriber(a.queue, a.name, is_one=False, principal=context.principal)


def _maybe_webhook(context: OperationContext, a: WebhookNamed) -> WebhookDescription | None:
    try:
        return context.broker.webhooks.describe(a.queue, a.name, principal=context.principal)
    except UnknownWebhook:
        return None


def _shown(name: str, info: QueueDescription, webhook: WebhookDescription | None) -> SubscriberShown:
    messages = info.statistics.subscribers.get(name)
    return SubscriberShown(name, messages is not None, messages, webhook)


def settings(_: OperationContext, queue: str, subscriber: str, body: Subscriber) -> PutWebhook:
    """Return the arguments of `put`: the settings that are given."""
    chosen = given(body)
    return PutWebhook(queue, subscriber, chosen, chosen.pop("add_subscriber"))


def rotation(_: OperationContext, queue: str, subscriber: str, body: Rotation) -> RotateSecret:
    """Return the arguments of `rotate`."""
    return RotateSecret(queue, subscriber, body.secret, KEPT_MS if body.keep_ms is None else body.keep_ms)
