"""A user's credentials: how they are set, what a change makes of them, and how they are stored. Without I/O.

A fact of kind "user" (key: the name) has as its value a msgpack map from mechanism to [salt, stored key, server key, iterations].
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

    from sparrow.meta.store import Fact

DEFAULT_ITERATIONS: Final = 8192
SALT_BYTES: Final = 16
MAX_NAME_BYTES: Final = 1024
MAX_SALT_BYTES: Final = 1024

Credentials = dict[Mechanism, Credential]


@dataclass(frozen=True, slots=True)
class Upsertion:
    """Sets a user's password for one mechanism. `mechanism` is a SASL name; the salted password is Hi() of RFC 5802."""

    user: str
    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Takes one mechanism from a user; one without any is gone."""

    user: str
    mechanism: str


def upsertions_of(
    name: str,
    password: str,
    mechanisms: Iterable[Mechanism] = tuple(Mechanism),
    iterations: int = DEFAULT_ITERATIONS,
) -> list[Upsertion]:
    """What sets a password for some mechanisms, each with a salt of its own. Slow: call it in a thread.

    Raises:
        UnacceptableCredential: the password is empty.
    """
    if not password:
        raise UnacceptableCredential(
            f"The password of user {name!r} is empty; an empty password is no password."
        )
    return [_upsertion(name, password, mechanism, iterations) for mechanism in mechanisms]


def _upsertion(name: str, password: str, mechanism: Mechanism, iterations: int) -> Upsertion:
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)
    return Upsertion(name, mechanism.value, iterations, salt, salted)


# ── the plan of a change ──────────────────────────────────────────────────────────────────────────


def plan(
    users: Mapping[str, Credentials], upsertions: Sequence[Upsertion], deletions: Sequence[Deletion]
) -> tuple[dict[str, SparrowError | None], dict[str, Credentials]]:
    """What becomes of each user that is named, and the new credentials of those that change (none left: the user goes)."""
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


# ── the facts ─────────────────────────────────────────────────────────────────────────────────────


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def encode(credentials: Credentials) -> bytes:
    """The value of a user's fact."""
    stored = {
        mechanism.value: _Stored(each.salt, each.stored_key, each.server_key, each.iterations)
        for mechanism, each in credentials.items()
    }
    return msgspec.msgpack.encode(stored)


def decode(fact: Fact) -> Credentials:
    """What a fact says.

    Raises:
        DirectoryUnreadable: it is none that Sparrow writes.
    """
    try:
        stored = msgspec.msgpack.decode(fact.value, type=dict[str, _Stored])
        return {
            Mechanism(name): Credential(each.salt, each.stored_key, each.server_key, each.iterations)
            for name, each in stored.items()
        }
    except (msgspec.DecodeError, ValueError) as exc:
        raise DirectoryUnreadable(
            f"The meta store holds a user that cannot be read, {fact.key!r}: {exc}. Put back a backup of the data directory, "
            "or delete this fact."
        ) from exc
