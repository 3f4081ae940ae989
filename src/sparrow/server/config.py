"""Options of a server, each declared once (see `sparrow.base.settings`).

The file is `sparrow.yml` in the working directory if there is one, or the one that `--config` or
`SPARROW_CONFIG` names.
"""

from __future__ import annotations

import os
import re
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
    TEXTS_SCHEMA,
    WORDS,
    Kind,
    Located,
    Option,
    Resolved,
    choice,
    deferred,
    duration,
    integer,
    option,
    options_of,
    resolve,
    size,
)
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.broker.access.acls import AclBinding
    from sparrow.server.bootstrap.pipelines import PipelineDeclaration
    from sparrow.server.bootstrap.queues import QueueDeclaration
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


def _read_audit_topic(given: object) -> str:
    from sparrow.base.errors import InvalidTopicName
    from sparrow.broker.internal_topics import INTERNAL_TOPICS
    from sparrow.broker.names import check_topic_name

    name = TEXT.read(given)
    if name in INTERNAL_TOPICS:
        raise ValueError(f"a topic of its own; {name} is one of Kafka's")
    if name:
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise ValueError(error.text) from None
    return name


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
    """Return True unless the text has what an environment has in place of bytes that are not
    UTF-8.
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


def _read_principals(given: object) -> frozenset[str]:
    """Names or "Type:name", from a list or from one text with semicolons between (a name may hold
    commas: CN=a,O=b).

    A type is one word: a colon behind anything else is part of a name, such as CN=a,OU=urn:b.
    """
    listed = given if isinstance(given, list | frozenset) else TEXT.read(given).split(";")
    texts = [TEXT.read(each).strip() for each in listed]
    principals = frozenset(
        f"User:{text}" if ":" not in text or re.match(r"\w*[^\w:]", text) else text for text in texts if text
    )
    if any(not kind or not name for kind, _, name in (each.partition(":") for each in principals)):
        raise ValueError("principals, such as alice or User:alice")
    return principals


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
_PRINCIPALS = Kind("principal", _read_principals, repeats=True, schema=TEXTS_SCHEMA)
_DIRECTORY = Kind("path", _read_directory, schema=TEXT_SCHEMA)
_MODE = Kind("octal", read_mode, schema=TEXT_SCHEMA)
_TOKENS = Kind("name=value", _read_tokens, schema=PAIRS_SCHEMA)
_USERS = Kind("name=value", _read_users, schema=PAIRS_SCHEMA)
_LOGIN = choice("auto", "required", "off")
_LISTENERS = deferred("sparrow.server.bootstrap.listeners", "LISTENERS", "list of listeners")
_TOPIC_CONFIG = deferred("sparrow.server.bootstrap.topics", "TOPIC_CONFIG", "name=value", repeats=True)
_TOPICS = deferred("sparrow.server.bootstrap.topics", "TOPICS", "list of topics")
_QUEUES = deferred("sparrow.server.bootstrap.queues", "QUEUES", "list of queues")
_RULES = deferred("sparrow.server.bootstrap.rules", "RULES", "list of access rules")
_PIPELINES = deferred("sparrow.server.bootstrap.pipelines", "PIPELINES", "list of pipelines")


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """All options of `sparrow serve`. Times in ms, sizes in bytes."""

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
        "Whether clients of the native listener must log in; auto: when tokens or users are configured.",
    )
    native_tls: bool = option(
        "native.tls",
        BOOLEAN,
        True,
        "Whether the native listener speaks TLS once tls.certificate is set.",
        show="true",
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
        "Address that Kafka clients are told to use. None: the one at which they came in.",
        show="none",
    )
    kafka_sasl: str = option(
        "kafka.sasl",
        _LOGIN,
        "auto",
        "Whether Kafka clients must log in by SASL; auto: when tokens or users are configured.",
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
        "Whether the Kafka listener speaks TLS once tls.certificate is set.",
        show="true",
    )
    kafka_max_session_ms: int = option(
        "kafka.max_session",
        duration(0, 365 * _DAY_MS),
        0,
        "How long a SASL login is good for before the client must log in again; 0: as long as the "
        "connection.",
    )
    kafka_node_id: int = option(
        "kafka.node_id",
        integer(0, (1 << 31) - 1),
        1,
        "Number of this broker among those that Kafka clients are told of.",
    )
    kafka_max_replication_factor: int = option(
        "kafka.max_replication_factor",
        integer(1, 32_767),
        1,
        "Largest replication factor that a new topic may ask for; there is one replica all the same.",
    )
    kafka_listeners: tuple[ListenerDeclaration, ...] = option(
        "kafka.listeners",
        _LISTENERS,
        (),
        "More Kafka listeners, for other networks: name, host, port, advertised, sasl, tls, sasl_mechanisms.",
        flag="",
        environment="",
        show="none",
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
        "Whether clients of the HTTP listener must log in; auto: when tokens or users are configured, "
        "or another listener requires it.",
    )
    http_tls: bool = option(
        "http.tls",
        BOOLEAN,
        True,
        "Whether the HTTP listener speaks TLS once tls.certificate is set.",
        show="true",
    )
    http_cors_origins: tuple[str, ...] = option(
        "http.cors_origins",
        WORDS,
        (),
        "Origins whose web pages may use the HTTP listener, such as https://app.example.org; * for all.",
        show="none",
    )
    http_max_body_bytes: int = option(
        "http.max_body",
        size(1 << 10, 1 << 30),
        16 << 20,
        "Largest body of a request, and largest message of a WebSocket.",
        show="16 MiB",
    )
    http_body_timeout_ms: int = option(
        "http.body_timeout",
        duration(100, 3_600_000),
        30_000,
        "How long a client may take to send the head of a request, and then its body.",
        show="30s",
    )
    http_idempotency_window_ms: int = option(
        "http.idempotency_window",
        duration(1_000, 30 * _DAY_MS),
        _DAY_MS,
        "How long the answer to a publish with an Idempotency-Key is kept.",
        show="1d",
    )
    webhooks_allow: tuple[str, ...] = option(
        "webhooks.allow",
        WORDS,
        (),
        "Loopback and private networks to which webhooks may be sent, such as 10.0.0.0/8; private "
        "for all of them.",
        show="none",
    )
    webhooks_max_connections: int = option(
        "webhooks.max_connections",
        integer(1, 100_000),
        1_000,
        "Connections to webhook endpoints at a time.",
    )
    webhooks_ca: str = option(
        "webhooks.ca",
        PATH,
        "",
        "PEM file with authorities of your own whose certificates webhook endpoints may show.",
        show="none",
    )
    seeds_all: bool = option(
        "seeds.all",
        BOOLEAN,
        False,
        "Switch on the listeners for all seed systems (docs/seeds.md) on their own ports.",
        flag="--seeds",
        show="false",
    )
    seeds_host: str = option("seeds.host", HOST, "127.0.0.1", "Address of the listeners for seed systems.")
    seeds_max_message_bytes: int = option(
        "seeds.max_message",
        size(1 << 10, 32 << 20),
        1 << 20,
        "Largest message that clients of seed systems may send. Topics that are made for them take "
        "such messages.",
        show="1 MiB",
    )
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
    seeds_messagebroker_ack_timeout_ms: int = option(
        "seeds.messagebroker.ack_timeout",
        duration(10, 3_600_000),
        2_000,
        "How long a subscriber of messagebroker may take to acknowledge a message.",
        show="2s",
    )
    seeds_messagebroker_ack_delay_ms: int = option(
        "seeds.messagebroker.ack_delay",
        duration(0, 3_600_000),
        1_000,
        "How long a message waits that a subscriber of messagebroker did not acknowledge.",
        show="1s",
    )
    seeds_messagebroker_redeliveries: int = option(
        "seeds.messagebroker.redeliveries",
        integer(0, 250),
        4,
        "How often it is delivered again before it goes to the dead letters.",
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
    seeds_msbq_stall_timeout_ms: int = option(
        "seeds.msbq.stall_timeout",
        duration(100, 3_600_000),
        10_000,
        "How long a consumer of msbq may take nothing of what is sent to it before its connection ends.",
        show="10s",
    )
    seeds_syncbrok_port: int = option(
        "seeds.syncbrok.port",
        PORT_OR_OFF,
        UNSET,
        "Port for clients of Syncbrok; 10000 with seeds.all.",
        show="off",
    )
    seeds_syncbrok_timeout_ms: int = option(
        "seeds.syncbrok.timeout",
        duration(100, 600_000),
        600_000,
        "How long an endpoint of Syncbrok may take to answer a delivery.",
        show="10m",
    )
    seeds_syncbrok_private_endpoints: bool = option(
        "seeds.syncbrok.private_endpoints",
        BOOLEAN,
        True,
        "Whether endpoints that clients of Syncbrok name may have loopback and private addresses.",
        show="true",
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
    users: Mapping[str, str] = option(
        "users",
        _USERS,
        {},
        "Users made at the start when missing, never changed: name and password.",
        flag="",
        show="none",
        secret=True,
    )
    users_file: str = option(
        "users_file",
        PATH,
        "",
        "File with one 'user password' per line, in addition to users.",
        show="none",
    )
    tls_certificate: str = option(
        "tls.certificate",
        PATH,
        "",
        "PEM file with the broker's certificate and those between it and the authority.",
        show="none",
    )
    tls_key: str = option("tls.key", PATH, "", "PEM file with the certificate's private key.", show="none")
    tls_client_ca: str = option(
        "tls.client_ca",
        PATH,
        "",
        "PEM file with authorities; TLS clients must show a certificate of one of them, whose "
        "subject is their principal.",
        show="none",
    )
    tls_client_crl: str = option(
        "tls.client_crl",
        PATH,
        "",
        "PEM file with the revocation lists (CRL) of the authorities in tls.client_ca, one of "
        "each; a certificate that is on one is refused.",
        show="none",
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
    super_users: frozenset[str] = option(
        "super_users",
        _PRINCIPALS,
        frozenset(),
        "Principals who may do everything, whatever the access rules say.",
        show="none",
    )
    acl_default: str = option(
        "acl.default",
        choice("auto", "allow", "deny"),
        "auto",
        "Whether everybody may use topics, groups, queues and sinks that no access rule names; "
        "auto: only while nobody can log in. Administration takes a rule or a super user once "
        "somebody can log in.",
    )
    audit_topic: str = option(
        "audit.topic",
        Kind("topic", _read_audit_topic, schema=TEXT_SCHEMA),
        "",
        "An internal topic that audit events are written to as JSON, which only the broker writes; "
        "the logger sparrow.audit has them in any case.",
        show="none",
    )
    auto_create_topics: bool = option(
        "auto_create_topics",
        BOOLEAN,
        True,
        "Publishing or subscribing to a missing topic creates it.",
        show="true",
    )
    default_partitions: int = option(
        "default_partitions",
        integer(1, 10_000),
        4,
        "Partitions of a topic that is created without a number of them.",
    )
    max_partitions: int = option(
        "max_partitions",
        integer(1, 10_000_000),
        200_000,
        "Partitions of all topics together (about 1 KB of memory each); more are refused.",
    )
    topic_defaults: Mapping[str, str] = option(
        "default_topic_config",
        _TOPIC_CONFIG,
        {},
        "Configuration of topics that do not set their own, such as retention.ms=1d.",
        show="none",
    )
    topics: tuple[TopicDeclaration, ...] = option(
        "topics",
        _TOPICS,
        (),
        "Topics that are there after the start: name, partitions, config.",
        flag="",
        environment="",
        show="none",
    )
    queues: tuple[QueueDeclaration, ...] = option(
        "queues",
        _QUEUES,
        (),
        "Queues that are there after the start: name, topics, partitions, policy, subscribers, webhooks.",
        flag="",
        environment="",
        show="none",
    )
    acls: tuple[AclBinding, ...] = option(
        "acls",
        _RULES,
        (),
        "Access rules that hold after the start: principal, operations, and what they are about.",
        flag="",
        environment="",
        show="none",
    )
    pipelines: tuple[PipelineDeclaration, ...] = option(
        "pipelines",
        _PIPELINES,
        (),
        "Pipelines: name and file, which is looked for beside the configuration file.",
        flag="",
        environment="",
        show="none",
    )
    group_initial_rebalance_delay_ms: int = option(
        "groups.initial_rebalance_delay",
        duration(0, 60_000),
        100,
        "How long a classic consumer group that begins waits for more members.",
        show="100ms",
    )
    group_min_session_timeout_ms: int = option(
        "groups.min_session_timeout",
        duration(1, _DAY_MS),
        1_000,
        "Shortest session timeout that a member of a classic group may choose.",
        show="1s",
    )
    group_max_session_timeout_ms: int = option(
        "groups.max_session_timeout",
        duration(1, _DAY_MS),
        1_800_000,
        "Longest session timeout that a member of a classic group may choose.",
        show="30m",
    )
    group_max_members: int = option(
        "groups.max_members", integer(1, 1_000_000), 10_000, "Members of one classic group at most."
    )
    group_heartbeat_interval_ms: int = option(
        "groups.heartbeat_interval",
        duration(50, 600_000),
        5_000,
        "How long members of a group of the consumer protocol (KIP-848) or of a share group wait "
        "between heartbeats.",
        show="5s",
    )
    group_session_timeout_ms: int = option(
        "groups.session_timeout",
        duration(1_000, 3_600_000),
        45_000,
        "After how long without a heartbeat a member of such a group is put out.",
        show="45s",
    )
    share_record_lock_duration_ms: int = option(
        "groups.share_record_lock_duration",
        duration(1_000, 3_600_000),
        30_000,
        "How long a record that a member of a share group (KIP-932) acquired is kept from the others.",
        show="30s",
    )
    share_delivery_count_limit: int = option(
        "groups.share_delivery_count_limit",
        integer(2, 25),
        5,
        "Deliveries of a record before a share group gives it up.",
    )
    share_max_record_locks: int = option(
        "groups.share_max_record_locks",
        integer(100, 10_000),
        2_000,
        "Records of a partition that members of a share group may have acquired at a time.",
    )
    share_max_members: int = option(
        "groups.share_max_members", integer(1, 1_000), 200, "Members of one share group at most."
    )
    share_max_groups: int = option(
        "groups.share_max_groups",
        integer(1, 1_000_000),
        2_000,
        "Share groups, empty ones too (about 20 KB of memory each); more are refused.",
    )
    group_migration: str = option(
        "groups.migration",
        choice("disabled", "upgrade", "downgrade", "bidirectional"),
        "bidirectional",
        "Whether groups with members change between the classic and the consumer protocol when members do.",
    )
    offsets_retention_ms: int = option(
        "groups.offsets_retention",
        duration(60_000, 365 * _DAY_MS),
        7 * _DAY_MS,
        "How long committed offsets are kept once their group has no members.",
        show="7d",
    )
    transaction_max_timeout_ms: int = option(
        "transactions.max_timeout",
        duration(1_000, _DAY_MS),
        900_000,
        "The longest that a transactional producer may let a transaction stay open.",
        show="15m",
    )
    transactional_id_expiration_ms: int = option(
        "transactions.id_expiration",
        duration(1_000, 365 * _DAY_MS),
        7 * _DAY_MS,
        "Time after which an unused transactional id is forgotten.",
        show="7d",
    )
    producer_expiration_ms: int = option(
        "producers.expiration",
        duration(1_000, 365 * _DAY_MS),
        _DAY_MS,
        "A partition forgets the sequence numbers of an idempotent producer that was silent for so long.",
        show="1d",
    )
    max_frame_bytes: int = option(
        "max_frame", size(64 << 10, 1 << 30), 16 << 20, "Largest frame that a client may send.", show="16 MiB"
    )
    max_connections: int = option(
        "max_connections",
        integer(1, 1_000_000),
        10_000,
        "Connections at a time at each listener; more are refused.",
    )
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
        show="none",
    )
    receive_budget_bytes: int = option(
        "receive_budget",
        size(1 << 20, 1 << 40),
        256 << 20,
        "Memory for frames that are being received, all connections together.",
        show="256 MiB",
    )
    send_budget_bytes: int = option(
        "send_budget",
        size(16 << 20, 1 << 40),
        256 << 20,
        "Memory for records that clients were sent and have not taken, all connections of all "
        "listeners together.",
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
    log_scrub_rate: int = option(
        "log.scrub_rate",
        size(0, 1 << 40),
        1 << 20,
        "Bytes per second that the broker reads of closed segments to find bit rot; 0: none.",
        show="1 MiB",
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


_ADVICE = {
    "listeners": "what listens are the sections native, kafka, http and seeds; kafka.listeners has "
    "more Kafka listeners",
    "subscribers": "subscribers stand with their queue, as 'queues: {NAME: {subscribers: …}}'",
    "endpoints": "webhooks stand with their queue, as 'queues: {NAME: {webhooks: …}}'",
    "rules": "access rules stand under 'acls'",
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
    return ServerConfig(**resolved.values), resolved


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
