"""POSTs over one pool of kept connections (aiohttp), and only to addresses that the rule allows.

The rule is asked where a socket is made, with the very address that it is to be connected to: whatever a name resolves to, now or the next time, and whichever way an
address is written, nothing gets around that. Endpoints that the configuration trusts have a pool of their own, as a connection that was made for one of them must not
be used for others.

Redirects are followed by hand, 307 and 308 alone (the others would make a GET of it), at most three, never from https to http; at another origin the headers of the
endpoint's own, which may hold credentials, are left out. Of an answer's body so much is read as anybody looks at; a connection with more to come is closed.

This module imports aiohttp: it is itself imported when there is something to deliver to.
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
from sparrow.base.version import version
from sparrow.broker.webhooks.endpoint import new_settings
from sparrow.frontends.webhook.answers import Answer, Outcome
from sparrow.frontends.webhook.names import Names
from sparrow.frontends.webhook.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aiohttp.abc import AbstractResolver

    from sparrow.broker.webhooks.addresses import Addresses
    from sparrow.frontends.webhook.formats import HttpHeaders

MAX_BODY_BYTES: Final = 64 << 10
MAX_REDIRECTS: Final = 3
_FOLLOWED: Final = (307, 308)
_REDIRECTS: Final = range(300, 400)
_KEEP_ALIVE_S: Final = 30.0
_CONNECT_SHARE: Final = 0.5
"""Of the time for an attempt, what making the connection may take."""
_RESERVED_SHARE: Final = 0.1
"""A body is read until so much of the time is left."""
_LARGE_BYTES: Final = 1 << 20
"""From here on a body is written in pieces, so that the loop does other things between them."""


class _Attempt(NamedTuple):
    """How long it may take, until when (loop time) that is, and whether it may go to private addresses."""

    timeout_s: float
    until_s: float
    is_trusted: bool


class _Target:
    """Where the request of a task goes, and why it was refused."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.refusal: str | None = None
        self.is_connected_anew = False


_target: ContextVar[_Target] = ContextVar("target")


class RefusedAddress(OSError):
    """The rule says no to the address of a connection."""


