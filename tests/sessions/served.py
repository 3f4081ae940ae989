"""A whole server in the loop of the test, with certificates, and one raw connection of each kind to
it.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import connect as connect_websocket

from sparrow.base.settings import build
from sparrow.server.config import ServerConfig
from sparrow.server.server import Server
from tests.native_frontend.raw import RawClient
from tests.security.test_sasl_frontend import RawKafka

END_S = 5.0
"""Seconds within which a session must have ended."""
KINDS = ("native", "kafka", "stream", "page", "websocket")
ADMINISTRATOR = frozenset({"User:root"})


class Authority:
    """An authority with a key; issues certificates and revocation lists as files below `path`."""

    def __init__(self, path: Path, name: str = "ca") -> None:
        self._path = path
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = str(path / f"{name}.pem")
        ca = self._signed(self._name, self._key.public_key(), is_ca=True)
        Path(self.file).write_bytes(ca.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> x509.Certificate:
        """Write a certificate as NAME.pem with its key as NAME.key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key())
        (self._path / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        (self._path / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made

    def revoke(self, *certificates: x509.Certificate) -> bytes:
        """Return a list of revoked certificates as PEM."""
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - dt.timedelta(days=1))
            .next_update(now + dt.timedelta(days=1))
        )
        for each in certificates:
            made = made.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(each.serial_number)
                .revocation_date(now)
                .build()
            )
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _signed(self, name: x509.Name, key: Any, *, is_ca: bool = False) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(_usage(is_ca=is_ca), critical=True)
            .sign(self._key, hashes.SHA256())
        )


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


class Connection:
    """One client. `is_over` waits for the end that the broker makes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def is_over(self, seconds: float = END_S) -> bool:
        """Return True if the connection ends within the time; drop all bytes until then."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(1 << 16):
                    pass
        except TimeoutError:
            return False
        except (ConnectionError, ssl.SSLError):
            return True
        return True

    async def close(self) -> None:
        self.writer.transport.abort()


class WebSocket:
    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def is_over(self, seconds: float = END_S) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._socket.wait_closed()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        await self._socket.close()


class Served:
    """A running server and ways to connect to it."""

    def __init__(self, server: Server, stack: AsyncExitStack) -> None:
        self.server = server
        self._stack = stack

    @property
    def broker(self) -> Any:
        return self.server._broker

    async def open(
        self, kind: str, login: dict[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> Any:
        """Open a logged-in connection of a kind that then waits: an idle native one, a stream, a
        long poll …
        """
        connection = await getattr(self, f"_{kind}")(login or {}, tls)
        self._stack.push_async_callback(connection.close)
        return connection

    async def certificate(self, kind: str, tls: ssl.SSLContext) -> bytes:
        """Return the certificate that a listener shows a new client, as DER."""
        connection = await self.open(kind, None, tls)
        shown = connection.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return cast("bytes", shown)

    async def _dial(self, address: str, tls: ssl.SSLContext | None) -> Connection:
        port = int(address.rpartition(":")[2])
        name = None if tls is None else "localhost"
        return Connection(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name))

    async def _native(self, login: dict[str, str], tls: ssl.SSLContext | None) -> Connection:
        ready = self.server.ready
        assert ready is not None
        connection = await self._dial(f":{ready.port}", tls)
        await RawClient(connection.reader, connection.writer).hello(credentials=login)
        return connection

    async def _kafka(self, login: dict[str, str], tls: ssl.SSLContext | None) -> Connection:
        assert self.server.ready is not None
        connection = await self._dial(self.server.ready.kafka, tls)
        client = RawKafka(connection.reader, connection.writer)
        if login:
            name = login.get("user", "robot")
            secret = login.get("password") or login["token"]
            response = await client.login(f"\0{name}\0{secret}".encode())
            assert response.error_code == 0, response
        else:
            await client.ask(18, 0)
        return connection

    async def _stream(self, login: dict[str, str], tls: ssl.SSLContext | None) -> Connection:
        return await self._http("/v1/topics/orders/stream", login, tls)

    async def _page(self, login: dict[str, str], tls: ssl.SSLContext | None) -> Connection:
        """Send a request that waits for messages; only its connection shows its end."""
        path = "/v1/topics/orders/messages?from=end&wait_ms=60000"
        connection = await self._http(path, login, tls, has_head=False)
        before = asyncio.get_running_loop().time()
        while not self.broker.sessions._open or self._waiting() == 0:
            assert asyncio.get_running_loop().time() < before + END_S
            await asyncio.sleep(0.01)
        return connection

    def _waiting(self) -> int:
        """Return requests and connections of all kinds that depend on a login."""
        return sum(map(self.broker.sessions.count, self.broker.sessions._open))

    async def _http(
        self, path: str, login: dict[str, str], tls: ssl.SSLContext | None, *, has_head: bool = True
    ) -> Connection:
        assert self.server.ready is not None
        connection = await self._dial(self.server.ready.http, tls)
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", *authorization(login), "", ""]
        connection.writer.write("\r\n".join(lines).encode())
        if has_head:
            head = await asyncio.wait_for(connection.reader.readuntil(b"\r\n\r\n"), 10)
            assert head.startswith(b"HTTP/1.1 200"), head
        return connection

    async def _websocket(self, login: dict[str, str], tls: ssl.SSLContext | None) -> WebSocket:
        assert self.server.ready is not None
        port = self.server.ready.http.rpartition(":")[2]
        headers = dict(line.split(": ", 1) for line in authorization(login))
        scheme = "ws" if tls is None else "wss"
        socket = await connect_websocket(
            f"{scheme}://localhost:{port}/v1/ws", additional_headers=headers, ssl=tls, proxy=None
        )
        return WebSocket(socket)


def authorization(login: dict[str, str]) -> list[str]:
    """Return the HTTP header of the credentials, if there are any."""
    if "token" in login:
        return [f"Authorization: Bearer {login['token']}"]
    if "user" in login:
        pair = base64.b64encode(f"{login['user']}:{login['password']}".encode()).decode()
        return [f"Authorization: Basic {pair}"]
    return []


async def serve(stack: AsyncExitStack, path: Path, **options: Any) -> Served:
    """Yield a server on free ports with a topic "orders". `options` are those of `ServerConfig`;
    `read_again` is the server's.
    """
    read_again = options.pop("read_again", None)
    config = build(ServerConfig, config_of(path, **options))
    server = Server(config, read_again=read_again)
    await server.start()
    stack.push_async_callback(server.stop, 0.2)
    served = Served(server, stack)
    if served.broker.parts.topic_registry.find("orders") is None:
        await served.broker.parts.topic_registry.create("orders", 1, {})
    return served


def config_of(path: Path, **options: Any) -> dict[str, Any]:
    """Return the options of a server whose data is below `path`."""
    return {
        "data_dir": str(path / "data"),
        "native_port": 0,
        "kafka_port": 0,
        "kafka_host": "127.0.0.1",
        "http_port": 0,
        "super_users": ADMINISTRATOR,
        "acl_default": True,
        **options,
    }
