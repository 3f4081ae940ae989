"""Who a TLS connection's certificate says the peer is: its subject as Kafka writes it, "CN=billing,O=Example".

The text is RFC 2253's: the last part of the subject comes first, special characters have a backslash before them. Kafka's default
principal is just this text, so that ACLs mean the same here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sparrow.broker.access.authz import Principal

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Iterable

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""How long a client may take to agree on TLS; until then it does not count as a connection."""
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
"""The attribute types that RFC 2253 has short names for."""
_EMAIL: Final = "1.2.840.113549.1.9.1"
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')


def certificate_principal(transport: asyncio.BaseTransport) -> Principal | None:
    """The principal of the peer's certificate, which TLS has checked; None where there is none."""
    certificate: dict[str, Any] | None = transport.get_extra_info("peercert")
    subject = certificate.get("subject", ()) if certificate else ()
    return Principal(distinguished_name(subject)) if subject else None


def tls_options(context: ssl.SSLContext | None) -> dict[str, Any]:
    """The arguments of `create_server` for TLS; none without a context."""
    return {} if context is None else {"ssl": context, "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S}


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """RFC 2253 text of a subject, given as `ssl.SSLSocket.getpeercert` gives it."""
    parts = ["+".join(_attribute(name, value) for name, value in part) for part in subject]
    return ",".join(reversed(parts))


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":  # no short name: the number, and the value as DER
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
