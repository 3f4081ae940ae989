"""Options of a server, each declared once (see `sparrow.base.settings`).

The file is `sparrow.yml` in the working directory if there is one, or the one that `--config` or
`SPARROW_CONFIG` names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING

from sparrow.base.faults import Fault, Misfit
from sparrow.base.settings import (
    BOOLEAN,
    PAIRS,
    PAIRS_SCHEMA,
    PATH,
    TEXT,
    TEXT_SCHEMA,
    Kind,
    Located,
    Option,
    Resolved,
    build,
    choice,
    deferred,
    duration,
    integer,
    nested,
    option,
    options_of,
    resolve,
)
from sparrow.broker.config import BrokerConfig
from sparrow.frontends.http.limits import HttpLimits
from sparrow.frontends.kafka.limits import KafkaLimits
from sparrow.frontends.listener_limits import ListenerLimits
from sparrow.frontends.native.limits import NativeLimits
from sparrow.frontends.seeds.settings import SeedSettings
from sparrow.frontends.webhook.settings import WebhookSettings
from sparrow.server.cluster_settings import ClusterSettings
from sparrow.server.data_directory import read_mode
from sparrow.server.listeners import (
    ADDRESS,
    DEFAULT_NAME,
    HOST,
    MECHANISMS,
    OFF,
    PORT_OR_OFF,
    UNSET,
    ListenerDeclaration,
    split_address,
)
from sparrow.storage.options import StorageOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.broker.access.acls import AclBinding
    from sparrow.server.bootstrap.pipelines import PipelineDeclaration
    from sparrow.server.bootstrap.queues import QueueDeclaration
    from sparrow.server.bootstrap.schedules import ScheduleDeclaration
    from sparrow.server.bootstrap.topics import TopicDeclaration

DEFAULT_FILE = "sparrow.yml"
CONFIG_FLAG = "--config"
CONFIG_VARIABLE = "SPARROW_CONFIG"
IN_WORDS = "without authentication"
CLEAR_IN_WORDS = "passwords in clear"
_DAY_MS = 86_400_000


def _read_directory(given: object) -> str:
    path = TEXT.read(given)
    if not path.strip():
        raise ValueError("the path of a directory")
    return path


def _only(words: str) -> Kind[str]:
    """Return a kind of option that takes these words alone, so that it is not set by habit."""

    def read(given: object) -> str:
        if given not in ("", words):
            raise ValueError(f'only the words "{words}"')
        return str(given)

    return Kind("words", read, schema={"enum": ["", words]})


def _read_tokens(given: object) -> dict[str, str]:
    tokens = PAIRS.read(given)
    faults = [
        Fault((name,), ": a principal and its token are not empty")
        for name, token in tokens.items()
        if not name or not token
    ]
    faults += _reserved_faults(tokens)
    if faults:
        raise Misfit(faults)
    return tokens


def _reserved_faults(names: Iterable[str]) -> list[Fault]:
    from sparrow.broker.access.authz import RESERVED_NAMES

    return [
        Fault((name,), f": nobody can be named {name!r}; choose another name")
        for name in names
        if name in RESERVED_NAMES
    ]


def _is_text(name: str) -> bool:
    """Return True unless the text has the characters that an environment has in place of bytes that
    are not UTF-8.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_users(given: object) -> dict[str, str]:
    from sparrow.broker.access.credentials import MAX_NAME_BYTES

    users = PAIRS.read(given)
    faults = [
        Fault((name,), ": a user and the password are not empty")
        for name in users
        if not name or not users[name]
    ]
    faults += [
        Fault((name,), ": the name of a user is text in UTF-8") for name in users if not _is_text(name)
    ]
    faults += [
        Fault((name,), f": the name of a user has {MAX_NAME_BYTES} bytes at most")
        for name in users
        if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES
    ]
    faults += _reserved_faults(users)
    if faults:
        raise Misfit(faults)
    return users


def _read_address_limits(given: object) -> dict[str, int]:
    limits = {}
    faults = []
    for text, limit in PAIRS.read(given).items():
        try:
            limits[str(ip_network(text, strict=False))] = _ADDRESS_LIMIT.read(limit)
        except ValueError:
            faults.append(
                Fault((text,), f" cannot be {limit!r}: an address or network and a number from 0 to 1000000")
            )
    if faults:
        raise Misfit(faults)
    return limits


