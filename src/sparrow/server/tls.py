"""The TLS context of the listeners, from the files that the configuration names, and its
replacement at a reload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.der import revoked_in
from sparrow.base.errors import InvalidConfig
from sparrow.frontends.transport.tls import CertificateProof, authority_digest

if TYPE_CHECKING:
    import ssl

    from sparrow.base.der import Issued
    from sparrow.broker.access.login import Login
    from sparrow.server.config import ServerConfig


def server_context(config: ServerConfig) -> ssl.SSLContext | None:
    """Return a context for TLS 1.2 and newer with the configured certificate, or None where none is
    configured.

    With `tls.client_ca` clients must present a certificate of that authority.

    Raises:
        InvalidConfig: one of certificate and key is missing, or a file cannot be used; names the
            option and the file.
    """
    certificate, key, client_ca = config.tls_certificate, config.tls_key, config.tls_client_ca
    if config.tls_client_crl and not client_ca:
        raise InvalidConfig(
            "tls.client_crl needs tls.client_ca: the list says whom of those it does not trust"
        )
    if not certificate and not key:
        if client_ca:
            raise InvalidConfig("tls.client_ca needs tls.certificate and tls.key: give them, or leave it out")
        return None
    if not certificate or not key:
        given, missing = ("tls.certificate", "tls.key") if certificate else ("tls.key", "tls.certificate")
        raise InvalidConfig(f"{given} is set and {missing} is not; TLS needs both")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    from sparrow.server.tls_context import ReportingTls

    context.sslobject_class = ReportingTls
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        # An encrypted key would otherwise ask for its password on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise InvalidConfig(
            f"tls.certificate {certificate} and tls.key {key} cannot be used: {_reason(error)}; "
            "they are PEM files, the key"
            " without a password"
        ) from None
    if client_ca:
        _ask_for_certificates(context, client_ca)
    if config.tls_client_crl:
        _look_for_revoked(context, config.tls_client_crl)
    return context


class ClientCertificates:
    """The client certificates that are valid: those of the authorities that are on no revocation
    list.

    Args:
        context: the context with the authorities.
        crl: path of the revocation lists; "" for none.

    Raises (from the constructor):
        InvalidConfig: the lists cannot be read.
    """

    def __init__(self, context: ssl.SSLContext | None, crl: str) -> None:
        authorities = () if context is None else context.get_ca_certs(binary_form=True)
        self._authorities = frozenset(map(authority_digest, authorities))
        self._revoked: frozenset[Issued] = frozenset()
        if crl:
            self._revoked = _revoked_in(crl)

    def why_over(self, login: Login) -> str:
        """Return why a login by certificate is no longer valid; "" while it is."""
        proof = login.proof
        assert isinstance(proof, CertificateProof)
        if not self._revoked.isdisjoint(proof.chain):
            return f"the certificate of {login.name!r} was revoked"
        if proof.authority not in self._authorities:
            return f"the authority of the certificate of {login.name!r} is not trusted any more"
        return ""


def _revoked_in(path: str) -> frozenset[Issued]:
    try:
        with open(path, "rb") as file:
            return revoked_in(file.read())
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"tls.client_crl {path} cannot be used: {_reason(error)}") from None


def _look_for_revoked(context: ssl.SSLContext, path: str) -> None:
    """Refuse certificates that a list of their issuer names, and those of an issuer without a
    list.
    """
    import ssl

    before = context.cert_store_stats()["crl"]
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise InvalidConfig(
            f"tls.client_crl {path} cannot be used: {_reason(error)}; it is a PEM file of "
            "revocation lists (X509 CRL)"
        ) from None
    if context.cert_store_stats()["crl"] == before:
        raise InvalidConfig(f"tls.client_crl {path} has no revocation list (X509 CRL) in it")
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


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
