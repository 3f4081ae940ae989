"""An authority, certificates of it, and one of another authority, as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.x509 import load_pem_x509_certificate


@dataclass(frozen=True)
class Certificate:
    """Paths of PEM files."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Certificates:
    ca: str
    other_ca: str
    server: Certificate
    client: Certificate
    stranger: Certificate
    client_subject: str
    """As RFC 4514 writes it, by another library."""


def make_certificates(path: Path) -> Certificates:
    """Create certificates: a server at localhost, 127.0.0.1 and ::1; a client "billing" of
    "Example, Inc."; a client whom only the other authority knows.
    """
    authority, other = trustme.CA(), trustme.CA()
    for name, ca in (("ca", authority), ("other-ca", other)):
        ca.cert_pem.write_to_path(path / f"{name}.pem")
    server = authority.issue_cert("localhost", "127.0.0.1", "::1")
    client = authority.issue_cert(
        "client@example.org", common_name="billing", organization_name="Example, Inc."
    )
    stranger = other.issue_cert("client@example.org", common_name="billing")
    return Certificates(
        str(path / "ca.pem"),
        str(path / "other-ca.pem"),
        _write(path, "server", server),
        _write(path, "client", client),
        _write(path, "stranger", stranger),
        load_pem_x509_certificate(client.cert_chain_pems[0].bytes()).subject.rfc4514_string(),
    )


def _write(path: Path, name: str, issued: trustme.LeafCert) -> Certificate:
    files = Certificate(str(path / f"{name}.pem"), str(path / f"{name}.key"))
    issued.private_key_pem.write_to_path(files.key)
    Path(files.certificate).write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return files
