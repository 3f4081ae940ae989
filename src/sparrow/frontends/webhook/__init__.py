"""The webhook frontend: delivers the records of queues to URLs."""

from sparrow.frontends.webhook.frontend import WebhookFrontend, WebhookSettings

__all__ = ["WebhookFrontend", "WebhookSettings"]
