"""SCRAM's client side, written from RFC 5802 alone, and PLAIN's message."""

from __future__ import annotations

import base64
import hashlib
import hmac


def plain(user: str, password: str, authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


class ScramClient:
    """Says `first()`, then `final(server's answer)`, then checks the server's signature by
    `verify`.
    """

    def __init__(
        self, hash_name: str, user: str, password: str, nonce: str = "client-nonce", header: str = "n,,"
    ):
        self.hash_name = hash_name
        self.password = password
        self.header = header
        self.bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(field.split("=", 1) for field in server_first.decode().split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self.hash_name, self.password.encode(), salt, iterations)
        unproved = f"c={base64.b64encode(self.header.encode()).decode()},r={fields['r']}"
        signed = f"{self.bare},{server_first.decode()},{unproved}".encode()
        client_key = hmac.digest(salted, b"Client Key", self.hash_name)
        stored_key = hashlib.new(self.hash_name, client_key).digest()
        signature = hmac.digest(stored_key, signed, self.hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.hash_name)
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, signed, self.hash_name))
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> bool:
        return server_final == self.expected
