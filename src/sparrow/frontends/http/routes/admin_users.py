"""Users: listed, made, given another password, deleted.

A password comes as it is and is hashed here, by the broker, for SCRAM as Kafka's clients use it; it is kept nowhere. So these routes want TLS, or the same machine.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import AfterValidator, Field, SecretStr

from sparrow.broker.access.authz import Operation
from sparrow.broker.access.credentials import DEFAULT_ITERATIONS, upsertions_of
from sparrow.broker.access.scram import MAX_ITERATIONS, MIN_ITERATIONS, Mechanism
from sparrow.frontends.http.answers import json_answer, no_content
from sparrow.frontends.http.fields import MAX_NAME_CHARACTERS, Body, Name, Shown
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.jsonroute import JsonRoute
from sparrow.frontends.http.openapi import problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.access.credentials import Upsertion
    from sparrow.frontends.http.frontend import HttpFrontend

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
            min_length=1, max_length=2, description="By which the user may log in; PLAIN takes any of them."
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
    def __init__(self, door: "HttpFrontend") -> None:
        self._broker = door.broker
        self._hashing = asyncio.Semaphore(_CONCURRENT_HASHES)

    async def list_users(self, request: Request) -> Response:
        """All users, with the mechanisms by which they may log in."""
        found = self._broker.users.listing(principal=caller(request))
        return json_answer(
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
        """Make a user."""
        principal = caller(request)
        await self._broker.users.create(await self._salted(body.name, body, principal), principal=principal)
        return json_answer({"name": body.name}, 201)

    async def set_password(self, request: Request, user: UserPath, body: Password) -> Response:
        """Give a user another password. Who is connected stays so."""
        principal = caller(request)
        await self._broker.users.set_password(await self._salted(user, body, principal), principal=principal)
        return no_content()

    async def delete(self, request: Request, user: UserPath) -> Response:
        """Forget a user. Who is connected stays so."""
        await self._broker.users.delete(user, principal=caller(request))
        return no_content()

    async def _salted(self, name: str, body: Password, principal: "Principal") -> "Sequence[Upsertion]":
        """Hashing costs milliseconds: not for whoever may not set it, and not many at a time."""
        self._broker.require_cluster(principal, Operation.ALTER)
        mechanisms = [Mechanism(each) for each in dict.fromkeys(body.mechanisms)]
        work = partial(upsertions_of, name, body.password.get_secret_value(), mechanisms, body.iterations)
        await self._hashing.acquire()
        done = asyncio.get_running_loop().run_in_executor(None, work)
        done.add_done_callback(lambda _: self._hashing.release())
        return await asyncio.shield(done)


def router(door: "HttpFrontend") -> APIRouter:
    """The routes of users."""
    routes = _Users(door)
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
