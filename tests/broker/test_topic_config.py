"""Topic configuration: checked when set, described with default and source."""

from __future__ import annotations

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.broker.configs.topic import DECLARATIONS, TopicConfig, check_config


def test_every_default_passes_its_own_check() -> None:
    check_config({d.name: d.default for d in DECLARATIONS.values()})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "shred"),
        ("min.cleanable.dirty.ratio", "2"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("durability", "maybe"),
        ("segment.bytes", "1"),
        ("preallocate", "yes"),
    ],
)
def test_wrong_value_is_refused_with_the_allowed_ones(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} cannot be '{value}': it takes"):
        check_config({name: value})


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean 'retention\.ms'"):
        check_config({"retention.msec": "1"})


def test_a_topic_wins_over_the_broker_and_the_broker_over_the_default() -> None:
    config = TopicConfig({"retention.ms": "1"}, {"retention.ms": "2", "segment.ms": "3"})
    entries = {e.name: e for e in config.entries()}
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("1", "topic")
    assert (entries["segment.ms"].value, entries["segment.ms"].source) == ("3", "broker")
    assert (entries["segment.bytes"].value, entries["segment.bytes"].source) == ("1073741824", "default")
    assert entries["retention.ms"].default == "604800000"
    assert config.log.retention_ms == 1


def test_both_cleanup_policies_may_hold_at_once() -> None:
    log = TopicConfig({"cleanup.policy": "compact,delete"}, {}).log
    assert log.compact
    assert log.delete
