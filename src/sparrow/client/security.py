"""How a client says who it is, and how it makes sure who the broker is."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, NotAuthenticated

if TYPE_CHECKING:
    from sparrow.client.options import ClientOptions
    from sparrow.client.url import Address


def credentials_of(address: Address, options: ClientOptions) -> dict[str, str]:
    """What HELLO brings: of the options, else of the URL; {} for nothing."""
    if options.token is not None:
        return {"token": options.token}
    user = options.user if options.user is not None else address.user
    if user is not None:
        password = options.password if options.password is not None else address.password
        return {"user": user, "password": password or ""}
    return {} if address.token is None else {"token": address.token}


def client_context(options: ClientOptions) -> ssl.SSLContext:
    """TLS that checks the broker's name and certificate. Reads files: milliseconds.

    Raises:
        InvalidArgument: a file cannot be used; names it.
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
        # An encrypted key would otherwise ask for its password on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"certificate_file {certificate} and key_file {key} cannot be used: {_reason(error)}; they are PEM files, the key"
            " without a password"
        ) from None


def untrusted(address: Address, error: ssl.SSLCertVerificationError) -> NotAuthenticated:
    """The error of a broker whose certificate is not to be trusted."""
    return NotAuthenticated(
        f"the broker at {address} cannot be trusted: {error.verify_message or error}; name the authority that signed its"
        " certificate by ca_file (--ca-file), and connect by a name that the certificate has"
    )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
