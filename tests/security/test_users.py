"""Users: the promises of Kafka's APIs 50 and 51, and logins."""

from __future__ import annotations

import asyncio
import base64
import threading

import pytest

from sparrow.base.errors import (
    DirectoryUnreadable,
    DiskFull,
    DuplicateResource,
    NotAuthenticated,
    NotAuthorized,
    UnacceptableCredential,
    UnknownUser,
    UnsupportedMechanism,
    UserExists,
)
from sparrow.broker.access.access import Access
from sparrow.broker.access.acl_store import StoredAuthorizer
from sparrow.broker.access.authz import AllowAll, Principal
from sparrow.broker.access.credentials import Deletion, Upsertion, upsertions_of
from sparrow.broker.access.scram import Mechanism
from sparrow.broker.access.users import CONCURRENT_HASHES, MAX_REMEMBERED, UserService
from sparrow.client.security import MECHANISMS, hash_password
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put
from tests.security.scram_client import ScramClient

SHA_256, SHA_512 = Mechanism.SHA_256.value, Mechanism.SHA_512.value


def upsertion(user: str, mechanism: str = SHA_256, iterations: int = 4096) -> Upsertion:
    return Upsertion(user, mechanism, iterations, b"salt", b"salted" * 5)


def passwords(user: str, password: str, *mechanisms: Mechanism) -> list[Upsertion]:
    return upsertions_of(user, password, mechanisms or tuple(Mechanism), 4096)


async def users_over(meta: MemoryMetaStore) -> UserService:
    users = UserService(meta, Access(AllowAll()))
    await users.load()
    return users


@pytest.fixture
async def meta() -> MemoryMetaStore:
    return MemoryMetaStore()


@pytest.fixture
async def users(meta: MemoryMetaStore) -> UserService:
    return await users_over(meta)


def kinds(outcome: dict[str, object]) -> dict[str, object]:
    return {name: type(error) if error is not None else None for name, error in outcome.items()}


def login(users: UserService, mechanism: Mechanism, user: str, password: str) -> str | None:
    server, client = users.scram(mechanism), ScramClient(mechanism.hash_name, user, password)
    assert client.verify(server.receive(client.final(server.receive(client.first()))))
    return server.user


async def test_a_user_logs_in_with_each_mechanism_and_after_a_restart(users, meta):
    assert await users.alter(passwords("ann", "pencil-2B")) == {"ann": None}
    for known in (users, await users_over(MemoryMetaStore(meta.entries))):
        assert login(known, Mechanism.SHA_256, "ann", "pencil-2B") == "ann"
        assert login(known, Mechanism.SHA_512, "ann", "pencil-2B") == "ann"
        assert await known.check_password("ann", "pencil-2B") == Principal("ann")
        with pytest.raises(NotAuthenticated):
            await known.check_password("ann", "pencil-2Bs")


async def test_the_password_itself_is_nowhere_in_the_store(users, meta):
    await users.alter(passwords("ann", "pencil-2B-with-a-long-name"))
    assert not any(b"pencil-2B" in entry.value for entry in meta.entries.values())


async def test_a_mechanism_that_a_user_does_not_have_refuses_the_right_password(users):
    await users.alter(passwords("ann", "pencil-2B", Mechanism.SHA_512))
    assert login(users, Mechanism.SHA_512, "ann", "pencil-2B") == "ann"
    assert await users.check_password("ann", "pencil-2B") == Principal("ann")
    with pytest.raises(NotAuthenticated):
        login(users, Mechanism.SHA_256, "ann", "pencil-2B")


async def test_an_unknown_user_looks_like_a_known_one_with_a_wrong_password(users, meta):
    await users.alter(upsertions_of("ann", "pencil-2B"))
    responses = []
    for name in ("ann", "bob", "bob"):
        server, client = users.scram(Mechanism.SHA_256), ScramClient("sha256", name, "guess")
        first = server.receive(client.first())
        with pytest.raises(NotAuthenticated) as caught:
            server.receive(client.final(first))
        responses.append((first.partition(b"s=")[2], caught.value.text))
    assert responses[1] == responses[2]
    assert [text for _, text in responses] == [responses[0][1]] * 3
    assert len(responses[0][0]) == len(responses[1][0])
    again = await users_over(MemoryMetaStore(meta.entries))
    assert again.scram(Mechanism.SHA_256).receive(b"n,,n=bob,r=x").partition(b"s=")[2] == responses[1][0]
    with pytest.raises(NotAuthenticated):
        await users.check_password("bob", "guess")


async def test_salt_and_iterations_do_not_show_who_exists(users):
    """Kafka's tools make credentials with 4096 iterations and longer salts."""
    by_kafka = Upsertion("ann", Mechanism.SHA_256.value, 4096, bytes(25), bytes(32))
    await users.alter([by_kafka])

    def shape(name: str) -> tuple[int, bytes]:
        first = users.scram(Mechanism.SHA_256).receive(f"n,,n={name},r=x".encode())
        _, salt, iterations = first.split(b",")
        return len(base64.b64decode(salt[2:])), iterations

    assert {shape(name) for name in ("ann", "bob", "cem", "dot")} == {(25, b"i=4096")}
    await users.alter([upsertion("own")])
    kinds = {shape(f"nobody-{n}") for n in range(60)}
    assert kinds == {(25, b"i=4096"), shape("own")}