_ADDRESS_LIMIT = integer(0, 1_000_000)
_ADDRESS_LIMITS = Kind("address=limit", _read_address_limits, repeats=True, schema=PAIRS_SCHEMA)
_DIRECTORY = Kind("path", _read_directory, schema=TEXT_SCHEMA)
_MODE = Kind("octal", read_mode, schema=TEXT_SCHEMA)
_TOKENS = Kind("name=value", _read_tokens, schema=PAIRS_SCHEMA)
_USERS = Kind("name=value", _read_users, schema=PAIRS_SCHEMA)
_LOGIN = choice("auto", "required", "off")
_LISTENERS = deferred("sparrow.server.bootstrap.listeners", "LISTENERS", "list of listeners")
_TOPICS = deferred("sparrow.server.bootstrap.topics", "TOPICS", "list of topics")
_QUEUES = deferred("sparrow.server.bootstrap.queues", "QUEUES", "list of queues")
_SCHEDULES = deferred("sparrow.server.bootstrap.schedules", "SCHEDULES", "list of schedules")
_RULES = deferred("sparrow.server.bootstrap.rules", "RULES", "list of access rules")
_PIPELINES = deferred("sparrow.server.bootstrap.pipelines", "PIPELINES", "list of pipelines")


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """All options of `sparrow serve`: those of the server, and the objects with those of its parts.
    Times in ms, sizes in bytes.
    """

    data_dir: str = option(
        "data_dir", _DIRECTORY, "./sparrow-data", "Directory that holds all data; made when missing."
    )
    data_mode: int = option(
        "data_mode",
        _MODE,
        0o700,
        "Permissions of new directories under it, in octal; files get the same without execution. "
        "meta.db stays 0600.",
        show="0700",
    )
    native_host: str = option("native.host", HOST, "127.0.0.1", "Address of the native listener.")
    native_port: int = option(
        "native.port", integer(0, 65535), 9094, "Port of the native listener; 0 takes a free one."
    )
    native_login: str = option(
        "native.login",
        _LOGIN,
        "auto",
        "Require clients of the native listener to log in; auto: when tokens or users are configured.",
    )
    native_tls: bool = option(
        "native.tls",
        BOOLEAN,
        True,
        "Use TLS at the native listener once tls.certificate is set.",
    )
    kafka_host: str = option(
        "kafka.host",
        HOST,
        "localhost",
        "Address of the Kafka listener; localhost: IPv4 and IPv6 loopback.",
    )
    kafka_port: int = option(
        "kafka.port",
        PORT_OR_OFF,
        9092,
        "Port of the Kafka listener; 0 takes a free one, off closes the listener.",
    )
    kafka_advertised: str = option(
        "kafka.advertised",
        ADDRESS,
        "",
        "Address that Kafka clients are to use. None: the one at which they came in.",
    )
    kafka_sasl: str = option(
        "kafka.sasl",
        _LOGIN,
        "auto",
        "Require Kafka clients to log in by SASL; auto: when tokens or users are configured.",
    )
    kafka_sasl_mechanisms: tuple[str, ...] = option(
        "kafka.sasl_mechanisms",
        MECHANISMS,
        (),
        "SASL mechanisms by which Kafka clients may log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
        show="all",
    )
    kafka_tls: bool = option(
        "kafka.tls",
        BOOLEAN,
        True,
        "Use TLS at the Kafka listener once tls.certificate is set.",
    )
    kafka_listeners: tuple[ListenerDeclaration, ...] = option(
        "kafka.listeners",
        _LISTENERS,
        (),
        "More Kafka listeners, for other networks: name, host, port, advertised, sasl, tls, sasl_mechanisms.",
        flag="",
        environment="",
    )
    http_host: str = option(
        "http.host", HOST, "127.0.0.1", "Address of the HTTP listener (API, WebSocket, metrics)."
    )
    http_port: int = option(
        "http.port",
        PORT_OR_OFF,
        9095,
        "Port of the HTTP listener; 0 takes a free one, off closes the listener.",
    )
    http_login: str = option(
        "http.login",
        _LOGIN,
        "auto",
        "Require clients of the HTTP listener to log in; auto: when tokens or users are configured, "
        "or another listener requires it.",
    )
    http_tls: bool = option(
        "http.tls",
        BOOLEAN,
        True,
        "Use TLS at the HTTP listener once tls.certificate is set.",
    )
    seeds_all: bool = option(
        "seeds.all",
        BOOLEAN,
        False,
        "Switch on the listeners for all seed systems (docs/seeds.md) on their own ports.",
        flag="--seeds",
    )
    seeds_host: str = option("seeds.host", HOST, "127.0.0.1", "Address of the listeners for seed systems.")
    seeds_diy_port: int = option(
        "seeds.diy_message_broker.port",
        PORT_OR_OFF,
        UNSET,
        "Port for clients of diy_message_broker; 8080 with seeds.all.",
        show="off",
    )
    seeds_messagebroker_port: int = option(
        "seeds.messagebroker.port",
        PORT_OR_OFF,
        UNSET,
        "Port for clients of messagebroker; 3000 with seeds.all.",
        show="off",
    )
    seeds_mbus_port: int = option(
        "seeds.mbus.port",
        PORT_OR_OFF,
        UNSET,
        "Port for producers of Message Bus (mbus); 9990 with seeds.all.",
        show="off",
    )
    seeds_mbus_consumer_port: int = option(
        "seeds.mbus.consumer_port",
        PORT_OR_OFF,
        UNSET,
        "Port for consumers of Message Bus (mbus); 9991 with seeds.all.",
        show="off",
    )
    seeds_msbq_port: int = option(
        "seeds.msbq.port",
        PORT_OR_OFF,
        UNSET,
        "Port for clients of msbq; 5671 with seeds.all.",
        show="off",
    )
    seeds_syncbrok_port: int = option(
        "seeds.syncbrok.port",
        PORT_OR_OFF,
        UNSET,
        "Port for clients of Syncbrok; 10000 with seeds.all.",
        show="off",
    )
    tokens: Mapping[str, str] = option(
        "tokens",
        _TOKENS,
        {},
        "Tokens and their principals. None: everybody may connect, as ANONYMOUS.",
        flag="",
        secret=True,
    )
    tokens_file: str = option(
        "tokens_file",
        PATH,
        "",
        "File with one 'principal token' per line, in addition to tokens.",
    )
    users: Mapping[str, str] = option(
        "users",
        _USERS,
        {},
        "Users made at the start when missing, never changed: name and password.",
        flag="",
        secret=True,
    )
    users_file: str = option(
        "users_file",
        PATH,
        "",
        "File with one 'user password' per line, in addition to users.",
    )
    tls_certificate: str = option(
        "tls.certificate",
        PATH,
        "",
        "PEM file with the broker's certificate and those between it and the authority.",
    )
    tls_key: str = option("tls.key", PATH, "", "PEM file with the certificate's private key.")
    tls_client_ca: str = option(
        "tls.client_ca",
        PATH,
        "",
        "PEM file with authorities; TLS clients must show a certificate of one of them, whose "
        "subject is their principal.",
    )
    tls_client_crl: str = option(
        "tls.client_crl",
        PATH,
        "",
        "PEM file with the revocation lists (CRL) of the authorities in tls.client_ca, one of "
        "each; a certificate that is on one is refused.",
    )
    insecure_public_listen: str = option(
        "insecure_public_listen",
        _only(IN_WORDS),
        "",
        f'The words "{IN_WORDS}" allow an address that other machines reach although there are no tokens.',
        show="not allowed",
    )
    insecure_clear_passwords: str = option(
        "insecure_clear_passwords",
        _only(CLEAR_IN_WORDS),
        "",
        f'The words "{CLEAR_IN_WORDS}" allow a listener without TLS that takes passwords or tokens '
        "on an address that other machines reach.",
        show="not allowed",
    )
    topics: tuple[TopicDeclaration, ...] = option(
        "topics",
        _TOPICS,
        (),
        "Topics that are there after the start: name, partitions, config.",
        flag="",
        environment="",
    )
    queues: tuple[QueueDeclaration, ...] = option(
        "queues",
        _QUEUES,
        (),
        "Queues that are there after the start: name, topics, partitions, policy, subscribers, webhooks.",
        flag="",
        environment="",
    )
    schedules: tuple[ScheduleDeclaration, ...] = option(
        "schedules",
        _SCHEDULES,
        (),
        "Schedules that are there after the start: name, queue, cron or every, and what each job is.",
        flag="",
        environment="",
    )
    acls: tuple[AclBinding, ...] = option(
        "acls",
        _RULES,
        (),
        "Access rules that hold after the start: principal, operations, and what they are about.",
        flag="",
        environment="",
    )
    pipelines: tuple[PipelineDeclaration, ...] = option(
        "pipelines",
        _PIPELINES,
        (),
        "Pipelines: name and file, which is looked for beside the configuration file.",
        flag="",
        environment="",
    )
    broker: BrokerConfig = nested(BrokerConfig)
    listeners: ListenerLimits = nested(ListenerLimits)
    """The limits that `native`, `kafka`, `http` and `seeds` have, too."""
    max_connections_before_login: int = option(
        "max_connections_before_login",
        integer(0, 1_000_000),
        0,
        "Connections among them that have not logged in (or asked for anything, where nobody logs "
        "in); for one more the oldest of the address with most is closed.",
        show="half of max_connections",
    )
    max_connections_per_address: int = option(
        "max_connections_per_address",
        integer(0, 1_000_000),
        0,
        "Connections of one address (IPv6: of one /64) at a time, at all listeners together; more are "
        "refused.",
        show="no limit",
    )
    max_connections_overrides: Mapping[str, int] = option(
        "max_connections_overrides",
        _ADDRESS_LIMITS,
        {},
        "Other limits for some addresses or networks, such as 10.0.0.7=50; 0: no limit.",
    )
    native: NativeLimits = nested(NativeLimits)
    kafka: KafkaLimits = nested(KafkaLimits)
    http: HttpLimits = nested(HttpLimits)
    webhooks: WebhookSettings = nested(WebhookSettings)
    seeds: SeedSettings = nested(SeedSettings)
    storage: StorageOptions = nested(StorageOptions)
    cluster: ClusterSettings = nested(ClusterSettings)
    drain_timeout_ms: int = option(
        "drain_timeout", duration(0, 3_600_000), 10_000, "Maximum time that a stop waits for clients."
    )
    log_level: str = option(
        "log.level", choice("debug", "info", "warning", "error"), "info", "Least important messages logged."
    )
    log_format: str = option(
        "log.format",
        choice("auto", "text", "json"),
        "auto",
        "Format of logs on stderr; auto: text on a terminal, else JSON lines.",
    )
    ready_file: str = option(
        "ready_file",
        PATH,
        "",
        "File written once clients can connect: JSON with pid, port and URL.",
    )


