"""The quota that applies to a client, well-formed entities, and filters."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument, UnsupportedVersion
from sparrow.broker.quotas.rules import (
    Component,
    Entity,
    Match,
    QuotaKind,
    QuotaTable,
    check_filter,
    check_values,
    entity_of,
)

PRODUCE = QuotaKind.PRODUCE.value
USER, CLIENT, DEFAULT_USER, DEFAULT_CLIENT = (
    ("user", "alice"),
    ("client-id", "app"),
    ("user", None),
    ("client-id", None),
)
BY_PRECEDENCE = [
    ([USER, CLIENT], ("alice", "app")),
    ([USER, DEFAULT_CLIENT], ("alice", "app")),
    ([USER], ("alice", None)),
    ([DEFAULT_USER, CLIENT], ("alice", "app")),
    ([DEFAULT_USER, DEFAULT_CLIENT], ("alice", "app")),
    ([DEFAULT_USER], ("alice", None)),
    ([CLIENT], (None, "app")),
    ([DEFAULT_CLIENT], (None, "app")),
]


@given(st.sets(st.integers(0, len(BY_PRECEDENCE) - 1)))
def test_the_most_specific_quota_applies(present: set[int]) -> None:
    table = QuotaTable()
    for index in present:
        table.replace(entity_of(BY_PRECEDENCE[index][0]), {PRODUCE: 1000.0 + index})
    table.replace(entity_of([("user", "bob"), ("client-id", "app")]), {PRODUCE: 1.0})
    table.replace(entity_of([("user", "alice"), ("client-id", "other")]), {PRODUCE: 2.0})
    expected = None
    if present:
        first = min(present)
        expected = (1000.0 + first, BY_PRECEDENCE[first][1])
    assert table.limit(QuotaKind.PRODUCE, "alice", "app") == expected


def test_a_quota_without_the_setting_lets_a_less_specific_one_apply() -> None:
    table = QuotaTable()
    table.replace(entity_of([USER]), {"request_percentage": 10.0})
    table.replace(entity_of([DEFAULT_CLIENT]), {PRODUCE: 7.0})
    assert table.limit(QuotaKind.PRODUCE, "alice", "app") == (7.0, (None, "app"))
    assert table.limit(QuotaKind.REQUEST, "alice", "app") == (10.0, ("alice", None))
    assert not table.is_limited(QuotaKind.FETCH)
    table.replace(entity_of([DEFAULT_CLIENT]), {})
    assert not table.is_limited(QuotaKind.PRODUCE)
    assert table.limit(QuotaKind.PRODUCE, "alice", "app") is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "empty client quota entity"),
        ([("group", "g")], "Unhandled client quota entity type"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a"), ("user", "b")], "Invalid client quota entity combination"),
        ([("user", "a"), ("ip", "10.0.0.1")], "Invalid client quota entity combination"),
        ([("ip", "not an address")], "not a valid IP"),
    ],
)
def test_invalid_entity_is_refused(parts: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        entity_of(parts)


def test_the_parts_of_an_entity_have_no_order() -> None:
    assert entity_of([USER, CLIENT]) == entity_of([CLIENT, USER])
    assert entity_of([("ip", "::1")]) == (("ip", "::1"),)
    assert entity_of([("ip", None)]) == (("ip", None),)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bytes_per_second", 1.0, "Invalid configuration key"),
        ("connection_creation_rate", 1.0, "Invalid configuration key"),
        (PRODUCE, 0.0, "greater than 0"),
        (PRODUCE, -5.0, "greater than 0"),
        (PRODUCE, float("nan"), "greater than 0"),
        (PRODUCE, float("inf"), "greater than 0"),
        (PRODUCE, 10.5, "whole number"),
        (PRODUCE, 1e19, "too large"),
    ],
)
def test_values_that_cannot_be_are_refused(key: str, value: float, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_values(entity_of([USER]), [(key, value)])


def test_each_type_of_entity_has_its_own_settings() -> None:
    assert check_values(entity_of([USER]), [("request_percentage", 12.5), (PRODUCE, None)]) == {
        "request_percentage": 12.5,
        PRODUCE: None,
    }
    address = entity_of([("ip", "10.0.0.1")])
    assert check_values(address, [("connection_creation_rate", 5.0)]) == {"connection_creation_rate": 5.0}
    for values in ([(PRODUCE, 5.0)], [("connection_creation_rate", 3e9)]):
        with pytest.raises(InvalidArgument):
            check_values(address, values)
    with pytest.raises(InvalidArgument, match="twice"):
        check_values(entity_of([USER]), [(PRODUCE, 5.0), (PRODUCE, 6.0)])


ENTITIES: list[Entity] = [
    entity_of(parts)
    for parts in (
        [USER],
        [DEFAULT_USER],
        [CLIENT],
        [DEFAULT_CLIENT],
        [USER, CLIENT],
        [USER, DEFAULT_CLIENT],
        [DEFAULT_USER, CLIENT],
        [("ip", "10.0.0.1")],
    )
]


@pytest.mark.parametrize("strict", [False, True])
def test_a_filter_selects_as_the_words_of_its_components_say(strict: bool) -> None:
    table = QuotaTable()
    for entity in ENTITIES:
        table.replace(entity, {PRODUCE: 1.0})
    matches = {
        "user": [
            None,
            Component("user", Match.EXACT, "alice"),
            Component("user", Match.DEFAULT),
            Component("user", Match.ANY),
        ],
        "client-id": [None, Component("client-id", Match.EXACT, "app"), Component("client-id", Match.ANY)],
    }
    for chosen in itertools.product(*matches.values()):
        components = [each for each in chosen if each]
        expected = []
        for entity in ENTITIES:
            parts = dict(entity)
            if strict and len(parts) != len(components):
                continue
            if all(
                c.entity_type in parts
                and (
                    c.match is Match.ANY
                    or parts[c.entity_type] == (c.name if c.match is Match.EXACT else None)
                )
                for c in components
            ):
                expected.append(entity)
        found = table.selected(check_filter(components), strict=strict)
        assert [entity for entity, _ in found] == expected


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([Component("", Match.ANY)], InvalidArgument),
        ([Component("user", Match.ANY), Component("user", Match.DEFAULT)], InvalidArgument),
        ([Component("group", Match.ANY)], UnsupportedVersion),
        ([Component("user", Match.EXACT)], InvalidArgument),
        ([Component("user", Match.DEFAULT, "alice")], InvalidArgument),
        ([Component("user", Match.ANY), Component("ip", Match.ANY)], InvalidArgument),
    ],
)
def test_components_that_make_no_filter_are_refused(
    components: list[Component], error: type[Exception]
) -> None:
    with pytest.raises(error):
        check_filter(components)
