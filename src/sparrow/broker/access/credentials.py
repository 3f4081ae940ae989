"""A user's credentials: setting, changing and storing them. Without I/O.

An entry of kind "user" (key: the name) has as its value a msgpack map from mechanism to [salt,
stored key, server key, iterations].
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import (
    DirectoryUnreadable,
    DuplicateResource,
    SparrowError,
    UnacceptableCredential,
    UnknownUser,
    UnsupportedMechanism,
)
from sparrow.base.passwords import check_password
from sparrow.broker.access.authz import RESERVED_NAMES
from sparrow.broker.access.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Credential,
    Mechanism,
    credential_of,
    salted_password,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparrow.meta.store import Entry

DEFAULT_ITERATIONS: Final = 8192
SALT_BYTES: Final = 16
MAX_NAME_BYTES: Final = 1024
MAX_SALT_BYTES: Final = 1024

Credentials = dict[Mechanism, Credential]


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A user's new password for one mechanism. `mechanism` is a SASL name; the salted password is
    Hi() of RFC 5802.
    """

    user: str
    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class Deletion(msgspec.Struct, frozen=True):
    """The removal of one mechanism from a user; a user without any is deleted."""

    user: str
    mechanism: str


def upsertions_of(
    name: str,
    password: str,
    mechanisms: Iterable[Mechanism] = tuple(Mechanism),
    iterations: int = DEFAULT_ITERATIONS,
) -> list[Upsertion]:
    """Return the changes that set a password for some mechanisms, each with its own salt. Slow:
    call it in a thread.

    Raises:
        UnacceptableCredential: the password is too short.
    """
    check_password(password)
    return [_upsertion(name, password, mechanism, iterations) for mechanism in mechanisms]


def _upsertion(name: str, password: str, mechanism: Mechanism, iterations: int) -> Upsertion:
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)
    return Upsertion(name, mechanism.value, iterations, salt, salted)


# ── the plan of a change ──────────────────────────────────────────────────────────────────────────


def plan(
    users: Mapping[str, Credentials], upsertions: Sequence[Upsertion], deletions: Sequence[Deletion]
) -> tuple[dict[str, SparrowError | None], dict[str, Credentials]]:
    """Return the result for each user that is named, and the new credentials of those that change
    (none left: the user is deleted).
    """
    outcome: dict[str, SparrowError | None] = {}
    changed: dict[str, Credentials] = {}
    named: set[tuple[str, str]] = set()
    changes: list[Upsertion | Deletion] = [*deletions, *upsertions]
    for change in changes:
        if outcome.get(change.user) is not None:
            continue
        try:
            _refuse_duplicate(named, change)
            credentials = changed.setdefault(change.user, dict(users.get(change.user, {})))
            _apply(change, credentials)
            outcome[change.user] = None
        except SparrowError as error:
            outcome[change.user] = error
    return outcome, {name: after for name, after in changed.items() if outcome[name] is None}


def _refuse_duplicate(named: set[tuple[str, str]], change: Upsertion | Deletion) -> None:
    if (change.user, change.mechanism) in named:
        raise DuplicateResource("A user credential cannot be altered twice in the same request")
    named.add((change.user, change.mechanism))


def _apply(change: Upsertion | Deletion, credentials: Credentials) -> None:
    mechanism = _checked_mechanism(change)
    if isinstance(change, Deletion):
        if credentials.pop(mechanism, None) is None:
            raise UnknownUser("Attempt to delete a user credential that does not exist")
        return
    if change.user in RESERVED_NAMES:
        raise UnacceptableCredential(
            f"A user cannot be named {change.user!r}, which means all users, or those "
            "without a login; choose another name"
        )
    _check_credential(change)
    credentials[mechanism] = credential_of(mechanism, change.salted_password, change.salt, change.iterations)


def _checked_mechanism(change: Upsertion | Deletion) -> Mechanism:
    if not change.user:
        raise UnacceptableCredential("Username must not be empty")
    if len(change.user.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise UnacceptableCredential(f"Username must not be longer than {MAX_NAME_BYTES} bytes")
    try:
        return Mechanism(change.mechanism)
    except ValueError:
        raise UnsupportedMechanism("Unknown SCRAM mechanism") from None


def _check_credential(change: Upsertion) -> None:
    if change.iterations > MAX_ITERATIONS:
        raise UnacceptableCredential(f"Too many iterations: at most {MAX_ITERATIONS} are possible")
    if change.iterations < MIN_ITERATIONS:
        raise UnacceptableCredential(f"Too few iterations: at least {MIN_ITERATIONS} are needed")
    if len(change.salt) > MAX_SALT_BYTES or len(change.salted_password) > MAX_SALT_BYTES:
        raise UnacceptableCredential(
            f"Salt and salted password must not be longer than {MAX_SALT_BYTES} bytes"
        )


# ── the entries ───────────────────────────────────────────────────────────────────────────────────


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def encode(credentials: Credentials) -> bytes:
    """Return the value of a user's entry."""
    stored = {
        mechanism.value: _Stored(each.salt, each.stored_key, each.server_key, each.iterations)
        for mechanism, each in credentials.items()
    }
    return msgspec.msgpack.encode(stored)


def decode(entry: Entry) -> Credentials:
    """Return the credentials of an entry.

    Raises:
        DirectoryUnreadable: the entry is none that Sparrow writes.
    """
    try:
        stored = msgspec.msgpack.decode(entry.value, type=dict[str, _Stored])
        return {
            Mechanism(name): Credential(each.salt, each.stored_key, each.server_key, each.iterations)
            for name, each in stored.items()
        }
    except (msgspec.DecodeError, ValueError) as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a user that cannot be read, {entry.key!r}: {exc}. Put back a "
            "backup of the data directory, "
            "or delete this entry."
        ) from exc