_ADVICE = {
    "listeners": "what listens are the sections native, kafka, http and seeds; kafka.listeners has "
    "more Kafka listeners",
    "subscribers": "subscribers belong to their queue, as 'queues: {NAME: {subscribers: …}}'",
    "endpoints": "webhooks belong to their queue, as 'queues: {NAME: {webhooks: …}}'",
    "rules": "access rules belong under 'acls'",
}
"""Names at the top of the file that one may expect."""
_REQUIRED: dict[str, bool | None] = {"auto": None, "required": True, "off": False}


def native_needs_login(config: ServerConfig, *, authenticated: bool) -> bool:
    """Return True if clients of the native listener must log in. `authenticated`: tokens or users
    are configured.
    """
    required = _REQUIRED[config.native_login]
    return authenticated if required is None else required


def http_needs_login(config: ServerConfig, *, authenticated: bool) -> bool:
    """Return True if clients of the HTTP listener must log in. `authenticated`: tokens or users are
    configured.

    A configuration that requires a login at another listener is not meant to leave this one open.
    """
    required = _REQUIRED[config.http_login]
    elsewhere = "required" in (config.native_login, config.kafka_sasl)
    return authenticated or elsewhere if required is None else required


def kafka_listeners(config: ServerConfig) -> tuple[ListenerDeclaration, ...]:
    """All Kafka listeners; none when it is off."""
    if config.kafka_port == OFF:
        return config.kafka_listeners
    first = ListenerDeclaration(
        DEFAULT_NAME,
        config.kafka_host,
        config.kafka_port,
        *split_address(config.kafka_advertised),
        sasl=_REQUIRED[config.kafka_sasl],
        tls=config.kafka_tls,
        sasl_mechanisms=config.kafka_sasl_mechanisms,
    )
    return (first, *config.kafka_listeners)


