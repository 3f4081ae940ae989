"""The audit of a broker: every administrative act and every refusal becomes one event.

    operations  ─with audit.act(…)─▶ Act ─done, failed, unfinished──────┐
    authorizer  ─refused(…)────────▶ inside an act: the act is refused  ├▶ limiter ─▶ logger, topic
                                     else: an "access" event            │
    listeners   ─login_refused(…), handshake_refused(…)─────────────────┘

The authorizer reports each refusal (`Access.refusal`), so that no listener can forget one; allowed
operations cost nothing. Acts inside of an act (the topic that a new queue needs) are named in its
event and have none of their own. Equal refusals within `MERGE_S` are one event with a count: a
request may ask the same for each of its partitions.

Refusals, refused logins, ended sessions and failed acts pass the limiter. Acts that were, or may
have been, carried out do not: they are never left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from sparrow.base.clock import SystemClock
from sparrow.base.errors import InternalError, NotAuthorized, SparrowError
from sparrow.broker.audit.event import AuditEvent, AuditOutcome, Detail, names, safe
from sparrow.broker.audit.limiter import WINDOW_S, AuditSource, EventLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextvars import Token
    from types import TracebackType

    from sparrow.base.clock import Clock
    from sparrow.broker.access.authz import Operation, Principal, ResourceType

LOGGER: Final = "sparrow.audit"
MERGE_S: Final = 0.05
MAX_MERGED: Final = 1_000
"""The limit of different refusals that wait for equal ones."""
_ACCESS: Final = "access"
_log = logging.getLogger(LOGGER)
_current: ContextVar[Act | None] = ContextVar("sparrow_audit_act", default=None)

_Refused = tuple[str, str, str, str, str, str]
"""(principal, address, listener, resource type, resource, needed right)."""


class Audit:
    """The audit, `broker.audit`. Loop thread only.

    Args:
        clock: stamps events and times the limiter's windows.
        counts: counts events by outcome.
        lost: counts events that a channel did not get, by reason: "limited" and those of the topic.
    """

    def __init__(
        self, clock: Clock | None = None, counts: Counter[str] | None = None, lost: Counter[str] | None = None
    ) -> None:
        self.channels: list[Callable[[AuditEvent], None]] = [_log_event]
        """Called with each event, on the loop; they must not wait."""
        self._clock = clock or SystemClock()
        self._counts: Counter[str] = Counter() if counts is None else counts
        self._lost: Counter[str] = Counter() if lost is None else lost
        self._limiter = EventLimiter(self._clock)
        self._merging: dict[_Refused, AuditEvent] = {}
        self._flushing: asyncio.TimerHandle | None = None
        self._summarizing: asyncio.TimerHandle | None = None

    # ── acts ──────────────────────────────────────────────────────────────────────────────────────

    def act(
        self,
        principal: Principal,
        action: str,
        resource_type: ResourceType,
        resource: str,
        **details: Detail,
    ) -> Act:
        """Return a context manager around an administrative act; its body checks the rights and
        does the work.

        Args:
            action: the operation's name, such as "topic.create".
            details: names that say more; no values of settings.
        """
        return Act(self, principal, action, resource_type.value, resource, details=details)

    # ── refusals ──────────────────────────────────────────────────────────────────────────────────

    def refused(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        resource: str,
        error: NotAuthorized,
    ) -> None:
        """Report a refusal by the authorizer; `error` is what the caller gets."""
        event = self._event(
            _ACCESS,
            AuditOutcome.REFUSED,
            principal,
            resource_type=resource_type.value,
            resource=safe(resource),
            error=error.code,
            details={"needs": f"{operation.value} {resource_type.value}"},
        )
        act = _current.get()
        if act is not None and act.takes_refusals_of(self):
            act.refusals.append((error, event))
        else:
            self._merge(event)

    def login_refused(
        self, listener: str, address: str, error: SparrowError, *, claims: str = "", mechanism: str = ""
    ) -> None:
        """Report a login that was refused.

        Args:
            claims: the user's name that the client gave, which is not proved.
            mechanism: SASL's name of it, or "token", "password", "none".
        """
        self._limited(
            AuditEvent(
                time_ms=self._clock.wall_ms(),
                action="login",
                outcome=AuditOutcome.REFUSED,
                address=safe(address),
                listener=listener,
                error=error.code,
                details={"claims": safe(claims), "mechanism": safe(mechanism)},
            )
        )

    def handshake_refused(self, listener: str, address: str, reason: str) -> None:
        """Report a TLS handshake that failed because of the client's certificate."""
        self._limited(
            AuditEvent(
                time_ms=self._clock.wall_ms(),
                action="tls.handshake",
                outcome=AuditOutcome.REFUSED,
                address=safe(address),
                listener=listener,
                error="CERTIFICATE_REFUSED",
                details={"reason": safe(reason)},
            )
        )

    def request_refused(self, listener: str, address: str, error: SparrowError, *, origin: str = "") -> None:
        """Report a request that was refused before its sender was identified, because of the web
        page that it comes from.
        """
        self._limited(
            AuditEvent(
                time_ms=self._clock.wall_ms(),
                action="request",
                outcome=AuditOutcome.REFUSED,
                address=safe(address),
                listener=listener,
                error=error.code,
                details={"origin": safe(origin)},
            )
        )

    def session_ended(self, principal: Principal, why: str) -> None:
        """Report that the broker ended a session because its login is no longer valid."""
        self._limited(self._event("session.end", AuditOutcome.DONE, principal, details={"reason": safe(why)}))

    # ── sending events ────────────────────────────────────────────────────────────────────────────

    def send(self, event: AuditEvent) -> None:
        """Send an event to all channels."""
        self._counts[event.outcome.value] += 1
        for channel in self.channels:
            channel(event)

    def flush(self) -> None:
        """Send the refusals that wait for equal ones."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        merged, self._merging = self._merging, {}
        for event in merged.values():
            self._limited(event)

    def summarize(self) -> None:
        """End the limiter's window, and send the number of events that it left out, if any."""
        if self._summarizing is not None:
            self._summarizing.cancel()
            self._summarizing = None
        left_out = self._limiter.close()
        if left_out is None:
            return
        self.send(
            AuditEvent(
                time_ms=self._clock.wall_ms(),
                action="audit.summary",
                outcome=AuditOutcome.DONE,
                details={
                    "left_out": left_out.events,
                    "sources": left_out.sources,
                    "most": left_out.most_count,
                    "most_action": left_out.most.action,
                    "most_principal": left_out.most.principal,
                    "most_address": left_out.most.address,
                    "most_listener": left_out.most.listener,
                },
            )
        )

    def close(self) -> None:
        """Send the waiting events and stop the timers."""
        self.flush()
        self.summarize()

    def _event(
        self,
        action: str,
        outcome: AuditOutcome,
        principal: Principal,
        *,
        resource_type: str = "",
        resource: str = "",
        error: str = "",
        details: Mapping[str, Detail] | None = None,
    ) -> AuditEvent:
        return AuditEvent(
            time_ms=self._clock.wall_ms(),
            action=action,
            outcome=outcome,
            principal=safe(str(principal)),
            address=safe(principal.host),
            listener=principal.listener,
            resource_type=resource_type,
            resource=resource,
            error=error,
            details=details or {},
        )

    def _merge(self, event: AuditEvent) -> None:
        key = (
            event.principal,
            event.address,
            event.listener,
            event.resource_type,
            event.resource,
            str(event.details["needs"]),
        )
        before = self._merging.get(key)
        self._merging[key] = event if before is None else replace(before, count=before.count + 1)
        if len(self._merging) >= MAX_MERGED:
            self.flush()
        elif self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(MERGE_S, self._flush_by_timer)

    def _flush_by_timer(self) -> None:
        self._flushing = None
        self.flush()

    def _limited(self, event: AuditEvent) -> None:
        """Send an event, unless there are too many of its source, or in all."""
        if self._limiter.is_over:
            self.summarize()
        if self._limiter.admit(AuditSource(event.action, event.principal, event.address, event.listener)):
            self.send(event)
            return
        self._lost["limited"] += 1
        if self._summarizing is None:
            self._summarizing = asyncio.get_running_loop().call_later(WINDOW_S, self._summarize_by_timer)

    def _summarize_by_timer(self) -> None:
        self._summarizing = None
        self.summarize()


