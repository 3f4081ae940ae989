"""The TLS context of the doors, from the files that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig

if TYPE_CHECKING:
    import ssl

    from sparrow.server.config import ServerConfig


def server_context(config: ServerConfig) -> ssl.SSLContext | None:
    """TLS 1.2 and newer with the configured certificate; None where none is configured.

    With `tls.client_ca` a client must show a certificate of that authority.

    Raises:
        InvalidConfig: one of certificate and key is missing, or a file cannot be used; names the option and the file.
    """
    certificate, key, client_ca = config.tls_certificate, config.tls_key, config.tls_client_ca
    if not certificate and not key:
        if client_ca:
            raise InvalidConfig("tls.client_ca needs tls.certificate and tls.key: give them, or leave it out")
        return None
    if not certificate or not key:
        given, missing = ("tls.certificate", "tls.key") if certificate else ("tls.key", "tls.certificate")
        raise InvalidConfig(f"{given} is set and {missing} is not; TLS needs both")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        # An encrypted key would otherwise ask for its password on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise InvalidConfig(
            f"tls.certificate {certificate} and tls.key {key} cannot be used: {_reason(error)}; they are PEM files, the key"
            " without a password"
        ) from None
    if client_ca:
        _ask_for_certificates(context, client_ca)
    return context


def _ask_for_certificates(context: ssl.SSLContext, authority: str) -> None:
    import ssl

    try:
        context.load_verify_locations(authority)
    except OSError as error:
        raise InvalidConfig(
            f"tls.client_ca {authority} cannot be used: {_reason(error)}; it is a PEM file of certificates"
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
