"""Admission of connections: limits per listener, per address, and for clients that have not logged
in.

    connection ──▶ limit of its address ──▶ room at the listener ──▶ stranger ──login──▶ settled
                     └▶ refused               └▶ close the oldest stranger of the busiest
                                                 address; refuse if there is none

A stranger is a connection that has not logged in or, where no login is required, has sent no
request yet. Strangers may use at most `max_strangers` slots of a listener. The rest is reserved for
settled connections, which are never closed to make room. When strangers have used up their share, a
new connection takes the slot of the oldest stranger at the address with the most strangers. So
thousands of silent connections from a few addresses cannot keep out clients of other addresses.
Refusing the new connection instead would let the first comers keep all slots.

Addresses are grouped as for wrong logins (`network_of`): an IPv4 address, or an IPv6 /64.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import Overloaded
from sparrow.broker.access.login_limits import network_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger("sparrow.connections")

NO_ROOM: Final = "The limit of open files (ulimit -n) leaves no room for another client; try again later."
SLOT: Final = "slot"
"""The key of the connection's slot in the state of an HTTP connection."""
REASONS: Final = ("limit", "address", "files", "stranger")
"""Reasons for a refusal: max_connections, the limit of the address, open files; or closed to make
room for a new connection.
"""
MIN_STRANGERS: Final = 100
"""The least default of `max_strangers`: with a smaller one, clients that connect at the same moment
would close each other's connections.
"""
SUMMARY_INTERVAL_S: Final = 60.0
_MAX_SUMMARIZED: Final = 1_000


class AddressLimits:
    """Number of connections per address, over all listeners of a broker. Loop thread only.

    Args:
        default: the most connections of one address; 0: no limit.
        overrides: limits of addresses and networks; the narrowest network that contains an address
            applies.

    Raises (from the constructor):
        ValueError: an override is not an address or network.
    """

    def __init__(self, default: int = 0, overrides: Mapping[str, int] | None = None) -> None:
        self._default = default
        self._overrides = sorted(
            ((ipaddress.ip_network(text, strict=False), limit) for text, limit in (overrides or {}).items()),
            key=lambda each: -each[0].prefixlen,
        )
        self.counts: Counter[str] = Counter()
        self._unlogged: Counter[str] = Counter()
        self._summarizing: asyncio.TimerHandle | None = None

    def limit_of(self, host: str) -> int:
        """Return the most connections that an address may have; 0: no limit."""
        if self._overrides:
            try:
                address = ipaddress.ip_address(host.partition("%")[0])
            except ValueError:
                return self._default
            address = getattr(address, "ipv4_mapped", None) or address
            for network, limit in self._overrides:
                if address in network:
                    return limit
        return self._default

    def log_refusal(self, network: str) -> None:
        """Log that connections of a network are refused: the first at once, further ones in one
        line per minute.
        """
        if network not in self._unlogged and len(self._unlogged) >= _MAX_SUMMARIZED:
            network = "other addresses"
        self._unlogged[network] += 1
        if self._summarizing is None:
            self.summarize()

    def summarize(self) -> None:
        """Log the refusals since the last line, if any, and schedule the next summary."""
        self._summarizing = None
        if not self._unlogged:
            return
        worst, most = self._unlogged.most_common(1)[0]
        log.warning(
            "connections refused or closed to make room: %d from %d addresses; most, %d, from %s",
            self._unlogged.total(),
            len(self._unlogged),
            most,
            worst,
        )
        self._unlogged.clear()
        self._summarizing = asyncio.get_running_loop().call_later(SUMMARY_INTERVAL_S, self.summarize)


def host_of(transport: asyncio.BaseTransport) -> str:
    """Return the client's address without its port; "" if the transport has none."""
    address = transport.get_extra_info("peername")
    return str(address[0]) if isinstance(address, tuple) else ""


def _nothing() -> None:
    """Do nothing: the connection is closed already."""


class ConnectionSlot:
    """The slot that one connection occupies at its listener."""

    __slots__ = ("_admission", "_is_released", "close", "is_settled", "network")

    def __init__(self, admission: Admission, network: str, close: Callable[[], None]) -> None:
        self.network = network
        self.close = close
        self.is_settled = False
        self._admission = admission
        self._is_released = False

    def settle(self) -> None:
        """Protect the connection from being closed to make room. Idempotent.

        Called when the client has logged in, or has sent a request where no login is required.
        """
        if not self.is_settled and not self._is_released:
            self.is_settled = True
            self._admission.strangers.discard(self)

    def release(self) -> None:
        """Free the slot of a closed connection. Idempotent."""
        if not self._is_released:
            self._is_released = True
            self._admission.release(self)
            # break the reference cycle: the connection is freed without the garbage collector
            self.close = _nothing


