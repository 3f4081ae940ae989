"""Operations on users.

The native protocol has password hashes that the client made. By HTTP a password arrives in plain
text and is hashed here, for SCRAM as Kafka's clients use it; it is not stored. So these routes
should only be used with TLS, or on the same machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from sparrow.broker.access.credentials import DEFAULT_ITERATIONS, Upsertion
from sparrow.broker.access.scram import MAX_ITERATIONS, MIN_ITERATIONS, Mechanism
from sparrow.frontends.admin.fields import SECRET, Body, Name, choices
from sparrow.frontends.admin.operation import Arguments, Named, NoArguments, OperationContext

if TYPE_CHECKING:
    from sparrow.model.access import UserListing

MechanismName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_BOTH: list[MechanismName] = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


class SaltedPassword(msgspec.Struct, array_like=True, frozen=True):
    """A password hash as in RFC 5802: Hi(password, salt, iterations)."""

    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes


class SetUser(Arguments, frozen=True):
    name: str
    credentials: list[SaltedPassword]


class Password(Body):
    password: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1000,
            extra={SECRET: True},
            extra_json_schema={"format": "password", "writeOnly": True},
        ),
    ]
    mechanisms: Annotated[
        list[Annotated[MechanismName, choices(MechanismName)]],
        Meta(
            min_length=1,
            max_length=2,
            description="Mechanisms for the login of the user; PLAIN accepts any of them.",
        ),
    ] = field(default_factory=_BOTH.copy)
    iterations: Annotated[int, Meta(ge=MIN_ITERATIONS, le=MAX_ITERATIONS)] = DEFAULT_ITERATIONS


class NewUser(Password, kw_only=True):
    name: Name


class CredentialShown(Struct):
    mechanism: str
    iterations: int


class UserShown(Struct):
    name: str
    credentials: list[CredentialShown]


class UserMade(Struct):
    name: str


class UserList(Struct):
    users: list[UserShown]


async def list_users(context: OperationContext, _: NoArguments) -> dict[str, list[UserListing]]:
    """List all users, with the mechanisms by which they may log in."""
    return {"users": context.broker.users.listing(principal=context.principal)}


async def describe(context: OperationContext, a: Named) -> UserShown:
    """Describe a user: the mechanisms by which it may log in."""
    found = context.broker.users.one(a.name, principal=context.principal)
    return UserShown(found.name, [CredentialShown(*each) for each in found.credentials])


class TokenList(Struct):
    principals: list[str]


async def list_tokens(context: OperationContext, _: NoArguments) -> TokenList:
    """List the principals that log in by a token of the configuration. Tokens are never shown."""
    return TokenList(context.broker.users.tokens(principal=context.principal))


async def create(context: OperationContext, a: SetUser) -> None:
    """Create a user."""
    await context.broker.users.create(_upsertions(a), principal=context.principal)


async def set_password(context: OperationContext, a: SetUser) -> None:
    """Set the password of a user. Existing connections stay logged in."""
    await context.broker.users.set_password(_upsertions(a), principal=context.principal)


async def delete(context: OperationContext, a: Named) -> None:
    """Delete a user. Existing connections stay logged in."""
    await context.broker.users.delete(a.name, principal=context.principal)


def _upsertions(a: SetUser) -> list[Upsertion]:
    return [Upsertion(a.name, c.mechanism, c.iterations, c.salt, c.salted_password) for c in a.credentials]


async def new_user(context: OperationContext, body: NewUser) -> SetUser:
    """Return the arguments of `create`. Raises as `hashed`."""
    return await hashed(context, body.name, body)


async def hashed(context: OperationContext, name: str, body: Password) -> SetUser:
    """Return the arguments of `set_password`.

    Raises:
        NotAuthorized: checked first, as hashing takes milliseconds.
    """
    mechanisms = [Mechanism(each) for each in dict.fromkeys(body.mechanisms)]
    made = await context.broker.users.hashes(
        name, body.password, mechanisms, body.iterations, principal=context.principal
    )
    return SetUser(name, [SaltedPassword(u.mechanism, u.iterations, u.salt, u.salted_password) for u in made])


def users_shown(found: dict[str, list[UserListing]], _: NoArguments) -> UserList:
    """Return users as HTTP shows them."""
    return UserList(
        [
            UserShown(user.name, [CredentialShown(*each) for each in user.credentials])
            for user in found["users"]
        ]
    )


def made(_: None, a: SetUser) -> UserMade:
    """Return the name of a new user."""
    return UserMade(a.name)
