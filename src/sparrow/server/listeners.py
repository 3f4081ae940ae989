"""Where the Kafka door listens: the declarations of the configuration.

One listener comes from `kafka.host`, `kafka.port` and `kafka.advertised`; `kafka.listeners` adds others for other networks, each
with a name of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparrow.base.options import BOOLEAN, TEXT, Kind, integer

OFF = -1
UNSET = -2
"""Of a port: nothing was said about it."""
DEFAULT_NAME = "kafka"
_KEYS = ("name", "host", "port", "advertised", "sasl", "tls")
_PORT = integer(0, 65535)


@dataclass(frozen=True, slots=True)
class ListenerDeclaration:
    """A listener as configured.

    `advertised_host` "" and `advertised_port` -1: what the client came in by. `sasl` None: when tokens or users are configured. `tls`:
    once there is a certificate.
    """

    name: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = -1
    sasl: bool | None = None
    tls: bool = True

    def needs_login(self, *, authenticated: bool) -> bool:
        """Whether clients must log in. `authenticated`: tokens or users are configured."""
        return authenticated if self.sasl is None else self.sasl


def _read_port(given: object) -> int:
    # YAML reads a bare `off` as false.
    if given is False or (isinstance(given, str) and given.lower() == "off"):
        return OFF
    try:
        return int(_PORT.read(given))
    except ValueError:
        raise ValueError("a whole number from 0 to 65535, or off") from None


def split_address(text: str) -> tuple[str, int]:
    """Host and port of "host", "host:port" or "[::1]:port"; the port is -1 where there is none.

    Raises:
        ValueError: says what is allowed.
    """
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon or (host.count(":") and not host.endswith("]")):  # a name, or an IPv6 address without a port
        return text.strip("[]"), -1
    if not port.isdecimal() or not 1 <= int(port) <= 65535 or not host:
        raise ValueError("host, or host:port")
    return host.strip("[]"), int(port)


def _read_address(given: object) -> str:
    text = TEXT.read(given)
    split_address(text)
    return text


def _read_listeners(given: object) -> tuple[ListenerDeclaration, ...]:
    if not isinstance(given, list):
        raise ValueError(f"a list of listeners, each with {', '.join(_KEYS)}")  # noqa: TRY004 - what readers raise
    found = tuple(_read_listener(entry) for entry in given)
    names = [each.name for each in found]
    doubled = sorted({name for name in names if names.count(name) > 1 or name == DEFAULT_NAME})
    if doubled:
        raise ValueError(f"listeners with names of their own; {doubled[0]!r} stands twice")
    return found


def _read_listener(entry: object) -> ListenerDeclaration:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or "port" not in entry:
        raise ValueError("listeners that have a name and a port")
    unknown = sorted(str(key) for key in set(entry) - set(_KEYS))
    if unknown:
        raise ValueError(f"{', '.join(_KEYS)} for a listener, not {unknown[0]!r}")
    advertised_host, advertised_port = split_address(_read_address(entry.get("advertised", "")))
    return ListenerDeclaration(
        entry["name"],
        TEXT.read(entry.get("host", "")),
        int(_PORT.read(entry["port"])),
        advertised_host,
        advertised_port,
        None if entry.get("sasl") is None else BOOLEAN.read(entry["sasl"]),
        BOOLEAN.read(entry.get("tls", True)),
    )


PORT_OR_OFF = Kind("port", _read_port)
ADDRESS = Kind("host[:port]", _read_address)
LISTENERS = Kind("list of listeners", _read_listeners)
