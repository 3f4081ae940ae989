"""Security of a client: its credentials, TLS, and hashes of passwords.

A password that is sent to be stored is salted and hashed by RFC 5802, so that only the user knows
it.
"""

from __future__ import annotations

import hashlib
import secrets
import ssl
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import (
    InvalidArgument,
    NotAuthenticated,
    UnacceptableCredential,
    UnsupportedMechanism,
)
from sparrow.base.passwords import check_password

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.client.options import ClientOptions
    from sparrow.client.url import Address

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS: Final = 8192
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
SALT_BYTES: Final = 16
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def credentials_of(address: Address, options: ClientOptions) -> dict[str, str]:
    """Return the credentials for HELLO: those of the options, or else of the URL; {} for none."""
    if options.token is not None:
        return {"token": options.token}
    user = options.user if options.user is not None else address.user
    if user is not None:
        password = options.password if options.password is not None else address.password
        return {"user": user, "password": password or ""}
    return {} if address.token is None else {"token": address.token}


def client_context(options: ClientOptions) -> ssl.SSLContext:
    """Return a TLS context that checks the broker's name and certificate. Reads files: takes
    milliseconds.

    Raises:
        InvalidArgument: a file cannot be used; the error names it.
    """
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise InvalidArgument(
            f"ca_file {options.ca_file} cannot be used: {_reason(error)}; it is a PEM file of certificates"
        ) from None
    if options.certificate_file is not None:
        _show_certificate(context, options.certificate_file, options.key_file)
    return context


def _show_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    try:
        # Without it, an encrypted key would ask for its password on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"certificate_file {certificate} and key_file {key} cannot be used: {_reason(error)}; they are "
            "PEM files, the key without a password"
        ) from None


def untrusted_error(address: Address, error: ssl.SSLCertVerificationError) -> NotAuthenticated:
    """Return the error of a broker whose certificate is not trusted."""
    return NotAuthenticated(
        f"the broker at {address} cannot be trusted: {error.verify_message or error}; name the authority "
        "that signed its certificate by ca_file (--ca-file), and connect by a name that the certificate has"
    )


def hash_password(password: str, mechanisms: Iterable[str], iterations: int) -> list[list[Any]]:
    """Return [mechanism, iterations, salt, salted password] for each mechanism. Takes milliseconds:
    call it in a thread.

    Raises:
        UnacceptableCredential: the password is too short, or the iterations are too few or too
            many.
        UnsupportedMechanism: a mechanism that is not in `MECHANISMS`.
    """
    check_password(password)
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise UnacceptableCredential(
            f"iterations is {iterations}; it must be {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    return [_hashed(password, mechanism, iterations) for mechanism in mechanisms]


def _hashed(password: str, mechanism: str, iterations: int) -> list[Any]:
    if mechanism not in _HASHES:
        raise UnsupportedMechanism(f"there is no mechanism {mechanism!r}; there are {', '.join(MECHANISMS)}")
    salt = secrets.token_bytes(SALT_BYTES)
    return [
        mechanism,
        iterations,
        salt,
        hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations),
    ]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
