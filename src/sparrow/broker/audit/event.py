"""Audit events: the principal, its operation, its address, and the outcome. Pure.

Events hold names and codes only. Values of settings, texts of errors, URLs, header values and
credentials stay out, because each of them may hold a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct, field

MAX_TEXT: Final = 256
"""The limit of characters of one text in an event; longer ones are cut."""
MAX_ITEMS: Final = 50
"""The limit of texts of one list in an event; the others are counted."""

Detail = str | int | tuple[str, ...]


class AuditOutcome(Enum):
    """Outcome of an act."""

    DONE = "done"
    REFUSED = "refused"
    """The principal may not do it, or the login was refused."""
    FAILED = "failed"
    UNFINISHED = "unfinished"
    """The client disconnected before the end; the act may have been carried out."""


class AuditEvent(Struct, frozen=True, kw_only=True):
    """One event. Texts of clients are passed through `safe`."""

    time_ms: int
    action: str
    """An operation such as "topic.create"; or "access" (a refused use), "login", "tls.handshake",
    "session.end", "audit.summary".
    """
    outcome: AuditOutcome
    principal: str = ""
    """Such as "User:alice"; "" if unknown."""
    address: str = ""
    """The client's address without the port; "" inside the broker and if unknown."""
    listener: str = ""
    resource_type: str = ""
    """Kafka's words, such as "Topic"."""
    resource: str = ""
    error: str = ""
    """The error's code if the outcome is not "done"."""
    details: Mapping[str, Detail] = field(default_factory=dict)
    count: int = 1
    """The number of equal refusals in this event."""

    def fields(self) -> dict[str, object]:
        """Return the fields that are set, by the names in docs/security.md, without the time."""
        known: dict[str, object] = {
            "action": self.action,
            "outcome": self.outcome.value,
            "principal": self.principal,
            "address": self.address,
            "listener": self.listener,
            "resource_type": self.resource_type,
            "resource": self.resource,
            "error": self.error,
            "count": self.count if self.count > 1 else "",
            **self.details,
        }
        return {
            name: list(v) if isinstance(v, tuple) else v for name, v in known.items() if v not in ("", ())
        }


def safe(text: str) -> str:
    """Return a client's text as one printable line of at most `MAX_TEXT` characters, so that it
    cannot forge lines of a log.
    """
    cut = text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()


def names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return texts for a list of an event: the first `MAX_ITEMS`, and how many more there are."""
    left = len(texts) - MAX_ITEMS
    listed = tuple(map(safe, texts[:MAX_ITEMS]))
    return (*listed, f"and {left} more") if left > 0 else listed
