"""The shared state of the native frontend, and the session as its channels see it.

Parts depend on this module, and never on the frontend or the connection themselves.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Protocol

from sparrow.frontends.native.limits import NativeLimits
from sparrow.frontends.transport.context import OpenConnection, TransportContext
from sparrow.frontends.transport.liveness import NEVER, Deadlines
from sparrow.protocol.detection import WireProtocol

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from sparrow.base.errors import SparrowError
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.measures import FrontendMeasures
    from sparrow.frontends.native.throttle import Throttle
    from sparrow.frontends.transport.connection_limit import ConnectionLimit
    from sparrow.frontends.transport.send_budget import Reservation, SendBudget
    from sparrow.protocol.native import messages as m
    from sparrow.protocol.native.frames import Buffer


class Authenticator(Protocol):
    """Maps credentials to a principal, directly or by an awaitable. Raises NotAuthenticated."""

    def authenticate(self, credentials: Mapping[str, str], peer: str) -> Principal | Awaitable[Principal]: ...


class OpenNativeConnection(OpenConnection, Protocol):
    """A connection, as the frontend sees it; see `NativeConnection`."""

    @property
    def is_idle(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...
    def drain(self) -> None: ...
    def pause_reading(self, reason: int) -> None: ...
    def close_after_flush(self) -> None: ...


class NativeContext(TransportContext[OpenNativeConnection]):
    """The shared state of all native connections. Loop thread only.

    Args:
        authenticator: maps the credentials of a HELLO to a principal.
        limits: see `NativeLimits`.
        connection_limit: limits that all frontends share; None: this one shares none.
        send_budget: memory of responses that all listeners share; None: this one has its own.
        logger: logs connections that break the protocol, and bugs with their traceback.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        authenticator: Authenticator,
        limits: NativeLimits | None = None,
        connection_limit: ConnectionLimit | None = None,
        send_budget: SendBudget | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.limits = limits = limits or NativeLimits()
        super().__init__(
            broker,
            "native",
            limits,
            protocol=WireProtocol.NATIVE,
            deadlines=Deadlines(
                login_s=limits.hello_timeout_ms / 1000,
                stall_s=limits.stall_timeout_ms / 1000,
                idle_s=limits.idle_timeout_ms / 1000 or NEVER,
                closing_s=limits.closing_timeout_ms / 1000,
            ),
            send_budget=send_budget,
            connection_limit=connection_limit,
            logger=logger,
            now=broker.clock.monotonic,
        )
        self.authenticator = authenticator
        self.find_owner: Callable[[], str] | None = None
        """Returns the address of the broker that serves clients; "" if there is none at the moment.
        None: this one serves them, and does not stand by.
        """
        self.session_numbers = itertools.count(1)


class Confirmer(Protocol):
    """A channel that confirms batches, as the session sees it."""

    unconfirmed_bytes: int

    def flush(self) -> None: ...


class SessionContext(Protocol):
    """The session, as its channels see it. Its methods are described in `session.py`."""

    broker: Broker
    limits: NativeLimits
    logger: logging.Logger
    principal: Principal
    client_name: str
    measures: FrontendMeasures
    throttle: Throttle

    @property
    def is_lost(self) -> bool: ...
    @property
    def can_write(self) -> bool: ...
    @property
    def is_draining(self) -> bool: ...
    @property
    def max_batch_bytes(self) -> int: ...
    @property
    def max_deliver_bytes(self) -> int: ...
    @property
    def max_fetch_bytes(self) -> int: ...
    def send(
        self, head: m.Head, channel: int = 0, batches: Buffer | Sequence[Buffer] | None = None
    ) -> None: ...
    def may_send(self, head: type[m.Head], channel: int) -> bool: ...
    def reserve(self) -> Reservation: ...
    def flush(self) -> None: ...
    def flush_soon(self) -> None: ...
    def confirm(self, producer: Confirmer, *, at_once: bool = False) -> None: ...
    def charge(self, producer: Confirmer, change_bytes: int) -> None: ...
    def settling_changed(self, change: int) -> None: ...
    def may_work(self) -> bool: ...
    def work_changed(self, change: int) -> None: ...
    def forget(self, number: int) -> None: ...
    def end_channel(self, number: int, error: SparrowError) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...
    def run(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None: ...
    async def respond(self, ref: int, channel: int, call: Coroutine[Any, Any, Any]) -> None: ...
