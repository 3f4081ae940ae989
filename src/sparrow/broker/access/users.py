"""The users: their SCRAM credentials in the meta store, changed as Kafka's APIs 50 and 51 change
them, and checked at each login.

A user is an entry of kind "user", see `credentials.py`. Passwords are never stored and never sent
to be stored: a client that sets one sends it salted and hashed. A PLAIN login is checked against
the same credentials.

Trying does not reveal which users exist: an unknown one gets a false credential, the same one each
time (it follows from a secret that the meta store keeps), and costs the same time. A proved PLAIN
login is remembered for as long as the credential stays, as a keyed digest, so that a client that
connects often does not pay for the hashing each time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sparrow.base.clock import SystemClock
from sparrow.base.errors import (
    DuplicateResource,
    NotAuthenticated,
    SparrowError,
    UnacceptableCredential,
    UnknownUser,
    UserExists,
)
from sparrow.broker.access.authz import ANONYMOUS, RESERVED_NAMES, SYSTEM, Operation, Principal, ResourceType
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
from sparrow.broker.access.login import Login, LoginKind
from sparrow.broker.access.scram import Credential, Mechanism, ScramServer, is_password_of
from sparrow.broker.access.sessions import Sessions
from sparrow.broker.access.token_queue import TokenQueue
from sparrow.broker.audit.audit import Audit
from sparrow.meta.store import ABSENT, Delete, Put
from sparrow.model.access import UserListing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from sparrow.broker.access.access import Access
    from sparrow.meta.store import MetaStore, Write

T = TypeVar("T")

KIND: Final = "user"
_SECRET_KIND: Final = "secret"  # noqa: S105 - a kind of entry
_SECRET_KEY: Final = "unknown-users"  # noqa: S105
MAX_REMEMBERED: Final = 1024
CONCURRENT_HASHES: Final = 2
"""Passwords that are checked at a time, each in a thread; further logins wait, and the rest of the
broker runs on.
"""
MAX_WAITING_FOR_HASH: Final = 1_000


class UserService:
    """All users of a broker. Loop thread only.

    Args:
        meta: the store of the users.
        sessions: end when their user is deleted or gets another password.
        there_are_users: called if there is a user, at the start and after each change.
    """

    def __init__(
        self,
        meta: MetaStore,
        access: Access,
        there_are_users: Callable[[], None] = lambda: None,
        sessions: Sessions | None = None,
        *,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._there_are_users = there_are_users
        self._sessions = sessions or Sessions()
        self._sessions.judge(LoginKind.PASSWORD, self._why_over)
        self.token_principals: Callable[[], Iterable[str]] = tuple
        """Returns the principals of tokens; set by the server that has them."""
        self.when_deleted: list[Callable[[str], Awaitable[None]]] = []
        """Awaited with the name of each user that was deleted."""
        self._meta = meta
        self._access = access
        self._users: dict[str, Credentials] = {}
        self._secret = b""
        self._changing = asyncio.Lock()
        self._hashing = TokenQueue(SystemClock(), 0, CONCURRENT_HASHES, MAX_WAITING_FOR_HASH)
        self._remembered = _Remembered()
        self._learn_shapes()

    async def load(self) -> None:
        """Read the users from the meta store.

        Raises:
            DirectoryUnreadable: it holds a user that cannot be read.
        """
        self._users = {entry.key: decode(entry) for entry in await self._meta.scan(KIND)}
        self._learn_shapes()
        if self._users:
            self._there_are_users()
        entry = await self._meta.get(_SECRET_KIND, _SECRET_KEY)
        if entry is None:
            self._secret = secrets.token_bytes(32)
            await self._meta.write([Put(_SECRET_KIND, _SECRET_KEY, self._secret, ABSENT)])
        else:
            self._secret = entry.value

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
        """Change credentials; all changes of one user happen, or none (KIP-554). Durable when it
        returns.

        Returns:
            For each user named: None, or DuplicateResource, UnacceptableCredential,
                UnsupportedMechanism, UnknownUser.

        Raises:
            NotAuthorized: needs ALTER on the cluster.
        """
        with self._audit.act(
            principal, "user.alter", ResourceType.USER, _named((*upsertions, *deletions))
        ) as act:
            self._access.require_cluster(principal, Operation.ALTER)
            async with self._changing:
                outcome, changed = plan(self._users, upsertions, deletions)
                await self._write(changed)
            act.items(outcome.items())
            return outcome

    def describe(
        self, names: Sequence[str] | None = None, *, principal: Principal = ANONYMOUS
    ) -> dict[str, UserListing | SparrowError]:
        """Return the credentials of some users, or of all (None or none named); UnknownUser and
        DuplicateResource are results per user.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE)
        found: dict[str, UserListing | SparrowError] = {}
        for name in names or sorted(self._users):
            if name in found:
                found[name] = DuplicateResource(
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
                )
            else:
                found[name] = self._info(name)
        return found

    def _info(self, name: str) -> UserListing | SparrowError:
        credentials = self._users.get(name)
        if credentials is None:
            return UnknownUser(f"Attempt to describe a user credential that does not exist: {name}")
        return _info(name, credentials)

    def tokens(self, *, principal: Principal = ANONYMOUS) -> list[str]:
        """Return the principals that log in by a token of the configuration, by name.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE)
        return sorted(self.token_principals())

    def listing(self, *, principal: Principal = ANONYMOUS) -> list[UserListing]:
        """Return all users, by name.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE)
        return [_info(name, credentials) for name, credentials in sorted(self._users.items())]

    def one(self, name: str, *, principal: Principal = ANONYMOUS) -> UserListing:
        """Return a user.

        Raises:
            UnknownUser
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        return _info(name, self._existing(name, principal))

    def version(self, name: str, *, principal: Principal = ANONYMOUS) -> bytes:
        """Return the salts of a user, which are others after each change of the password.

        Raises:
            UnknownUser
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        return b"".join(each.salt for each in self._existing(name, principal).values())

    def _existing(self, name: str, principal: Principal) -> Credentials:
        self._access.require_cluster(principal, Operation.DESCRIBE)
        if name not in self._users:
            raise _unknown(name)
        return self._users[name]

    async def create(self, upsertions: Sequence[Upsertion], *, principal: Principal = ANONYMOUS) -> None:
        """Create one user with these credentials, all of the same name.

        Raises:
            UserExists, UnacceptableCredential, UnsupportedMechanism, DuplicateResource,
            NotAuthorized
        """
        with self._audit.act(principal, "user.create", ResourceType.USER, _named(upsertions)):
            await self._set(upsertions, principal, must_exist=False)

    async def set_password(
        self, upsertions: Sequence[Upsertion], *, principal: Principal = ANONYMOUS
    ) -> None:
        """Replace all credentials of a user by these, so that no mechanism accepts the old
        password.

        Raises:
            UnknownUser, UnacceptableCredential, UnsupportedMechanism, DuplicateResource,
            NotAuthorized
        """
        with self._audit.act(principal, "user.password", ResourceType.USER, _named(upsertions)):
            await self._set(upsertions, principal, must_exist=True)

    async def _set(self, upsertions: Sequence[Upsertion], principal: Principal, *, must_exist: bool) -> None:
        self._access.require_cluster(principal, Operation.ALTER)
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
        """Delete a user and end the user's sessions.

        Raises:
            UnknownUser, NotAuthorized
        """
        with self._audit.act(principal, "user.delete", ResourceType.USER, name):
            self._access.require_cluster(principal, Operation.ALTER)
            async with self._changing:
                if name not in self._users:
                    raise _unknown(name)
                await self._write({name: {}})

    async def ensure(self, passwords: Mapping[str, str]) -> list[str]:
        """Create the users of a configuration that do not exist, with both mechanisms; return the
        names of those created.

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
        self._sessions.look(LoginKind.PASSWORD, changed)
        for name in [name for name, credentials in changed.items() if not credentials]:
            for callback in self.when_deleted:
                await callback(name)
        if self._users:
            self._there_are_users()

    def _why_over(self, login: Login) -> str:
        """Return why a login by a password is no longer valid; "" while it is."""
        credentials = self._users.get(login.name)
        if credentials is None:
            return f"the user {login.name!r} was deleted"
        is_known = any(each == login.proof for each in credentials.values())
        return "" if is_known else f"the password of {login.name!r} was changed"

    # ── logins ────────────────────────────────────────────────────────────────────────────────────

    def scram(self, mechanism: Mechanism) -> ScramServer:
        """Return the server's side of a new SCRAM login."""
        return ScramServer(mechanism, partial(self._credential, mechanism), secrets.token_urlsafe(24))

    async def check_password(self, name: str, password: str, *, rank: int = 0) -> Principal:
        """Return the principal of a user whose password this is. Clients ask by `LimitedUsers`.

        Args:
            rank: 0 to 2; smaller ranks are checked first.

        Raises:
            NotAuthenticated: no such user, or another password.
            Overloaded: too many passwords wait to be checked.
        """
        mechanism = next(iter(self._known(name)), None) or self._false_mechanism(name)
        credential = self._credential(mechanism, name)
        proved = Principal(name, login=Login(LoginKind.PASSWORD, name, credential))
        if self._remembered.knows(name, credential, password):
            return proved
        if not await self._hashed(partial(is_password_of, mechanism, credential, password), rank):
            raise NotAuthenticated("Authentication failed: Invalid username or password")
        self._remembered.add(name, credential, password)
        return proved

    def _credential(self, mechanism: Mechanism, name: str) -> Credential:
        return self._known(name).get(mechanism) or self._false_credential(mechanism, name)

    def _known(self, name: str) -> Credentials:
        """Return the credentials to log in with. A user of an earlier version with a reserved name
        can only be deleted.
        """
        return {} if name in RESERVED_NAMES else self._users.get(name, {})

    def _false_credential(self, mechanism: Mechanism, name: str) -> Credential:
        """Return the credential that a user who does not exist seems to have: with a salt as long
        and as many iterations as some existing user has.
        """
        size = hashlib.new(mechanism.hash_name).digest_size
        shapes = self._shapes[mechanism] or [(SALT_BYTES, DEFAULT_ITERATIONS)]
        salt_bytes, iterations = shapes[self._derived_below(len(shapes), f"{mechanism.value} shape {name}")]
        salt = self._derived(f"{mechanism.value} salt {name}", salt_bytes)
        return Credential(
            salt, self._derived(f"stored {name}", size), self._derived(f"server {name}", size), iterations
        )

    def _false_mechanism(self, name: str) -> Mechanism:
        """Return the mechanism of a user who does not exist, as the time of the check shows it."""
        return self._firsts[self._derived_below(len(self._firsts), f"first {name}")]

    def _learn_shapes(self) -> None:
        """Record the shapes of credentials: the lengths of salts, the iterations, and the mechanism
        that is checked first.
        """
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
        """Return bytes that look random and are the same each time."""
        key = hmac.digest(self._secret, what.encode("utf-8", "surrogatepass"), "sha512")
        return hashlib.shake_256(key).digest(size)

    async def hashes(
        self,
        name: str,
        password: str,
        mechanisms: Sequence[Mechanism],
        iterations: int,
        *,
        principal: Principal = ANONYMOUS,
    ) -> Sequence[Upsertion]:
        """Return the hashes of a password, for `create` and `set_password`.

        Raises:
            NotAuthorized: needs ALTER on the cluster. Checked first, as hashing takes milliseconds.
        """
        self._access.require_cluster(principal, Operation.ALTER)
        return await self._hashed(partial(upsertions_of, name, password, mechanisms, iterations))

    async def _hashed(self, work: Callable[[], T], rank: int = 0) -> T:
        """Return the result of `work`, done in a thread. A thread cannot be stopped: it keeps its
        permit when the caller is cancelled, or clients that do not wait for a response could keep
        all threads busy.
        """
        await self._hashing.take(rank)
        done = asyncio.get_running_loop().run_in_executor(None, work)
        done.add_done_callback(lambda _: self._hashing.give_back())
        return await asyncio.shield(done)


class _Remembered:
    """Passwords that were found right, as digests under a key of this process; the least recently
    used are dropped.
    """

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


def _info(name: str, credentials: Credentials) -> UserListing:
    return UserListing(name, [(m.value, c.iterations) for m, c in credentials.items()])


def _named(changes: Sequence[Upsertion | Deletion]) -> str:
    """Return the users that credentials are for."""
    return ", ".join(sorted({each.user for each in changes}))


def _unknown(name: str) -> UnknownUser:
    return UnknownUser(f"There is no user {name!r}; `sparrow user list` shows all.")