class Admission:
    """The connection slots of one listener. Loop thread only.

    Args:
        addresses: limits shared by all listeners of the broker.
        max_connections: number of slots of this listener.
        max_strangers: slots that strangers may use; 0: half of all slots, or 100 if that is more.
        has_files: returns True if the limit of open files leaves room for one more connection.
        refusals: counts refused and closed connections by reason.
    """

    def __init__(
        self,
        addresses: AddressLimits,
        *,
        max_connections: int,
        max_strangers: int,
        has_files: Callable[[], bool],
        refusals: Counter[str],
    ) -> None:
        self.count = 0
        self.strangers = Strangers()
        self._addresses = addresses
        self._max_connections = max_connections
        self._max_strangers = min(max_strangers or max(MIN_STRANGERS, max_connections // 2), max_connections)
        self._has_files = has_files
        self._refusals = refusals

    def admit(self, host: str, close: Callable[[], None]) -> ConnectionSlot:
        """Give a slot to a new connection, if need be that of a stranger, which is closed.

        Args:
            host: the client's address without its port.
            close: closes the connection at once; called when its slot is taken away.

        Raises:
            Overloaded: no slot is free.
        """
        network = network_of(host)
        limit = self._addresses.limit_of(host)
        if limit and self._addresses.counts[network] >= limit:
            raise self._refusal(
                "address",
                network,
                f"{limit} connections of {network} are open, which is the limit "
                "(max_connections_per_address); close some.",
            )
        is_full = self.count >= self._max_connections
        has_files = self._has_files()
        if is_full or not has_files or len(self.strangers) >= self._max_strangers:
            stranger = self.strangers.oldest_of_busiest()
            if stranger is not None:
                self._evict(stranger)
            elif is_full or not has_files:
                raise (
                    self._refusal("files", network, NO_ROOM)
                    if not has_files
                    else self._refusal(
                        "limit",
                        network,
                        f"{self._max_connections} clients are connected, which is the limit "
                        "(max_connections); try again later.",
                    )
                )
        slot = ConnectionSlot(self, network, close)
        self.count += 1
        self._addresses.counts[network] += 1
        self.strangers.add(slot)
        return slot

    def release(self, slot: ConnectionSlot) -> None:
        """Subtract a closed connection from the counts."""
        self.count -= 1
        self.strangers.discard(slot)
        counts = self._addresses.counts
        counts[slot.network] -= 1
        if not counts[slot.network]:
            del counts[slot.network]

    def _evict(self, stranger: ConnectionSlot) -> None:
        self._refusals["stranger"] += 1
        self._addresses.log_refusal(stranger.network)
        close = stranger.close  # `release` forgets it
        stranger.release()
        close()

    def _refusal(self, reason: str, network: str, text: str) -> Overloaded:
        self._refusals[reason] += 1
        self._addresses.log_refusal(network)
        return Overloaded(text)


class Strangers:
    """Slots of strangers, grouped by network. Each operation takes constant time."""

    def __init__(self) -> None:
        self._by_network: dict[str, OrderedDict[ConnectionSlot, None]] = {}
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        """Networks by the number of their strangers; no entry is empty."""
        self._most = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, slot: ConnectionSlot) -> None:
        """Add a slot, which must not be in the collection."""
        slots = self._by_network.setdefault(slot.network, OrderedDict())
        slots[slot] = None
        self._count += 1
        self._move(slot.network, len(slots) - 1, len(slots))
        self._most = max(self._most, len(slots))

    def discard(self, slot: ConnectionSlot) -> None:
        """Remove a slot, if present."""
        slots = self._by_network.get(slot.network)
        if slots is None or slot not in slots:
            return
        del slots[slot]
        self._count -= 1
        self._move(slot.network, len(slots) + 1, len(slots))
        if not slots:
            del self._by_network[slot.network]
        if self._most not in self._by_count:
            self._most -= 1

    def oldest_of_busiest(self) -> ConnectionSlot | None:
        """Return the oldest slot of the network with the most strangers; None if there are none."""
        if not self._count:
            return None
        network = next(iter(self._by_count[self._most]))
        return next(iter(self._by_network[network]))

    def _move(self, network: str, before: int, now: int) -> None:
        if before:
            networks = self._by_count[before]
            del networks[network]
            if not networks:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, OrderedDict())[network] = None
