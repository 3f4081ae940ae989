"""A partial parser of DER (X.690): the issuer and number of a certificate, and the entries of a
revocation list (RFC 5280).

Signatures are not checked here: TLS does that. Positions are offsets into the given bytes.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTEGER: Final = 0x02
_SEQUENCE: Final = 0x30
_TIMES: Final = frozenset({0x17, 0x18})
_VERSION: Final = 0xA0
_CRL: Final = re.compile(rb"-----BEGIN X509 CRL-----\s(.*?)-----END X509 CRL-----", re.DOTALL)


class Issued(NamedTuple):
    """The identity of a certificate: its issuer's name, as DER, and its number there, as the
    content of an integer.
    """

    issuer: bytes
    serial: bytes


class _Part(NamedTuple):
    tag: int
    whole: bytes
    content: bytes


def certificate_named(certificate: bytes) -> Issued:
    """Return the identity of a certificate in DER.

    Raises:
        ValueError: it is no certificate.
    """
    parts = [*_parts(_sequence(_sequence(certificate)))]
    if parts and parts[0].tag == _VERSION:
        del parts[0]
    if len(parts) < 3:  # number, algorithm of the signature, issuer
        raise ValueError("it is no certificate")
    return Issued(parts[2].whole, parts[0].content)


def revoked_in(pem: bytes) -> frozenset[Issued]:
    """Return the certificates that the revocation lists of a PEM file list.

    Raises:
        ValueError: one of them cannot be read.
    """
    found: set[Issued] = set()
    for block in _CRL.findall(pem):
        try:
            found.update(_revoked(base64.b64decode(b"".join(block.split()), validate=True)))
        except binascii.Error as error:
            raise ValueError("a revocation list cannot be read") from error
    return frozenset(found)


def _revoked(crl: bytes) -> Iterator[Issued]:
    parts = [*_parts(_sequence(_sequence(crl)))]
    if parts and parts[0].tag == _INTEGER:  # the version
        del parts[0]
    if len(parts) < 2:  # algorithm of the signature, issuer
        raise ValueError("a revocation list cannot be read")
    issuer = parts[1].whole
    rest = [part for part in parts[2:] if part.tag not in _TIMES]
    if not rest or rest[0].tag != _SEQUENCE:  # nothing is revoked
        return
    for entry in _parts(rest[0].content):
        yield Issued(issuer, _first(entry.content).content)


def _sequence(data: bytes) -> bytes:
    part = _first(data)
    if part.tag != _SEQUENCE:
        raise ValueError("a sequence was expected")
    return part.content


def _first(data: bytes) -> _Part:
    for part in _parts(data):
        return part
    raise ValueError("it is empty")


def _parts(data: bytes) -> Iterator[_Part]:
    at = 0
    while at < len(data):
        try:
            tag, size, start = data[at], data[at + 1], at + 2
        except IndexError:
            raise ValueError("it is cut off") from None
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(data[at + 2 : start], "big")
        if start + size > len(data):
            raise ValueError("it is cut off")
        yield _Part(tag, data[at : start + size], data[start : start + size])
        at = start + size
