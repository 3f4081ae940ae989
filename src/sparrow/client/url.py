"""The URL of a broker: `sparrow[s]://[[user]:secret@]host[:port][,host[:port]…]`.

sparrow://127.0.0.1:9094             the default port is 9094
sparrows://broker.lan                with TLS
sparrow://ann:pencil@broker.lan      a user and a password
sparrow://:s3cret@broker.lan         a token
sparrow://[::1]:9094                 IPv6 in brackets
sparrow://a.lan:9094,b.lan:9094      the brokers of a cluster: the one that answers is used
127.0.0.1:9094                       the scheme may be left out
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, unquote, urlsplit

from sparrow.base.errors import InvalidArgument

SCHEME = "sparrow"
TLS_SCHEME = "sparrows"
DEFAULT_PORT = 9094
_ELSEWHERE = {
    "http": ", which is for the HTTP API; clients and the command line speak the native protocol",
    "https": ", which is for the HTTP API; clients and the command line speak the native protocol",
    "kafka": ", which is for clients of Kafka; clients and the command line speak the native protocol",
}


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL. `token`, `user` and `password` are None where the URL names none."""

    host: str
    port: int = DEFAULT_PORT
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    has_tls: bool = False
    others: tuple[tuple[str, int], ...] = ()
    """Host and port of the other brokers of a cluster."""

    def brokers(self) -> list[Address]:
        """Return an address for each broker, in the order of the URL."""
        alone = replace(self, others=())
        return [alone, *(replace(alone, host=host, port=port) for host, port in self.others)]

    def at(self, named: str) -> Address | None:
        """Return the address of another broker of the same cluster, by `host:port` as a broker
        names it; None if that is no address.
        """
        try:
            found = parse_url(f"{SCHEME}://{named}")
        except InvalidArgument:
            return None
        return replace(self, host=found.host, port=found.port, others=())

    def __str__(self) -> str:
        """Return `host:port`, as errors name it; never a secret."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> Address:
    """Parse a broker's URL.

    Raises:
        InvalidArgument: another scheme, no host, an invalid port, or text behind the address.
    """
    parts = _split(url)
    if parts.scheme not in {SCHEME, TLS_SCHEME}:
        raise _invalid(url, f"its scheme is {parts.scheme!r}{_ELSEWHERE.get(parts.scheme, '')}")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise _invalid(url, "there is something behind host and port")
    login, at, hosts = parts.netloc.rpartition("@")
    first, *others = (_split(f"{parts.scheme}://{login}{at}{host}") for host in hosts.split(","))
    if not all(each.hostname for each in (first, *others)):
        raise _invalid(url, "it names no host")
    parts = first
    assert parts.hostname is not None
    user = unquote(parts.username) if parts.username else None
    secret = unquote(parts.password) if parts.password else None
    return Address(
        parts.hostname,
        _port(parts, url),
        token=secret if user is None else None,
        user=user,
        password=secret if user is not None else None,
        has_tls=parts.scheme == TLS_SCHEME,
        others=tuple((each.hostname or "", _port(each, url)) for each in others),
    )


def _split(url: str) -> SplitResult:
    if not isinstance(url, str):
        raise InvalidArgument(
            f"the broker's URL is {url!r}; it must be text such as sparrow://127.0.0.1:9094"
        )
    try:
        return urlsplit(url if "://" in url else f"{SCHEME}://{url}")
    except ValueError as error:
        raise _invalid(url, str(error)) from None


def _port(parts: SplitResult, url: str) -> int:
    try:
        port = parts.port
    except ValueError:
        raise _invalid(url, "its port is not a number from 1 to 65535") from None
    if port == 0:
        raise _invalid(url, "its port is 0")
    return DEFAULT_PORT if port is None else port


def _invalid(url: str, what: str) -> InvalidArgument:
    shown = url if "@" not in url else f"…@{url.rpartition('@')[2]}"
    return InvalidArgument(
        f"the broker's URL {shown!r} cannot be used: {what}; it should look like sparrow://127.0.0.1:9094"
    )
