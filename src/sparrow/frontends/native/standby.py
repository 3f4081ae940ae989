"""The native frontend of a standby: it says goodbye to every client, with the owner's address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.frontends.native.frontend import NativeFrontend

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from sparrow.broker.broker import Broker
    from sparrow.frontends.native.context import Authenticator
    from sparrow.frontends.native.limits import NativeLimits
    from sparrow.frontends.transport.connection_limit import ConnectionLimit
    from sparrow.frontends.transport.send_budget import SendBudget


class StandbyNativeFrontend(NativeFrontend):
    """Sends clients to the owner. See `NativeContext` for the other arguments.

    Args:
        find_owner: returns the address of the owner's native listener; "" if there is none.
    """

    def __init__(
        self,
        broker: Broker,
        find_owner: Callable[[], str],
        *,
        authenticator: Authenticator,
        limits: NativeLimits,
        connection_limit: ConnectionLimit,
        send_budget: SendBudget,
        logger: logging.Logger,
    ) -> None:
        super().__init__(
            broker,
            authenticator=authenticator,
            limits=limits,
            connection_limit=connection_limit,
            send_budget=send_budget,
            logger=logger,
        )
        self.find_owner = find_owner

    async def drain(self, timeout_s: float) -> None:
        """Stop: accept no connections, and end those that are not logged in yet."""
        self.stop()
        for connection in list(self.open_connections):
            connection.drain()
        await self.wait_until_gone(timeout_s)
        await self.end()
