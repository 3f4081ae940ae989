"""The listeners of a standby: clients of Kafka, of the native protocol and of HTTP are sent to the
owner of the data.

They have the addresses, the TLS and the logins of the listeners that this node has as the owner. A
listener on port 0 is closed, since nobody can know its address, and so are those for the clients of
other brokers.

Users, rules and topics are read from the ledger (`BrokerView`) when a client asks and something was
committed since they were read, at most once in `REFRESH_S`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidConfig, SparrowError
from sparrow.broker.view import KINDS, BrokerView
from sparrow.cluster.entries import PREFIX, entries_of
from sparrow.frontends.kafka.standby import Owner, StandbyKafkaFrontend
from sparrow.frontends.native.standby import StandbyNativeFrontend
from sparrow.frontends.transport.send_budget import SendBudget
from sparrow.server.access import ServerAccess
from sparrow.server.config import kafka_listeners
from sparrow.server.frontends import connection_limit_of, listen_for_kafka
from sparrow.server.known_nodes import kafka_addresses, listeners_of, standbys_of
from sparrow.server.listeners import OFF
from sparrow.server.standby import StandbyListener

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.cluster.ledger import EntryRow, Ledger, NodeInfo
    from sparrow.cluster.ownership import Ownership
    from sparrow.server.config import ServerConfig
    from sparrow.server.known_nodes import KnownNodes
    from sparrow.server.logins import Logins

log = logging.getLogger("sparrow.server")
REFRESH_S: Final = 0.5
RETRY_S: Final = 1.0
DRAIN_S: Final = 0.5
"""Time for clients to read their last response, when this node becomes the owner or ends."""


class StandbyListeners:
    """The listeners, between `open` and `close`.

    Args:
        read_again: reads the configuration again, for `reload`.
    """

    def __init__(
        self,
        config: ServerConfig,
        ledger: Ledger,
        ownership: Ownership,
        known: KnownNodes,
        read_again: Callable[[], ServerConfig] | None,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._ownership = ownership
        self._known = known
        self._read_again = read_again or (lambda: config)
        self._access = ServerAccess(config)
        self._rows: list[EntryRow] = []
        self._seq = -1
        """Number of the last commit when the entries were read."""
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._view: BrokerView | None = None
        self._logins: Logins | None = None
        self._kafka: StandbyKafkaFrontend | None = None
        self._native: StandbyNativeFrontend | None = None
        self._http = StandbyListener(lambda: self._owner_address("http"))

    # ── opening and closing ──

    async def open(self) -> None:
        """Open the listeners, as soon as the ledger answers. Log those that cannot be opened."""
        config = self._config
        await self._open(self._open_http(), config.http_port)
        while True:
            try:
                await self._refresh_view()
                break
            except SparrowError as error:
                log.debug("the view of the owner is not there yet: %s", error.text)
                await asyncio.sleep(RETRY_S)
        limit, budget = connection_limit_of(config), SendBudget(config.listeners.send_budget_bytes)
        assert self._view is not None
        assert self._logins is not None
        self._native = StandbyNativeFrontend(
            self._view,
            lambda: self._owner_address("native"),
            authenticator=self._logins,
            limits=config.native,
            connection_limit=limit,
            send_budget=budget,
            logger=logging.getLogger("sparrow.native"),
        )
        await self._open(self._open_native(self._native), config.native_port)
        self._kafka = StandbyKafkaFrontend(
            self._view,
            own_id=self._ownership.node,
            refresh=self.refresh,
            limits=config.kafka,
            logins=self._logins,
            connection_limit=limit,
            send_budget=budget,
        )
        for declared in kafka_listeners(config):
            await self._open(listen_for_kafka(self._kafka, declared, self._access), declared.port)

    async def _open(self, opening: Coroutine[Any, Any, object], port: int) -> None:
        if port in (OFF, 0):
            opening.close()
            return
        try:
            await opening
        except InvalidConfig as error:
            log.warning("%s", error.text)

    async def _open_http(self) -> None:
        await self._http.open(self._config.http_host, self._config.http_port, self._access.http_tls)

    async def _open_native(self, frontend: StandbyNativeFrontend) -> None:
        host, port = self._config.native_host, self._config.native_port
        try:
            await frontend.start(host, port, tls=self._access.native_tls)
        except OSError as error:
            raise InvalidConfig(
                f"the standby cannot listen on {host}:{port}: {error.strerror or error}"
            ) from None

    async def close(self) -> None:
        """Close the listeners and their connections. Again: no effect."""
        native, kafka = self._native, self._kafka
        self._native = self._kafka = None
        await self._http.close()
        ended = await asyncio.gather(
            *(each.drain(DRAIN_S) for each in (native, kafka) if each is not None), return_exceptions=True
        )
        for each in ended:
            if isinstance(each, Exception):  # a bug here must not keep this node from serving
                log.error("a listener of the standby was not closed in order", exc_info=each)

    def reload(self) -> None:
        """Load certificates and tokens again.

        Raises:
            InvalidConfig: something cannot be used; nothing has changed.
        """
        self._access.replace(self._access.prepare(self._read_again()))

    # ── the content of responses ──

    def _owner(self) -> NodeInfo | None:
        """Return the owner, if it is likely to be alive, and another node."""
        return self._ownership.seen_owner

    def _owner_address(self, listener: str) -> str:
        owner = self._owner()
        return "" if owner is None else owner.addresses.get(listener, "")

    async def refresh(self) -> None:
        """Bring the responses to Kafka clients up to date, as far as the ledger can be read."""
        try:
            await self._refresh_view()
        except SparrowError as error:
            log.debug("the view of the owner is as it was: %s", error.text)
        kafka, view, owner = self._kafka, self._view, self._owner()
        if kafka is None or view is None:
            return
        kafka.follow(None if owner is None else Owner(owner.id, kafka_addresses(owner.addresses)))
        view.follow(self._ownership.seen_epoch)
        ownership = self._ownership
        self._known.see(ownership.others)
        if owner is None:
            view.standbys = standbys_of(self._known.others(ownership.addresses.get("kafka", "")))
        else:
            own = listeners_of(ownership.node, ownership.addresses)
            view.standbys = [*own, *standbys_of(self._known.others(owner.addresses.get("kafka", "")))]

    async def _refresh_view(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._reading:
            seq = self._ownership.seen_seq
            if self._view is not None and (seq == self._seq or loop.time() - self._read_at < REFRESH_S):
                return
            rows = await self._ledger.entries(0, [PREFIX + kind.encode() for kind in KINDS])
            self._read_at, self._seq = loop.time(), seq
            rows.sort(key=lambda row: (row.kind, row.key))
            if rows == self._rows and self._view is not None:
                return
            await self._replace_view(rows)

    async def _replace_view(self, rows: list[EntryRow]) -> None:
        config, before = self._config, self._view
        view = BrokerView(
            replace(
                config.broker,
                node_id=self._ownership.node,
                has_logins=self._access.has_logins,
                auto_create_topics=False,
            ),
            entries_of(rows),
            None if before is None else before.login_limits,
        )
        await view.start()
        self._access.check_users(view)
        logins = self._access.logins_of(view)
        has_other_users = _users(rows) != _users(self._rows)
        self._rows, self._view, self._logins = rows, view, logins
        if self._kafka is not None and self._native is not None:
            self._kafka.broker, self._kafka.logins = view, logins
            self._native.broker, self._native.authenticator = view, logins
            if has_other_users:  # a login may have ended
                for connection in list(self._kafka.open_connections):
                    connection.finish()


def _users(rows: list[EntryRow]) -> list[EntryRow]:
    return [row for row in rows if row.kind == PREFIX + b"user"]