class Poster:
    """One for the door. Loop thread only.

    Args:
        max_connections: requests at a time; more wait.
        resolver: what to ask for addresses instead of the system.
    """

    def __init__(
        self,
        addresses: Addresses,
        *,
        max_connections: int,
        tls: ssl.SSLContext,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._addresses = addresses
        self._tls = tls
        self._resolver = resolver
        self._names = Names()
        self._turns = Turns(max_connections)
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
        who: Hashable,
    ) -> Answer | Outcome:
        """POST, and what came back; or an Outcome that says why nothing did.

        Args:
            own: headers for this URL's origin alone.
            who: whose request it is, for the order of turns.
        """
        await self._turns.take(who)
        try:
            attempt = _Attempt(timeout_s, asyncio.get_running_loop().time() + timeout_s, is_trusted)
            try:
                async with asyncio.timeout_at(attempt.until_s):
                    return await self._follow(URL(url, encoded=True), headers, body, own, attempt)
            except TimeoutError:
                return Outcome(text=f"no answer within {timeout_s:g} s")
        finally:
            self._turns.give_back(who)

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()
        await self._names.close()

    async def _follow(
        self, url: URL, headers: HttpHeaders, body: bytes, own: HttpHeaders, attempt: _Attempt
    ) -> Answer | Outcome:
        first = url
        for _ in range(MAX_REDIRECTS + 1):
            is_home = url.origin() == first.origin()
            sent = [*headers, *own] if is_home else headers
            trusting = attempt._replace(is_trusted=attempt.is_trusted and is_home)
            answer = await self._post(url, sent, body, trusting)
            if isinstance(answer, Outcome) or answer.status not in _REDIRECTS:
                return answer
            target = answer.location
            if answer.status not in _FOLLOWED or not target:
                return Outcome(
                    text=f"HTTP {answer.status}: a redirect that is not followed (307 and 308 are); name the URL itself"
                )
            following = _next(url, target)
            if isinstance(following, Outcome):
                return following
            url = following
        return Outcome(text=f"more than {MAX_REDIRECTS} redirects")

    async def _post(self, url: URL, headers: HttpHeaders, body: bytes, attempt: _Attempt) -> Answer | Outcome:
        """One request, or two: a kept connection that its endpoint closed at that very moment says nothing of the endpoint."""
        target = _Target(url.host or "")
        token = _target.set(target)
        try:
            while True:
                target.is_connected_anew = False
                answer = await self._request(url, headers, body, attempt)
                if answer is not None:
                    return answer
                if target.is_connected_anew:
                    return Outcome(text="the endpoint closed the connection without an answer")
        finally:
            _target.reset(token)

    async def _request(
        self, url: URL, headers: HttpHeaders, body: bytes, attempt: _Attempt
    ) -> Answer | Outcome | None:
        """One request; None: the connection was closed, or broke, before an answer began."""
        data = body if len(body) < _LARGE_BYTES else io.BytesIO(body)
        try:
            async with self._session(is_trusted=attempt.is_trusted).post(
                url,
                data=data,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=attempt.timeout_s * _CONNECT_SHARE),
            ) as response:
                return Answer(
                    response.status,
                    await _beginning(response, attempt),
                    response.headers.get("Retry-After", ""),
                    response.headers.get("Location", ""),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return Outcome(
                text=_target.get().refusal or f"cannot connect: {_words(error)}", was_reached=False
            )
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            return Outcome(text=f"no answer that can be read: {_words(error)}")

    def _session(self, *, is_trusted: bool) -> aiohttp.ClientSession:
        if is_trusted not in self._sessions:
            connector = aiohttp.TCPConnector(
                limit=0,
                ssl=self._tls,
                resolver=self._resolver or self._names,
                keepalive_timeout=_KEEP_ALIVE_S,
                socket_factory=partial(self._open_socket, is_trusted=is_trusted),
            )
            self._sessions[is_trusted] = aiohttp.ClientSession(
                connector=connector,
                connector_owner=True,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"Sparrow/{version()}", "Accept-Encoding": "identity"},
                trust_env=False,
            )
        return self._sessions[is_trusted]

    def _open_socket(self, place: aiohttp.AddrInfoType, *, is_trusted: bool) -> socket.socket:
        family, kind, protocol, _, address = place
        target = _target.get()
        found = ip_address(str(address[0]).partition("%")[0])
        refusal = self._addresses.refusal(found, target.host, is_trusted=is_trusted)
        if refusal is not None:
            target.refusal = refusal
            raise RefusedAddress(refusal)
        target.is_connected_anew = True
        made = socket.socket(family=family, type=kind, proto=protocol)
        if family in (socket.AF_INET, socket.AF_INET6):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def _next(url: URL, location: str) -> URL | Outcome:
    """Where a redirect leads, if it may be followed there."""
    joined = urljoin(str(url), location)
    try:
        new_settings({"url": joined})
    except InvalidConfig as error:
        return Outcome(text=f"a redirect to a URL that cannot be used: {error.text}")
    target = URL(joined, encoded=True)
    if url.scheme == "https" and target.scheme != "https":
        return Outcome(text="a redirect from https to http, which is not followed")
    return target


async def _beginning(response: aiohttp.ClientResponse, attempt: _Attempt) -> bytes:
    """The first bytes of the body. None of one that breaks off or has no end in time: the status has been said all the same.

    If it is not all of it, the connection is not used again.
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


def _words(error: BaseException) -> str:
    """What a library's error says, in one line and not too long."""
    # Some tell the whole URL, in which there may be a secret.
    said = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    text = " ".join((said or type(error).__name__).split())
    return text if len(text) <= 300 else f"{text[:300]}…"


def tls_context(ca_path: str) -> ssl.SSLContext:
    """What certificates are checked by: the system's authorities and those of a file. Reads files.

    Raises:
        InvalidConfig: the file cannot be used.
    """
    context = ssl.create_default_context()
    if ca_path:
        try:
            context.load_verify_locations(ca_path)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidConfig(
                f"webhooks.ca: {ca_path!r} cannot be used ({error}); it is a PEM file with certificates of authorities"
            ) from None
    return context
