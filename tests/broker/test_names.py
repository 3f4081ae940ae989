"""Topic names and patterns."""

from __future__ import annotations

import time

import pytest

from sparrow.base.errors import InvalidTopicName
from sparrow.broker.names import check_topic_name, compile_pattern


@pytest.mark.parametrize("name", ["orders", "a", "A.b_c-9", "x" * 249, "...", "__offsets"])
def test_a_valid_name_is_taken(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../etc", "a/b", "x" * 300, "a b", "ä", "a\n", "a\0b", "orders*"]
)
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.", True),
        ("orders.*", "orders", False),
        ("orders.*", "ordersXeu", False),
        ("*", "anything", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*.eu", "orders.eu", True),
        ("*.eu", "orders.eu.x", False),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, name: str, matches: bool) -> None:
    assert bool(compile_pattern(pattern).match(name)) is matches


@pytest.mark.parametrize("pattern", ["", "a/b", "[ab]", "x" * 250, "a b*"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidTopicName):
        compile_pattern(pattern)


def test_a_pattern_of_many_stars_matches_in_linear_time() -> None:
    began = time.perf_counter()
    assert not compile_pattern("*a" * 60 + "b").match("a" * 249)
    assert time.perf_counter() - began < 5
