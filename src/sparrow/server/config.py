"""What a server is told: every option, declared once (see `sparrow.base.options`).

The file is `sparrow.yml` in the working directory if there is one, or the one that `--config` or `SPARROW_CONFIG` names.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.base.options import (
    BOOLEAN,
    PAIRS,
    PATH,
    TEXT,
    Kind,
    Located,
    Option,
    Resolved,
    choice,
    duration,
    integer,
    option,
    options_of,
    resolve,
    size,
)
from sparrow.base.units import plain_topic_config
from sparrow.server.listeners import (
    ADDRESS,
    DEFAULT_NAME,
    LISTENERS,
    OFF,
    PORT_OR_OFF,
    ListenerDeclaration,
    split_address,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_FILE = "sparrow.yml"
CONFIG_FLAG = "--config"
CONFIG_VARIABLE = "SPARROW_CONFIG"
IN_WORDS = "without authentication"
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TopicDeclaration:
    """A topic that exists after the start: created if missing, never changed. `partitions` -1: the broker's default."""

    name: str
    partitions: int
    config: Mapping[str, str]


def _read_topics(given: object) -> tuple[TopicDeclaration, ...]:
    if not isinstance(given, list):
        raise ValueError("a list of topics, each with name, partitions and config")  # noqa: TRY004 - what readers raise
    return tuple(_read_topic(entry) for entry in given)


def _read_topic(entry: object) -> TopicDeclaration:
    if isinstance(entry, str):
        return TopicDeclaration(entry, -1, {})
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValueError("topics that have a name")  # noqa: TRY004
    unknown = sorted(str(key) for key in set(entry) - {"name", "partitions", "config"})
    if unknown:
        raise ValueError(f"name, partitions and config for a topic, not {unknown[0]!r}")
    partitions = integer(1, 10_000).read(entry["partitions"]) if "partitions" in entry else -1
    return TopicDeclaration(
        entry["name"], partitions, plain_topic_config(PAIRS.read(entry.get("config") or {}))
    )


def _read_topic_config(given: object) -> dict[str, str]:
    return plain_topic_config(PAIRS.read(given))


_TOPICS = Kind("list of topics", _read_topics)
_TOPIC_CONFIG = Kind("name=value", _read_topic_config, repeats=True)


def _read_directory(given: object) -> str:
    path = TEXT.read(given)
    if not path.strip():
        raise ValueError("the path of a directory")
    return path


def _read_words(given: object) -> str:
    if given not in {"", IN_WORDS}:
        raise ValueError(f'only the words "{IN_WORDS}"')
    return str(given)


def _read_tokens(given: object) -> dict[str, str]:
    tokens = PAIRS.read(given)
    empty = [name for name, token in tokens.items() if not token]
    if empty:
        raise ValueError(f"a token for every principal; that of {empty[0]!r} is empty")
    return tokens


def _read_principals(given: object) -> frozenset[str]:
    """Names or "Type:name", from a list or from one text with semicolons between (a name may hold commas: CN=a,O=b)."""
    listed = given if isinstance(given, list) else str(given).split(";")
    texts = [TEXT.read(each).strip() for each in listed]
    principals = frozenset(text if ":" in text else f"User:{text}" for text in texts if text)
    if any(not kind or not name for kind, _, name in (each.partition(":") for each in principals)):
        raise ValueError("principals, such as alice or User:alice")
    return principals


