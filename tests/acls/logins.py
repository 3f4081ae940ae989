"""Clients of a broker whose users are known by token."""

from __future__ import annotations

from typing import Any

from tests.kafka_frontend.raw import RawClient, request

TOKENS = {
    "root": "r-token",
    "alice": "a-token",
    "writer": "w-token",
    "mover": "m-token",
    "seer": "s-token",
    "nobody": "n-token",
}


def confluent(bootstrap: str, user: str, **other: Any) -> dict[str, Any]:
    """Return the configuration of a librdkafka client."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": TOKENS[user],
        **other,
    }


def kafka_python(bootstrap: str, user: str) -> dict[str, Any]:
    """Return the arguments of a client of kafka-python."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": TOKENS[user],
    }


def logged_in(bootstrap: str, user: str) -> RawClient:
    """Return a raw connection of a user."""
    client = RawClient(bootstrap)
    assert client.call(request(17, 1, mechanism="PLAIN")).error_code == 0
    token = f"\0{user}\0{TOKENS[user]}".encode()
    assert client.call(request(36, 2, auth_bytes=token)).error_code == 0
    return client
