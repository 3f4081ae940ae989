"""SCRAM: the examples of the RFCs, every login with the right password, none with another."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import NotAuthenticated
from sparrow.broker.access.scram import (
    Credential,
    Mechanism,
    ScramServer,
    credential_of,
    is_password_of,
    salted_password,
)
from tests.repetitions import repetitions
from tests.security.scram_client import ScramClient

ITERATIONS = 4096


def credential(mechanism: Mechanism, password: str, salt: bytes = b"salt", iterations: int = 1) -> Credential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def server(mechanism: Mechanism = Mechanism.SHA_256, password: str = "pencil") -> ScramServer:
    return ScramServer(mechanism, lambda _: credential(mechanism, password), "server-nonce")


def test_the_example_of_rfc_7677_ends_as_written_there():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = credential(Mechanism.SHA_256, "pencil", salt, ITERATIONS)
    login = ScramServer(Mechanism.SHA_256, lambda _: known, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert login.receive(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert login.user is None
    assert (
        login.receive(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert login.user == "user"


@settings(max_examples=repetitions(60))
@given(
    mechanism=st.sampled_from(Mechanism),
    user=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    password=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
    other=st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    salt=st.binary(min_size=1, max_size=40),
)
def test_the_right_password_logs_in_and_no_other_does(mechanism, user, password, other, salt):
    known = credential(mechanism, password, salt, 2)
    for offered in (password, other):
        asked: list[str] = []
        login = ScramServer(mechanism, lambda name, asked=asked: asked.append(name) or known, "x")
        client = ScramClient(mechanism.hash_name, user, offered)
        final = client.final(login.receive(client.first()))
        assert asked == [user]
        if offered == password:
            assert client.verify(login.receive(final))
            assert login.user == user
        else:
            with pytest.raises(NotAuthenticated, match="invalid credentials with SASL mechanism SCRAM-SHA-"):
                login.receive(final)
            assert login.user is None
        assert is_password_of(mechanism, known, offered) is (offered == password)


@settings(max_examples=repetitions(200))
@given(
    messages=st.lists(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), min_size=1, max_size=4)
)
def test_whatever_bytes_come_nobody_is_let_in_and_nothing_breaks(messages):
    login = server()
    for message in messages:
        try:
            login.receive(message)
        except NotAuthenticated:
            assert login.user is None
    assert login.user is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"n,,r=nonce",
        b"n,,n=,r=nonce",
        b"n,,n=user,r=",
        b"p=tls-unique,,n=user,r=nonce",
        b"n,,m=x,n=user,r=nonce",
        b"n,,n=us=41er,r=nonce",
        b"n,a=admin,n=user,r=nonce",
        b"n,,n=\xff,r=nonce",
        b"n,,n=" + b"x" * 20_000 + b",r=nonce",
    ],
)
def test_a_first_message_that_is_not_as_agreed_is_refused(first):
    with pytest.raises(NotAuthenticated):
        server().receive(first)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"r=client-nonce", b"r=other--nonce"),
        lambda final: final.replace(b"server-nonce", b"server-nonc"),
        lambda final: final[:-8],
        lambda final: final.replace(b",p=", b",p=A"),
        lambda final: final.rpartition(b",p=")[0],
        lambda final: b"",
    ],
)
def test_a_final_message_that_was_changed_is_refused(change):
    login, client = server(), ScramClient("sha256", "user", "pencil")
    final = client.final(login.receive(client.first()))
    with pytest.raises(NotAuthenticated):
        login.receive(change(final))
    assert login.user is None


def test_nothing_follows_a_refusal_and_nothing_follows_a_success():
    login, client = server(), ScramClient("sha256", "user", "pencil")
    final = client.final(login.receive(client.first()))
    login.receive(final)
    with pytest.raises(NotAuthenticated):
        login.receive(final)
    assert login.user is None
    refused = server()
    with pytest.raises(NotAuthenticated):
        refused.receive(b"nonsense")
    with pytest.raises(NotAuthenticated):
        refused.receive(client.first())


def test_the_authorization_id_may_be_the_user_itself():
    login, client = server(), ScramClient("sha256", "user", "pencil", header="n,a=user,")
    assert client.verify(login.receive(client.final(login.receive(client.first()))))


def test_a_credential_does_not_show_its_keys():
    assert "salt" not in repr(credential(Mechanism.SHA_256, "pencil"))
