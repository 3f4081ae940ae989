"""Administration of webhooks: the part of `client.admin` for subscribers of queues that are URLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparrow.client.results import WebhookDescription
from sparrow.client.verbs import Verbs, result_as

if TYPE_CHECKING:
    from collections.abc import Iterable

SettingValue = str | int | float | Sequence[str] | Mapping[str, str] | None
"""A setting of a webhook, as `docs/webhooks.md` lists them."""

OLD_SECRETS_KEPT_MS = 86_400_000


class WebhookAdmin(Verbs):
    """The verbs of webhooks. Every method raises UnknownQueue, and all but `put_webhook` and `list_webhooks` UnknownWebhook."""

    async def put_webhook(
        self,
        queue: str,
        name: str,
        url: str | None = None,
        *,
        add_subscriber: bool = False,
        secrets: Iterable[str] | None = None,
        **settings: SettingValue,
    ) -> WebhookDescription:
        """Make a webhook of a queue, or change one; what is not named stays, or (of a new one) has its default.

        Args:
            url: needed of a new one.
            add_subscriber: make it a subscriber of the queue, which then delivers every record to each of its subscribers.
            secrets: sign with these, the newest first; none: do not sign. Left out, the broker makes one for a new webhook: it is in
                the answer, and shown nowhere again.
            settings: such as `format="json"`, `concurrency=4`, `rate=100`; None: back to the default.

        Raises:
            InvalidConfig: there is no such setting, or it takes no such value, or no webhooks are sent to that address.
            InvalidArgument: the queue has subscribers, of which this is none.
        """
        chosen: dict[str, Any] = dict(settings)
        if url is not None:
            chosen["url"] = url
        if secrets is not None:
            chosen["secrets"] = list(secrets)
        arguments = {"queue": queue, "name": name, "settings": chosen, "add_subscriber": add_subscriber}
        return result_as(WebhookDescription, await self._change("webhook.put", arguments))

    async def delete_webhook(self, queue: str, name: str, *, remove_subscriber: bool = False) -> None:
        """Deliver nothing to it any more. `remove_subscriber`: what it had still to get of an all-of queue is not waited for, either."""
        arguments = {"queue": queue, "name": name, "remove_subscriber": remove_subscriber}
        await self._change("webhook.delete", arguments)

    async def describe_webhook(self, queue: str, name: str) -> WebhookDescription:
        """A webhook with its settings (no secrets) and statistics."""
        return result_as(
            WebhookDescription, await self._read("webhook.describe", {"queue": queue, "name": name})
        )

    async def list_webhooks(self, queue: str | None = None) -> list[WebhookDescription]:
        """The webhooks of a queue, or of all that one may describe."""
        answer = await self._read("webhook.list", {"queue": queue})
        return result_as(list[WebhookDescription], answer["webhooks"])

    async def pause_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Deliver nothing to it until it is resumed, over restarts of the broker as well."""
        return result_as(
            WebhookDescription, await self._change("webhook.pause", {"queue": queue, "name": name})
        )

    async def resume_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Deliver again; also at once to one that is failing."""
        return result_as(
            WebhookDescription, await self._change("webhook.resume", {"queue": queue, "name": name})
        )

    async def rotate_webhook_secret(
        self, queue: str, name: str, secret: str | None = None, *, keep_ms: int = OLD_SECRETS_KEPT_MS
    ) -> WebhookDescription:
        """Sign with a new secret (None: the broker makes one, which the answer has), and for `keep_ms` with the old ones, too.

        Raises:
            InvalidConfig: it is no secret.
        """
        arguments = {"queue": queue, "name": name, "secret": secret, "keep_ms": keep_ms}
        return result_as(WebhookDescription, await self._change("webhook.rotate_secret", arguments))
