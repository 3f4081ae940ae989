"""The native listener and its client: TLS, passwords, certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparrow
import sparrow.sync
import sparrow.testing
from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    InvalidConfig,
    NotAuthenticated,
    ProtocolError,
)
from tests.security.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_options(certificates: Certificates, **others: object) -> dict[str, object]:
    return {
        "tls_certificate": certificates.server.certificate,
        "tls_key": certificates.server.key,
        **others,
    }


@pytest.fixture(scope="module")
def tls_broker(certificates):
    options = tls_options(
        certificates, users={"ann": "pencil-2B"}, tokens={"bob": "b-token"}, super_users="ann;bob"
    )
    with sparrow.testing.broker(**options) as broker:
        yield broker


@pytest.fixture(scope="module")
def mutual_broker(certificates):
    options = tls_options(
        certificates, tls_client_ca=certificates.ca, super_users=[certificates.client_subject]
    )
    with sparrow.testing.broker(**options) as broker:
        yield broker


def test_a_user_publishes_and_reads_over_tls(tls_broker, certificates, sparrow_topic):
    assert tls_broker.url.startswith("sparrows://")
    with sparrow.sync.connect(
        tls_broker.url, ca_file=certificates.ca, user="ann", password="pencil-2B"
    ) as client:
        value = b"x" * 1_000_000
        for _ in range(3):
            client.publish(sparrow_topic, value)
        with client.subscribe(sparrow_topic, start="beginning") as subscription:
            assert [message.value for _, message in zip(range(3), subscription, strict=False)] == [value] * 3


def test_url_may_have_the_credentials(tls_broker, certificates):
    for login in ("ann:pencil-2B", ":b-token", "bob:b-token"):
        url = tls_broker.url.replace("sparrows://", f"sparrows://{login}@")
        with sparrow.sync.connect(url, ca_file=certificates.ca) as client:
            assert client.admin.describe_broker().version


@pytest.mark.parametrize(
    "login", [{}, {"user": "ann", "password": "wrong"}, {"user": "ann"}, {"token": "wrong"}]
)
def test_nobody_else_is_let_in_and_the_client_learns_it(tls_broker, certificates, login):
    with pytest.raises(NotAuthenticated):
        sparrow.sync.connect(tls_broker.url, ca_file=certificates.ca, **login)


def test_a_broker_that_nobody_vouches_for_is_not_trusted(tls_broker, certificates):
    with pytest.raises(NotAuthenticated, match=r"cannot be trusted.*--ca-file"):
        sparrow.sync.connect(tls_broker.url, user="ann", password="pencil-2B")
    with pytest.raises(NotAuthenticated, match="cannot be trusted"):
        sparrow.sync.connect(tls_broker.url, ca_file=certificates.other_ca, user="ann", password="pencil-2B")


def test_the_error_of_a_client_without_tls_says_that_the_broker_may_need_it(tls_broker):
    url = tls_broker.url.replace("sparrows://", "sparrow://")
    with pytest.raises(ProtocolError, match=r"TLS is spoken; .* sparrows://"):
        sparrow.sync.connect(url, connect_timeout_s=0.2)


def test_a_client_with_tls_does_not_talk_to_a_broker_without(sparrow_broker, certificates):
    url = sparrow_broker.url.replace("sparrow://", "sparrows://")
    with pytest.raises(ProtocolError, match="speaks without TLS"):
        sparrow.sync.connect(url, ca_file=certificates.ca, connect_timeout_s=2)


def test_a_certificate_is_a_login(mutual_broker, certificates):
    with sparrow.sync.connect(
        mutual_broker.url,
        ca_file=certificates.ca,
        certificate_file=certificates.client.certificate,
        key_file=certificates.client.key,
    ) as client:
        assert client.admin.describe_broker().version


@pytest.mark.parametrize("shown", ["nothing", "stranger"])
def test_without_a_known_certificate_there_is_no_connection(mutual_broker, certificates, shown):
    files = {}
    if shown == "stranger":
        files = {
            "certificate_file": certificates.stranger.certificate,
            "key_file": certificates.stranger.key,
        }
    with pytest.raises((ConnectionLost, NotAuthenticated)):
        sparrow.sync.connect(mutual_broker.url, ca_file=certificates.ca, connect_timeout_s=0.2, **files)


def test_a_public_address_is_allowed_with_any_kind_of_login(certificates):
    everywhere = {"native_host": "0.0.0.0", "kafka_host": "0.0.0.0"}
    in_clear = {"insecure_clear_passwords": "passwords in clear"}
    for login in (
        {"tokens": {"bob": "b-token"}, **in_clear},
        {"users": {"ann": "pencil-2B"}, **in_clear},
        {"native_login": "required", "kafka_sasl": "required", **in_clear},
        tls_options(certificates, tls_client_ca=certificates.ca),
    ):
        with sparrow.testing.broker(**everywhere, **login):
            pass
    for login in (
        {},
        {"users": {"ann": "pencil-2B"}, "kafka_sasl": "off"},
        {"users": {"ann": "pencil-2B"}, "native_login": "off"},
        {"native_login": "required"},
        tls_options(certificates),
        tls_options(certificates, tls_client_ca=certificates.ca, kafka_tls=False),
    ):
        with pytest.raises(InvalidConfig, match="nobody has to log in there"):
            sparrow.testing.broker(**everywhere, **login).__enter__()


def test_files_that_cannot_be_used_are_named(certificates, tmp_path):
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing\n")
    server = certificates.server
    for options, words in (
        ({"tls_certificate": server.certificate}, "tls.certificate is set and tls.key is not"),
        ({"tls_key": server.key}, "tls.key is set and tls.certificate is not"),
        ({"tls_client_ca": certificates.ca}, "tls.client_ca needs"),
        (
            {"tls_certificate": "/nowhere.pem", "tls_key": server.key},
            "/nowhere.pem .* cannot be used: No such file",
        ),
        ({"tls_certificate": str(nothing), "tls_key": server.key}, "nothing.pem .* cannot be used"),
        ({"tls_certificate": server.certificate, "tls_key": certificates.client.key}, "cannot be used"),
        (tls_options(certificates, tls_client_ca=str(nothing)), "tls.client_ca .*nothing.pem cannot be used"),
    ):
        with pytest.raises(InvalidConfig, match=words):
            sparrow.testing.broker(**options).__enter__()


def test_the_files_of_a_client_are_checked_before_it_connects(certificates, tmp_path):
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing\n")
    for files, words in (
        ({"ca_file": "/nowhere.pem"}, "ca_file /nowhere.pem cannot be used"),
        ({"ca_file": certificates.ca, "certificate_file": str(nothing)}, "nothing.pem"),
        ({"key_file": certificates.client.key}, "key_file and no certificate_file"),
        ({"token": "x", "user": "y"}, "a token and a user"),
        ({"user": 3}, "the user is int"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            sparrow.sync.connect("sparrows://127.0.0.1:1", connect_timeout_s=0.05, **files)


async def test_administration_of_users_by_the_async_client(tls_broker, certificates):
    async with sparrow.connect(
        tls_broker.url, ca_file=certificates.ca, user="ann", password="pencil-2B"
    ) as client:
        await client.admin.create_user("cid", "the first one", mechanisms=["SCRAM-SHA-512"], iterations=4096)
        users = {user.name: user.credentials for user in await client.admin.list_users()}
        assert users["cid"] == [("SCRAM-SHA-512", 4096)]
        with pytest.raises(sparrow.SparrowError, match="already"):
            await client.admin.create_user("cid", "and again")
        await client.admin.set_password("cid", "the second one")
        await client.admin.delete_user("cid")
        with pytest.raises(sparrow.SparrowError, match="'cid'"):
            await client.admin.delete_user("cid")


def test_users_of_the_configuration_come_from_a_file_too(tmp_path):
    file = tmp_path / "users"
    file.write_text("ann pencil-2B\n")
    data = str(tmp_path / "data")
    with sparrow.testing.broker(data_dir=data, users_file=str(file), super_users="ann") as broker:
        with sparrow.sync.connect(broker.url, user="ann", password="pencil-2B") as client:
            client.admin.set_password("ann", "changed 2B")
        broker.restart()
        with sparrow.sync.connect(broker.url, user="ann", password="changed 2B") as client:
            assert [user.name for user in client.admin.list_users()] == ["ann"]


def test_a_password_is_never_in_the_data_directory(tmp_path):
    data = tmp_path / "data"
    with sparrow.testing.broker(data_dir=str(data), users={"ann": "a-very-special-pencil-2B"}):
        pass
    for file in Path(data).rglob("*"):
        assert not file.is_file() or b"special-pencil-2B" not in file.read_bytes()


@pytest.mark.slow
def test_confirmed_user_survives_kill_9(tmp_path):
    with sparrow.testing.broker(
        process=True, data_dir=str(tmp_path / "data"), super_users="ann;ANONYMOUS"
    ) as broker:
        with sparrow.sync.connect(broker.url) as client:
            client.admin.create_user("ann", "pencil-2B")
        broker.kill()
        broker.restart()
        with sparrow.sync.connect(broker.url, user="ann", password="pencil-2B") as client:
            assert [user.name for user in client.admin.list_users()] == ["ann"]
