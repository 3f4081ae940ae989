"""Logins of a configuration, and names in certificates."""

from __future__ import annotations

import logging

import pytest

import sparrow.testing
from sparrow.base.errors import InvalidConfig
from sparrow.frontends.transport.tls import distinguished_name
from sparrow.server.access import ServerAccess
from sparrow.server.config import ServerConfig, kafka_listeners, load


def access_of(**options: object) -> tuple[ServerAccess, ServerConfig]:
    config = ServerConfig(**options)
    return ServerAccess(config), config


@pytest.mark.parametrize(
    ("options", "needs_sasl"),
    [
        ({}, False),
        ({"users": {"ann": "pencil-2B"}}, True),
        ({"tokens": {"ann": "a-token"}}, True),
        ({"kafka_sasl": "required"}, True),
        ({"kafka_sasl": "off", "users": {"ann": "pencil-2B"}}, False),
    ],
)
def test_sasl_is_asked_for_where_somebody_can_log_in_or_must(options, needs_sasl):
    access, config = access_of(**options)
    (listener,) = kafka_listeners(config)
    assert access.kafka_sasl(listener) is needs_sasl


def test_each_listener_may_decide_for_itself(tmp_path):
    file = tmp_path / "sparrow.yml"
    file.write_text(
        "users: {ann: pencil-2B}\n"
        "kafka:\n"
        "  listeners:\n"
        "    - {name: inner, host: 127.0.0.1, port: 0, sasl: false, tls: false}\n"
        "    - {name: outer, host: 127.0.0.1, port: 0}\n"
    )
    config, _ = load({"config": str(file)}, {})
    access = ServerAccess(config)
    assert [(each.name, access.kafka_sasl(each), each.tls) for each in kafka_listeners(config)] == [
        ("kafka", True, True),
        ("inner", False, False),
        ("outer", True, True),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("users: {ann: ''}", "users\\.ann: a user and the password are not empty"),
        ("users: [ann]", "users cannot be what it is"),
        ("kafka: {sasl: maybe}", "auto, required, off"),
        ("kafka: {listeners: [{name: x, port: 0, sasl: maybe}]}", "true or false"),
    ],
)
def test_wrong_values_are_named_and_no_secret_is_shown(tmp_path, text, words):
    file = tmp_path / "sparrow.yml"
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=words):
        load({"config": str(file)}, {})


def test_users_come_from_the_environment_too():
    config, _ = load({}, {"SPARROW_USERS": "ann=pencil-2B,bob=other"})
    assert config.users == {"ann": "pencil-2B", "bob": "other"}


def test_a_broker_into_which_nobody_can_log_says_so(caplog):
    with caplog.at_level(logging.WARNING), sparrow.testing.broker(native_login="required"):
        pass
    assert "sparrow user create NAME --data-dir" in caplog.text


def test_a_broker_whose_users_need_not_log_in_says_so(caplog, tmp_path):
    data = str(tmp_path / "data")
    with sparrow.testing.broker(data_dir=data, users={"ann": "pencil-2B"}):
        pass
    assert "nobody has to log in" not in caplog.text
    with caplog.at_level(logging.WARNING), sparrow.testing.broker(data_dir=data):
        pass
    assert "nobody has to log in" in caplog.text


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ([[("commonName", "billing")]], "CN=billing"),
        (
            [
                [("countryName", "DE")],
                [("stateOrProvinceName", "Berlin")],
                [("localityName", "Mitte")],
                [("organizationName", "Example, Inc.")],
                [("organizationalUnitName", "a+b")],
                [("commonName", "x")],
            ],
            r"CN=x,OU=a\+b,O=Example\, Inc.,L=Mitte,ST=Berlin,C=DE",
        ),
        ([[("commonName", "#1")]], r"CN=\#1"),
        ([[("commonName", " both ends ")]], r"CN=\ both ends\ "),
        ([[("commonName", 'quo"te\\')]], r"CN=quo\"te\\"),
        ([[("domainComponent", "org")], [("userId", "7"), ("commonName", "x")]], "UID=7+CN=x,DC=org"),
        ([[("emailAddress", "a@b.c")]], "1.2.840.113549.1.9.1=#160561406 22e63".replace(" ", "")),
    ],
)
def test_the_name_in_a_certificate_is_written_as_rfc_2253_says(subject, text):
    assert distinguished_name(subject) == text