class Act:
    """One administrative act; see `Audit.act`."""

    __slots__ = (
        "_action",
        "_audit",
        "_details",
        "_failures",
        "_is_discarded",
        "_is_open",
        "_items",
        "_outer",
        "_principal",
        "_resource",
        "_resource_type",
        "_token",
        "refusals",
    )

    def __init__(
        self,
        audit: Audit,
        principal: Principal,
        action: str,
        resource_type: str,
        resource: str,
        *,
        details: dict[str, Detail],
    ) -> None:
        self._audit = audit
        self._principal = principal
        self._action = action
        self._resource_type = resource_type
        self._resource = resource
        self._details = details
        self._failures: dict[str, SparrowError] = {}
        self._items = 0
        self._outer: Act | None = None
        self._token: Token[Act | None] | None = None
        self._is_open = False
        self._is_discarded = False
        self.refusals: list[tuple[NotAuthorized, AuditEvent]] = []
        """Refusals by the authorizer during the act."""

    def __enter__(self) -> Self:
        outer = _current.get()
        if outer is not None and outer.takes_refusals_of(self._audit):
            self._outer = outer
        else:
            self._token = _current.set(self)
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        if self._token is not None:
            _current.reset(self._token)
        if self._outer is not None:
            if error is None and not self._is_discarded:
                self._outer.include(self._action, self._resource)
            return
        needs = [event for refused, event in self.refusals if refused is error]
        for refused, event in self.refusals:
            if refused is not error:
                self._audit._merge(event)  # noqa: SLF001 - two halves of one thing
        if error is None and self._is_discarded:
            return
        outcome, code = self._ended(error)
        if needs:
            self._details["needs"] = f"{needs[0].details['needs']} {needs[0].resource}"
        event = self._audit._event(  # noqa: SLF001
            self._action,
            outcome,
            self._principal,
            resource_type=self._resource_type,
            resource=safe(self._resource),
            error=code,
            details=self._details,
        )
        if outcome in {AuditOutcome.DONE, AuditOutcome.UNFINISHED}:
            self._audit.send(event)
        else:
            self._audit._limited(event)  # noqa: SLF001

    def takes_refusals_of(self, audit: Audit) -> bool:
        """Return True while the act runs. Tasks that it began may outlive it."""
        return self._is_open and self._audit is audit

    def discard(self) -> None:
        """Send no event unless the act fails: nothing was changed."""
        self._is_discarded = True

    def note(self, **details: Detail) -> None:
        """Add details that are known by now."""
        self._details.update(details)

    def include(self, action: str, resource: str) -> None:
        """Name another act that this one caused."""
        before = self._details.get("includes", ())
        listed = before if isinstance(before, tuple) else ()
        self._details["includes"] = names((*listed, f"{action} {resource}"))

    def items(self, outcomes: Iterable[tuple[str, SparrowError | None]]) -> None:
        """Set the outcomes of an act of several items, by their names; if all of them failed, the
        act has failed.

        Items that were refused have events of their own, so an act whose items were all refused has
        none.
        """
        found = list(outcomes)
        failures = {name: error for name, error in found if error is not None}
        self._items = len(found)
        self._failures = failures
        if failures and all(isinstance(error, NotAuthorized) for error in failures.values()):
            self._is_discarded = len(failures) == len(found)
        if failures:
            self._details["failed"] = names([f"{name}: {error.code}" for name, error in failures.items()])

    def _ended(self, error: BaseException | None) -> tuple[AuditOutcome, str]:
        if error is None:
            if self._failures and len(self._failures) == self._items:
                return AuditOutcome.FAILED, next(iter(self._failures.values())).code
            return AuditOutcome.DONE, ""
        if isinstance(error, NotAuthorized):
            return AuditOutcome.REFUSED, error.code
        if isinstance(error, SparrowError):
            return AuditOutcome.FAILED, error.code
        if isinstance(error, Exception):
            return AuditOutcome.FAILED, InternalError.code
        return AuditOutcome.UNFINISHED, ""


def _log_event(event: AuditEvent) -> None:
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s %s", event.action, event.outcome.value, extra=event.fields())
