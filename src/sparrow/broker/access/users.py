"""The users: their SCRAM credentials in the meta store, changed as Kafka's APIs 50 and 51 change them, and asked at each login.

A user is a fact of kind "user", see `credentials.py`. Passwords are never kept and never sent to be kept: whoever sets one sends it
salted and hashed. A user who logs in with PLAIN is checked against the same credentials.

Nobody learns by trying which users exist: an unknown one gets a false credential, the same one each time (it follows from a secret that
the meta store keeps), and costs the same time. What a PLAIN login proved is remembered for as long as the credential stays, as a
keyed digest, so that a client that connects often does not pay for the hashing each time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sparrow.base.errors import (
    DuplicateResource,
    NotAuthenticated,
    SparrowError,
    UnacceptableCredential,
    UnknownUser,
    UserExists,
)
from sparrow.broker.access.authz import ANONYMOUS, SYSTEM, Operation, Principal
from sparrow.broker.access.credentials import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    Credentials,
    Deletion,
    Upsertion,
    decode,
    encode,
    plan,
    upsertions_of,
)
from sparrow.broker.access.scram import Credential, Mechanism, ScramServer, is_password_of
from sparrow.meta.store import ABSENT, Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparrow.meta.store import MetaStore, Write

T = TypeVar("T")

KIND: Final = "user"
_SECRET_KIND: Final = "secret"  # noqa: S105 - a kind of fact
_SECRET_KEY: Final = "unknown-users"  # noqa: S105
MAX_REMEMBERED: Final = 1024
CONCURRENT_HASHES: Final = 2
"""Passwords that are checked at a time, each in a thread; other logins wait, the rest of the broker does not."""


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user and (mechanism's name, iterations) for each credential."""

    name: str
    credentials: tuple[tuple[str, int], ...]


