"""The broker and the login that a driver hands to its tasks so that they connect themselves. Can be
pickled; `repr` shows no secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.client.options import ClientOptions
from sparrow.client.security import client_context, credentials_of
from sparrow.client.url import Address, parse_url

if TYPE_CHECKING:
    import ssl

DEFAULT_URL = "sparrow://127.0.0.1:9094"


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """The address of a broker, the login, and limits. Fields beside the URL win over its parts."""

    url: str = DEFAULT_URL
    token: str | None = None
    user: str | None = None
    password: str | None = None
    ca_file: str | None = None
    """PEM file of the authorities that may sign the broker's certificate (`sparrows://`); None:
    those of the system.
    """
    certificate_file: str | None = None
    key_file: str | None = None
    connect_timeout_s: float = 10.0
    """Time that one attempt to connect may take, up to the broker's welcome."""
    call_timeout_s: float = 60.0
    """Time that the broker may be silent while a response is outstanding."""
    retries: int = 3
    """Further attempts after a failure that may pass: of connecting, and of reads whose connection
    was lost.
    """
    client_name: str = "sparrow-spark"

    def __post_init__(self) -> None:
        if not (self.connect_timeout_s > 0 and self.call_timeout_s > 0 and self.retries >= 0):
            raise InvalidArgument(
                f"connect_timeout_s is {self.connect_timeout_s}, call_timeout_s "
                f"{self.call_timeout_s} and retries {self.retries}; the"
                " first two must be positive, the third not negative"
            )

    def __repr__(self) -> str:
        try:
            address = self.address
        except SparrowError:
            return "Target(…)"
        scheme = "sparrows" if address.has_tls else "sparrow"
        who = f"user={self.user or address.user!r}, " if self.user or address.user else ""
        return f"Target({scheme}://{address}, {who}client_name={self.client_name!r})"

    @property
    def address(self) -> Address:
        """Return host and port.

        Raises:
            InvalidArgument: the URL is none.
        """
        return parse_url(self.url)

    @property
    def credentials(self) -> dict[str, str]:
        """Return the credentials for HELLO."""
        return credentials_of(self.address, self._options)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context that verifies the broker; None without TLS."""
        return _context(self.ca_file, self.certificate_file, self.key_file) if self.address.has_tls else None

    @property
    def _options(self) -> ClientOptions:
        return ClientOptions(token=self.token, user=self.user, password=self.password)


@lru_cache(maxsize=8)
def _context(ca_file: str | None, certificate_file: str | None, key_file: str | None) -> ssl.SSLContext:
    return client_context(
        ClientOptions(ca_file=ca_file, certificate_file=certificate_file, key_file=key_file)
    )
