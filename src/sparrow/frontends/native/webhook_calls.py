"""The verbs of REQUEST that concern webhooks."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sparrow.broker.webhooks.verbs import KEPT_MS
from sparrow.frontends.native.verbs import Arguments, Caller, Verb


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


async def _put(to: Caller, a: PutWebhook) -> Any:
    made = await to.broker.webhooks.put(
        a.queue, a.name, a.settings, add_subscriber=a.add_subscriber, principal=to.principal
    )
    return msgspec.to_builtins(made)


async def _delete(to: Caller, a: DeleteWebhook) -> Any:
    await to.broker.webhooks.delete(
        a.queue, a.name, remove_subscriber=a.remove_subscriber, principal=to.principal
    )
    return {}


async def _describe(to: Caller, a: WebhookNamed) -> Any:
    return msgspec.to_builtins(to.broker.webhooks.describe(a.queue, a.name, principal=to.principal))


async def _list(to: Caller, a: ListWebhooks) -> Any:
    return {"webhooks": msgspec.to_builtins(to.broker.webhooks.listing(a.queue, principal=to.principal))}


async def _pause(to: Caller, a: WebhookNamed) -> Any:
    return msgspec.to_builtins(await to.broker.webhooks.pause(a.queue, a.name, principal=to.principal))


async def _resume(to: Caller, a: WebhookNamed) -> Any:
    return msgspec.to_builtins(await to.broker.webhooks.resume(a.queue, a.name, principal=to.principal))


async def _rotate_secret(to: Caller, a: RotateSecret) -> Any:
    rotated = await to.broker.webhooks.rotate_secret(
        a.queue, a.name, a.secret, keep_ms=a.keep_ms, principal=to.principal
    )
    return msgspec.to_builtins(rotated)


VERBS: Final[dict[str, Verb]] = {
    "webhook.put": Verb(PutWebhook, _put),
    "webhook.delete": Verb(DeleteWebhook, _delete),
    "webhook.describe": Verb(WebhookNamed, _describe),
    "webhook.list": Verb(ListWebhooks, _list),
    "webhook.pause": Verb(WebhookNamed, _pause),
    "webhook.resume": Verb(WebhookNamed, _resume),
    "webhook.rotate_secret": Verb(RotateSecret, _rotate_secret),
}
