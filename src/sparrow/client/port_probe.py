"""A probe of an address where the native protocol is not spoken, so that the error says which port
or scheme is right.

It runs once, when the first connection fails in a way that a wrong port would explain, and opens
one or two connections of its own, each with a short limit. Blocking: the async client runs it in a
thread.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import ConnectionLost, ProtocolError, TimedOut
from sparrow.client.url import DEFAULT_PORT
from sparrow.protocol.detection import WireProtocol, probe, protocol_of_server

if TYPE_CHECKING:
    from sparrow.base.errors import SparrowError
    from sparrow.client.url import Address

LIMIT_S: Final = 1.0
"""Limit of each step."""
_RESPONSE_BYTES: Final = 4096
_NATIVE_PORT: Final = re.compile(rb"the native port is (\d{1,5})")
_NAMES: Final = {WireProtocol.KAFKA: "Kafka's protocol", WireProtocol.HTTP: "HTTP", WireProtocol.TLS: "TLS"}


class ProbeResult(Struct, frozen=True):
    """The protocol at an address. `protocol` is None for an unknown one, or for silence."""

    protocol: WireProtocol | None
    has_tls: bool
    native_port: int | None = None
    """The native port that the peer named."""


def may_be_wrong_port(error: BaseException) -> bool:
    """Return True if a failed connection may have reached a port with another protocol.

    False if nothing answered at all.
    """
    if isinstance(error, ProtocolError):
        return True
    cause = error.__context__
    if isinstance(cause, TimedOut):
        return False
    broken = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
    is_silent = isinstance(cause, OSError) and not isinstance(cause, broken)
    return isinstance(error, ConnectionLost) and not is_silent


def explain(address: Address, error: SparrowError, heard: bytes = b"") -> SparrowError:
    """Return an error that names the protocol at an address, or `error` itself if that is not
    known.

    Args:
        heard: bytes that the peer sent on the connection that failed; if they suffice, no
            connection is opened.
    """
    is_http = protocol_of_server(heard) is WireProtocol.HTTP
    result = (
        ProbeResult(WireProtocol.HTTP, address.has_tls, _port_in(heard)) if is_http else _probe_both(address)
    )
    if result is None:
        return error
    if (
        result.protocol in (None, WireProtocol.TLS, WireProtocol.NATIVE)
        and result.has_tls
        and not address.has_tls
    ):
        return ProtocolError(f"at {address} TLS is spoken; a broker's URL begins with sparrows:// then")
    if result.protocol is WireProtocol.NATIVE and not result.has_tls and address.has_tls:
        return ProtocolError(
            f"the broker at {address} speaks without TLS; its URL begins with sparrow:// then"
        )
    if result.protocol not in (WireProtocol.KAFKA, WireProtocol.HTTP):
        return error
    port = (
        f"the native port is {result.native_port}"
        if result.native_port
        else f"it is {DEFAULT_PORT} by default"
    )
    with_tls = " behind TLS" if result.has_tls else ""
    return ProtocolError(
        f"at {address} {_NAMES[result.protocol]} is spoken{with_tls}, not Sparrow's native protocol; connect "
        f"to the broker's native port: {port}"
    )


def _probe_both(address: Address) -> ProbeResult | None:
    without_tls = _probe(address, has_tls=False)
    if without_tls is not None and without_tls.protocol not in (None, WireProtocol.TLS):
        return without_tls
    return _probe(address, has_tls=True) or without_tls


def _probe(address: Address, *, has_tls: bool) -> ProbeResult | None:
    """Return the protocol of the response to a probe; None if the probe cannot be sent."""
    try:
        with socket.create_connection((address.host, address.port), LIMIT_S) as connection:
            if not has_tls:
                return _exchange(connection, has_tls=False)
            with _trusting_context().wrap_socket(connection, server_hostname=address.host) as secured:
                return _exchange(secured, has_tls=True)
    # ssl.SSLError and TimeoutError are OSErrors; ValueError: a name that TLS does not accept
    except (OSError, ValueError):
        return None


def _exchange(connection: socket.socket, *, has_tls: bool) -> ProbeResult:
    received = b""
    try:
        connection.sendall(probe())
        while len(received) < _RESPONSE_BYTES and (piece := connection.recv(_RESPONSE_BYTES)):
            received += piece
            if protocol_of_server(received) not in (None, WireProtocol.HTTP):
                break
    except OSError:
        pass  # the bytes received before are the response
    return ProbeResult(protocol_of_server(received), has_tls, _port_in(received))


def _port_in(result: bytes) -> int | None:
    found = _NATIVE_PORT.search(result)
    return int(found[1]) if found else None


def _trusting_context() -> ssl.SSLContext:
    """Return a TLS context that trusts every peer: no secret is sent, and only the protocol is read
    from the response.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
