"""Changes of configurations against a naive model, and the kinds of values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument, InvalidConfig
from sparrow.base.settings import Kind
from sparrow.broker.config import BrokerConfig
from sparrow.broker.configs.changes import ConfigChange, ConfigOperation, changed, check_changes, replacing
from sparrow.broker.configs.node import NODE_CONFIGS, as_topic_defaults, static_values, synonyms_of_topic
from sparrow.broker.configs.topic import DECLARATIONS
from sparrow.broker.configs.values import (
    BOOLEAN,
    LIST,
    ONLY_FALSE,
    STRING,
    THROTTLED_REPLICAS,
    integer,
    items,
)

LISTS, WORDS = ("l1", "l2"), ("w1", "w2")
DEFAULTS = {"l1": "a,b", "l2": "", "w1": "x", "w2": "y"}
names = st.sampled_from(LISTS + WORDS)
values = st.lists(st.sampled_from("abcd"), max_size=3).map(",".join)
maps = st.dictionaries(names, values)


def kind_of(name: str) -> Kind[Any]:
    if name not in DEFAULTS:
        raise InvalidConfig(name)
    return LIST if name in LISTS else STRING


def apply(current: dict[str, str], *changes: ConfigChange) -> dict[str, str]:
    return changed(current, changes, kind_of, DEFAULTS.get)


@given(maps, names, values)
def test_set_and_delete_touch_one_name(current: dict[str, str], name: str, value: str) -> None:
    after = apply(current, ConfigChange(name, ConfigOperation.SET, value))
    assert after == {**current, name: value}
    gone = apply(after, ConfigChange(name, ConfigOperation.DELETE))
    assert gone == {key: text for key, text in current.items() if key != name}


@given(maps, st.sampled_from(LISTS), values)
def test_lists_gain_missing_items_and_lose_present_ones(
    current: dict[str, str], name: str, value: str
) -> None:
    before = items(current.get(name, DEFAULTS[name]))
    grown = items(apply(current, ConfigChange(name, ConfigOperation.APPEND, value))[name])
    assert grown[: len(before)] == before
    assert set(grown) == set(before) | set(items(value))
    shrunk = items(apply(current, ConfigChange(name, ConfigOperation.SUBTRACT, value))[name])
    assert shrunk == [item for item in before if item not in items(value)]


@given(maps, maps)
def test_replacing_leaves_only_the_given_values(current: dict[str, str], wanted: dict[str, str]) -> None:
    assert apply(current, *replacing(current, wanted)) == wanted


@pytest.mark.parametrize("operation", [ConfigOperation.APPEND, ConfigOperation.SUBTRACT])
def test_list_operations_on_single_values_are_refused(operation: ConfigOperation) -> None:
    with pytest.raises(InvalidConfig, match="w1 is no list"):
        apply({}, ConfigChange("w1", operation, "a"))


def test_change_needs_one_name_and_a_value() -> None:
    with pytest.raises(InvalidArgument, match="w1"):
        check_changes(
            [ConfigChange("w1", ConfigOperation.SET, "a"), ConfigChange("w1", ConfigOperation.DELETE)]
        )
    with pytest.raises(InvalidArgument, match="w2"):
        check_changes([ConfigChange("w2", ConfigOperation.SET)])


@pytest.mark.parametrize("text", ["", "1_0", "1.0", "0x1", "٣", "9" * 30, "-1", "11", "None"])
def test_a_whole_number_is_digits_within_bounds(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number from 0 to 10"):
        integer(0, 10).read(text)


def test_kinds_accept_the_values_of_kafka() -> None:
    assert integer(-1).read(" +5 ") == 5
    assert BOOLEAN.read("TRUE") is True
    assert ONLY_FALSE.read("false") is False
    assert items(" a, b ,,c ") == ["a", "b", "c"]
    assert THROTTLED_REPLICAS.read("0:1,1:1") == ("0:1", "1:1")
    assert THROTTLED_REPLICAS.read("*") == ("*",)
    for wrong in ("0", "a:1", "*,0:1"):
        with pytest.raises(ValueError, match="partition:broker"):
            THROTTLED_REPLICAS.read(wrong)


def test_every_default_of_a_broker_passes_its_own_check_and_every_topic_default_has_a_name() -> None:
    for row in NODE_CONFIGS.values():
        if row.default is not None:
            row.kind.read(row.default)
    of_topics_alone = {
        name
        for name in DECLARATIONS
        if "throttled" in name or name.startswith(("remote.", "errors.deadletterqueue."))
    }
    assert {name for name in DECLARATIONS if not synonyms_of_topic(name)} == of_topics_alone


def test_a_broker_with_defaults_shows_nothing_as_set() -> None:
    assert static_values(BrokerConfig(), {}) == {}
    shown = static_values(
        BrokerConfig(default_partitions=7, topic_defaults={"retention.ms": "5"}), {"log.dirs": "/x"}
    )
    assert shown == {"num.partitions": "7", "log.retention.ms": "5", "log.dirs": "/x"}


def test_a_brokers_values_become_those_of_topics() -> None:
    values = {
        "log.retention.ms": "5",
        "message.max.bytes": "9",
        "num.io.threads": "4",
        "log.retention.hours": "1",
    }
    assert as_topic_defaults(values) == {"retention.ms": "5", "max.message.bytes": "9"}
