"""Logins at the native listener, and by PLAIN at Kafka's: users, tokens, or none."""

from __future__ import annotations

import inspect

import pytest

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.access import Access
from sparrow.broker.access.authz import ANONYMOUS, AllowAll, Principal
from sparrow.broker.access.credentials import upsertions_of
from sparrow.broker.access.scram import Mechanism
from sparrow.broker.access.users import UserService
from sparrow.meta.memory import MemoryMetaStore
from sparrow.server.logins import Logins
from sparrow.server.tokens import Tokens


@pytest.fixture
async def users() -> UserService:
    users = UserService(MemoryMetaStore(), Access(AllowAll()))
    await users.load()
    await users.create(upsertions_of("ann", "pencil-2B"))
    return users


async def who(logins: Logins, credentials: dict[str, str]) -> Principal:
    response = logins.authenticate(credentials, "10.0.0.9:4000")
    return await response if inspect.isawaitable(response) else response


async def test_a_user_and_a_token_come_in(users):
    logins = Logins(users, Tokens({"bob": "b-token"}), is_required=True)
    assert await who(logins, {"user": "ann", "password": "pencil-2B"}) == Principal("ann")
    assert await who(logins, {"token": "b-token"}) == Principal("bob")
    assert await logins.check_password("bob", "b-token", "10.0.0.9") == Principal("bob")


@pytest.mark.parametrize(
    "credentials",
    [
        {"user": "ann", "password": "Pencil"},
        {"user": "ann"},
        {"user": "", "password": "pencil-2B"},
        {"user": "ann", "password": "b-token"},
        {"user": "bob", "password": "pencil-2B"},
        {"token": "b-toke"},
        {"token": ""},
    ],
)
@pytest.mark.parametrize("is_required", [True, False])
async def test_wrong_credentials_are_refused_even_where_none_are_needed(users, credentials, is_required):
    logins = Logins(users, Tokens({"bob": "b-token"}), is_required=is_required)
    with pytest.raises(NotAuthenticated) as caught:
        await who(logins, credentials)
    assert not any(secret in caught.value.text for secret in ("pencil-2B", "b-toke", "Pencil"))


async def test_no_credentials_are_anonymous_or_refused(users):
    assert await who(Logins(users, Tokens({}), is_required=False), {}) == ANONYMOUS
    with pytest.raises(NotAuthenticated, match=r"10\.0\.0\.9:4000"):
        await who(Logins(users, Tokens({}), is_required=True), {})


async def test_a_token_matters_only_where_tokens_are_known_or_a_login_is_needed(users):
    assert await who(Logins(users, Tokens({}), is_required=False), {"token": "anything"}) == ANONYMOUS
    with pytest.raises(NotAuthenticated):
        await who(Logins(users, Tokens({}), is_required=True), {"token": "anything"})


async def test_scram_is_that_of_the_users(users):
    logins = Logins(users, Tokens({}), is_required=True)
    response = await logins.scram(Mechanism.SHA_256, "10.0.0.9").receive(b"n,,n=ann,r=x")
    assert response.startswith(b"r=x")
