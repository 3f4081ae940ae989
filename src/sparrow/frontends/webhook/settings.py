"""Settings of the webhook frontend."""

from __future__ import annotations

from dataclasses import dataclass

from sparrow.base.settings import PATH, WORDS, integer, option


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Allowed targets of webhooks, the number of concurrent requests, and a PEM file with further
    authorities.
    """

    allow: tuple[str, ...] = option(
        "webhooks.allow",
        WORDS,
        (),
        "Loopback and private networks to which webhooks may be sent, such as 10.0.0.0/8; private "
        "for all of them.",
    )
    max_connections: int = option(
        "webhooks.max_connections",
        integer(1, 100_000),
        1_000,
        "Connections to webhook endpoints at a time.",
    )
    ca_path: str = option(
        "webhooks.ca",
        PATH,
        "",
        "PEM file with authorities of your own whose certificates webhook endpoints may show.",
        name="webhooks_ca",
    )
