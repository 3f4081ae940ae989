"""Sessions end with their logins, at every listener, idle and busy; others continue."""

from __future__ import annotations

import asyncio

import pytest

from sparrow.broker.access.authz import SYSTEM, Principal
from sparrow.broker.access.credentials import upsertions_of
from sparrow.broker.access.login import Login, LoginKind
from sparrow.broker.access.scram import Mechanism
from sparrow.broker.access.sessions import SLICE, Guard, Sessions
from tests.broker.batches import batch
from tests.security.scram_client import ScramClient
from tests.security.test_sasl_frontend import RawKafka
from tests.sessions.served import KINDS

ANN = {"user": "ann", "password": "pencil-1"}
BOB = {"user": "bob", "password": "pencil-2"}
USERS = {"ann": "pencil-1", "bob": "pencil-2"}


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_of_a_deleted_user_end_and_those_of_others_go_on(start, kind):
    served = await start(users=USERS)
    ann, bob = await served.open(kind, ANN), await served.open(kind, BOB)
    await served.broker.users.delete("ann", principal=SYSTEM)
    assert await ann.is_over()
    assert not await bob.is_over(0.1)


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_by_an_old_password_end(start, kind):
    served = await start(users=USERS)
    ann, bob = await served.open(kind, ANN), await served.open(kind, BOB)
    await served.broker.users.set_password(upsertions_of("ann", "another-1"), principal=SYSTEM)
    assert await ann.is_over()
    assert not await bob.is_over(0.1)
    again = await served.open(kind, {"user": "ann", "password": "another-1"})
    assert not await again.is_over(0.1)


async def test_a_session_by_another_mechanism_continues_when_one_gets_a_new_password(start):
    served = await start(users=USERS)
    sha_256 = await _scram(served, "SCRAM-SHA-256")
    sha_512 = await _scram(served, "SCRAM-SHA-512")
    await served.broker.users.alter(upsertions_of("ann", "another-1", [Mechanism.SHA_512]), principal=SYSTEM)
    assert await sha_512.is_over()
    assert not await sha_256.is_over(0.1)


async def _scram(served, mechanism):
    connection = await served._dial(served.server.ready.kafka, None)
    served._stack.push_async_callback(connection.close)
    client = RawKafka(connection.reader, connection.writer)
    scram = ScramClient(mechanism.removeprefix("SCRAM-").replace("-", "").lower(), "ann", "pencil-1")
    first = await client.login(scram.first(), mechanism)
    final = await client.ask(36, 2, auth_bytes=scram.final(first.auth_bytes))
    assert final.error_code == 0
    return connection


async def test_a_busy_stream_of_a_deleted_user_ends(start):
    served = await start(users=USERS)
    ann = await served.open("stream", ANN)
    publishing = asyncio.create_task(_publish_for_ever(served))
    await served.broker.users.delete("ann", principal=SYSTEM)
    assert await ann.is_over()
    publishing.cancel()


async def _publish_for_ever(served):
    while True:
        await served.broker.records.publish("orders", 0, batch(b"a" * 1000), acks=0, principal=SYSTEM)
        await asyncio.sleep(0)


async def test_a_login_that_was_under_way_when_its_user_was_deleted_is_over_at_once():
    ended = asyncio.Event()
    sessions = Sessions()
    sessions.judge(LoginKind.PASSWORD, lambda login: f"{login.name} was deleted")
    guard = Guard(sessions, lambda _: ended.set())
    guard.hold(_principal("ann"))
    await asyncio.wait_for(ended.wait(), 5)
    assert sessions.count(LoginKind.PASSWORD) == 0


async def test_many_sessions_end_in_slices():
    sessions, ended, count = Sessions(), [], 10 * SLICE
    is_deleted = False
    sessions.judge(LoginKind.TOKEN, lambda _: "removed" if is_deleted else "")
    for _ in range(count):
        Guard(sessions, ended.append).hold(_principal("robot", LoginKind.TOKEN))
    is_deleted = True
    sessions.look(LoginKind.TOKEN)
    turns = [len(ended)]
    while len(ended) < count:
        await asyncio.sleep(0)
        turns.append(len(ended))
    assert max(b - a for a, b in zip([0, *turns], turns, strict=False)) <= SLICE
    assert sessions.count(LoginKind.TOKEN) == 0


async def test_ended_sessions_are_forgotten():
    sessions = Sessions()
    guard = Guard(sessions, lambda _: None)
    for name in ("ann", "bob"):
        guard.hold(_principal(name))
        assert sessions.count(LoginKind.PASSWORD) == 1
    guard.close()
    guard.close()
    assert sessions.count(LoginKind.PASSWORD) == 0


async def test_nothing_goes_out_in_the_name_of_a_deleted_user(start):
    served = await start(users=USERS, webhooks_allow=("private",))
    broker = served.broker
    await broker.queues.create("jobs", ["orders"], {}, principal=SYSTEM)
    for name in ("ann", "bob"):
        await broker.webhooks.put(
            "jobs", name, {"url": "http://127.0.0.1:1/x"}, add_subscriber=False, principal=Principal(name)
        )
    await broker.users.delete("ann", principal=SYSTEM)
    found = {each.name: each for each in broker.parts.webhook_registry.of_queue("jobs")}
    assert found["ann"].is_paused
    assert found["ann"].paused_because == "its owner 'ann' was deleted"
    assert not found["bob"].is_paused


def _principal(name, kind=LoginKind.PASSWORD):
    return Principal(name, login=Login(kind, name, b""))
