"""Clients that connect to the wrong port: the errors that native clients, the command line, Spark,
Kafka and HTTP clients get, and the log.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import urllib.error
import urllib.request

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import ConnectionLost, InvalidArgument, ProtocolError, SparrowError
from sparrow.cli import main
from sparrow.protocol.detection import WireProtocol, probe, protocol_of_client, protocol_of_server
from sparrow.spark.wire.session import connect
from sparrow.spark.wire.target import Target
from tests.security.certificates import make_certificates


@pytest.fixture(scope="module")
def plain():
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(certificates):
    options = {"tls_certificate": certificates.server.certificate, "tls_key": certificates.server.key}
    with sparrow.testing.broker(**options) as running:
        yield running


def port_of(address):
    return int(address.rstrip("/").rpartition(":")[2])


def python_says(url, **options):
    """Return the error that the Python client raises."""
    with pytest.raises(SparrowError) as caught, sparrow.sync.connect(url, **options):
        pass
    return caught.value


def command_says(url, capsys, *options):
    capsys.readouterr()
    code = main(["topic", "list", "--url", url, *options])
    assert code == 69
    return capsys.readouterr().err.removeprefix("sparrow: ").rstrip("\n")


def spark_says(url, **options):
    with pytest.raises(SparrowError) as caught:
        connect(Target(url, retries=0, **options))
    return caught.value.text


def all_say(url, capsys, ca_file=None):
    """Return the error of Python, the command line and Spark; it is the same."""
    options = {} if ca_file is None else {"ca_file": ca_file}
    error = python_says(url, **options)
    assert isinstance(error, ProtocolError)
    assert command_says(url, capsys, *([] if ca_file is None else ["--ca-file", ca_file])) == error.text
    assert spark_says(url, **options) == error.text
    return error.text


# ── native clients, the command line, Spark ───────────────────────────────────────────────────────


def test_at_the_kafka_port_a_native_client_is_referred_to_the_native_port(plain, capsys):
    port = port_of(plain.kafka)
    assert all_say(f"sparrow://127.0.0.1:{port}", capsys) == (
        f"127.0.0.1:{port} cannot be used: this is the Kafka port of a Sparrow broker; the native "
        f"port is {plain.port},"
        f" the HTTP port is {port_of(plain.http)}"
    )


def test_at_the_http_port_a_native_client_is_referred_to_the_native_port(plain, capsys):
    port = port_of(plain.http)
    assert all_say(f"sparrow://127.0.0.1:{port}", capsys) == (
        f"at 127.0.0.1:{port} HTTP is spoken, not Sparrow's native protocol; connect to the "
        "broker's native port:"
        f" the native port is {plain.port}"
    )


def test_a_port_with_tls_and_a_client_without(secure, capsys):
    url = f"sparrow://localhost:{secure.port}"
    assert all_say(url, capsys) == (
        f"at localhost:{secure.port} TLS is spoken; a broker's URL begins with sparrows:// then"
    )


def test_a_port_without_tls_and_a_client_with(plain, capsys, certificates):
    assert all_say(f"sparrows://localhost:{plain.port}", capsys, certificates.ca) == (
        f"the broker at localhost:{plain.port} speaks without TLS; its URL begins with sparrow:// then"
    )


@pytest.mark.parametrize("listener", ["kafka", "http"])
def test_another_listener_with_tls_is_named(secure, capsys, certificates, listener):
    port = port_of(getattr(secure, listener))
    said = all_say(f"sparrows://localhost:{port}", capsys, certificates.ca)
    assert str(secure.port) in said
    assert {"kafka": "Kafka", "http": "HTTP"}[listener] in said


@pytest.mark.parametrize("listener", ["kafka", "http"])
def test_another_listener_without_tls_and_a_client_with(plain, capsys, certificates, listener):
    port = port_of(getattr(plain, listener))
    said = all_say(f"sparrows://localhost:{port}", capsys, certificates.ca)
    name = {"kafka": "Kafka's protocol", "http": "HTTP"}[listener]
    assert f"at localhost:{port} {name} is spoken, not Sparrow's native protocol" in said


def test_a_port_without_a_server_is_reported_as_before(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = python_says(f"sparrow://127.0.0.1:{port}", connect_timeout_s=0.3)
        assert isinstance(error, ConnectionLost)
        assert f"no broker can be reached at 127.0.0.1:{port}" in error.text
        assert "check that it runs" in error.text
        assert "no broker can be reached" in command_says(f"sparrow://127.0.0.1:{port}", capsys)


@pytest.mark.parametrize("scheme", ["http", "https", "kafka"])
def test_a_scheme_of_another_protocol_has_an_error_of_its_own(scheme):
    with pytest.raises(InvalidArgument, match="clients and the command line speak the native protocol"):
        sparrow.sync.connect(f"{scheme}://127.0.0.1:9095")


@contextlib.contextmanager
def serving(response):
    """Run a server of another protocol: it answers everything with these bytes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(100)
                        connection.sendall(response)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_another_http_server_is_recognised_without_a_port_to_name():
    with serving(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        error = python_says(f"sparrow://127.0.0.1:{port}")
    assert error.text == (
        f"at 127.0.0.1:{port} HTTP is spoken, not Sparrow's native protocol; connect to the "
        "broker's native port:"
        " it is 9094 by default"
    )


def test_another_broker_of_kafka_is_recognised():
    response = (10).to_bytes(4) + probe()[8:12] + bytes(6)
    with serving(response) as port:
        error = python_says(f"sparrow://127.0.0.1:{port}")
    assert f"at 127.0.0.1:{port} Kafka's protocol is spoken" in error.text


def test_an_unknown_protocol_is_reported_as_it_was():
    with serving(b"SSH-2.0-OpenSSH_9.9\r\n") as port:
        error = python_says(f"sparrow://127.0.0.1:{port}", connect_timeout_s=0.5)
    assert f"127.0.0.1:{port}" in error.text


# ── the others ────────────────────────────────────────────────────────────────────────────────────


def exchange(port, data, tls=None):
    """Return the answer of a port."""
    received = b""
    with socket.create_connection(("localhost", port), 10) as connection:
        connection.settimeout(10)
        with tls.wrap_socket(connection) if tls else contextlib.nullcontext(connection) as used:
            used.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                while piece := used.recv(1000):
                    received += piece
    return received


@pytest.mark.parametrize("port", ["native", "kafka"])
def test_http_at_another_port_is_answered_by_the_http_port(plain, port):
    wrong = plain.port if port == "native" else port_of(plain.kafka)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{wrong}/v1/topics")
    name = {"native": "native", "kafka": "Kafka"}[port]
    assert caught.value.code == 400
    assert (
        caught.value.read()
        .decode()
        .startswith(f"this is the {name} port of a Sparrow broker; the HTTP port is {port_of(plain.http)}, ")
    )


@pytest.mark.parametrize(("port", "name"), [("native", "native"), ("http", "HTTP")])
def test_kafka_at_another_port_is_a_line_of_the_log(plain, port, name, caplog, monkeypatch):
    monkeypatch.setattr("sparrow.frontends.transport.wrong_port.LOG_INTERVAL_S", 0.0)
    wrong = plain.port if port == "native" else port_of(plain.http)
    with caplog.at_level(logging.WARNING, "sparrow.ports"):
        response = exchange(wrong, probe())
    assert protocol_of_server(response) is not WireProtocol.KAFKA
    (line,) = caplog.messages
    assert "speaks Kafka, which this port does not" in line
    assert f"this is the {name} port of a Sparrow broker; the Kafka port is {port_of(plain.kafka)}" in line


@pytest.mark.parametrize("port", ["native", "kafka", "http"])
def test_tls_at_a_port_without_is_a_line_of_the_log(plain, port, caplog, monkeypatch):
    monkeypatch.setattr("sparrow.frontends.transport.wrong_port.LOG_INTERVAL_S", 0.0)
    wrong = {"native": plain.port, "kafka": port_of(plain.kafka), "http": port_of(plain.http)}[port]
    with caplog.at_level(logging.WARNING, "sparrow.ports"), pytest.raises((ssl.SSLError, OSError)):
        exchange(wrong, b"", ssl._create_unverified_context())
    (line,) = caplog.messages
    assert "it is served without TLS" in line


def test_repeated_connections_do_not_fill_the_log(plain, caplog, monkeypatch):
    monkeypatch.setattr("sparrow.frontends.transport.wrong_port.LOG_INTERVAL_S", 3600.0)
    with caplog.at_level(logging.WARNING, "sparrow.ports"):
        for _ in range(5):
            exchange(plain.port, probe())
    assert len(caplog.messages) <= 1


def test_right_clients_are_served_at_each_port(plain):
    with sparrow.sync.connect(plain.url) as client:
        assert client.publish("letters", b"x").offset == 0
    assert protocol_of_server(exchange_once(port_of(plain.kafka), probe())) is WireProtocol.KAFKA
    assert urllib.request.urlopen(f"{plain.http}/v1/topics").status == 200


def exchange_once(port, data):
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(data)
        return connection.recv(1000)


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"GET / HTTP/1.1\r\n", WireProtocol.HTTP),
        (b"POST /v1", WireProtocol.HTTP),
        (bytes.fromhex("0000003001000000000085a8"), WireProtocol.NATIVE),
        (probe(), WireProtocol.KAFKA),
        (bytes.fromhex("1603010200010001fc0303"), WireProtocol.TLS),
        (b"", None),
        (b"\x16", None),
        (b"\xff" * 16, None),
        (bytes(4) + b"\x02" + bytes(5), None),
    ],
)
def test_first_bytes_identify_the_protocol_of_a_client(first, protocol):
    assert protocol_of_client(first) is protocol
