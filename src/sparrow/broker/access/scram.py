"""SCRAM, the server's side (RFC 5802, with the hashes of RFC 7677): proves a password without
either side sending it.

    client                                              server
      │ n,,n=user,r=<client nonce>                         │
      ├───────────────────────────────────────────────────▶│  FIRST
      │ r=<client nonce><server nonce>,s=<salt>,i=<count>  │
      │◀───────────────────────────────────────────────────┤  FINAL
      │ c=biws,r=<both nonces>,p=<proof>                   │
      ├───────────────────────────────────────────────────▶│
      │ v=<server signature>                               │
      │◀───────────────────────────────────────────────────┤  DONE

A credential is what the server stores: salt, iteration count, stored key, server key. It does not
suffice to log in, but a guess can be tried against it. As in Kafka's clients, names and passwords
are used as they are in UTF-8 (no SASLprep), and there is no channel binding. Pure: randomness is
passed in, and only the messages are read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import NotAuthenticated

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_ITERATIONS: Final = 4096
"""RFC 7677, section 4."""
MAX_ITERATIONS: Final = 16384
"""Kafka's limit: a login must not cost the broker's machine, or the client's, too much."""
MAX_MESSAGE_BYTES: Final = 16 << 10


class Mechanism(Enum):
    """Hash of a SCRAM mechanism. The value is the SASL mechanism's name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """The hash's name in `hashlib`."""
        return "sha256" if self is Mechanism.SHA_256 else "sha512"


class Credential(Struct, frozen=True):
    """Stored form of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential({self.iterations} iterations)"


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return Hi(password, salt, i) of RFC 5802. Takes milliseconds of processor time: call it in a
    thread.
    """
    return hashlib.pbkdf2_hmac(
        mechanism.hash_name, password.encode("utf-8", "surrogatepass"), salt, iterations
    )


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return the credential of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return Credential(
        salt, _digest(mechanism, client_key), _hmac(mechanism, salted, b"Server Key"), iterations
    )


def is_password_of(mechanism: Mechanism, credential: Credential, password: str) -> bool:
    """Return True if the credential was made of this password; as slow as `salted_password`, in the
    same time for every result.
    """
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    stored_key = _digest(mechanism, _hmac(mechanism, salted, b"Client Key"))
    return hmac.compare_digest(stored_key, credential.stored_key)


class _State(Enum):
    FIRST = "first"
    FINAL = "final"
    DONE = "done"
    FAILED = "failed"


_VALUE = r"[\x01-\x2b\x2d-\x7f\u0080-\U0010ffff]+"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]={_VALUE})*)"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
# Patterns that `re` compiles at the first login: that takes longer than the import of this module.
_CLIENT_FIRST = (
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_VALUE}))?,)"
    rf"(?P<bare>n=(?P<name>{_VALUE}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_CLIENT_FINAL = (
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class ScramServer:
    """One login. `receive` takes a message of the client and returns the response.

    Args:
        mechanism: the hash.
        find: returns the credential of a user; a false one for a user that does not exist, so that
            a client cannot find out who does.
        nonce: the server's part, printable ASCII without comma, new and unguessable for each login.
    """

    def __init__(self, mechanism: Mechanism, find: Callable[[str], Credential], nonce: str) -> None:
        self.mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._state = _State.FIRST
        self._user = ""
        self._header = ""
        self._signed = ""
        """The first two messages, as the proof covers them."""
        self._credential: Credential | None = None

    @property
    def user(self) -> str | None:
        """The user whose login was proved; None until then."""
        return self._user if self._state is _State.DONE else None

    @property
    def credential(self) -> Credential | None:
        """The credential that the login is checked against; None until the user is named."""
        return self._credential

    @property
    def claimed(self) -> str | None:
        """The user whose proof the next message contains; None if it contains none."""
        return self._user if self._state is _State.FINAL else None

    def receive(self, message: bytes) -> bytes:
        """Return the response to the client's next message.

        Raises:
            NotAuthenticated: the message is malformed, or the proof is wrong; the login is over.
        """
        state, self._state = self._state, _State.FAILED
        if len(message) > MAX_MESSAGE_BYTES:
            raise _malformed("a message is too long")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise _malformed("a message is not UTF-8") from None
        if state is _State.FIRST:
            return self._first(text)
        if state is _State.FINAL:
            return self._final(text)
        raise _malformed("a message came after the end of the login")

    def _first(self, text: str) -> bytes:
        found = re.fullmatch(_CLIENT_FIRST, text)
        if found is None:
            raise _malformed("the first message is not as RFC 5802 says, or asks for channel binding")
        user = _unescape(found["name"])
        if found["authzid"] is not None and _unescape(found["authzid"]) != user:
            raise NotAuthenticated(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential = self._find(user)
        self._nonce = found["nonce"] + self._nonce
        self._user, self._header, self._credential = user, found["header"], credential
        response = f"r={self._nonce},s={_encode(credential.salt)},i={credential.iterations}"
        self._signed = f"{found['bare']},{response}"
        self._state = _State.FINAL
        return response.encode()

    def _final(self, text: str) -> bytes:
        assert self._credential is not None
        found = re.fullmatch(_CLIENT_FINAL, text)
        if found is None:
            raise _malformed("the final message is not as RFC 5802 says")
        if _decode(found["binding"]) != self._header.encode() or found["nonce"] != self._nonce:
            raise _malformed("the final message does not belong to the first one")
        signed = f"{self._signed},{found['unproved']}".encode()
        if not _proves(self.mechanism, self._credential, signed, _decode(found["proof"])):
            raise wrong_credentials(self.mechanism.value)
        self._state = _State.DONE
        return b"v=" + _encode(_hmac(self.mechanism, self._credential.server_key, signed)).encode()


def wrong_credentials(mechanism: str) -> NotAuthenticated:
    """Return the error for a wrong name and a wrong password alike, in Kafka's words."""
    return NotAuthenticated(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


def _proves(mechanism: Mechanism, credential: Credential, signed: bytes, proof: bytes) -> bool:
    signature = _hmac(mechanism, credential.stored_key, signed)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(_digest(mechanism, client_key), credential.stored_key)


def _hmac(mechanism: Mechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def _digest(mechanism: Mechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _malformed("a field is not base64") from None


def _unescape(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise _malformed("the user's name has an '=' that escapes no character")
    return name.replace("=2C", ",").replace("=3D", "=")


def _malformed(what: str) -> NotAuthenticated:
    return NotAuthenticated(f"Authentication failed: {what}")
