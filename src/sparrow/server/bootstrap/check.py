"""A configuration judged without starting a broker: everything that a start would refuse, as far as that can be known before.

What is wrong with one value is found when the options are read, and has a place there. Here is what concerns several values, or the world: files, addresses,
names that go together badly. The data directory is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import by_line
from sparrow.broker.queues.policy import QueuePolicy
from sparrow.server.bootstrap.places import Places
from sparrow.server.config import SEED_PORTS, ServerConfig, config_file_of, kafka_listeners, load, seed_ports
from sparrow.server.listeners import OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparrow.base.options import Resolved


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. `config` and `resolved` are there unless a value is wrong."""

    file: str | None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    config: ServerConfig | None = None
    resolved: Resolved | None = None


def check(flags: Mapping[str, object], environment: Mapping[str, str]) -> Report:
    """Judge what `sparrow serve` would be told by these flags (option name → text), the environment and the file."""
    file = config_file_of(flags, environment)
    try:
        config, resolved = load(flags, environment)
    except InvalidConfig as error:
        return Report(file, error.text.splitlines())
    places = Places(file, resolved)
    errors = [sentence for judge in _JUDGES for sentence in judge(config, places)]
    return Report(file, by_line(errors), resolved.warnings, config, resolved)


def _tried(judge: Callable[[], object], place: str) -> Iterator[str]:
    """What a part of the start says."""
    try:
        judge()
    except InvalidConfig as error:
        yield f"{place}: {error.text}"


def _judge_credentials(config: ServerConfig, places: Places) -> Iterator[str]:
    from sparrow.server.exposure import check_exposure
    from sparrow.server.tls import server_context
    from sparrow.server.tokens import read_tokens_file, read_users_file

    if config.tokens_file:
        yield from _tried(lambda: read_tokens_file(config.tokens_file), places.of("tokens_file"))
    if config.users_file:
        yield from _tried(lambda: read_users_file(config.users_file), places.of("users_file"))
    who = (config.tokens, config.tokens_file, config.users, config.users_file)
    place = places.of("native_host", "kafka_host", "http_host", "seeds_host", "kafka_listeners")
    yield from _tried(lambda: check_exposure(config, authenticated=any(who)), place)
    yield from _tried(
        lambda: server_context(config), places.of("tls_certificate", "tls_key", "tls_client_ca")
    )


def _judge_ports(config: ServerConfig, places: Places) -> Iterator[str]:
    """Two doors cannot listen on one port of one address."""
    doors = [("native.port", "native_port", config.native_host, config.native_port)]
    doors += [
        (f"kafka {each.name!r}", "kafka_port", each.host, each.port) for each in kafka_listeners(config)
    ]
    doors += [("http.port", "http_port", config.http_host, config.http_port)]
    doors += [
        (f"seed {name!r}", SEED_PORTS[name][0], config.seeds_host, port)
        for name, port in seed_ports(config).items()
    ]
    for (other, other_option, other_host, other_port), (name, option_name, host, port) in combinations(
        doors, 2
    ):
        if port not in (0, OFF) and port == other_port and _overlap(host, other_host):
            place = places.of(option_name, other_option, "kafka_listeners", "seeds_all")
            yield f"{place}: {name} and {other} would listen on one port, {host}:{port}"


def _overlap(one: str, other: str) -> bool:
    """Whether two hosts have an address in common; each of all addresses of a family has those of that family."""
    every = {"localhost": ("127.0.0.1", "::1"), "": ("0.0.0.0", "::")}  # noqa: S104 - names, nobody listens here
    return any(
        a == b or (("0.0.0.0", "::")[":" in a] in (a, b) and (":" in a) == (":" in b))  # noqa: S104
        for a in every.get(one, (one,))
        for b in every.get(other, (other,))
    )


def _judge_webhooks(config: ServerConfig, places: Places) -> Iterator[str]:
    from sparrow.broker.webhooks.addresses import Addresses

    if config.webhooks_ca:
        yield from _tried(lambda: _read_authorities(config.webhooks_ca), places.of("webhooks_ca"))
    yield from _judge_number_of_webhooks(config, places)
    try:
        addresses = Addresses(config.webhooks_allow)
    except InvalidConfig as error:
        yield f"{places.of('webhooks_allow')}: {error.text}"
        return
    for index, queue in enumerate(config.queues):
        for number, endpoint in enumerate(queue.endpoints):
            refusal = addresses.refusal_of_url(endpoint.settings["url"], is_trusted=endpoint.is_trusted)
            if refusal:
                at = ((queue.name, index), ("subscribers", "webhooks"), (endpoint.name, number), ("url",))
                yield f"{places.inside('queues', *at)}: the webhook {endpoint.name!r} of queue {queue.name!r}: {refusal}"


def _read_authorities(path: str) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise InvalidConfig(
            f"webhooks.ca {path} cannot be used ({error}); it is a PEM file with certificates of authorities"
        ) from None


def _judge_number_of_webhooks(config: ServerConfig, places: Places) -> Iterator[str]:
    from sparrow.broker.webhooks.registry import MAX_ENDPOINTS, MAX_OF_QUEUE

    for index, queue in enumerate(config.queues):
        if len(queue.endpoints) > MAX_OF_QUEUE:
            at = places.inside("queues", (queue.name, index), ("subscribers", "webhooks"))
            yield f"{at}: queue {queue.name!r} has {len(queue.endpoints)} webhooks; there may be {MAX_OF_QUEUE} of one queue"
    total = sum(len(queue.endpoints) for queue in config.queues)
    if total > MAX_ENDPOINTS:
        yield f"{places.of('queues')}: the queues have {total} webhooks; there may be {MAX_ENDPOINTS}"


def _judge_topics(config: ServerConfig, places: Places) -> Iterator[str]:
    """Names that differ only in . and _ cannot both be (Kafka's rule)."""
    from sparrow.broker.topic_names import plain_name

    known: dict[str, str] = {}
    for topic, key, *at in _topics(config):
        other = known.setdefault(plain_name(topic), topic)
        if other != topic:
            yield f"{places.inside(key, *at)}: topics {other!r} and {topic!r} differ only in '.' and '_'; there can be one of them"


def _topics(config: ServerConfig) -> Iterator[tuple[Any, ...]]:
    """Each topic that there will be, with the key and the steps to where it is declared."""
    for index, topic in enumerate(config.topics):
        yield topic.name, "topics", (topic.name, index)
    for index, queue in enumerate(config.queues):
        dead = QueuePolicy().changed(queue.policy).dead_letters_of(queue.name)
        for name in (*queue.topics, *([] if dead is None else [dead])):
            yield name, "queues", (queue.name, index)


def _judge_partitions(config: ServerConfig, places: Places) -> Iterator[str]:
    # The first queue makes a topic that several have.
    partitions = {topic: queue.partitions for queue in reversed(config.queues) for topic in queue.topics}
    partitions |= {each.name: each.partitions for each in config.topics}
    total = sum(config.default_partitions if count < 0 else count for count in partitions.values())
    if total > config.max_partitions:
        yield (
            f"{places.of('max_partitions', 'topics')}: the topics declared have {total} partitions; max_partitions is"
            f" {config.max_partitions}"
        )


_JUDGES = (_judge_credentials, _judge_ports, _judge_webhooks, _judge_topics, _judge_partitions)
