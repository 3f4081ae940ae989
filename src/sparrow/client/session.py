"""The client's session with its broker: it opens a new connection whenever one is lost.

Strategy: one task opens a connection, notifies the tenants (producers, subscriptions and
consumers), waits for its end, notifies them again, and opens the next one after a delay with
backoff and full jitter. State that must survive a connection (identities, positions, unconfirmed
batches) is kept by the tenants; the session keeps nothing of a connection.

It reconnects for ever, or for `reconnect_timeout_s`. An error that a retry would not change (not
authenticated, another version) ends the session, and every tenant gets it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from sparrow.base.errors import (
    ConnectionLost,
    Draining,
    InvalidArgument,
    ProtocolError,
    Refused,
    SparrowError,
    UnsupportedVersion,
    UsedAfterFork,
)
from sparrow.base.forks import used_after_fork, watch
from sparrow.base.retry import Backoff
from sparrow.base.version import VERSION as SOFTWARE_VERSION
from sparrow.client.connection import Connection, open_connection, unreachable
from sparrow.client.security import client_context, credentials_of
from sparrow.protocol.native.messages import PROTOCOL, VERSION, Hello

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from sparrow.client.options import ClientOptions
    from sparrow.client.url import Address

_logger = logging.getLogger("sparrow.client")
_MIN_ATTEMPT_S = 0.02
"""The least time left for connecting that is worth another attempt."""


class Tenant(Protocol):
    """A user of the session that survives its connections. Called on the loop; must not block or
    raise.
    """

    def connection_up(self, connection: Connection) -> None:
        """Open a channel on the new connection."""
        ...

    def connection_down(self, error: SparrowError) -> None:
        """Handle the end of the connection and of every channel on it."""
        ...

    def session_ended(self, error: SparrowError) -> None:
        """Handle the end of the session: no further connection will come."""
        ...


class Session:
    """A series of connections to one broker, or to the brokers of a cluster, one at a time. Loop
    thread only. `sleep` and `uniform` are injectable for tests.
    """

    def __init__(
        self,
        address: Address,
        options: ClientOptions,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[], float] | None = None,
    ) -> None:
        self._brokers = address.brokers()
        self._tried = 0
        """Number of the broker that is tried."""
        self.address = self._brokers[0]
        """The broker that is used, or tried; one that a standby named need not be in the URL."""
        self.options = options
        self.connection: Connection | None = None
        """The open connection, or None."""
        self.loop = asyncio.get_running_loop()
        jitter = {} if uniform is None else {"uniform": uniform}
        self._backoff = Backoff(options.backoff_initial_s, options.backoff_max_s, **jitter)
        self._sleep = sleep
        self._tenants: dict[Tenant, None] = {}
        self._changed = asyncio.Event()
        self._failure: SparrowError | None = None
        self._task: asyncio.Task[None] | None = None
        self._tls: ssl.SSLContext | None = None
        self._forked: UsedAfterFork | None = None
        watch(self)

    @property
    def failure(self) -> SparrowError | None:
        """The error that ended the session, or None."""
        return self._forked or self._failure

    # ── forks ─────────────────────────────────────────────────────────────────────────────────────

    def forked(self, parent: int) -> None:
        """Handle a fork; see `sparrow.base.forks`."""
        self._forked = used_after_fork(f"the client of {self.address}", parent)
        if self.connection is not None:
            self.connection.forked()
        self.connection = None
        self._tenants.clear()

    @property
    def state(self) -> str:
        """The state for people: "connected", "connecting again", "closed", or the error that ended
        it.
        """
        if self._forked is not None:
            return "of a parent process"
        if self._failure is not None:
            return "closed" if isinstance(self._failure, ConnectionLost) else f"ended by {self._failure.code}"
        return "connecting again" if self.connection is None else "connected"

    @property
    def is_forked(self) -> bool:
        """True in a child of the process that connected: nothing can be done there, and nothing
        needs to be closed.
        """
        return self._forked is not None

    def check_process(self) -> None:
        """Raise UsedAfterFork in a child of the process that connected."""
        if self._forked is not None:
            raise UsedAfterFork(self._forked.text)

    # ── connecting and closing ────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Open the first connection, and reconnect from here on.

        Raises:
            ConnectionLost: no broker was reached within `connect_timeout_s`.
            SparrowError: the broker refuses.
        """
        connection = await self._first_connection()
        self._connection_up(connection)
        self._task = self.loop.create_task(
            self._reconnect(connection), name=f"sparrow connection to {self.address}"
        )

    async def close(self, *, says_goodbye: bool = True) -> None:
        """End the session, with or without a goodbye. Do nothing in a child process."""
        if self.is_forked:
            return
        connection = self.connection
        error = ConnectionLost(f"the client of {self.address} is closed")
        self._fail(error)
        if connection is not None and says_goodbye:
            await connection.close()
        elif connection is not None:
            connection.end(error)
            await connection.until_gone()
        self.connection = None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _first_connection(self) -> Connection:
        deadline = self.loop.time() + self.options.connect_timeout_s
        while True:
            try:
                return await self._open_connection(max(0.001, deadline - self.loop.time()), explains=True)
            except SparrowError as error:
                delay_s = self._backoff.next_delay_s()
                if (
                    isinstance(error, ProtocolError)
                    or not _is_transient(error)
                    or self.loop.time() + delay_s >= deadline
                ):
                    raise
                await self._sleep(delay_s)
                if (
                    deadline - self.loop.time() < _MIN_ATTEMPT_S
                ):  # the loop was busy, and so short an attempt would prove nothing
                    raise

    async def _reconnect(self, connection: Connection) -> None:
        while self._failure is None:
            opened_at = self.loop.time()
            reason = await asyncio.shield(connection.ended)
            if self.loop.time() - opened_at > self._backoff.ceiling_s:
                self._backoff.reset()
            self._connection_down(reason)
            if self._failure is None:
                _logger.warning("%s; connecting again", reason.text)
                try:
                    connection = await self._next_connection()
                except SparrowError as error:
                    self._fail(error)
                    return
                self._connection_up(connection)

    async def _next_connection(self) -> Connection:
        limit_s = self.options.reconnect_timeout_s
        deadline = None if limit_s is None else self.loop.time() + limit_s
        while True:
            await self._sleep(self._backoff.next_delay_s())
            if deadline is not None and self.loop.time() >= deadline:
                raise unreachable(self.address, f"it was tried for {limit_s:g} s")
            try:
                return await self._open_connection(self.options.connect_timeout_s)
            except SparrowError as error:
                if not _is_transient(error):
                    raise

    async def _open_connection(self, timeout_s: float, *, explains: bool = False) -> Connection:
        """Connect to the first broker that can be reached, beginning with the last one used. A
        standby names the broker that serves, which is tried next.
        """
        for _ in self._brokers[1:]:
            try:
                return await self._open_or_follow(timeout_s / len(self._brokers), explains=False)
            except SparrowError as error:
                if isinstance(error, ProtocolError) or not _is_transient(error):
                    raise
                self._try_next_broker()
        try:
            return await self._open_or_follow(timeout_s, explains=explains and len(self._brokers) == 1)
        except SparrowError:
            self._try_next_broker()
            raise

    def _try_next_broker(self) -> None:
        self._tried = (self._tried + 1) % len(self._brokers)
        self.address = self._brokers[self._tried]

    async def _open_or_follow(self, timeout_s: float, *, explains: bool) -> Connection:
        try:
            return await self._open_one(timeout_s, explains=explains)
        except Draining as error:
            standby, owner = self.address, self.address.at(error.owner)
            if owner in (None, standby):
                raise
            _logger.debug("%s names %s", standby, owner)
        self.address = owner
        if owner in self._brokers:
            self._tried = self._brokers.index(owner)
        try:
            return await self._open_one(timeout_s, explains=False)
        except SparrowError:
            self.address = standby
            raise

    async def _open_one(self, timeout_s: float, *, explains: bool) -> Connection:
        options = self.options
        hello = Hello(
            PROTOCOL,
            VERSION,
            VERSION,
            options.client_name,
            SOFTWARE_VERSION,
            credentials_of(self.address, options),
        )
        if self.address.has_tls and self._tls is None:
            self._tls = client_context(options)
        return await open_connection(
            self.address, hello, timeout_s, options.ping_interval_s, tls=self._tls, explains=explains
        )

    def _connection_up(self, connection: Connection) -> None:
        self.connection = connection
        self._wake_waiters()
        for tenant in list(self._tenants):
            tenant.connection_up(connection)

    def _connection_down(self, reason: SparrowError) -> None:
        self.connection = None
        for tenant in list(self._tenants):
            tenant.connection_down(reason)

    def _fail(self, error: SparrowError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._wake_waiters()
        for tenant in list(self._tenants):
            tenant.session_ended(error)
        self._tenants.clear()

    def _wake_waiters(self) -> None:
        """Wake all that wait for a connection."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ── calls of tenants ──────────────────────────────────────────────────────────────────────────

    def check_loop(self) -> None:
        """Raise where a call would wait for ever.

        Raises:
            UsedAfterFork: this is a child of the process that connected.
            InvalidArgument: another event loop runs than the one on which the client was connected.
        """
        if self._forked is not None:
            self.check_process()
        if asyncio.get_running_loop() is not self.loop:
            raise InvalidArgument(
                f"the client of {self.address} belongs to the event loop on which it was connected; connect "
                "within each asyncio.run, or use sparrow.sync"
            )

    def attach(self, tenant: Tenant) -> None:
        """Notify `tenant` of connections from here on; at once, if one is open.

        Raises:
            SparrowError: the session has ended.
            InvalidArgument: as `check_loop`.
        """
        self.check_loop()
        if self._failure is not None:
            raise self._failure
        self._tenants[tenant] = None
        if self.connection is not None and self.connection.is_open:
            tenant.connection_up(self.connection)

    def detach(self, tenant: Tenant) -> None:
        """Stop notifying a tenant."""
        self._tenants.pop(tenant, None)

    async def ready_connection(self, timeout_s: float) -> Connection:
        """Return an open connection, waiting for one if necessary.

        Raises:
            ConnectionLost: there was none within `timeout_s`, or the session has ended.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.connection is None or not self.connection.is_open:
                    if self._failure is not None:
                        raise self._failure
                    await self._changed.wait()
        except TimeoutError:
            raise unreachable(self.address, f"not connected again within {timeout_s:.3g} s") from None
        return self.connection

    async def call(
        self,
        verb: str,
        arguments: dict[str, Any] | None = None,
        *,
        is_read: bool,
        timeout_s: float | None = None,
    ) -> Any:
        """Call an operation of the broker. A read is repeated when the connection is lost under it.

        Raises:
            ConnectionLost: the broker was not reached in time, or the connection was lost under a
                call that changes something: it is not known whether it took effect.
            TimedOut: no response in time.
            SparrowError: the broker's error.
            InvalidArgument: as `check_loop`.
        """
        self.check_loop()
        limit_s = self.options.call_timeout_s if timeout_s is None else timeout_s
        deadline = self.loop.time() + limit_s
        while True:
            connection = await self.ready_connection(max(0.001, deadline - self.loop.time()))
            try:
                return await connection.call(verb, arguments or {}, max(0.001, deadline - self.loop.time()))
            except ConnectionLost:
                if not is_read or self._failure is not None or self.loop.time() >= deadline:
                    raise
                # let the lost connection be removed before waiting for the next one
                await asyncio.sleep(0)


def _is_transient(error: SparrowError) -> bool:
    """Return True if another attempt to connect may succeed."""
    return not isinstance(error, Refused | UnsupportedVersion | InvalidArgument)
