"""Configurations of share groups and of their dead letters, by Kafka's names: of the group, the
broker, the topic.
"""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from sparrow.base.errors import InvalidConfig
from sparrow.broker.config import BrokerConfig
from sparrow.broker.configs.group import check_group_as_a_whole, check_group_config, duration_ms
from sparrow.broker.groups.share.settings import ShareSettings, why_no_dead_letters
from sparrow.broker.reading.positions import BEGINNING, END, TIMESTAMP, StartPosition
from tests.kafka_admin.messages import BROKER, GROUP, SET, TOPIC, ask, describe_configs, make, values
from tests.kafka_frontend.raw import RawClient

DEFAULTS = {
    "share.session.timeout.ms": "45000",
    "share.heartbeat.interval.ms": "100",  # of this broker
    "share.record.lock.duration.ms": "30000",
    "share.delivery.count.limit": "5",
    "share.partition.max.record.locks": "2000",
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
    "share.renew.acknowledge.enable": "true",
    "errors.deadletterqueue.topic.name": "",
    "errors.deadletterqueue.copy.record.enable": "false",
}


def alter(raw: RawClient, type_: int, name: str, **settings: str) -> E:
    configs = [
        {"name": key.replace("_", "."), "value": v, "config_operation": SET} for key, v in settings.items()
    ]
    resource = {"resource_type": type_, "resource_name": name, "configs": configs}
    (answer,) = ask(raw, 44, 1, resources=[resource]).responses
    code: E = answer.error_code
    return code


def test_share_groups_have_kafkas_configurations_and_defaults(raw: RawClient, name: str) -> None:
    found = {each.name: each for each in describe_configs(raw, GROUP, name, include_synonyms=True).configs}
    assert {key: found[key].value for key in DEFAULTS} == DEFAULTS
    assert [s.name for s in found["share.record.lock.duration.ms"].synonyms] == [
        "group.share.record.lock.duration.ms"
    ]
    assert [s.name for s in found["share.isolation.level"].synonyms] == ["share.isolation.level"]
    types = {"share.delivery.count.limit": 3, "share.renew.acknowledge.enable": 1, "share.isolation.level": 2}
    assert {key: found[key].config_type for key in types} == types


def test_configuration_of_a_group_is_shown_as_its_own(raw: RawClient, name: str) -> None:
    given = {"share_isolation_level": "read_committed", "share_auto_offset_reset": "by_duration:P1D"}
    assert alter(raw, GROUP, name, **given) is E.none
    (config,) = describe_configs(raw, GROUP, name, "share.isolation.level", include_synonyms=True).configs
    assert (config.value, config.config_source) == ("read_committed", 8)
    assert [(s.value, s.source) for s in config.synonyms] == [("read_committed", 8), ("read_uncommitted", 5)]


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("share.session.timeout.ms", "999"),
        ("share.session.timeout.ms", "3600001"),
        ("share.heartbeat.interval.ms", "49"),
        ("share.record.lock.duration.ms", "999"),
        ("share.record.lock.duration.ms", "3600001"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "26"),
        ("share.partition.max.record.locks", "99"),
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration"),
        ("share.auto.offset.reset", "by_duration:-P1D"),
        ("share.auto.offset.reset", "by_duration:1D"),
        ("share.isolation.level", "serializable"),
        ("share.renew.acknowledge.enable", "yes"),
        ("errors.deadletterqueue.topic.name", "__consumer_offsets"),
        ("errors.deadletterqueue.topic.name", "a b"),
        ("errors.deadletterqueue.copy.record.enable", "1"),
    ],
)
def test_invalid_group_configuration_is_refused(setting: str, wrong: str) -> None:
    with pytest.raises(InvalidConfig, match=setting.replace(".", r"\.")):
        check_group_config({setting: wrong})


@pytest.mark.parametrize("kind", ["share", "consumer"])
def test_session_must_be_longer_than_the_time_between_heartbeats(kind: str) -> None:
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    config = BrokerConfig()
    for values_ in ({session: "5000"}, {heartbeat: "45000"}, {session: "9000", heartbeat: "9000"}):
        with pytest.raises(InvalidConfig):
            check_group_as_a_whole(values_, config)
    check_group_as_a_whole({session: "9000", heartbeat: "8000"}, config)
    check_group_as_a_whole({}, config)


