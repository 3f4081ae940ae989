"""The events of a broker, without the limiter's limits."""

from __future__ import annotations

from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import AuditEvent
from sparrow.broker.audit.limiter import EventLimiter


class Recorder:
    """A collector of the events of an audit."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._events: list[AuditEvent] = []
        audit._limiter = EventLimiter(audit._clock, 10**9, 10**9)
        audit.channels.append(self._events.append)

    def take(self) -> list[AuditEvent]:
        """Return the events since the last call, including those that wait for equal ones."""
        self._audit.flush()
        found = list(self._events)
        self._events.clear()
        return found


def outcomes(events: list[AuditEvent]) -> list[tuple[str, str, str]]:
    """Return (action, outcome, principal) of events."""
    return [(each.action, each.outcome.value, each.principal) for each in events]