class Users:
    """All users of a broker. Loop thread only.

    Args:
        meta: where they are kept.
        require: raises NotAuthorized unless a principal may do this to the cluster.
    """

    def __init__(self, meta: MetaStore, require: Callable[[Principal, Operation], None]) -> None:
        self._meta = meta
        self._require = require
        self._users: dict[str, Credentials] = {}
        self._secret = b""
        self._changing = asyncio.Lock()
        self._hashing = asyncio.Semaphore(CONCURRENT_HASHES)
        self._remembered = _Remembered()
        self._learn_shapes()

    async def load(self) -> None:
        """Read the meta store.

        Raises:
            DirectoryUnreadable: it holds a user that cannot be read.
        """
        self._users = {fact.key: decode(fact) for fact in await self._meta.scan(KIND)}
        self._learn_shapes()
        fact = await self._meta.get(_SECRET_KIND, _SECRET_KEY)
        if fact is None:
            self._secret = secrets.token_bytes(32)
            await self._meta.write([Put(_SECRET_KIND, _SECRET_KEY, self._secret, ABSENT)])
        else:
            self._secret = fact.value

    def __contains__(self, name: object) -> bool:
        return name in self._users

    def __len__(self) -> int:
        return len(self._users)

    # ── administration ────────────────────────────────────────────────────────────────────────────

    async def alter(
        self,
        upsertions: Sequence[Upsertion] = (),
        deletions: Sequence[Deletion] = (),
        *,
        principal: Principal = ANONYMOUS,
    ) -> dict[str, SparrowError | None]:
        """Change credentials; all that is asked for one user happens, or nothing (KIP-554). Durable when it returns.

        Returns:
            For each user named: None, or DuplicateResource, UnacceptableCredential, UnsupportedMechanism, UnknownUser.

        Raises:
            NotAuthorized: needs ALTER on the cluster.
        """
        self._require(principal, Operation.ALTER)
        async with self._changing:
            outcome, changed = plan(self._users, upsertions, deletions)
            await self._write(changed)
        return outcome

    def describe(
        self, names: Sequence[str] | None = None, *, principal: Principal = ANONYMOUS
    ) -> dict[str, UserInfo | SparrowError]:
        """The credentials of some users, or of all (None or none named); UnknownUser and DuplicateResource are answers per user.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        self._require(principal, Operation.DESCRIBE)
        found: dict[str, UserInfo | SparrowError] = {}
        for name in names or sorted(self._users):
            if name in found:
                found[name] = DuplicateResource(
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                )
            else:
                found[name] = self._info(name)
        return found

    def _info(self, name: str) -> UserInfo | SparrowError:
        credentials = self._users.get(name)
        if credentials is None:
            return UnknownUser(f"Attempt to describe a user credential that does not exist: {name}")
        return _info(name, credentials)

    def listing(self, *, principal: Principal = ANONYMOUS) -> list[UserInfo]:
        """All users, by name.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        self._require(principal, Operation.DESCRIBE)
        return [_info(name, credentials) for name, credentials in sorted(self._users.items())]

    async def create(self, upsertions: Sequence[Upsertion], *, principal: Principal = ANONYMOUS) -> None:
        """Make one user with these credentials, all of the same name.

        Raises:
            UserExists, UnacceptableCredential, UnsupportedMechanism, DuplicateResource, NotAuthorized
        """
        await self._set(upsertions, principal, must_exist=False)

    async def set_password(
        self, upsertions: Sequence[Upsertion], *, principal: Principal = ANONYMOUS
    ) -> None:
        """Put these credentials in the place of all that a user had, so that no mechanism takes the old password.

        Raises:
            UnknownUser, UnacceptableCredential, UnsupportedMechanism, DuplicateResource, NotAuthorized
        """
        await self._set(upsertions, principal, must_exist=True)

    async def _set(self, upsertions: Sequence[Upsertion], principal: Principal, *, must_exist: bool) -> None:
        self._require(principal, Operation.ALTER)
        async with self._changing:
            outcome, changed = plan({}, upsertions, ())
            if len(outcome) != 1:
                raise UnacceptableCredential("One user's credentials are set at a time, and at least one.")
            for name, error in outcome.items():
                if error is not None:
                    raise error
                if must_exist and name not in self._users:
                    raise _unknown(name)
                if not must_exist and name in self._users:
                    raise UserExists(
                        f"There is a user {name!r} already; set the password, or delete the user first."
                    )
            await self._write(changed)

    async def delete(self, name: str, *, principal: Principal = ANONYMOUS) -> None:
        """Forget a user. Who is connected stays connected.

        Raises:
            UnknownUser, NotAuthorized
        """
        self._require(principal, Operation.ALTER)
        async with self._changing:
            if name not in self._users:
                raise _unknown(name)
            await self._write({name: {}})

    async def ensure(self, passwords: Mapping[str, str]) -> list[str]:
        """Make the users of a configuration that do not exist, with both mechanisms; the names of those that were made.

        Raises:
            UnacceptableCredential: a name or password that cannot be used.
        """
        missing = [name for name in passwords if name not in self._users]
        for name in missing:
            await self.create(
                await self._hashed(partial(upsertions_of, name, passwords[name])), principal=SYSTEM
            )
        return missing

    async def _write(self, changed: Mapping[str, Credentials]) -> None:
        writes: list[Write] = [
            Put(KIND, name, encode(credentials)) if credentials else Delete(KIND, name)
            for name, credentials in changed.items()
        ]
        if not writes:
            return
        await self._meta.write(writes)
        for name, credentials in changed.items():
            self._remembered.forget(name)
            if credentials:
                self._users[name] = credentials
            else:
                self._users.pop(name, None)
        self._learn_shapes()

    # ── logins ────────────────────────────────────────────────────────────────────────────────────

    def scram(self, mechanism: Mechanism) -> ScramServer:
        """The server's side of a new SCRAM login."""
        return ScramServer(mechanism, partial(self._credential, mechanism), secrets.token_urlsafe(24))

    async def check_password(self, name: str, password: str) -> Principal:
        """The principal of a user who shows the password.

        Raises:
            NotAuthenticated: no such user, or another password.
        """
        mechanism = next(iter(self._users.get(name, ())), None) or self._false_mechanism(name)
        credential = self._credential(mechanism, name)
        if self._remembered.knows(name, credential, password):
            return Principal(name)
        if not await self._hashed(partial(is_password_of, mechanism, credential, password)):
            raise NotAuthenticated("Authentication failed: Invalid username or password")
        self._remembered.add(name, credential, password)
        return Principal(name)

    def _credential(self, mechanism: Mechanism, name: str) -> Credential:
        return self._users.get(name, {}).get(mechanism) or self._false_credential(mechanism, name)

    def _false_credential(self, mechanism: Mechanism, name: str) -> Credential:
        """What a user who does not exist seems to have: with a salt as long and as many iterations as some of those who exist."""
        size = hashlib.new(mechanism.hash_name).digest_size
        shapes = self._shapes[mechanism] or [(SALT_BYTES, DEFAULT_ITERATIONS)]
        salt_bytes, iterations = shapes[self._derived_below(len(shapes), f"{mechanism.value} shape {name}")]
        salt = self._derived(f"{mechanism.value} salt {name}", salt_bytes)
        return Credential(
            salt, self._derived(f"stored {name}", size), self._derived(f"server {name}", size), iterations
        )

    def _false_mechanism(self, name: str) -> Mechanism:
        """By which mechanism a user who does not exist is checked, as it shows in the time."""
        return self._firsts[self._derived_below(len(self._firsts), f"first {name}")]

    def _learn_shapes(self) -> None:
        """Note what credentials look like: how long the salts are, how many the iterations, which mechanism is asked first."""
        self._shapes = {
            mechanism: sorted(
                {(len(c.salt), c.iterations) for each in self._users.values() if (c := each.get(mechanism))}
            )
            for mechanism in Mechanism
        }
        firsts = {next(iter(each)) for each in self._users.values()}
        self._firsts = [each for each in Mechanism if each in firsts] or [Mechanism.SHA_256]

    def _derived_below(self, end: int, what: str) -> int:
        return int.from_bytes(self._derived(what, 8), "big") % end

    def _derived(self, what: str, size: int) -> bytes:
        """Bytes that look random and are the same each time."""
        key = hmac.digest(self._secret, what.encode("utf-8", "surrogatepass"), "sha512")
        return hashlib.shake_256(key).digest(size)

    async def _hashed(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in a thread. A thread cannot be stopped: it keeps its place when the caller goes away, or
        clients that do not wait for an answer could keep all threads busy."""
        await self._hashing.acquire()
        done = asyncio.get_running_loop().run_in_executor(None, work)
        done.add_done_callback(lambda _: self._hashing.release())
        return await asyncio.shield(done)


class _Remembered:
    """Passwords that were found right, as digests under a key of this process; the least recently used are forgotten."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._digests: OrderedDict[str, tuple[Credential, bytes]] = OrderedDict()

    def knows(self, name: str, credential: Credential, password: str) -> bool:
        found = self._digests.get(name)
        if found is None or found[0] is not credential:
            return False
        self._digests.move_to_end(name)
        return hmac.compare_digest(found[1], self._digest(password))

    def add(self, name: str, credential: Credential, password: str) -> None:
        self._digests[name] = (credential, self._digest(password))
        self._digests.move_to_end(name)
        if len(self._digests) > MAX_REMEMBERED:
            self._digests.popitem(last=False)

    def forget(self, name: str) -> None:
        self._digests.pop(name, None)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")


def _info(name: str, credentials: Credentials) -> UserInfo:
    return UserInfo(name, tuple((m.value, c.iterations) for m, c in credentials.items()))


def _unknown(name: str) -> UnknownUser:
    return UnknownUser(f"There is no user {name!r}; `sparrow user list` shows all.")
