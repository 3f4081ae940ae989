"""Administration of webhooks for threads. See `sparrow.client.webhook_admin` for what each method does and raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.client.webhook_admin import OLD_SECRETS_KEPT_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.client.admin import Admin as AsyncAdmin
    from sparrow.client.results import WebhookDescription
    from sparrow.client.webhook_admin import SettingValue
    from sparrow.sync.background import Background


class WebhookAdmin:
    """The part of `client.admin` for webhooks."""

    _background: Background
    _admin: AsyncAdmin

    def put_webhook(
        self,
        queue: str,
        name: str,
        url: str | None = None,
        *,
        add_subscriber: bool = False,
        secrets: Iterable[str] | None = None,
        **settings: SettingValue,
    ) -> WebhookDescription:
        """Make a webhook of a queue, or change one."""
        return self._background.run(
            self._admin.put_webhook(
                queue, name, url, add_subscriber=add_subscriber, secrets=secrets, **settings
            )
        )

    def delete_webhook(self, queue: str, name: str, *, remove_subscriber: bool = False) -> None:
        """Deliver nothing to it any more."""
        self._background.run(self._admin.delete_webhook(queue, name, remove_subscriber=remove_subscriber))

    def describe_webhook(self, queue: str, name: str) -> WebhookDescription:
        """A webhook with its settings (no secrets) and statistics."""
        return self._background.run(self._admin.describe_webhook(queue, name))

    def list_webhooks(self, queue: str | None = None) -> list[WebhookDescription]:
        """The webhooks of a queue, or of all that one may describe."""
        return self._background.run(self._admin.list_webhooks(queue))

    def pause_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Deliver nothing to it until it is resumed."""
        return self._background.run(self._admin.pause_webhook(queue, name))

    def resume_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Deliver again; also at once to one that is failing."""
        return self._background.run(self._admin.resume_webhook(queue, name))

    def rotate_webhook_secret(
        self, queue: str, name: str, secret: str | None = None, *, keep_ms: int = OLD_SECRETS_KEPT_MS
    ) -> WebhookDescription:
        """Sign with a new secret, and for `keep_ms` with the old ones, too."""
        return self._background.run(self._admin.rotate_webhook_secret(queue, name, secret, keep_ms=keep_ms))
