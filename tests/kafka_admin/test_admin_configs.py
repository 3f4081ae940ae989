"""Configurations of topics, brokers, loggers and clients' metrics: described with their sources,
altered, stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

import sparrow.testing
from tests.kafka_admin.messages import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    ask,
    describe_configs,
    make,
    replace,
    values,
)
from tests.kafka_frontend.raw import RawClient

E = ErrorCode


def value(raw: RawClient, type_: int, name: str, config: str) -> str | None:
    return values(raw, type_, name, config)[config]


# ── topics ────────────────────────────────────────────────────────────────────────────────────────


def test_every_configuration_of_a_topic_is_described_with_default_and_source(
    raw: RawClient, topic: str
) -> None:
    make(raw, topic, config={"segment.bytes": "2048"})
    found = {each.name: each for each in describe_configs(raw, TOPIC, topic, include_synonyms=True).configs}
    assert {"cleanup.policy", "retention.ms", "max.message.bytes", "remote.storage.enable"} <= set(found)
    own, default = found["segment.bytes"], found["retention.ms"]
    assert (own.value, own.config_source, own.config_type) == ("2048", 1, 3)
    assert (default.value, default.config_source, default.config_type) == ("604800000", 5, 5)
    assert [(s.name, s.value, s.source) for s in default.synonyms] == [("log.retention.hours", "168", 5)]
    assert not any(each.is_sensitive or each.read_only for each in found.values())
    assert all(each.documentation is None for each in found.values())


def test_an_unknown_topic_has_no_configuration(raw: RawClient, topic: str) -> None:
    assert describe_configs(raw, TOPIC, topic).error_code is E.unknown_topic_or_partition
    for name in ("no spaces", ""):
        assert describe_configs(raw, TOPIC, name).error_code is E.invalid_topic_exception
    assert alter(raw, TOPIC, "", ("flush.ms", SET, "1")).error_code is E.invalid_request
    assert alter(raw, TOPIC, topic, ("flush.ms", SET, "1")).error_code is E.unknown_topic_or_partition
    assert replace(raw, TOPIC, topic, {"flush.ms": "1"}).error_code is E.unknown_topic_or_partition


def test_an_unknown_kind_of_resource_is_refused(raw: RawClient, topic: str) -> None:
    assert describe_configs(raw, 3, topic).error_code is E.invalid_request
    assert alter(raw, 3, topic, ("flush.ms", SET, "1")).error_code is E.invalid_request


def test_altering_replaces_everything_that_was_set(raw: RawClient, topic: str) -> None:
    make(raw, topic, config={"flush.ms": "7", "retention.ms": "8"})
    assert replace(raw, TOPIC, topic, {"retention.ms": "9"}, validate_only=True).error_code is E.none
    assert values(raw, TOPIC, topic, "flush.ms", "retention.ms") == {"flush.ms": "7", "retention.ms": "8"}
    assert replace(raw, TOPIC, topic, {"retention.ms": "9"}).error_code is E.none
    assert values(raw, TOPIC, topic, "flush.ms", "retention.ms") == {
        "flush.ms": "9223372036854775807",
        "retention.ms": "9",
    }


def test_altering_incrementally_leaves_the_rest(raw: RawClient, topic: str) -> None:
    make(raw, topic, config={"flush.ms": "7", "segment.ms": "6"})
    changes = (("retention.ms", SET, "9"), ("segment.ms", DELETE, None))
    assert alter(raw, TOPIC, topic, *changes, validate_only=True).error_code is E.none
    assert value(raw, TOPIC, topic, "segment.ms") == "6"
    assert alter(raw, TOPIC, topic, *changes).error_code is E.none
    assert values(raw, TOPIC, topic, "flush.ms", "retention.ms", "segment.ms") == {
        "flush.ms": "7",
        "retention.ms": "9",
        "segment.ms": "604800000",
    }


def test_lists_are_appended_to_and_subtracted_from(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    for operation, item, after in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact,delete", ""),
        (APPEND, "compact,delete", "compact,delete"),
    ):
        assert alter(raw, TOPIC, topic, ("cleanup.policy", operation, item)).error_code is E.none
        assert value(raw, TOPIC, topic, "cleanup.policy") == after


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", APPEND, "1")], E.invalid_config),
        ([("retention.ms", SET, "soon")], E.invalid_config),
        ([("retention.ms", SET, "1_000")], E.invalid_config),
        ([("retention.msec", SET, "1")], E.invalid_config),
        ([("retention.msec", DELETE, None)], E.invalid_config),
        ([("cleanup.policy", APPEND, "shred")], E.invalid_config),
        ([("retention.ms", SET, None)], E.invalid_request),
        ([("retention.ms", 7, "1")], E.invalid_request),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], E.invalid_request),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_nothing_of_it_is_done(
    raw: RawClient, topic: str, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    make(raw, topic)
    for validate_only in (True, False):
        refused = alter(raw, TOPIC, topic, ("flush.ms", SET, "3"), *changes, validate_only=validate_only)
        assert refused.error_code is code
        assert refused.error_message
    assert value(raw, TOPIC, topic, "flush.ms") == "9223372036854775807"


def test_a_replacement_with_null_values_is_refused(raw: RawClient, topic: str) -> None:
    make(raw, topic)
    assert replace(raw, TOPIC, topic, {"flush.ms": None}).error_code is E.invalid_request


@pytest.mark.parametrize("key", [33, 44])
def test_a_resource_named_twice_is_not_altered_and_the_others_are(
    raw: RawClient, topic: str, key: int
) -> None:
    other = f"{topic}-other"
    make(raw, topic)
    make(raw, other)
    configs = [{"name": "flush.ms", "config_operation": SET, "value": "3"}]
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configs": configs} for name in (topic, other, topic)
    ]
    done = ask(raw, key, 1, resources=resources).responses
    assert {each.resource_name: each.error_code for each in done} == {topic: E.invalid_request, other: E.none}
    assert len(done) == 2
    assert value(raw, TOPIC, topic, "flush.ms") == "9223372036854775807"
    assert value(raw, TOPIC, other, "flush.ms") == "3"


# ── brokers ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own(sparrow_topic: str) -> Iterator[RawClient]:
    """Start a broker whose configuration a test may change, and return a client."""
    with (
        sparrow.testing.broker(default_partitions=3, topic_defaults={"segment.ms": "5000"}) as broker,
        RawClient(broker.kafka) as raw,
    ):
        yield raw


def test_broker_describes_itself(own: RawClient) -> None:
    found = {each.name: each for each in describe_configs(own, BROKER, "1", include_synonyms=True).configs}
    assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("3", 4)
    assert (found["log.roll.ms"].value, found["log.roll.ms"].config_source) == ("5000", 4)
    assert (found["log.retention.hours"].value, found["log.retention.hours"].config_source) == ("168", 5)
    assert found["node.id"].value == "1"
    assert found["advertised.listeners"].value.startswith("KAFKA://localhost:")
    assert found["num.partitions"].read_only
    assert not found["log.retention.ms"].read_only


def test_there_is_one_broker(raw: RawClient) -> None:
    for name in ("2", "-1", "one"):
        assert describe_configs(raw, BROKER, name).error_code is E.invalid_request
        assert alter(raw, BROKER, name, ("log.retention.ms", SET, "1")).error_code is E.invalid_request


@pytest.mark.parametrize(("resource", "source"), [("", 3), ("1", 2)])
def test_a_default_of_topics_changes_while_the_broker_runs(
    own: RawClient, topic: str, resource: str, source: int
) -> None:
    make(own, topic)
    assert alter(own, BROKER, resource, ("log.retention.ms", SET, "777")).error_code is E.none
    (config,) = describe_configs(own, TOPIC, topic, "retention.ms", include_synonyms=True).configs
    assert (config.value, config.config_source) == ("777", source)
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        ("log.retention.ms", "777", source),
        ("log.retention.hours", "168", 5),
    ]
    make(own, f"{topic}-later", config={"retention.ms": "5"})
    assert value(own, TOPIC, f"{topic}-later", "retention.ms") == "5"
    assert alter(own, BROKER, resource, ("log.retention.ms", DELETE, None)).error_code is E.none
    assert value(own, TOPIC, topic, "retention.ms") == "604800000"


def test_this_broker_wins_over_all_brokers_and_both_over_its_file(own: RawClient, topic: str) -> None:
    make(own, topic)
    alter(own, BROKER, "", ("log.roll.ms", SET, "6000"))
    assert value(own, TOPIC, topic, "segment.ms") == "6000"
    alter(own, BROKER, "1", ("log.roll.ms", SET, "7000"))
    (config,) = describe_configs(own, TOPIC, topic, "segment.ms", include_synonyms=True).configs
    assert [(s.value, s.source) for s in config.synonyms] == [
        ("7000", 2),
        ("6000", 3),
        ("5000", 4),
        ("168", 5),
    ]
    assert values(own, BROKER, "") == {"log.roll.ms": "6000"}


def test_broker_configuration_survives_kill_9(topic: str) -> None:
    with sparrow.testing.broker(process=True) as broker:
        with RawClient(broker.kafka) as raw:
            make(raw, topic)
            alter(raw, BROKER, "", ("log.retention.ms", SET, "777"), ("num.io.threads", SET, "9"))
            alter(raw, CLIENT_METRICS, "latency", ("interval.ms", SET, "1000"))
        broker.kill()
        broker.restart()
        with RawClient(broker.kafka) as raw:
            assert value(raw, TOPIC, topic, "retention.ms") == "777"
            assert values(raw, BROKER, "") == {"log.retention.ms": "777", "num.io.threads": "9"}
            assert value(raw, CLIENT_METRICS, "latency", "interval.ms") == "1000"
            assert replace(raw, BROKER, "", {}).error_code is E.none
            assert values(raw, BROKER, "") == {}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("num.partitions", "9"),
        ("node.id", "4"),
        ("no.such.config", "1"),
        ("log.retention.hours", "1"),
        ("log.retention.ms", "soon"),
    ],
)
def test_static_broker_configuration_is_refused(raw: RawClient, name: str, given: str) -> None:
    for resource in ("", "1"):
        refused = alter(raw, BROKER, resource, (name, SET, given))
        assert refused.error_code is E.invalid_request
        assert name in refused.error_message
    assert values(raw, BROKER, "") == {}


# ── loggers ───────────────────────────────────────────────────────────────────────────────────────


def test_the_level_of_a_logger_is_set_and_taken_back(raw: RawClient) -> None:
    logger = logging.getLogger("sparrow.kafka")
    before = value(raw, BROKER_LOGGER, "1", "sparrow.kafka")
    try:
        assert alter(raw, BROKER_LOGGER, "1", ("sparrow.kafka", SET, "TRACE")).error_code is E.none
        assert logger.isEnabledFor(logging.DEBUG)
        assert value(raw, BROKER_LOGGER, "1", "sparrow.kafka") == "TRACE"
        assert alter(raw, BROKER_LOGGER, "1", ("sparrow.kafka", DELETE, None)).error_code is E.none
        assert value(raw, BROKER_LOGGER, "1", "sparrow.kafka") == before
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("sparrow.kafka", SET, "LOUD"), E.invalid_config),
        (("no.such.logger", SET, "INFO"), E.invalid_config),
        (("sparrow.kafka", APPEND, "INFO"), E.invalid_request),
        (("root", DELETE, None), E.invalid_request),
    ],
)
def test_a_level_that_cannot_be_is_refused(
    raw: RawClient, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert alter(raw, BROKER_LOGGER, "1", change).error_code is code


def test_loggers_belong_to_this_broker_and_are_changed_one_by_one(raw: RawClient) -> None:
    assert describe_configs(raw, BROKER_LOGGER, "").error_code is E.invalid_request
    assert describe_configs(raw, BROKER_LOGGER, "2").error_code is E.invalid_request
    assert replace(raw, BROKER_LOGGER, "1", {"root": "INFO"}).error_code is E.invalid_request


# ── clients' metrics, and the list ────────────────────────────────────────────────────────────────


def test_a_subscription_to_clients_metrics_is_kept_until_nothing_is_set_on_it(
    raw: RawClient, topic: str
) -> None:
    name = f"metrics-of-{topic}"
    listed = {"resource_types": [CLIENT_METRICS]}
    assert alter(raw, CLIENT_METRICS, name, ("metrics", APPEND, "org.a,org.b")).error_code is E.none
    assert values(raw, CLIENT_METRICS, name) == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "org.a,org.b",
    }
    assert name in {each.resource_name for each in ask(raw, 74, 1, **listed).config_resources}
    assert alter(raw, CLIENT_METRICS, name, ("metrics", DELETE, None)).error_code is E.none
    assert name not in {each.resource_name for each in ask(raw, 74, 1, **listed).config_resources}
    assert alter(raw, CLIENT_METRICS, name, ("interval.ms", SET, "1")).error_code is E.invalid_config
    assert alter(raw, CLIENT_METRICS, name, ("color", SET, "1")).error_code is E.invalid_config
    assert alter(raw, CLIENT_METRICS, "", ("metrics", SET, "1")).error_code is E.invalid_request
    assert describe_configs(raw, CLIENT_METRICS, "").error_code is E.invalid_request


def test_a_list_of_unknown_kinds_of_resources_is_refused(raw: RawClient) -> None:
    assert ask(raw, 74, 1, resource_types=[3]).error_code is E.unsupported_version


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_has_the_brokers_values_until_it_sets_its_own(raw: RawClient, topic: str) -> None:
    group = f"group-of-{topic}"
    name = "consumer.session.timeout.ms"
    (config,) = describe_configs(raw, GROUP, group, name).configs
    assert (config.value, config.config_source) == ("45000", 5)
    assert alter(raw, GROUP, group, (name, SET, "50000")).error_code is E.none
    (config,) = describe_configs(raw, GROUP, group, name, include_synonyms=True).configs
    assert (config.value, config.config_source) == ("50000", 8)
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        (name, "50000", 8),
        (f"group.{name}", "45000", 5),
    ]
    assert group in {each.resource_name for each in ask(raw, 74, 1, resource_types=[GROUP]).config_resources}
    assert alter(raw, GROUP, group, (name, DELETE, None)).error_code is E.none
    assert value(raw, GROUP, group, name) == "45000"


def test_invalid_group_configuration_is_refused(raw: RawClient, topic: str) -> None:
    assert alter(raw, GROUP, topic, ("color", SET, "1")).error_code is E.invalid_config
    assert alter(raw, GROUP, topic, ("consumer.session.timeout.ms", SET, "1")).error_code is E.invalid_config
    assert (
        alter(raw, GROUP, "", ("consumer.session.timeout.ms", SET, "50000")).error_code is E.invalid_request
    )
    assert describe_configs(raw, GROUP, "").error_code is E.invalid_request
