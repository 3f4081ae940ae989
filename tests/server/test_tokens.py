"""Tokens of the configuration, and the files that hold secrets."""

from __future__ import annotations

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.broker.access.authz import Principal
from sparrow.server.tokens import Tokens, read_tokens_file, read_users_file


def test_token_names_its_principal():
    tokens = Tokens({"alice": "a-token", "bob": "b-token"})
    assert tokens.principal_of("b-token") == Principal("bob")
    assert len(tokens) == 2


@pytest.mark.parametrize("token", ["", "a-toke", "A-TOKEN", "alice", "\udcff"])
def test_an_unknown_token_names_nobody(token):
    assert Tokens({"alice": "a-token"}).principal_of(token) is None


def test_files_of_secrets_are_read_with_comments(tmp_path):
    path = tmp_path / "secrets"
    path.write_text("# who what\n\nalice  a-secret\nbob\tb-secret\n")
    assert read_tokens_file(str(path)) == {"alice": "a-secret", "bob": "b-secret"}
    assert read_users_file(str(path)) == {"alice": "a-secret", "bob": "b-secret"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"alice\n", ":1: a principal and a token"),
        (b"a x\na y\n", ":2: principal 'a' occurs twice"),
        (b"\xff\xfe", "not UTF-8"),
        (b"# nobody yet\n\n", "names nobody"),
    ],
)
def test_wrong_tokens_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "tokens"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=message):
        read_tokens_file(str(path))


def test_wrong_users_file_is_refused_in_its_own_words(tmp_path):
    path = tmp_path / "users"
    path.write_text("alice one two\n")
    with pytest.raises(InvalidConfig, match=":1: a user and a password are expected") as caught:
        read_users_file(str(path))
    assert "one" not in caught.value.text


def test_missing_files_are_named():
    with pytest.raises(InvalidConfig, match="tokens_file /nowhere/tokens cannot be read"):
        read_tokens_file("/nowhere/tokens")
    with pytest.raises(InvalidConfig, match="users_file /nowhere/users cannot be read"):
        read_users_file("/nowhere/users")
