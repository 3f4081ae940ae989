"""Routes of users: list, create, set a password, delete.

A password arrives in plain text and is hashed by the broker for SCRAM, as Kafka's clients use it;
it is not stored. So these routes should only be used with TLS, or on the same machine.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import AfterValidator, Field, SecretStr

from sparrow.broker.access.authz import Operation
from sparrow.broker.access.credentials import DEFAULT_ITERATIONS, upsertions_of
from sparrow.broker.access.scram import MAX_ITERATIONS, MIN_ITERATIONS, Mechanism
from sparrow.frontends.http.fields import MAX_NAME_CHARACTERS, Body, Name, Shown
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.jsonroute import JsonRoute
from sparrow.frontends.http.openapi import problems
from sparrow.frontends.http.responses import json_response, no_content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.access.credentials import Upsertion
    from sparrow.frontends.http.context import HttpContext

_CONCURRENT_HASHES = 2
"""Passwords that are hashed at a time, each in a thread; others wait."""
UserPath = Annotated[str, Path(description="Name of the user.", max_length=MAX_NAME_CHARACTERS)]
MechanismName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_BOTH: list[MechanismName] = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def _unicode(password: SecretStr) -> SecretStr:
    password.get_secret_value().encode()
    return password


class Password(Body):
    password: Annotated[SecretStr, Field(min_length=1, max_length=1000), AfterValidator(_unicode)]
    mechanisms: Annotated[
        list[MechanismName],
        Field(
            min_length=1,
            max_length=2,
            description="Mechanisms for the login of the user; PLAIN accepts any of them.",
        ),
    ] = Field(default_factory=_BOTH.copy)
    iterations: Annotated[int, Field(ge=MIN_ITERATIONS, le=MAX_ITERATIONS)] = DEFAULT_ITERATIONS


class NewUser(Password):
    name: Name


class CredentialShown(Shown):
    mechanism: str
    iterations: int


class UserShown(Shown):
    name: str
    credentials: list[CredentialShown]


class UserMade(Shown):
    name: str


class UserList(Shown):
    users: list[UserShown]


class _Users:
    def __init__(self, frontend: "HttpContext") -> None:
        self._broker = frontend.broker
        self._hash_permits = asyncio.Semaphore(_CONCURRENT_HASHES)

    async def list_users(self, request: Request) -> Response:
        """List all users, with the mechanisms by which they may log in."""
        found = self._broker.users.listing(principal=caller(request))
        return json_response(
            {
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
        )

    async def create(self, request: Request, body: NewUser) -> Response:
        """Create a user."""
        principal = caller(request)
        await self._broker.users.create(await self._salted(body.name, body, principal), principal=principal)
        return json_response({"name": body.name}, 201)

    async def set_password(self, request: Request, user: UserPath, body: Password) -> Response:
        """Set the password of a user. Existing connections stay logged in."""
        principal = caller(request)
        await self._broker.users.set_password(await self._salted(user, body, principal), principal=principal)
        return no_content()

    async def delete(self, request: Request, user: UserPath) -> Response:
        """Delete a user. Existing connections stay logged in."""
        await self._broker.users.delete(user, principal=caller(request))
        return no_content()

    async def _salted(self, name: str, body: Password, principal: "Principal") -> "Sequence[Upsertion]":
        """Hash a password. This takes milliseconds, so the right is checked first and few run at a
        time.
        """
        self._broker.access.require_cluster(principal, Operation.ALTER)
        mechanisms = [Mechanism(each) for each in dict.fromkeys(body.mechanisms)]
        work = partial(upsertions_of, name, body.password.get_secret_value(), mechanisms, body.iterations)
        await self._hash_permits.acquire()
        done = asyncio.get_running_loop().run_in_executor(None, work)
        done.add_done_callback(lambda _: self._hash_permits.release())
        return await asyncio.shield(done)


def router(frontend: "HttpContext") -> APIRouter:
    """Return the routes of users."""
    routes = _Users(frontend)
    api = APIRouter(tags=["users"], route_class=JsonRoute)
    api.add_api_route(
        "/v1/users", routes.list_users, methods=["GET"], response_model=UserList, responses=problems(403)
    )
    api.add_api_route(
        "/v1/users",
        routes.create,
        methods=["POST"],
        status_code=201,
        response_model=UserMade,
        responses=problems(400, 403, 409),
    )
    api.add_api_route(
        "/v1/users/{user}",
        routes.set_password,
        methods=["PUT"],
        status_code=204,
        responses=problems(400, 403, 404),
    )
    api.add_api_route(
        "/v1/users/{user}",
        routes.delete,
        methods=["DELETE"],
        status_code=204,
        responses=problems(400, 403, 404),
    )
    return api
