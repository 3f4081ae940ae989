"""POST requests over a pool of persistent connections (aiohttp), to allowed addresses only.

The address is checked where the socket is created, so the check sees the very address that is
connected to. No DNS answer, now or later, and no notation of an address can bypass it. Endpoints
that the configuration trusts have a pool of their own, because their connections must not be used
for other endpoints.

Redirects are followed by this module: only 307 and 308 (others would turn the POST into a GET), at
most three, and never from https to http. At another origin the endpoint's own headers are left out,
as they may contain credentials. Only the part of a response body that is used is read; a connection
with more data is closed.

This module imports aiohttp, so it is imported itself only when there is something to deliver.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from contextvars import ContextVar
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urljoin

import aiohttp
from yarl import URL

from sparrow.base.errors import InvalidConfig
from sparrow.base.version import VERSION
from sparrow.broker.webhooks.endpoint import new_settings
from sparrow.frontends.webhook.fair_semaphore import FairSemaphore
from sparrow.frontends.webhook.resolver import ThreadedResolver
from sparrow.frontends.webhook.responses import DeliveryOutcome, EndpointResponse

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aiohttp.abc import AbstractResolver

    from sparrow.broker.webhooks.addresses import AddressRules
    from sparrow.frontends.webhook.payload import HttpHeaders

MAX_BODY_BYTES: Final = 64 << 10
MAX_REDIRECTS: Final = 3
_FOLLOWED: Final = (307, 308)
_REDIRECTS: Final = range(300, 400)
_KEEP_ALIVE_S: Final = 30.0
_CONNECT_SHARE: Final = 0.5
"""The share of the timeout that connecting may take."""
_RESERVED_SHARE: Final = 0.1
"""The share of the timeout that is left when reading of a body stops."""
_LARGE_BYTES: Final = 1 << 20
"""Bodies of this size and more are written in pieces, so that other tasks run in between."""


class _Attempt(NamedTuple):
    """The timeout of a request, its deadline (loop time), and whether private addresses are
    allowed.
    """

    timeout_s: float
    until_s: float
    is_trusted: bool


class _Target:
    """The host of the current task's request, and the reason of a refusal."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.refusal: str | None = None
        self.is_new_connection = False


_target: ContextVar[_Target] = ContextVar("target")


class RefusedAddress(OSError):
    """The address of a connection is not allowed."""


