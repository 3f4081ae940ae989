"""The client's connection to its broker, kept up over lost links.

Strategy: one task opens a link, tells the tenants (producers and subscriptions) that it is there, waits for its end, tells them, and
opens the next one after a delay with backoff and full jitter. Tenants keep what must survive a link (identities, positions,
unconfirmed batches) themselves; nothing of a link is kept here.

For ever, or for `reconnect_timeout_s`; an answer that time will not change (not authenticated, another version) ends the connection for
good, and every tenant learns why.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    ProtocolError,
    Refused,
    SparrowError,
    UnsupportedVersion,
)
from sparrow.base.version import version
from sparrow.client.link import Link, open_link, unreachable
from sparrow.client.retry import Backoff
from sparrow.client.security import client_context, credentials_of
from sparrow.protocol.native.messages import PROTOCOL, VERSION, Hello

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from sparrow.client.options import ClientOptions
    from sparrow.client.url import Address

_logger = logging.getLogger("sparrow.client")
_LEAST_ATTEMPT_S = 0.02
"""What must be left of the time for connecting to try once more."""


class Tenant(Protocol):
    """What lives on the connection and survives its links. Called on the loop; must not block or raise."""

    def link_up(self, link: Link) -> None:
        """A new link is open: open your channel on it."""
        ...

    def link_down(self, error: SparrowError) -> None:
        """The link is over, and every channel on it."""
        ...

    def connection_ended(self, error: SparrowError) -> None:
        """There will be no further link."""
        ...


class Connection:
    """Loop thread only. `sleep` and `uniform` are injectable for tests."""

    def __init__(
        self,
        address: Address,
        options: ClientOptions,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[], float] | None = None,
    ) -> None:
        self.address = address
        self.options = options
        self.link: Link | None = None
        """The link that is up, or None."""
        self.loop = asyncio.get_running_loop()
        jitter = {} if uniform is None else {"uniform": uniform}
        self._backoff = Backoff(options.backoff_initial_s, options.backoff_max_s, **jitter)
        self._sleep = sleep
        self._tenants: dict[Tenant, None] = {}
        self._changed = asyncio.Event()
        self._failure: SparrowError | None = None
        self._task: asyncio.Task[None] | None = None
        self._tls: ssl.SSLContext | None = None

    @property
    def failure(self) -> SparrowError | None:
        """Why the connection is over for good, or None."""
        return self._failure

    # ── the life of the connection ────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Open the first link and keep the connection up from here on.

        Raises:
            ConnectionLost: nobody could be reached within `connect_timeout_s`.
            SparrowError: the broker refuses.
        """
        link = await self._first_link()
        self._link_up(link)
        self._task = self.loop.create_task(self._keep_up(link), name=f"sparrow connection to {self.address}")

    async def close(self, *, says_goodbye: bool = True) -> None:
        """End for good, in peace or without a word."""
        link = self.link
        error = ConnectionLost(f"the client of {self.address} is closed")
        self._fail(error)
        if link is not None and says_goodbye:
            await link.close()
        elif link is not None:
            link.end(error)
            await link.until_gone()
        self.link = None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _first_link(self) -> Link:
        deadline = self.loop.time() + self.options.connect_timeout_s
        while True:
            try:
                return await self._open_link(max(0.001, deadline - self.loop.time()))
            except SparrowError as error:
                delay_s = self._backoff.next_delay_s()
                if (
                    isinstance(error, ProtocolError)
                    or not _may_pass(error)
                    or self.loop.time() + delay_s >= deadline
                ):
                    raise
                await self._sleep(delay_s)
                if (
                    deadline - self.loop.time() < _LEAST_ATTEMPT_S
                ):  # the loop was busy; so short a try would tell nothing
                    raise

    async def _keep_up(self, link: Link) -> None:
        while self._failure is None:
            opened_at = self.loop.time()
            reason = await asyncio.shield(link.ended)
            if self.loop.time() - opened_at > self._backoff.ceiling_s:
                self._backoff.reset()
            self._link_down(reason)
            if self._failure is None:
                _logger.warning("%s; connecting again", reason.text)
                try:
                    link = await self._next_link()
                except SparrowError as error:
                    self._fail(error)
                    return
                self._link_up(link)

    async def _next_link(self) -> Link:
        limit_s = self.options.reconnect_timeout_s
        deadline = None if limit_s is None else self.loop.time() + limit_s
        while True:
            await self._sleep(self._backoff.next_delay_s())
            if deadline is not None and self.loop.time() >= deadline:
                raise unreachable(self.address, f"it was tried for {limit_s:g} s")
            try:
                return await self._open_link(self.options.connect_timeout_s)
            except SparrowError as error:
                if not _may_pass(error):
                    raise

    async def _open_link(self, timeout_s: float) -> Link:
        options = self.options
        hello = Hello(
            PROTOCOL,
            VERSION,
            VERSION,
            options.client_name,
            version(),
            credentials_of(self.address, options),
        )
        if self.address.has_tls and self._tls is None:
            self._tls = client_context(options)
        return await open_link(self.address, hello, timeout_s, options.ping_interval_s, tls=self._tls)

    def _link_up(self, link: Link) -> None:
        self.link = link
        self._change()
        for tenant in list(self._tenants):
            tenant.link_up(link)

    def _link_down(self, reason: SparrowError) -> None:
        self.link = None
        for tenant in list(self._tenants):
            tenant.link_down(reason)

    def _fail(self, error: SparrowError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._change()
        for tenant in list(self._tenants):
            tenant.connection_ended(error)
        self._tenants.clear()

    def _change(self) -> None:
        """Wake everybody who waits for a link."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ── what others ask of it ─────────────────────────────────────────────────────────────────────

    def check_loop(self) -> None:
        """Refuse what would wait for ever.

        Raises:
            InvalidArgument: another event loop runs than the one on which the client was connected.
        """
        if asyncio.get_running_loop() is not self.loop:
            raise InvalidArgument(
                f"the client of {self.address} belongs to the event loop on which it was connected; connect within each"
                " asyncio.run, or use sparrow.sync"
            )

    def attach(self, tenant: Tenant) -> None:
        """Tell `tenant` of links from here on; at once, if one is up.

        Raises:
            SparrowError: the connection is over for good.
            InvalidArgument: as `check_loop`.
        """
        self.check_loop()
        if self._failure is not None:
            raise self._failure
        self._tenants[tenant] = None
        if self.link is not None and self.link.is_open:
            tenant.link_up(self.link)

    def detach(self, tenant: Tenant) -> None:
        """Forget a tenant."""
        self._tenants.pop(tenant, None)

    async def ready_link(self, timeout_s: float) -> Link:
        """A link that is open, waiting for one if need be.

        Raises:
            ConnectionLost: there was none within `timeout_s`, or the connection is over.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.link is None or not self.link.is_open:
                    if self._failure is not None:
                        raise self._failure
                    await self._changed.wait()
        except TimeoutError:
            raise unreachable(self.address, f"not connected again within {timeout_s:.3g} s") from None
        return self.link

    async def call(
        self,
        verb: str,
        arguments: dict[str, Any] | None = None,
        *,
        is_read: bool,
        timeout_s: float | None = None,
    ) -> Any:
        """One call of a verb; a read is made again when the connection is lost under it.

        Raises:
            ConnectionLost: it cannot be reached in time, or the connection was lost under a call that changes something: whether
                it was done is not known.
            TimedOut: no answer in time.
            SparrowError: what the broker answered.
            InvalidArgument: as `check_loop`.
        """
        self.check_loop()
        limit_s = self.options.call_timeout_s if timeout_s is None else timeout_s
        deadline = self.loop.time() + limit_s
        while True:
            link = await self.ready_link(max(0.001, deadline - self.loop.time()))
            try:
                return await link.call(verb, arguments or {}, max(0.001, deadline - self.loop.time()))
            except ConnectionLost:
                if not is_read or self._failure is not None or self.loop.time() >= deadline:
                    raise
                await asyncio.sleep(0)  # the lost link is taken down before the next one is waited for


def _may_pass(error: SparrowError) -> bool:
    """Whether another attempt to connect may succeed."""
    return not isinstance(error, Refused | UnsupportedVersion | InvalidArgument)