_PRINCIPALS = Kind("principal", _read_principals, repeats=True)
_IN_WORDS = Kind("words", _read_words)
_DIRECTORY = Kind("path", _read_directory)
_TOKENS = Kind("name=value", _read_tokens)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Everything that `sparrow serve` can be told. Times in ms, sizes in bytes."""

    data_dir: str = option(
        "data_dir", _DIRECTORY, "./sparrow-data", "Directory that holds all data; made when missing."
    )
    native_host: str = option("native.host", TEXT, "127.0.0.1", "Address on which the native door listens.")
    native_port: int = option(
        "native.port", integer(0, 65535), 9094, "Port of the native door; 0 takes a free one."
    )
    kafka_host: str = option(
        "kafka.host",
        TEXT,
        "localhost",
        "Address on which the Kafka door listens; localhost: IPv4 and IPv6 loopback.",
    )
    kafka_port: int = option(
        "kafka.port",
        PORT_OR_OFF,
        9092,
        "Port of the Kafka door; 0 takes a free one, off closes the door.",
    )
    kafka_advertised: str = option(
        "kafka.advertised",
        ADDRESS,
        "",
        "Address that Kafka clients are told to use. None: the one at which they came in.",
        show="none",
    )
    kafka_listeners: tuple[ListenerDeclaration, ...] = option(
        "kafka.listeners",
        LISTENERS,
        (),
        "More listeners of the Kafka door, for other networks: name, host, port, advertised.",
        flag="",
        environment="",
        show="none",
    )
    tokens: Mapping[str, str] = option(
        "tokens",
        _TOKENS,
        {},
        "Who may connect: principal and token. None: everybody, as ANONYMOUS.",
        flag="",
        show="none",
        secret=True,
    )
    tokens_file: str = option(
        "tokens_file",
        PATH,
        "",
        "File with one 'principal token' per line, in addition to tokens.",
        show="none",
    )
    insecure_public_listen: str = option(
        "insecure_public_listen",
        _IN_WORDS,
        "",
        f'The words "{IN_WORDS}" allow an address that other machines reach although there are no tokens.',
        show="not allowed",
    )
    super_users: frozenset[str] = option(
        "super_users",
        _PRINCIPALS,
        frozenset(),
        "Principals who may do everything, whatever the access rules say.",
        show="none",
    )
    acl_default: str = option(
        "acl.default",
        choice("allow", "deny"),
        "allow",
        "Whether everybody may use what no access rule names.",
    )
    auto_create_topics: bool = option(
        "auto_create_topics",
        BOOLEAN,
        True,
        "Publishing or subscribing to a missing topic creates it.",
        show="true",
    )
    default_partitions: int = option(
        "default_partitions", integer(1, 10_000), 4, "Partitions of a topic when nobody says how many."
    )
    topic_defaults: Mapping[str, str] = option(
        "default_topic_config",
        _TOPIC_CONFIG,
        {},
        "Configuration of topics that do not set their own, such as retention.ms=1d.",
        show="none",
    )
    topics: tuple[TopicDeclaration, ...] = option(
        "topics", _TOPICS, (), "Topics made at the start when missing.", flag="", environment="", show="none"
    )
    max_frame_bytes: int = option(
        "max_frame", size(64 << 10, 1 << 30), 16 << 20, "Largest frame that a client may send.", show="16 MiB"
    )
    max_connections: int = option(
        "max_connections", integer(1, 1_000_000), 10_000, "Connections at a time; more are refused."
    )
    receive_budget_bytes: int = option(
        "receive_budget",
        size(1 << 20, 1 << 40),
        256 << 20,
        "Memory for frames that are being received, all connections together.",
        show="256 MiB",
    )
    idle_timeout_ms: int = option(
        "idle_timeout",
        duration(1000, _DAY_MS),
        60_000,
        "A connection silent for so long is closed.",
        show="60s",
    )
    flush_interval_ms: int = option(
        "flush_interval",
        duration(1, _DAY_MS),
        1000,
        "Records that nobody waits for (acks 0 and 1) are synced at the latest after this.",
        show="1s",
    )
    reserve_bytes: int = option(
        "reserve",
        size(0, 1 << 50),
        64 << 20,
        "Room kept free on the disk; publishing is refused below it (at most 5 % of the disk).",
        show="64 MiB",
    )
    drain_timeout_ms: int = option(
        "drain_timeout", duration(0, 3_600_000), 10_000, "How long a stop waits for clients.", show="10s"
    )
    log_level: str = option(
        "log.level", choice("debug", "info", "warning", "error"), "info", "Least important messages logged."
    )
    log_format: str = option(
        "log.format",
        choice("auto", "text", "json"),
        "auto",
        "How logs are written to stderr; auto: text on a terminal, else JSON lines.",
    )
    ready_file: str = option(
        "ready_file",
        PATH,
        "",
        "File written once clients can connect: JSON with pid, port and URL.",
        show="none",
    )


def kafka_listeners(config: ServerConfig) -> tuple[ListenerDeclaration, ...]:
    """All listeners of the Kafka door; none when it is off."""
    if config.kafka_port == OFF:
        return config.kafka_listeners
    first = ListenerDeclaration(
        DEFAULT_NAME, config.kafka_host, config.kafka_port, *split_address(config.kafka_advertised)
    )
    return (first, *config.kafka_listeners)


def load(flags: Mapping[str, object], environment: Mapping[str, str]) -> tuple[ServerConfig, Resolved]:
    """The configuration that holds, from flags (option name → text), environment and file.

    Raises:
        InvalidConfig: names every wrong value with its place.
    """
    options = options_of(ServerConfig)
    given = {name: value for name, value in flags.items() if name != "config"}
    file = _read_file(flags.get("config"), environment, options)
    resolved = resolve(options, flags=given, environment=environment, file=file)
    return ServerConfig(**resolved.values), resolved


def _read_file(flag: object, environment: Mapping[str, str], options: list[Option]) -> dict[str, Located]:
    named = str(flag) if flag is not None else environment.get(CONFIG_VARIABLE)
    if named is None and not os.path.exists(DEFAULT_FILE):
        return {}
    # PyYAML costs 50 ms; a server without a file does not pay for it.
    from sparrow.base.yamlfile import read_yaml

    return read_yaml(named or DEFAULT_FILE, [each.key for each in options])


def check_exposure(config: ServerConfig, *, authenticated: bool) -> None:
    """Refuse to listen where other machines come in unless they must say who they are.

    Raises:
        InvalidConfig: says what to set.
    """
    if config.insecure_public_listen == IN_WORDS:
        return
    open_doors = [] if authenticated else [("native.host", config.native_host)]
    open_doors += [
        (f"the host of the Kafka listener {each.name!r}", each.host)
        for each in kafka_listeners(config)
        if not each.sasl
    ]
    public = next(((what, host) for what, host in open_doors if not is_loopback(host)), None)
    if public is None:
        return
    what, host = public
    raise InvalidConfig(
        f"{what} is {host!r}: other machines could connect, and no tokens say who may."
        " Set tokens or tokens_file, or listen on 127.0.0.1; if everybody may really publish, read and delete, say"
        f' insecure_public_listen: "{IN_WORDS}"'
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; a name must resolve to loopback addresses alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)} if host else set()
    except OSError:
        return False
    return bool(found) and all(
        ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found
    )