async def test_clients_that_do_not_wait_for_the_response_do_not_keep_more_threads_busy(users, monkeypatch):
    busy, most, lock, go = 0, 0, threading.Lock(), threading.Event()

    def check(*_: object) -> bool:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        go.wait(60)
        with lock:
            busy -= 1
        return True

    monkeypatch.setattr("sparrow.broker.access.users.is_password_of", check)
    for _ in range(3 * CONCURRENT_HASHES):
        impatient = asyncio.create_task(users.check_password("ann", "guess"))
        await asyncio.sleep(0.01)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
    honest = asyncio.create_task(users.check_password("bob", "pencil-2B"))
    await asyncio.sleep(0.01)
    go.set()
    assert await honest == Principal("bob")
    assert most <= CONCURRENT_HASHES


async def test_no_two_logins_share_a_nonce(users):
    firsts = {users.scram(Mechanism.SHA_256).receive(b"n,,n=ann,r=x") for _ in range(20)}
    assert len(firsts) == 20


async def test_a_changed_password_replaces_the_old_one_at_once(users):
    await users.alter(passwords("ann", "old pencil"))
    await users.check_password("ann", "old pencil")
    await users.alter(passwords("ann", "new pencil"))
    assert await users.check_password("ann", "new pencil") == Principal("ann")
    with pytest.raises(NotAuthenticated):
        await users.check_password("ann", "old pencil")


async def test_set_password_leaves_no_mechanism_with_the_old_one(users):
    await users.create(passwords("ann", "old pencil"))
    await users.set_password(passwords("ann", "new pencil", Mechanism.SHA_256))
    with pytest.raises(NotAuthenticated):
        login(users, Mechanism.SHA_512, "ann", "old pencil")
    assert login(users, Mechanism.SHA_256, "ann", "new pencil") == "ann"


async def test_create_set_password_and_delete_say_what_is_wrong(users):
    with pytest.raises(UnknownUser):
        await users.set_password([upsertion("ann")])
    await users.create([upsertion("ann")])
    with pytest.raises(UserExists):
        await users.create([upsertion("ann")])
    with pytest.raises(UnacceptableCredential):
        await users.create([])
    with pytest.raises(UnacceptableCredential):
        await users.create([upsertion("bob"), upsertion("cid")])
    with pytest.raises(UnacceptableCredential, match="at least 8"):
        upsertions_of("bob", "")
    await users.delete("ann")
    with pytest.raises(UnknownUser):
        await users.delete("ann")
    assert len(users) == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (upsertion("ann", iterations=4095), UnacceptableCredential),
        (upsertion("ann", iterations=16385), UnacceptableCredential),
        (upsertion("ann", iterations=-1), UnacceptableCredential),
        (upsertion(""), UnacceptableCredential),
        (upsertion("x" * 2000), UnacceptableCredential),
        (Upsertion("ann", SHA_256, 4096, b"s" * 5000, b"p"), UnacceptableCredential),
        (upsertion("ann", "SCRAM-SHA-1"), UnsupportedMechanism),
    ],
)
async def test_invalid_credential_is_refused_for_its_user_alone(users, change, error):
    outcome = await users.alter([change, upsertion("bob")])
    assert kinds(outcome) == {change.user: error, "bob": None}
    assert change.user not in users
    assert "bob" in users


async def test_limits_of_iterations_are_inclusive(users):
    outcome = await users.alter([upsertion("ann", iterations=4096), upsertion("bob", iterations=16384)])
    assert outcome == {"ann": None, "bob": None}


async def test_the_same_credential_twice_in_a_request_changes_nothing_of_that_user(users):
    await users.alter([upsertion("ann")])
    outcome = await users.alter(
        [upsertion("ann"), upsertion("ann", SHA_512), upsertion("bob")], [Deletion("ann", SHA_256)]
    )
    assert kinds(outcome) == {"ann": DuplicateResource, "bob": None}
    assert kinds(await users.alter([upsertion("cid"), upsertion("cid")])) == {"cid": DuplicateResource}
    assert {name: info.credentials for name, info in users.describe().items()} == {
        "ann": [(SHA_256, 4096)],
        "bob": [(SHA_256, 4096)],
    }


async def test_one_mechanism_can_be_deleted_while_the_other_is_set(users):
    await users.alter([upsertion("ann")])
    assert await users.alter([upsertion("ann", SHA_512, 5000)], [Deletion("ann", SHA_256)]) == {"ann": None}
    assert users.describe(["ann"])["ann"].credentials == [(SHA_512, 5000)]
    assert await users.alter(deletions=[Deletion("ann", SHA_512)]) == {"ann": None}
    assert "ann" not in users


