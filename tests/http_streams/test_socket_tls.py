"""WebSockets with TLS: the certificate identifies the client, and the closing frame can be read."""

from __future__ import annotations

import ssl

import pytest
import websockets

from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, ResourceType
from sparrow.broker.config import BrokerConfig
from tests.http_frontend.conftest import MakeHttp
from tests.http_streams.conftest import Socket
from tests.security.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_of(certificates: Certificates) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of the broker, which asks for certificates, and of the client."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.server.certificate, certificates.server.key)
    server.load_verify_locations(certificates.ca)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=certificates.ca)
    client.load_cert_chain(certificates.client.certificate, certificates.client.key)
    return server, client


@pytest.mark.slow
async def test_a_certificate_says_who_a_socket_is(make_http: MakeHttp, certificates: Certificates) -> None:
    server, client = tls_of(certificates)
    http = await make_http(
        tls=server, tokens={"robot": "t0ken"}, config=BrokerConfig(allow_unnamed_resources=False)
    )
    await http.broker.topics.create("t", 1, principal=SYSTEM)
    who = f"User:{certificates.client_subject}"
    may = AclBinding(
        ResourceType.TOPIC, "t", PatternType.LITERAL, who, "*", Operation.WRITE, Permission.ALLOW
    )
    await http.broker.acls.create([may], principal=SYSTEM)
    async with websockets.connect(f"wss://localhost:{http.port}/v1/ws", ssl=client) as connection:
        socket = Socket(connection)
        await socket.ask("publish", "published", topic="t", message={"value": "x" * 500_000})
        assert await socket.refused("subscribe", subscription="s", topic="t") == "NOT_AUTHORIZED"
        await connection.send(b"binary")
        assert await socket.closed() == 1003
