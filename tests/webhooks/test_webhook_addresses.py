"""Addresses that webhooks may be sent to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidConfig
from sparrow.broker.webhooks.addresses import AddressRules, AddressScope, maybe_address, scope_of

PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "172.32.0.1", "11.0.0.1"]
PRIVATE = [
    "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
    "192.0.2.1",
    "::1", "fc00::1", "fdff::1", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "::127.0.0.1", "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "::ffff:0:127.0.0.1", "64:ff9b:1::1", "2001:db8::1", "fec0::1",
]  # fmt: skip
FORBIDDEN = [
    "169.254.169.254", "169.254.0.1", "100.100.100.200", "168.63.129.16", "0.0.0.0", "0.1.2.3", "224.0.0.1",
    "255.255.255.255",
    "::", "fe80::1", "febf::1", "ff02::1", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "::ffff:0.0.0.0", "192.0.0.192", "fd20:ce::254",
]  # fmt: skip


@pytest.mark.parametrize(
    ("address", "scope"),
    [(each, AddressScope.PUBLIC) for each in PUBLIC]
    + [(each, AddressScope.PRIVATE) for each in PRIVATE]
    + [(each, AddressScope.FORBIDDEN) for each in FORBIDDEN],
)
def test_an_address_is_judged_by_where_it_leads(address: str, scope: AddressScope) -> None:
    assert scope_of(ip_address(address)) is scope


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "64:ff9b::", "::"]))
def test_an_ipv4_address_in_an_ipv6_address_is_judged_as_itself(address: IPv4Address, network: str) -> None:
    embedded = IPv6Address(int(IPv6Address(network)) + int(address))
    if embedded not in (IPv6Address("::"), IPv6Address("::1")):
        assert scope_of(embedded) is scope_of(address)


@given(st.ip_addresses())
def test_nothing_forbidden_is_ever_allowed(address: IPv4Address | IPv6Address) -> None:
    everything = AddressRules(("private", "0.0.0.0/0", "::/0", "host"))
    refused = everything.refusal(address, "host", is_trusted=True) is not None
    assert refused == (scope_of(address) is AddressScope.FORBIDDEN)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_forbidden_addresses_stay_forbidden_for_trusted_endpoints(address: str) -> None:
    refusal = AddressRules(("private",)).refusal(ip_address(address), address, is_trusted=True)
    assert refusal is not None
    assert "never" in refusal


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_take_a_permission(address: str) -> None:
    found = ip_address(address)
    assert "webhooks.allow" in str(AddressRules().refusal(found, "host", is_trusted=False))
    assert AddressRules(("private",)).refusal(found, "host", is_trusted=False) is None
    assert AddressRules().refusal(found, "host", is_trusted=True) is None


def test_networks_and_names_are_allowed_one_by_one() -> None:
    addresses = AddressRules(("10.0.0.0/8", "127.0.0.1", "::1", "Hooks.internal", "fc00::/7"))

    def allowed(address: str, host: str = "elsewhere") -> bool:
        return addresses.refusal(ip_address(address), host, is_trusted=False) is None

    assert allowed("10.9.9.9")
    assert allowed("::ffff:10.9.9.9")
    assert not allowed("192.168.0.1")
    assert allowed("192.168.0.1", "hooks.internal.")
    assert not allowed("192.168.0.1", "evil.hooks.internal")
    assert allowed("127.0.0.1")
    assert not allowed("127.0.0.2")
    assert allowed("fc00::5")


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "10.0.0.0/33", "a b", "http://x", "a..b"])
def test_entry_that_is_neither_network_nor_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"webhooks\.allow"):
        AddressRules((text,))


def test_an_address_in_brackets_is_one() -> None:
    assert maybe_address("[::1]") == IPv6Address("::1")
    assert maybe_address("example.org") is None