SEED_PORTS: dict[str, tuple[str, int]] = {
    "diy_message_broker": ("seeds_diy_port", 8080),
    "messagebroker": ("seeds_messagebroker_port", 3000),
    "mbus": ("seeds_mbus_port", 9990),
    "mbus_consumer": ("seeds_mbus_consumer_port", 9991),
    "msbq": ("seeds_msbq_port", 5671),
    "syncbrok": ("seeds_syncbrok_port", 10000),
}
"""Frontends for seed systems: name → option, and the port of the original."""


def seed_ports(config: ServerConfig) -> dict[str, int]:
    """The ports of the listeners for seed systems that are switched on, by name."""
    ports: dict[str, int] = {}
    for name, (option_name, default) in SEED_PORTS.items():
        port: int = getattr(config, option_name)
        if port == UNSET:
            port = default if config.seeds_all else OFF
        if port != OFF:
            ports[name] = port
    return ports


def load(flags: Mapping[str, object], environment: Mapping[str, str]) -> tuple[ServerConfig, Resolved]:
    """The configuration that holds, from flags (option name → text), environment and file.

    Raises:
        InvalidConfig: names every wrong value with its place.
    """
    options = options_of(ServerConfig)
    given = {name: value for name, value in flags.items() if name != "config"}
    file = _read_file(config_file_of(flags, environment), options)
    resolved = resolve(options, flags=given, environment=environment, file=file, advice=_ADVICE)
    return build(ServerConfig, resolved.values), resolved


def config_file_of(flags: Mapping[str, object], environment: Mapping[str, str]) -> str | None:
    """The configuration file that is named, or is there; None: there is none."""
    named = flags.get("config", environment.get(CONFIG_VARIABLE))
    if named is not None:
        return str(named)
    return DEFAULT_FILE if os.path.exists(DEFAULT_FILE) else None


def _read_file(path: str | None, options: list[Option]) -> dict[str, Located]:
    if path is None:
        return {}
    # PyYAML costs 50 ms; a server without a file does not pay for it.
    from sparrow.server.bootstrap.files import read_config_file

    return read_config_file(path, [each.key for each in options])
