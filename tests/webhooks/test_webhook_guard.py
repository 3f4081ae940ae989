"""Nothing is sent to forbidden addresses, whatever a name resolves to and wherever a redirect
leads.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from sparrow.base.errors import InvalidConfig
from sparrow.frontends.webhook.settings import WebhookSettings
from tests.security.certificates import Certificates, make_certificates
from tests.webhooks.conftest import LOCAL, Hooks
from tests.webhooks.endpoints import EndpointServer, Got, http_response


class Resolver(AbstractResolver):
    """Returns one address after the other; the last one for ever."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        address = self.addresses[0] if len(self.addresses) == 1 else self.addresses.pop(0)
        found = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [ResolveResult(hostname=host, host=address, port=port, family=found, proto=0, flags=0)]

    async def close(self) -> None:
        pass


async def hooks_with(path: Path, settings: WebhookSettings, resolver: Any = None) -> Hooks:
    hooks = Hooks(path / "data")
    await hooks.start(settings, resolver)
    await hooks.queue(delivery_limit=1)
    await hooks.publish(b"job")
    return hooks


async def error_of(hooks: Hooks) -> bytes:
    """Return the error in the dead letter of the only record."""
    await hooks.done()
    (letter,) = await hooks.dead()
    await hooks.stop()
    return letter["dead-letter-error"] or b""


FORBIDDEN = [
    "169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "224.0.0.1", "[fd00:ec2::254]",
    "[64:ff9b::a9fe:a9fe]",
]  # fmt: skip
PRIVATE = ["127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "localhost", "localhost.", "a.LOCALHOST"]


async def test_a_url_with_a_forbidden_address_is_refused_at_once(hooks: Hooks) -> None:
    await hooks.queue()
    for host in FORBIDDEN:
        with pytest.raises(InvalidConfig, match="never sent to"):
            await hooks.broker.webhooks.put("jobs", "hook", {"url": f"http://{host}/"}, is_trusted=True)


async def test_a_url_with_a_private_address_takes_a_permission(tmp_path: Path) -> None:
    hooks = await hooks_with(tmp_path, WebhookSettings())
    for host in PRIVATE:
        with pytest.raises(InvalidConfig, match=r"webhooks\.allow"):
            await hooks.hook(f"http://{host}/", host)
        trusted = await hooks.broker.webhooks.put("jobs", host, {"url": f"http://{host}:1/"}, is_trusted=True)
        assert trusted.is_trusted
    await hooks.stop()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1"]
)
async def test_a_name_that_leads_there_is_refused_when_it_is_connected_to(
    tmp_path: Path, address: str
) -> None:
    hooks = await hooks_with(tmp_path, WebhookSettings(), Resolver(address))
    await hooks.hook("http://innocent.example/")
    error = await error_of(hooks)
    assert b"webhooks are n" in error
    assert str(ip_address(address)).encode() in error


async def test_a_name_that_changes_where_it_leads_is_judged_each_time(tmp_path: Path) -> None:
    """As in DNS rebinding: the first response is harmless, the next is not."""
    async with EndpointServer(http_response(200, b"", connection="close")) as server:
        resolver = Resolver("127.0.0.1", "127.0.0.2")
        hooks = await hooks_with(tmp_path, WebhookSettings(allow=("127.0.0.1",)), resolver)
        await hooks.hook(f"http://rebinding.example:{server.port}/")
        await hooks.done()
        assert len(server.got) == 1
        assert server.got[0]["host"] == f"rebinding.example:{server.port}"
        poster = await hooks.frontend.poster()
        for session in poster._sessions.values():  # type: ignore[attr-defined]
            session.connector.clear_dns_cache()
        await hooks.publish(b"again")
        assert b"webhooks are not sent to 127.0.0.2" in await error_of(hooks)
        assert len(server.got) == 1