@pytest.mark.parametrize(
    ("deletion", "error"),
    [
        (Deletion("ann", SHA_512), UnknownUser),
        (Deletion("bob", SHA_256), UnknownUser),
        (Deletion("ann", "?"), UnsupportedMechanism),
        (Deletion("", SHA_256), UnacceptableCredential),
    ],
)
async def test_deleting_a_missing_credential_is_an_error_of_its_user(users, deletion, error):
    await users.alter([upsertion("ann")])
    assert kinds(await users.alter(deletions=[deletion])) == {deletion.user: error}
    assert "ann" in users


async def test_describe_returns_each_user_once(users):
    await users.alter([upsertion("bob"), *passwords("ann", "long enough")])
    found = users.describe(["bob", "cid", "ann", "bob"])
    assert kinds(found)["bob"] is DuplicateResource
    assert kinds(found)["cid"] is UnknownUser
    assert found["ann"].credentials == [(SHA_256, 4096), (SHA_512, 4096)]
    assert list(users.describe()) == list(users.describe([])) == ["ann", "bob"]


async def test_a_full_disk_changes_nobody(users, meta):
    await users.alter(passwords("ann", "old pencil"))
    meta.full = True
    with pytest.raises(DiskFull):
        await users.alter(passwords("ann", "new pencil"))
    assert await users.check_password("ann", "old pencil") == Principal("ann")


async def test_users_of_the_configuration_are_made_once_and_never_changed(users):
    await users.create(passwords("ann", "own pencil"))
    assert await users.ensure({"ann": "configured one", "bob": "pencil-2B"}) == ["bob"]
    assert await users.ensure({"ann": "configured one", "bob": "other one"}) == []
    await users.check_password("ann", "own pencil")
    await users.check_password("bob", "pencil-2B")


async def test_every_operation_asks_for_permission(meta):
    users = UserService(meta, Access(StoredAuthorizer(allow_unnamed=False)))
    await users.load()
    ann = Principal("ann")
    for attempt in (
        lambda: users.alter([upsertion("x")], principal=ann),
        lambda: users.create([upsertion("x")], principal=ann),
        lambda: users.set_password([upsertion("x")], principal=ann),
        lambda: users.delete("x", principal=ann),
    ):
        with pytest.raises(NotAuthorized):
            await attempt()
    with pytest.raises(NotAuthorized):
        users.describe(principal=ann)


async def test_right_passwords_are_remembered_within_bounds(users, monkeypatch):
    await users.create(passwords("ann", "pencil-2B"))
    await users.check_password("ann", "pencil-2B")
    monkeypatch.setattr("sparrow.broker.access.users.is_password_of", lambda *_: False)
    assert await users.check_password("ann", "pencil-2B") == Principal("ann")
    with pytest.raises(NotAuthenticated):
        await users.check_password("ann", "pen")
    monkeypatch.setattr("sparrow.broker.access.users.is_password_of", lambda *_: True)
    await users.alter([upsertion(f"u{n}") for n in range(MAX_REMEMBERED)])
    for n in range(MAX_REMEMBERED):
        await users.check_password(f"u{n}", "x")
    monkeypatch.setattr("sparrow.broker.access.users.is_password_of", lambda *_: False)
    with pytest.raises(NotAuthenticated):
        await users.check_password("ann", "pencil-2B")


async def test_a_damaged_user_stops_the_start_with_its_name(meta):
    await meta.write([Put("user", "ann", b"\xc1")])
    with pytest.raises(DirectoryUnreadable, match="'ann'"):
        await users_over(meta)


@pytest.mark.parametrize("name", ["*", "ANONYMOUS"])
async def test_reserved_names_of_users_are_refused(users, name):
    refused = await users.alter(passwords(name, "pencil-2B"))
    assert isinstance(refused[name], UnacceptableCredential)
    with pytest.raises(UnacceptableCredential):
        await users.create(passwords(name, "pencil-2B"))
    with pytest.raises(UnacceptableCredential):
        await users.ensure({name: "pencil-2B"})
    assert len(users) == 0


@pytest.mark.parametrize("name", ["*", "ANONYMOUS"])
async def test_a_user_of_an_earlier_version_with_such_a_name_can_be_deleted_alone(users, name):
    await users.alter(passwords("ann", "pencil-2B"))
    users._users[name] = users._users["ann"]
    with pytest.raises(NotAuthenticated):
        await users.check_password(name, "pencil-2B")
    with pytest.raises(NotAuthenticated):
        login(users, Mechanism.SHA_256, name, "pencil-2B")
    await users.delete(name)
    assert name not in users


@pytest.mark.parametrize("password", ["", "x", "seven 7"])
def test_a_new_password_has_eight_characters(password):
    with pytest.raises(UnacceptableCredential, match="at least 8"):
        upsertions_of("ann", password)
    with pytest.raises(UnacceptableCredential, match="at least 8"):
        hash_password(password, MECHANISMS, 4096)
