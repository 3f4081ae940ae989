"""Limits of wrong logins: guesses of each user and each address are slow, and honest users get in
meanwhile.

    attempt ─▶ token of its address ─▶ token of its user ─▶ check ─▶ right: both tokens returned
                                                              └────▶ wrong: both tokens are lost

An attempt takes its tokens before the check, so that the time of a response reveals nothing that
was not paid for, also if the client disconnects early. A pair (user, address) that logged in before
takes its tokens from small buckets of its own, and goes first if these are empty; a wrong password
ends that. Pairs that failed go last, and so do those that have a waiting attempt already.

Addresses are counted by IPv4 address and by IPv6 /64, which is what one host usually has. Tokens
(bearer) name no user, so that they count as one user of their address. All state is bounded; the
entries unused for longest are dropped. A bucket is full again after a second, so that dropping an
old one changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
from collections import Counter, OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

from sparrow.base.errors import NotAuthenticated, Overloaded
from sparrow.broker.access.token_queue import TOO_MANY, WORST_RANK, TokenQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.base.clock import Clock
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.access.scram import Credential, Mechanism, ScramServer
    from sparrow.broker.access.users import UserService

T = TypeVar("T")
log = logging.getLogger("sparrow.logins")

USER_RATE, USER_BURST = 2.5, 1
KNOWN_USER_RATE, KNOWN_USER_BURST = 0.4, 1
"""Together: at most 4.9 guesses of one user within any second."""
ADDRESS_RATE, ADDRESS_BURST = 8.0, 8
KNOWN_ADDRESS_RATE, KNOWN_ADDRESS_BURST = 1.5, 2
"""Together: at most 19.5 guesses from one address within any second."""
MAX_WAITING_AT_BUCKET: Final = 32
MAX_WAITING: Final = 1_000
MAX_REMEMBERED: Final = 10_000
"""The limit of remembered users, of addresses and of pairs of them."""
SUMMARY_INTERVAL_S: Final = 60.0
_MAX_SUMMARIZED: Final = 1_000

KNOWN, FRESH, FAILED = range(WORST_RANK + 1)

User = bytes
Network = str
Pair = tuple[User, Network]


class LoginAttempt:
    """One login that may be checked now: report its result. An attempt without a report counts as
    wrong.
    """

    __slots__ = ("_buckets", "_limits", "_pair", "rank")

    def __init__(
        self, limits: LoginLimits, pair: Pair, rank: int, buckets: tuple[TokenQueue, TokenQueue]
    ) -> None:
        self.rank = rank
        self._limits = limits
        self._pair = pair
        self._buckets = buckets

    def succeed(self) -> None:
        """Report right credentials: return the tokens."""
        for bucket in self._buckets:
            bucket.give_back()
        self._limits.succeeded(self._pair)

    def fail(self) -> None:
        """Report wrong credentials."""
        self._limits.failed(self._pair)


class LoginLimits:
    """Limits of wrong logins, as the module describes. Loop thread only.

    Args:
        clock: its monotonic time fills the buckets.
        failures: counts failed logins by reason: "credentials" (wrong) or "waiting" (too many
            waited).
    """

    def __init__(self, clock: Clock, failures: Counter[str] | None = None) -> None:
        self.failures: Counter[str] = Counter() if failures is None else failures
        self._users = _Buckets(clock, USER_RATE, USER_BURST)
        self._addresses = _Buckets(clock, ADDRESS_RATE, ADDRESS_BURST)
        self._known_users = _Buckets(clock, KNOWN_USER_RATE, KNOWN_USER_BURST)
        self._known_addresses = _Buckets(clock, KNOWN_ADDRESS_RATE, KNOWN_ADDRESS_BURST)
        self._known: OrderedDict[Pair, None] = OrderedDict()
        self._failed: OrderedDict[Pair, None] = OrderedDict()
        self._waiting: Counter[Pair] = Counter()
        self._number_waiting = 0
        self._unsaid: Counter[Network] = Counter()
        self._summarizing: asyncio.TimerHandle | None = None

    @property
    def remembered(self) -> int:
        """The number of entries in the state; bounded."""
        buckets = (self._users, self._addresses, self._known_users, self._known_addresses)
        return sum(map(len, buckets)) + len(self._known) + len(self._failed)

    def begin_now(self, name: str | None, host: str) -> LoginAttempt | None:
        """Begin a login that need not wait; return None if it must, see `begin`.

        Args:
            name: the user; None if the credentials name none.
            host: the address of the client, without its port.
        """
        pair = _pair(name, host)
        if pair in self._known:
            buckets = (self._known_addresses.of(pair[1]), self._known_users.of(pair[0]))
            if _take_both_now(*buckets):
                return LoginAttempt(self, pair, KNOWN, buckets)
        buckets = (self._addresses.of(pair[1]), self._users.of(pair[0]))
        return LoginAttempt(self, pair, self._rank(pair), buckets) if _take_both_now(*buckets) else None

    async def begin(self, name: str | None, host: str) -> LoginAttempt:
        """Begin a login when its tokens are there.

        Raises:
            Overloaded: too many logins wait.
        """
        attempt = self.begin_now(name, host)
        if attempt is not None:
            return attempt
        pair = _pair(name, host)
        rank = self._rank(pair)
        if self._number_waiting >= MAX_WAITING * (1 + WORST_RANK - rank):
            self._count("waiting", pair[1])
            raise Overloaded(TOO_MANY)
        buckets = (self._addresses.of(pair[1]), self._users.of(pair[0]))
        self._number_waiting += 1
        self._waiting[pair] += 1
        try:
            await buckets[0].take(rank)
            await buckets[1].take(rank)
        except Overloaded:
            self._count("waiting", pair[1])
            raise
        finally:
            self._number_waiting -= 1
            self._leave(pair)
        return LoginAttempt(self, pair, rank, buckets)

    async def check(self, name: str | None, host: str, work: Callable[[int], Awaitable[T]]) -> T:
        """Return the result of `work`, which checks credentials; it gets the rank of the attempt.

        Raises:
            NotAuthenticated: `work` raised it.
            Overloaded: too many logins wait.
        """
        attempt = await self.begin(name, host)
        try:
            found = await work(attempt.rank)
        except NotAuthenticated:
            attempt.fail()
            raise
        attempt.succeed()
        return found

    def succeeded(self, pair: Pair) -> None:
        """Remember that a pair logged in."""
        self._failed.pop(pair, None)
        _remember(self._known, pair)

    def failed(self, pair: Pair) -> None:
        """Remember that a pair failed, and count it."""
        self._known.pop(pair, None)
        _remember(self._failed, pair)
        self._count("credentials", pair[1])

    def summarize(self) -> None:
        """Log the failures since the last summary, if there are any; repeat after a minute."""
        self._summarizing = None
        if not self._unsaid:
            return
        worst, most = self._unsaid.most_common(1)[0]
        log.warning(
            "failed logins: %d from %d addresses; most, %d, from %s",
            self._unsaid.total(),
            len(self._unsaid),
            most,
            worst,
        )
        self._unsaid.clear()
        self._summarizing = asyncio.get_running_loop().call_later(SUMMARY_INTERVAL_S, self.summarize)

    def _rank(self, pair: Pair) -> int:
        if pair in self._known:
            return KNOWN
        is_suspect = pair in self._failed or pair in self._waiting
        return FAILED if is_suspect else FRESH

    def _leave(self, pair: Pair) -> None:
        self._waiting[pair] -= 1
        if not self._waiting[pair]:
            del self._waiting[pair]

    def _count(self, reason: str, network: Network) -> None:
        self.failures[reason] += 1
        if network not in self._unsaid and len(self._unsaid) >= _MAX_SUMMARIZED:
            network = "other addresses"
        self._unsaid[network] += 1
        if self._summarizing is None:
            self.summarize()


class LimitedUsers:
    """The users of a broker behind the limits of wrong logins."""

    def __init__(self, users: UserService, limits: LoginLimits) -> None:
        self._users = users
        self._limits = limits

    async def check_password(self, name: str, password: str, host: str) -> Principal:
        """Return the principal of a user whose password this is.

        Raises:
            NotAuthenticated: no such user, or another password.
            Overloaded: too many logins wait.
        """
        return await self._limits.check(
            name, host, lambda rank: self._users.check_password(name, password, rank=rank)
        )

    def scram(self, mechanism: Mechanism, host: str) -> LimitedScram:
        """Return the server's side of a new SCRAM login."""
        return LimitedScram(self._users.scram(mechanism), self._limits, host)