async def test_allowed_ones_of_several_addresses_are_used(tmp_path: Path) -> None:
    class Mixed(Resolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            return [
                found
                for address in ("169.254.169.254", "10.255.255.1", "127.0.0.1", "fe80::1")
                for found in await Resolver(address).resolve(host, port, family)
            ]

    hooks = await hooks_with(tmp_path, LOCAL, Mixed(""))
    async with EndpointServer() as server:
        await hooks.hook(f"http://mixed.example:{server.port}/")
        await hooks.done()
        assert server.bodies == [b"job"]
        await hooks.stop()


async def test_a_name_may_be_allowed(tmp_path: Path) -> None:
    async with EndpointServer() as server:
        hooks = await hooks_with(tmp_path, WebhookSettings(allow=("hooks.internal",)), Resolver("127.0.0.1"))
        await hooks.hook(f"http://hooks.internal:{server.port}/")
        await hooks.done()
        assert hooks.state().delivered == 1
        await hooks.hook(f"http://other.internal:{server.port}/")
        await hooks.publish(b"again")
        assert b"127.0.0.1" in await error_of(hooks)
        assert len(server.got) == 1


async def test_a_connection_of_a_trusted_endpoint_is_not_used_for_others(tmp_path: Path) -> None:
    async with EndpointServer() as server:
        hooks = await hooks_with(tmp_path, WebhookSettings(), Resolver("127.0.0.1"))
        url = f"http://shared.example:{server.port}/"
        await hooks.broker.webhooks.put("jobs", "trusted", {"url": url}, is_trusted=True)
        await hooks.done()
        await hooks.broker.webhooks.delete("jobs", "trusted")
        await hooks.hook(url)
        await hooks.publish(b"again")
        assert b"127.0.0.1" in await error_of(hooks)
        assert server.connections == 1


async def test_trust_ends_when_another_user_names_another_url(tmp_path: Path) -> None:
    hooks = await hooks_with(tmp_path, WebhookSettings())
    await hooks.broker.webhooks.put("jobs", "hook", {"url": "http://127.0.0.1:1/"}, is_trusted=True)
    assert (await hooks.broker.webhooks.put("jobs", "hook", {"rate": 5})).is_trusted
    assert (await hooks.hook("http://127.0.0.1:1/")).is_trusted
    untrusted = await hooks.broker.webhooks.put("jobs", "hook", {"rate": 6}, is_trusted=False)
    assert not untrusted.is_trusted
    await hooks.broker.webhooks.put("jobs", "hook", {"url": "http://127.0.0.1:1/"}, is_trusted=True)
    with pytest.raises(InvalidConfig):
        await hooks.hook("http://127.0.0.1:2/")
    assert not (await hooks.hook("http://public.example/")).is_trusted
    await hooks.stop()


# ── redirects ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_that_keeps_the_request_is_followed(hooks: Hooks, status: int) -> None:
    def lead(got: Got) -> bytes:
        return http_response() if got.path == "/b?c=d" else http_response(status, b"", location="/b?c=d")

    async with EndpointServer(lead) as server:
        await hooks.queue()
        await hooks.publish(b"job")
        await hooks.hook(server.url, headers={"X-Own": "secret"})
        await hooks.done()
    assert [(got.path, got.body, got.get("x-own")) for got in server.got] == [
        ("/hook", b"job", "secret"),
        ("/b?c=d", b"job", "secret"),
    ]
    assert server.got[0]["webhook-signature"] == server.got[1]["webhook-signature"]


async def test_other_redirects_are_failures(hooks: Hooks) -> None:
    await hooks.queue(delivery_limit=1)
    for status in (300, 301, 302, 303, 304, 305):
        async with EndpointServer(http_response(status, b"", location="/elsewhere")) as server:
            await hooks.hook(server.url)
            await hooks.publish(b"job")
            await hooks.done()
            assert len(server.got) == 1
        assert f"HTTP {status}" in hooks.state().last_error


async def test_no_more_than_three_redirects_are_followed(hooks: Hooks) -> None:
    async with EndpointServer(http_response(307, b"", location="/again")) as server:
        await hooks.queue(delivery_limit=1)
        await hooks.publish(b"job")
        await hooks.hook(server.url)
        await hooks.done()
        assert len(server.got) == 4
    assert hooks.state().last_error == "more than 3 redirects"


async def test_headers_of_the_endpoint_are_not_sent_to_another_origin(hooks: Hooks) -> None:
    async with EndpointServer() as other, EndpointServer() as server:
        server.responses = [http_response(307, b"", location=other.url)]
        await hooks.queue()
        await hooks.publish(b"job")
        await hooks.hook(server.url, headers={"Authorization": "secret"})
        await hooks.done()
    assert server.got[0]["authorization"] == "secret"
    assert other.got[0].get("authorization") is None
    assert other.got[0].body == b"job"
    assert other.got[0]["webhook-id"]


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/", "http://127.0.0.2:{port}/", "//127.0.0.2:{port}/",
        "http://[::ffff:127.0.0.2]:{port}/",
        "http://2130706434:{port}/", "http://localhost.:{port}/", "file:///etc/passwd", "gopher://127.0.0.2/",
        "http://user@127.0.0.1:{port}/",
        "http://127.0.0.1\\@127.0.0.2:{port}/", "http://0x7f000002:{port}/", "http://0.0.0.0:{port}/",
    ],
)  # fmt: skip
async def test_a_redirect_does_not_lead_where_nothing_may_be_sent(tmp_path: Path, location: str) -> None:
    async with EndpointServer() as server:
        server.responses = [
            http_response(307, b"", location=location.format(port=server.port)),
            http_response(),
        ]
        hooks = await hooks_with(tmp_path, WebhookSettings(allow=("127.0.0.1",)), Resolver("127.0.0.2"))
        await hooks.hook(server.url)
        error = await error_of(hooks)
        assert len(server.got) == 1
    assert b"webhooks are n" in error or b"a redirect to a URL that cannot be used" in error


