"""Request handlers for webhooks."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.webhooks.service import KEPT_MS
from sparrow.frontends.native.request_handler import Arguments, RequestContext, RequestHandler


class PutWebhook(Arguments, frozen=True):
    queue: str
    name: str
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    add_subscriber: bool = False


class WebhookNamed(Arguments, frozen=True):
    queue: str
    name: str


class DeleteWebhook(Arguments, frozen=True):
    queue: str
    name: str
    remove_subscriber: bool = False


class ListWebhooks(Arguments, frozen=True):
    queue: str | None = None


class RotateSecret(Arguments, frozen=True):
    queue: str
    name: str
    secret: str | None = None
    keep_ms: int = KEPT_MS


async def _put(context: RequestContext, a: PutWebhook) -> Any:
    return await context.broker.webhooks.put(
        a.queue, a.name, a.settings, add_subscriber=a.add_subscriber, principal=context.principal
    )


async def _delete(context: RequestContext, a: DeleteWebhook) -> Any:
    await context.broker.webhooks.delete(
        a.queue, a.name, remove_subscriber=a.remove_subscriber, principal=context.principal
    )
    return {}


async def _describe(context: RequestContext, a: WebhookNamed) -> Any:
    return context.broker.webhooks.describe(a.queue, a.name, principal=context.principal)


async def _list(context: RequestContext, a: ListWebhooks) -> Any:
    return {"webhooks": context.broker.webhooks.listing(a.queue, principal=context.principal)}


async def _pause(context: RequestContext, a: WebhookNamed) -> Any:
    return await context.broker.webhooks.pause(a.queue, a.name, principal=context.principal)


async def _resume(context: RequestContext, a: WebhookNamed) -> Any:
    return await context.broker.webhooks.resume(a.queue, a.name, principal=context.principal)


async def _rotate_secret(context: RequestContext, a: RotateSecret) -> Any:
    return await context.broker.webhooks.rotate_secret(
        a.queue, a.name, a.secret, keep_ms=a.keep_ms, principal=context.principal
    )


HANDLERS: Final[dict[str, RequestHandler]] = {
    "webhook.put": RequestHandler(PutWebhook, _put),
    "webhook.delete": RequestHandler(DeleteWebhook, _delete),
    "webhook.describe": RequestHandler(WebhookNamed, _describe),
    "webhook.list": RequestHandler(ListWebhooks, _list),
    "webhook.pause": RequestHandler(WebhookNamed, _pause),
    "webhook.resume": RequestHandler(WebhookNamed, _resume),
    "webhook.rotate_secret": RequestHandler(RotateSecret, _rotate_secret),
}
