"""Who may connect."""

from __future__ import annotations

import pytest

from sparrow.base.errors import InvalidConfig, NotAuthenticated
from sparrow.broker.authz import ANONYMOUS, Principal
from sparrow.server.tokens import TokenAuthenticator, read_tokens_file


def test_without_tokens_everybody_is_anonymous():
    assert TokenAuthenticator({}).authenticate({"token": "anything"}, "peer") == ANONYMOUS


def test_token_names_its_principal():
    authenticator = TokenAuthenticator({"alice": "a-token", "bob": "b-token"})
    assert authenticator.authenticate({"token": "b-token"}, "peer") == Principal("bob")


@pytest.mark.parametrize(
    "credentials", [{}, {"token": ""}, {"token": "a-toke"}, {"token": "A-TOKEN"}, {"password": "a-token"}]
)
def test_missing_or_wrong_token_is_refused_without_showing_it(credentials):
    with pytest.raises(NotAuthenticated) as caught:
        TokenAuthenticator({"alice": "a-token"}).authenticate(credentials, "10.0.0.9:4000")
    assert "10.0.0.9:4000" in caught.value.text
    assert "a-toke" not in caught.value.text


def test_tokens_file_is_read_with_comments(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("# who token\n\nalice  a-token\nbob\tb-token\n")
    assert read_tokens_file(str(path)) == {"alice": "a-token", "bob": "b-token"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"alice\n", ":1: a principal and a token"),
        (b"a x\na y\n", ":2: principal 'a' stands twice"),
        (b"\xff\xfe", "not UTF-8"),
        (b"# nobody yet\n\n", "names nobody"),
    ],
)
def test_wrong_tokens_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "tokens"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=message):
        read_tokens_file(str(path))


def test_missing_tokens_file_is_named():
    with pytest.raises(InvalidConfig, match="tokens_file /nowhere/tokens cannot be read"):
        read_tokens_file("/nowhere/tokens")