async def test_a_trusted_endpoint_is_trusted_at_its_own_origin_only(tmp_path: Path) -> None:
    async with EndpointServer() as other, EndpointServer(http_response(307, b"", location="")) as server:
        server.responses = [
            http_response(307, b"", location="/more"),
            http_response(307, b"", location=other.url),
        ]
        hooks = await hooks_with(tmp_path, WebhookSettings())
        await hooks.broker.webhooks.put("jobs", "hook", {"url": server.url}, is_trusted=True)
        assert b"webhooks.allow" in await error_of(hooks)
        assert [got.path for got in server.got] == ["/hook", "/more"]
        assert other.got == []


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    return context


async def test_certificates_are_checked_by_the_authorities_that_are_named(
    tmp_path: Path, certificates: Certificates
) -> None:
    context = server_context(certificates)
    async with EndpointServer(tls=context) as server:
        hooks = await hooks_with(tmp_path, LOCAL)
        await hooks.hook(server.url)
        assert b"CERTIFICATE_VERIFY_FAILED" in (await error_of(hooks)).upper().replace(b" ", b"_")
        assert server.got == []

        other = Hooks(tmp_path / "other")
        await other.start(WebhookSettings(allow=("127.0.0.1",), ca_path=certificates.ca))
        await other.queue()
        await other.publish(b"job")
        await other.hook(server.url)
        await other.done()
        await other.stop()
        assert server.bodies == [b"job"]


async def test_a_redirect_from_https_to_http_is_not_followed(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with EndpointServer() as plain, EndpointServer(tls=server_context(certificates)) as server:
        server.responses = [http_response(307, b"", location=plain.url)]
        settings = WebhookSettings(allow=("127.0.0.1",), ca_path=certificates.ca)
        hooks = await hooks_with(tmp_path, settings)
        await hooks.hook(server.url)
        assert b"from https to http" in await error_of(hooks)
        assert plain.got == []


async def test_a_file_that_holds_no_authorities_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for path in ("ca.pem", "missing.pem"):
        hooks = Hooks(tmp_path / "data")
        with pytest.raises(InvalidConfig, match=r"webhooks\.ca"):
            await hooks.start(WebhookSettings(ca_path=str(tmp_path / path)))
        await hooks.broker.close()
    await asyncio.sleep(0)