def test_session_shorter_than_the_heartbeats_is_refused_by_the_frontend(raw: RawClient, name: str) -> None:
    refused: dict[str, Any] = {"share_session_timeout_ms": "2000", "share_heartbeat_interval_ms": "3000"}
    assert alter(raw, GROUP, name, **refused) is E.invalid_config
    assert values(raw, GROUP, name, "share.session.timeout.ms") == {"share.session.timeout.ms": "45000"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", 86_400_000),
        ("PT0S", 0),
        ("PT1H30M", 5_400_000),
        ("p1dt12h", 129_600_000),
        ("PT0.25S", 250),
        ("PT1,5S", 1_500),
        ("PT5M-10S", 290_000),
        ("-P-1D", 86_400_000),
        ("-P1D", None),
        ("PT-1S", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("1D", None),
        ("P1M", None),
        ("PT1.5M", None),
        ("", None),
        ("P9999999999999D", None),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


def test_start_is_where_the_setting_says() -> None:
    now_ms = 86_400_000
    assert ShareSettings().start(now_ms) == StartPosition(END)
    assert ShareSettings(auto_offset_reset="earliest").start(now_ms) == StartPosition(BEGINNING)
    hour = ShareSettings(auto_offset_reset="by_duration:PT1H")
    assert hour.start(now_ms) == StartPosition(TIMESTAMP, now_ms - 3_600_000)
    assert hour.start(1000) == StartPosition(TIMESTAMP, 0)


def test_broker_shows_what_holds_for_share_groups_and_between_which_bounds(raw: RawClient) -> None:
    shown = values(raw, BROKER, "1")
    expected = {
        "group.share.session.timeout.ms": "45000",
        "group.share.heartbeat.interval.ms": "100",
        "group.share.record.lock.duration.ms": "30000",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.max.record.lock.duration.ms": "3600000",
        "group.share.delivery.count.limit": "5",
        "group.share.max.delivery.count.limit": "25",
        "group.share.partition.max.record.locks": "2000",
        "group.share.min.partition.max.record.locks": "100",
        "group.share.max.size": "200",
        "group.share.max.share.sessions": "2000",
        "group.share.assignors": "simple",
        "errors.deadletterqueue.topic.name.prefix": "dlq.",
        "errors.deadletterqueue.auto.create.topics.enable": "false",
    }
    assert {key: shown[key] for key in expected} == expected


def test_rules_for_dead_letters_are_set_on_brokers_and_topics(raw: RawClient, name: str) -> None:
    make(raw, name, config={"errors.deadletterqueue.group.enable": "true"})
    assert values(raw, TOPIC, name, "errors.deadletterqueue.group.enable") == {
        "errors.deadletterqueue.group.enable": "true"
    }
    assert alter(raw, TOPIC, name, errors_deadletterqueue_group_enable="maybe") is E.invalid_config
    prefix = "errors.deadletterqueue.topic.name.prefix"
    assert alter(raw, BROKER, "", errors_deadletterqueue_topic_name_prefix="dead-") is E.none
    assert values(raw, BROKER, "1", prefix) == {prefix: "dead-"}
    assert alter(raw, BROKER, "", errors_deadletterqueue_topic_name_prefix="dlq.") is E.none


@pytest.mark.parametrize(
    ("topic", "prefix", "is_enabled", "makes_missing", "is_fine"),
    [
        ("dlq.a", "dlq.", True, False, True),
        ("dlq.a", "dlq.", False, True, False),
        ("a", "dlq.", True, True, False),
        ("a", "", True, False, True),
        ("dlq.a", "dlq.", None, True, True),
        ("dlq.a", "dlq.", None, False, False),
    ],
)
def test_dead_letters_go_only_where_they_may(
    topic: str, prefix: str, is_enabled: bool | None, makes_missing: bool, is_fine: bool
) -> None:
    refusal = why_no_dead_letters(topic, prefix=prefix, is_enabled=is_enabled, makes_missing=makes_missing)
    assert (refusal is None) == is_fine
    assert refusal is None or topic in refusal