class LimitedScram:
    """The server's side of one SCRAM login behind the limits: its proof waits for tokens."""

    def __init__(self, server: ScramServer, limits: LoginLimits, host: str) -> None:
        self._server = server
        self._limits = limits
        self._host = host

    @property
    def user(self) -> str | None:
        """The user whose login was proved; None until then."""
        return self._server.user

    @property
    def claimed(self) -> str | None:
        """The user whom the client named; None until then."""
        return self._server.claimed

    @property
    def credential(self) -> Credential | None:
        """The credential that the login is checked against; None until the user is named."""
        return self._server.credential

    async def receive(self, message: bytes) -> bytes:
        """Return the response to the client's next message.

        Raises:
            NotAuthenticated: the message is malformed, or the proof is wrong; the login is over.
            Overloaded: too many logins wait.
        """
        name = self._server.claimed
        if name is None:
            return self._server.receive(message)

        async def check(_rank: int) -> bytes:
            return self._server.receive(message)

        return await self._limits.check(name, self._host, check)


class _Buckets:
    """Token buckets by key; those unused for longest are dropped."""

    def __init__(self, clock: Clock, rate: float, burst: float) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[bytes | str, TokenQueue] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, key: bytes | str) -> TokenQueue:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenQueue(
                self._clock, self._rate, self._burst, MAX_WAITING_AT_BUCKET
            )
            self._forget_oldest()
        else:
            self._buckets.move_to_end(key)
        return bucket

    def _forget_oldest(self) -> None:
        if len(self._buckets) <= MAX_REMEMBERED:
            return
        key, bucket = next(iter(self._buckets.items()))
        if bucket.waiting:  # far fewer than MAX_REMEMBERED buckets have waiters
            self._buckets.move_to_end(key)
        else:
            del self._buckets[key]


def _take_both_now(first: TokenQueue, second: TokenQueue) -> bool:
    if not first.take_now():
        return False
    if second.take_now():
        return True
    first.give_back()
    return False


def _remember(pairs: OrderedDict[Pair, None], pair: Pair) -> None:
    pairs[pair] = None
    pairs.move_to_end(pair)
    if len(pairs) > MAX_REMEMBERED:
        pairs.popitem(last=False)


def _pair(name: str | None, host: str) -> Pair:
    network = network_of(host)
    kind, text = (b"user", name) if name is not None else (b"from", network)
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=16, person=kind
    ).digest(), network


@lru_cache(maxsize=1024)
def network_of(host: str) -> Network:
    """Return the network that an address is counted by: an IPv4 address, or an IPv6 /64. Other text
    is kept, cut to 64 characters.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
