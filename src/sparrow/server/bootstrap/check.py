"""A check of the configuration without starting a broker: everything that a start would refuse, as
far as that can be known before.

A fault of a single value is found when the options are read, with its location. This module checks
what concerns several values, or the machine: files, addresses, names that exclude each other. The
data directory is not looked at.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import by_line
from sparrow.base.queue_policy import QueuePolicy
from sparrow.server.bootstrap.locations import Locations
from sparrow.server.config import SEED_PORTS, ServerConfig, config_file_of, kafka_listeners, load, seed_ports
from sparrow.server.listeners import OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparrow.base.settings import Resolved


class CheckReport(Struct, frozen=True):
    """The result of a check. `config` and `resolved` are None if a value is wrong."""

    file: str | None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    config: ServerConfig | None = None
    resolved: Resolved | None = None


def check(flags: Mapping[str, object], environment: Mapping[str, str]) -> CheckReport:
    """Check the configuration that `sparrow serve` would get from these flags (option name → text),
    the environment and the file.
    """
    file = config_file_of(flags, environment)
    try:
        config, resolved = load(flags, environment)
    except InvalidConfig as error:
        return CheckReport(file, error.text.splitlines())
    locations = Locations(file, resolved)
    errors = [sentence for judge in _JUDGES for sentence in judge(config, locations)]
    return CheckReport(file, by_line(errors), resolved.warnings, config, resolved)


def _tried(judge: Callable[[], object], location: str) -> Iterator[str]:
    """Yield the error of a part of the start, if it fails."""
    try:
        judge()
    except InvalidConfig as error:
        yield f"{location}: {error.text}"


def _judge_credentials(config: ServerConfig, locations: Locations) -> Iterator[str]:
    from sparrow.server.exposure import check_clear_passwords, check_exposure
    from sparrow.server.tls import server_context
    from sparrow.server.tokens import read_tokens_file, read_users_file

    if config.tokens_file:
        yield from _tried(lambda: read_tokens_file(config.tokens_file), locations.of("tokens_file"))
    if config.users_file:
        yield from _tried(lambda: read_users_file(config.users_file), locations.of("users_file"))
    who = (config.tokens, config.tokens_file, config.users, config.users_file)
    location = locations.of("native_host", "kafka_host", "http_host", "seeds_host", "kafka_listeners")
    yield from _tried(lambda: check_exposure(config, authenticated=any(who)), location)
    yield from _tried(lambda: check_clear_passwords(config, authenticated=any(who)), location)
    yield from _tried(
        lambda: server_context(config), locations.of("tls_certificate", "tls_key", "tls_client_ca")
    )


def _judge_ports(config: ServerConfig, locations: Locations) -> Iterator[str]:
    """Yield the listeners that would share one port of one address."""
    frontends = [("native.port", "native_port", config.native_host, config.native_port)]
    frontends += [
        (f"kafka {each.name!r}", "kafka_port", each.host, each.port) for each in kafka_listeners(config)
    ]
    frontends += [("http.port", "http_port", config.http_host, config.http_port)]
    frontends += [
        (f"seed {name!r}", SEED_PORTS[name][0], config.seeds_host, port)
        for name, port in seed_ports(config).items()
    ]
    for (other, other_option, other_host, other_port), (name, option_name, host, port) in combinations(
        frontends, 2
    ):
        if port not in (0, OFF) and port == other_port and _overlap(host, other_host):
            location = locations.of(option_name, other_option, "kafka_listeners", "seeds_all")
            yield f"{location}: {name} and {other} would listen on one port, {host}:{port}"


def _overlap(one: str, other: str) -> bool:
    """Return True if two hosts have an address in common; a wildcard address has all addresses of
    its family.
    """
    every = {"localhost": ("127.0.0.1", "::1"), "": ("0.0.0.0", "::")}  # noqa: S104 - names, nobody listens here
    return any(
        a == b or (("0.0.0.0", "::")[":" in a] in (a, b) and (":" in a) == (":" in b))  # noqa: S104
        for a in every.get(one, (one,))
        for b in every.get(other, (other,))
    )


def _judge_webhooks(config: ServerConfig, locations: Locations) -> Iterator[str]:
    from sparrow.broker.webhooks.addresses import AddressRules

    if config.webhooks.ca_path:
        yield from _tried(lambda: _read_authorities(config.webhooks.ca_path), locations.of("webhooks_ca"))
    yield from _judge_number_of_webhooks(config, locations)
    try:
        addresses = AddressRules(config.webhooks.allow)
    except InvalidConfig as error:
        yield f"{locations.of('webhooks_allow')}: {error.text}"
        return
    for index, queue in enumerate(config.queues):
        for number, endpoint in enumerate(queue.endpoints):
            refusal = addresses.refusal_of_url(endpoint.settings["url"], is_trusted=endpoint.is_trusted)
            if refusal:
                at = ((queue.name, index), ("subscribers", "webhooks"), (endpoint.name, number), ("url",))
                where = locations.inside("queues", *at)
                yield f"{where}: the webhook {endpoint.name!r} of queue {queue.name!r}: {refusal}"


def _read_authorities(path: str) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise InvalidConfig(
            f"webhooks.ca {path} cannot be used ({error}); it is a PEM file with certificates of authorities"
        ) from None


def _judge_number_of_webhooks(config: ServerConfig, locations: Locations) -> Iterator[str]:
    from sparrow.broker.webhooks.registry import MAX_ENDPOINTS, MAX_OF_QUEUE

    for index, queue in enumerate(config.queues):
        if len(queue.endpoints) > MAX_OF_QUEUE:
            at = locations.inside("queues", (queue.name, index), ("subscribers", "webhooks"))
            count = len(queue.endpoints)
            yield f"{at}: queue {queue.name!r} has {count} webhooks; there may be {MAX_OF_QUEUE} of one queue"
    total = sum(len(queue.endpoints) for queue in config.queues)
    if total > MAX_ENDPOINTS:
        yield f"{locations.of('queues')}: the queues have {total} webhooks; there may be {MAX_ENDPOINTS}"


def _judge_topics(config: ServerConfig, locations: Locations) -> Iterator[str]:
    """Yield topic names that differ only in . and _, which exclude each other (Kafka's rule)."""
    from sparrow.broker.names import plain_name

    known: dict[str, str] = {}
    for topic, key, *at in _topics(config):
        other = known.setdefault(plain_name(topic), topic)
        if other != topic:
            where = locations.inside(key, *at)
            names = f"topics {other!r} and {topic!r}"
            yield f"{where}: {names} differ only in '.' and '_'; there can be one of them"


def _topics(config: ServerConfig) -> Iterator[tuple[Any, ...]]:
    """Yield each topic that the configuration declares, with the key and the steps to its
    declaration.
    """
    for index, topic in enumerate(config.topics):
        yield topic.name, "topics", (topic.name, index)
    for index, queue in enumerate(config.queues):
        dead = QueuePolicy().changed(queue.policy).dead_letters_of(queue.name)
        for name in (*queue.topics, *([] if dead is None else [dead])):
            yield name, "queues", (queue.name, index)


def _judge_partitions(config: ServerConfig, locations: Locations) -> Iterator[str]:
    # The first queue creates a topic that several queues have.
    partitions = {topic: queue.partitions for queue in reversed(config.queues) for topic in queue.topics}
    partitions |= {each.name: each.partitions for each in config.topics}
    total = sum(config.broker.default_partitions if count < 0 else count for count in partitions.values())
    if total > config.broker.max_partitions:
        yield (
            f"{locations.of('max_partitions', 'topics')}: the topics declared have {total} "
            "partitions; max_partitions is"
            f" {config.broker.max_partitions}"
        )


_JUDGES = (_judge_credentials, _judge_ports, _judge_webhooks, _judge_topics, _judge_partitions)
