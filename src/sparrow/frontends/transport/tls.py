"""Principals of TLS clients: the subject of their certificate as Kafka writes it,
"CN=billing,O=Example".

The text follows RFC 2253: the last part of the subject comes first, special characters are escaped
by a backslash. Kafka's default principal is the same text, so ACLs have the same meaning here.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparrow.base.der import Issued, certificate_named
from sparrow.broker.access.authz import Principal
from sparrow.broker.access.login import Login, LoginKind

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Limit of the TLS handshake; a client counts as a connection only after it."""
_SHORT: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Attribute types with short names in RFC 2253."""
_EMAIL: Final = "1.2.840.113549.1.9.1"
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')


def certificate_principal(transport: asyncio.BaseTransport) -> Principal | None:
    """Return the principal of the peer's verified certificate; None if it sent none."""
    certificate: dict[str, Any] | None = transport.get_extra_info("peercert")
    subject = certificate.get("subject", ()) if certificate else ()
    if not subject:
        return None
    name = distinguished_name(subject)
    proof = CertificateProof.of(transport.get_extra_info("ssl_object"))
    return Principal(name, login=Login(LoginKind.CERTIFICATE, name, proof))


class CertificateProof(Struct, frozen=True):
    """The identity of a client's certificates, kept to check later if they are still valid.

    `chain` names the client's certificate and those between it and its authority; `authority` is
    the SHA-256 of the authority's certificate.
    """

    chain: frozenset[Issued]
    authority: bytes

    @classmethod
    def of(cls, tls: ssl.SSLObject) -> CertificateProof:
        """Return the proof of a connection whose handshake is complete."""
        ders = _verified_chain(tls)
        # revocation lists do not cover the authority, as it is its own issuer
        own = ders[:-1] or ders
        return cls(frozenset(map(certificate_named, own)), authority_digest(ders[-1]))


def authority_digest(certificate: bytes) -> bytes:
    """Return the SHA-256 of an authority's certificate, given as DER."""
    return hashlib.sha256(certificate).digest()


def _verified_chain(tls: Any) -> list[bytes]:
    """Return the certificates by which TLS verified the client, its own first, as DER."""
    if sys.version_info >= (3, 13):
        return list(tls.get_verified_chain())
    return [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in tls._sslobj.get_verified_chain()]  # noqa: SLF001 - public from Python 3.13 on


def tls_options(context: ssl.SSLContext | None) -> dict[str, Any]:
    """Return the TLS arguments of `create_server`; none without a context."""
    return {} if context is None else {"ssl": context, "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S}


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Format a subject, as `ssl.SSLSocket.getpeercert` returns it, by RFC 2253."""
    parts = ["+".join(_attribute(name, value) for name, value in part) for part in subject]
    return ",".join(reversed(parts))


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":  # no short name: the OID, and the value as DER
        data = value.encode()
        return f"{_EMAIL}=#16{_der_length(len(data))}{data.hex()}"
    return f"{_SHORT.get(name, name)}={_escaped(value)}"


def _der_length(size: int) -> str:
    if size < 0x80:
        return f"{size:02x}"
    data = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return f"{0x80 | len(data):02x}{data.hex()}"


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if len(value) > 1 and text.endswith(" "):
        text = text[:-1] + "\\ "
    return text
