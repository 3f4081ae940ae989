"""Declarations of the Kafka listeners in the configuration.

One listener comes from `kafka.host`, `kafka.port` and `kafka.advertised`; `kafka.listeners` adds
others for other networks, each with its own name.
"""

from __future__ import annotations

from msgspec import Struct

from sparrow.base.settings import TEXT, TEXT_SCHEMA, TEXTS_SCHEMA, WORDS, Kind, integer, schema_of

OFF = -1
UNSET = -2
"""A port that was not set."""
DEFAULT_NAME = "kafka"
PORT = integer(0, 65535)
PLAIN = "PLAIN"
SASL_MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")


class ListenerDeclaration(Struct, frozen=True):
    """A listener as configured.

    `advertised_host` "" and `advertised_port` -1: the address that the client connected to. `sasl`
    None: required when tokens or users are configured. `tls`: used once there is a certificate.
    """

    name: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = -1
    sasl: bool | None = None
    tls: bool = True
    sasl_mechanisms: tuple[str, ...] = ()
    """Mechanisms that clients may log in by; empty: all."""

    def needs_login(self, *, authenticated: bool) -> bool:
        """Return True if clients must log in. `authenticated`: tokens or users are configured."""
        return authenticated if self.sasl is None else self.sasl


def _read_mechanisms(given: object) -> tuple[str, ...]:
    mechanisms = tuple(each.upper() for each in WORDS.read(given))
    if not set(mechanisms) <= set(SASL_MECHANISMS):
        raise ValueError(f"some of {', '.join(SASL_MECHANISMS)}")
    return mechanisms


def _read_host(given: object) -> str:
    host = TEXT.read(given)
    try:
        host.encode("ascii" if host.isascii() else "idna")
        is_name = all(0 < len(part) < 64 for part in host.removesuffix(".").split(".")) or ":" in host
    except UnicodeError:
        is_name = False
    if host and (not is_name or not host.isprintable() or " " in host):
        raise ValueError("the name or address of this machine")
    return host


def _read_port(given: object) -> int:
    # YAML reads a bare `off` as false.
    if given is False or (isinstance(given, str) and given.lower() == "off"):
        return OFF
    try:
        return int(PORT.read(given))
    except ValueError:
        raise ValueError("a whole number from 0 to 65535, or off") from None


def split_address(text: str) -> tuple[str, int]:
    """Split "host", "host:port" or "[::1]:port" into host and port; the port is -1 where there is
    none.

    Raises:
        ValueError: says what is allowed.
    """
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    # a name, or an IPv6 address without a port
    if not colon or (host.count(":") and not host.endswith("]")):
        return text.strip("[]"), -1
    if not port.isdecimal() or not 1 <= int(port) <= 65535 or not host:
        raise ValueError("host, or host:port")
    return host.strip("[]"), int(port)


def _read_address(given: object) -> str:
    text = TEXT.read(given)
    split_address(text)
    return text


PORT_OR_OFF = Kind("port", _read_port, schema={"anyOf": [schema_of(PORT), {"enum": ["off", False]}]})
HOST = Kind("host", _read_host, schema=TEXT_SCHEMA)
MECHANISMS = Kind("mechanism", _read_mechanisms, repeats=True, schema=TEXTS_SCHEMA)
ADDRESS = Kind("host[:port]", _read_address, schema=TEXT_SCHEMA)