class Poster:
    """The HTTP client of the frontend. Loop thread only.

    Args:
        max_connections: concurrent requests; further ones wait.
        resolver: resolves names instead of the system.
    """

    def __init__(
        self,
        addresses: AddressRules,
        *,
        max_connections: int,
        tls: ssl.SSLContext,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._addresses = addresses
        self._tls = tls
        self._resolver = resolver
        self._resolver_threads = ThreadedResolver()
        self._semaphore = FairSemaphore(max_connections)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def post(
        self,
        url: str,
        headers: HttpHeaders,
        body: bytes,
        *,
        own: HttpHeaders,
        timeout_s: float,
        is_trusted: bool,
        owner: Hashable,
    ) -> EndpointResponse | DeliveryOutcome:
        """Send a POST request. Return the response, or a DeliveryOutcome with the reason why there
        is none.

        Args:
            own: headers for the origin of this URL only.
            owner: the endpoint, for the fair order of requests.
        """
        await self._semaphore.acquire(owner)
        try:
            attempt = _Attempt(timeout_s, asyncio.get_running_loop().time() + timeout_s, is_trusted)
            try:
                async with asyncio.timeout_at(attempt.until_s):
                    return await self._follow(URL(url, encoded=True), headers, body, own, attempt)
            except TimeoutError:
                return DeliveryOutcome(text=f"no answer within {timeout_s:g} s")
        finally:
            self._semaphore.release(owner)

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()
        await self._resolver_threads.close()

    async def _follow(
        self, url: URL, headers: HttpHeaders, body: bytes, own: HttpHeaders, attempt: _Attempt
    ) -> EndpointResponse | DeliveryOutcome:
        first = url
        for _ in range(MAX_REDIRECTS + 1):
            is_home = url.origin() == first.origin()
            sent = [*headers, *own] if is_home else headers
            trusting = attempt._replace(is_trusted=attempt.is_trusted and is_home)
            response = await self._post(url, sent, body, trusting)
            if isinstance(response, DeliveryOutcome) or response.status not in _REDIRECTS:
                return response
            target = response.location
            if response.status not in _FOLLOWED or not target:
                return DeliveryOutcome(
                    text=f"HTTP {response.status}: a redirect that is not followed (307 and 308 "
                    "are); name the URL itself"
                )
            following = _next(url, target)
            if isinstance(following, DeliveryOutcome):
                return following
            url = following
        return DeliveryOutcome(text=f"more than {MAX_REDIRECTS} redirects")

    async def _post(
        self, url: URL, headers: HttpHeaders, body: bytes, attempt: _Attempt
    ) -> EndpointResponse | DeliveryOutcome:
        """Send one request, or two: if the endpoint closes a persistent connection at that very
        moment, this is no failure of the endpoint.
        """
        target = _Target(url.host or "")
        token = _target.set(target)
        try:
            while True:
                target.is_new_connection = False
                response = await self._request(url, headers, body, attempt)
                if response is not None:
                    return response
                if target.is_new_connection:
                    return DeliveryOutcome(text="the endpoint closed the connection without an answer")
        finally:
            _target.reset(token)

    async def _request(
        self, url: URL, headers: HttpHeaders, body: bytes, attempt: _Attempt
    ) -> EndpointResponse | DeliveryOutcome | None:
        """Send one request. Return None if the connection was closed, or broke, before a response
        began.
        """
        data = body if len(body) < _LARGE_BYTES else io.BytesIO(body)
        try:
            async with self._session(is_trusted=attempt.is_trusted).post(
                url,
                data=data,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=attempt.timeout_s * _CONNECT_SHARE),
            ) as response:
                return EndpointResponse(
                    response.status,
                    await _beginning(response, attempt),
                    response.headers.get("Retry-After", ""),
                    response.headers.get("Location", ""),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return DeliveryOutcome(
                text=_target.get().refusal or f"cannot connect: {_text_of(error)}", was_reached=False
            )
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            return DeliveryOutcome(text=f"no answer that can be read: {_text_of(error)}")

    def _session(self, *, is_trusted: bool) -> aiohttp.ClientSession:
        if is_trusted not in self._sessions:
            connector = aiohttp.TCPConnector(
                limit=0,
                ssl=self._tls,
                resolver=self._resolver or self._resolver_threads,
                keepalive_timeout=_KEEP_ALIVE_S,
                socket_factory=partial(self._open_socket, is_trusted=is_trusted),
            )
            self._sessions[is_trusted] = aiohttp.ClientSession(
                connector=connector,
                connector_owner=True,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"Sparrow/{VERSION}", "Accept-Encoding": "identity"},
                trust_env=False,
            )
        return self._sessions[is_trusted]

    def _open_socket(self, address_info: aiohttp.AddrInfoType, *, is_trusted: bool) -> socket.socket:
        family, kind, protocol, _, address = address_info
        target = _target.get()
        found = ip_address(str(address[0]).partition("%")[0])
        refusal = self._addresses.refusal(found, target.host, is_trusted=is_trusted)
        if refusal is not None:
            target.refusal = refusal
            raise RefusedAddress(refusal)
        target.is_new_connection = True
        created = socket.socket(family=family, type=kind, proto=protocol)
        if family in (socket.AF_INET, socket.AF_INET6):
            created.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return created


def _next(url: URL, location: str) -> URL | DeliveryOutcome:
    """Return the URL of a redirect, or the reason why it is not followed."""
    joined = urljoin(str(url), location)
    try:
        new_settings({"url": joined})
    except InvalidConfig as error:
        return DeliveryOutcome(text=f"a redirect to a URL that cannot be used: {error.text}")
    target = URL(joined, encoded=True)
    if url.scheme == "https" and target.scheme != "https":
        return DeliveryOutcome(text="a redirect from https to http, which is not followed")
    return target


async def _beginning(response: aiohttp.ClientResponse, attempt: _Attempt) -> bytes:
    """Read the first bytes of the body. Return b"" if it breaks off or does not end in time: the
    status is known nevertheless.

    A connection whose response was not read to its end is not used again.
    """
    parts: list[bytes] = []
    room = MAX_BODY_BYTES
    try:
        async with asyncio.timeout_at(attempt.until_s - attempt.timeout_s * _RESERVED_SHARE):
            while room > 0 and (part := await response.content.read(room)):
                parts.append(part)
                room -= len(part)
    except (aiohttp.ClientError, TimeoutError):
        response.close()
        return b""
    if not response.content.at_eof():
        response.close()
    return b"".join(parts)


def _text_of(error: BaseException) -> str:
    """Return the message of a library's error, on one line and not too long."""
    # Some errors contain the whole URL, which may contain a secret.
    message = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    text = " ".join((message or type(error).__name__).split())
    return text if len(text) <= 300 else f"{text[:300]}…"


def tls_context(ca_path: str) -> ssl.SSLContext:
    """Return the TLS context with the system's authorities and those of a file. Reads files.

    Raises:
        InvalidConfig: the file cannot be used.
    """
    context = ssl.create_default_context()
    if ca_path:
        try:
            context.load_verify_locations(ca_path)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidConfig(
                f"webhooks.ca: {ca_path!r} cannot be used ({error}); it is a PEM file with "
                "certificates of authorities"
            ) from None
    return context
