"""The options of the server that rules depend on."""

from __future__ import annotations

import logging

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import InvalidConfig, NotAuthorized
from sparrow.server.config import load


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("alice", {"User:alice"}),
        ("alice; User:CN=bob,O=org ;", {"User:alice", "User:CN=bob,O=org"}),
        (["alice", "Team:b"], {"User:alice", "Team:b"}),
        ("CN=svc,OU=urn:x:y", {"User:CN=svc,OU=urn:x:y"}),
        ("", set()),
    ],
)
def test_super_users_are_names_or_principals(given: object, expected: set[str]) -> None:
    config, _ = load({"super_users": given}, {})
    assert config.broker.super_users == expected


@pytest.mark.parametrize("wrong", ["User:", ":alice"])
def test_a_super_user_without_a_name_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidConfig, match="super_users"):
        load({"super_users": wrong}, {})


def test_a_broker_at_which_nobody_may_do_anything_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sparrow.server")
    with sparrow.testing.broker(acl_default="deny", topics=["made-all-the-same"]) as broker:
        assert "nobody may administer this broker" in caplog.text
        with sparrow.sync.connect(broker.url) as client, pytest.raises(NotAuthorized):
            client.admin.describe_topic("made-all-the-same")
