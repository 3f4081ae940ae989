"""Routes of users: list, create, set a password, delete.

A password arrives in plain text and is hashed by the broker for SCRAM, as Kafka's clients use it;
it is not stored. So these routes should only be used with TLS, or on the same machine.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct, field

from sparrow.broker.access.authz import Operation
from sparrow.broker.access.credentials import DEFAULT_ITERATIONS, upsertions_of
from sparrow.broker.access.scram import MAX_ITERATIONS, MIN_ITERATIONS, Mechanism
from sparrow.frontends.http.arguments import operation
from sparrow.frontends.http.faults import SECRET
from sparrow.frontends.http.fields import Body, Name, choices
from sparrow.frontends.http.identity import caller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.access.credentials import Upsertion
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Route

_CONCURRENT_HASHES: Final = 2
"""Passwords that are hashed at a time, each in a thread; others wait."""
MechanismName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_BOTH: list[MechanismName] = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


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


class _Users:
    def __init__(self, frontend: HttpContext) -> None:
        self._broker = frontend.broker
        self._hash_permits = asyncio.Semaphore(_CONCURRENT_HASHES)

    async def list_users(self, request: Request) -> object:
        """List all users, with the mechanisms by which they may log in."""
        found = self._broker.users.listing(principal=caller(request))
        return {
            "users": [
                {
                    "name": user.name,
                    "credentials": [
                        {"mechanism": mechanism, "iterations": iterations}
                        for mechanism, iterations in user.credentials
                    ],
                }
                for user in found
            ]
        }

    async def create(self, request: Request, body: NewUser) -> object:
        """Create a user."""
        principal = caller(request)
        await self._broker.users.create(await self._salted(body.name, body, principal), principal=principal)
        return {"name": body.name}

    async def set_password(self, request: Request, user: str, body: Password) -> None:
        """Set the password of a user. Existing connections stay logged in."""
        principal = caller(request)
        await self._broker.users.set_password(await self._salted(user, body, principal), principal=principal)

    async def delete(self, request: Request, user: str) -> None:
        """Delete a user. Existing connections stay logged in."""
        await self._broker.users.delete(user, principal=caller(request))

    async def _salted(self, name: str, body: Password, principal: Principal) -> Sequence[Upsertion]:
        """Hash a password. This takes milliseconds, so the right is checked first and few run at a
        time.
        """
        self._broker.access.require_cluster(principal, Operation.ALTER)
        mechanisms = [Mechanism(each) for each in dict.fromkeys(body.mechanisms)]
        work = partial(upsertions_of, name, body.password, mechanisms, body.iterations)
        await self._hash_permits.acquire()
        done = asyncio.get_running_loop().run_in_executor(None, work)
        done.add_done_callback(lambda _: self._hash_permits.release())
        return await asyncio.shield(done)


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of users."""
    users = _Users(frontend)
    serve = partial(operation, tag="users")
    one = "/v1/users/{user}"
    return [
        serve("GET", "/v1/users", users.list_users, UserList, refusals=(403,)),
        serve("POST", "/v1/users", users.create, UserMade, body=NewUser, status=201, refusals=(403, 409)),
        serve("PUT", one, users.set_password, body=Password, status=204),
        serve("DELETE", one, users.delete, status=204),
    ]
