"""Native logins that fail, that are abandoned, and that are silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.authz import Principal
from sparrow.broker.broker import Broker
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import OpenListener
from tests.security.certificates import Certificates, make_certificates


class Guard:
    """Authenticator that accepts no login. `slowly`: it never responds, and records abandoned
    logins.
    """

    def __init__(self, *, slowly: bool) -> None:
        self._slowly = slowly
        self.asked = asyncio.Event()
        self.given_up = asyncio.Event()

    async def authenticate(self, credentials: Any, peer: str) -> Principal:
        self.asked.set()
        if self._slowly:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.set()
        raise NotAuthenticated("no")


@pytest.fixture
async def open_listener(tmp_path: Path) -> AsyncIterator[Any]:
    opener = OpenListener()
    async with Broker(tmp_path / "data") as broker:

        async def open_for(guard: Guard, **limits: int) -> Any:
            return await opener(broker, guard, **limits)

        yield open_for
        await opener.close()


async def test_a_login_that_nobody_waits_for_is_given_up(open_listener):
    guard = Guard(slowly=True)
    client = await (await open_listener(guard)).silent_client()
    client.send(m.Hello("sparrow", 1, 1, credentials={"user": "ann", "password": "guess"}))
    await guard.asked.wait()
    client.close()
    await asyncio.wait_for(guard.given_up.wait(), 30)


async def test_the_response_to_a_wrong_login_waits(open_listener):
    listener = await open_listener(Guard(slowly=False), failed_authentication_delay_ms=30_000)
    client = await listener.silent_client()
    client.send(m.Hello("sparrow", 1, 1, credentials={"token": "guess"}))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.receive()


async def test_a_wrong_login_gets_a_response_and_the_connection_ends(open_listener):
    client = await (await open_listener(Guard(slowly=False))).silent_client()
    client.send(m.Hello("sparrow", 1, 1, credentials={"token": "guess"}))
    assert (await client.expect(m.Error)).code == NotAuthenticated.code
    assert await client.at_eof()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_a_certificate_is_not_shed_by_credentials_that_say_nothing(certificates: Certificates) -> None:
    """Otherwise a rule that forbids something to its owner would be void."""
    subject = certificates.client_subject
    options = {
        "tls_certificate": certificates.server.certificate,
        "tls_key": certificates.server.key,
        "tls_client_ca": certificates.ca,
        "super_users": frozenset({f"User:{subject}"}),
        "acl_default": "deny",
    }
    with (
        sparrow.testing.broker(**options) as broker,
        sparrow.sync.connect(
            broker.url,
            token="of nobody",
            ca_file=certificates.ca,
            certificate_file=certificates.client.certificate,
            key_file=certificates.client.key,
        ) as client,
    ):
        client.admin.create_topic("mine")
