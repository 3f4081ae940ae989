"""The addresses to which webhooks may be sent. Pure: nothing is resolved here.

A client that names a URL makes the broker's machine call it, from inside its network. So there are
three kinds of addresses:

    forbidden   link-local with the metadata services of clouds, multicast, broadcast,
                unspecified: never
    private     loopback and private networks: only those that the configuration allows, or
                for endpoints that it trusts
    public      everything else

The address of the connection decides, not the name: a name may resolve to another address each
time. An IPv6 address that contains an IPv4 address (mapped, translated, tunnelled) is judged as
both.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sparrow.base.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from ipaddress import IPv4Network, IPv6Network

Address = IPv4Address | IPv6Address
PRIVATE: Final = "private"
"""In the list of allowed addresses: all private networks."""

_FORBIDDEN: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",  # link-local; metadata of most clouds is 169.254.169.254
        "100.100.100.200/32",  # metadata of Alibaba Cloud
        "168.63.129.16/32",  # platform service of Azure
        "192.0.0.192/32",  # metadata of Oracle Cloud
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "fe80::/10",
        "ff00::/8",
        "fd00:ec2::/32",  # metadata, names and time of Amazon
        "fd20:ce::254/128",  # metadata of Google Cloud
        "fd00:42::42/128",  # metadata of Scaleway
    )
)
_IPV4_LAST: Final = tuple(
    ip_network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)
"""IPv6 networks whose last 32 bits are an IPv4 address: compatible, mapped, translated (RFC 4291,
RFC 6145, RFC 6052).
"""
_TRANSLATED_LOCALLY: Final = ip_network("64:ff9b:1::/48")
"""RFC 8215: each network decides where in it an IPv4 address is."""


class AddressScope(Enum):
    """The kind of an address."""

    PUBLIC = "public"
    PRIVATE = "private"
    FORBIDDEN = "forbidden"


def scope_of(address: Address) -> AddressScope:
    """Return the kind of an address. If it contains another address, the more private of both
    counts.
    """
    scopes = {_scope_of_one(each) for each in (address, *_embedded(address))}
    if AddressScope.FORBIDDEN in scopes:
        return AddressScope.FORBIDDEN
    return AddressScope.PRIVATE if AddressScope.PRIVATE in scopes else AddressScope.PUBLIC


def _scope_of_one(address: Address) -> AddressScope:
    if any(address in network for network in _FORBIDDEN):
        return AddressScope.FORBIDDEN
    if isinstance(address, IPv6Address) and any(address in network for network in _IPV4_LAST):
        # the embedded address decides; ::1 is judged as IPv6 below
        return AddressScope.PUBLIC
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    return AddressScope.PUBLIC if address.is_global and not is_site_local else AddressScope.PRIVATE


def _embedded(address: Address) -> Iterator[Address]:
    if isinstance(address, IPv4Address):
        return
    if address == IPv6Address("::1"):
        yield IPv4Address("127.0.0.1")
    elif any(address in network for network in _IPV4_LAST):
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in _TRANSLATED_LOCALLY:
        yield IPv4Address("127.0.0.1")


class AddressRules:
    """The rules of one broker.

    Args:
        allow: private networks ("10.0.0.0/8", "127.0.0.1"), names of hosts that may have private
            addresses, or "private" for all.

    Raises:
        InvalidConfig: something else.
    """

    def __init__(self, allow: Sequence[str] = ()) -> None:
        self._allows_private = False
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: set[str] = set()
        for text in allow:
            self._allow(text.strip())

    def _allow(self, text: str) -> None:
        if text == PRIVATE:
            self._allows_private = True
        elif "/" in text or maybe_address(text) is not None:
            try:
                self._networks.append(ip_network(text.strip("[]")))
            except ValueError as error:
                raise InvalidConfig(
                    f"webhooks.allow: {text!r} is no network ({error}); write one such as "
                    "10.0.0.0/8, or the name of a host"
                ) from None
        elif text and all(
            part and part.replace("-", "").replace("_", "").isalnum() for part in text.split(".")
        ):
            self._names.add(text.lower())
        else:
            raise InvalidConfig(
                f"webhooks.allow: {text!r} is neither a network such as 10.0.0.0/8 nor the name of "
                f"a host nor {PRIVATE!r}"
            )

    def refusal(self, address: Address, host: str, *, is_trusted: bool) -> str | None:
        """Return why nothing may be sent to an address of `host` (a name or itself an address), or
        None if it may.
        """
        scope = scope_of(address)
        if scope is AddressScope.FORBIDDEN:
            return (
                f"webhooks are never sent to {address}: it is link-local, a cloud's metadata "
                "service, multicast or"
                " unspecified"
            )
        if (
            scope is AddressScope.PUBLIC
            or is_trusted
            or self._allows_private
            or self._is_allowed(address, host)
        ):
            return None
        return (
            f"webhooks are not sent to {address}, a loopback or private address; the option "
            "webhooks.allow of the broker"
            " lets them"
        )

    def refusal_of_url(self, url: object, *, is_trusted: bool) -> str | None:
        """Return why nothing may be sent to a URL, as far as it is known before connecting: if its
        host is an address, or a name for loopback.
        """
        host = _host_of(url)
        address = maybe_address(host)
        if address is None and host.lower().rstrip(".").rpartition(".")[2] == "localhost":
            address = IPv4Address("127.0.0.1")
        return self.refusal(address, host, is_trusted=is_trusted) if address is not None else None

    def _is_allowed(self, address: Address, host: str) -> bool:
        if host.lower().rstrip(".") in self._names:
            return True
        return any(each in network for network in self._networks for each in (address, *_embedded(address)))


def _host_of(url: object) -> str:
    try:
        return (urlsplit(url).hostname or "") if isinstance(url, str) else ""
    except ValueError:
        return ""  # the check of the settings reports it


def maybe_address(host: str) -> Address | None:
    """Return the address that a host is written as, or None if it is a name."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
