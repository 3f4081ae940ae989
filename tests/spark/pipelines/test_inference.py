"""Schemas inferred from JSON messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.pipelines.engine.inference import infer_schema

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def schema_of(*values: Any) -> str:
    return infer_schema(json.dumps(value).encode() for value in values)


@pytest.mark.parametrize(
    ("values", "schema"),
    [
        ([{"a": 1, "b": 2.5, "c": "x", "d": True}], "`a` bigint, `b` double, `c` string, `d` boolean"),
        ([{"a": 1}, {"a": 2.5}], "`a` double"),
        ([{"a": 1}, {"a": "x"}], "`a` string"),
        ([{"a": None}, {"a": True}], "`a` boolean"),
        ([{"a": None}], "`a` string"),
        ([{"a": 10**25}, {"a": 1}], "`a` decimal(38,0)"),
        ([{"a": 10**40}], "`a` double"),
        ([{"a": [1, 2.5]}, {"a": []}], "`a` array<double>"),
        ([{"a": {"b": 1}}, {"a": {"c": "x"}}], "`a` struct<`b`: bigint, `c`: string>"),
        ([{"a": {}}], "`a` string"),
        ([{"a": {"b": 1}}, {"a": [1]}], "`a` string"),
        ([{"a`b": 1}], "`a``b` bigint"),
        ([{"b": 1}, {"a": 1}], "`b` bigint, `a` bigint"),
        ([{"b": 1, "a": 1}, {"a": 1, "b": 1}], "`b` bigint, `a` bigint"),
        (["no object", {"a": 1}, [1]], "`a` bigint"),
    ],
)
def test_schema_of_messages(values: list[Any], schema: str) -> None:
    assert schema_of(*values) == schema


def test_messages_that_are_no_json_do_not_count() -> None:
    assert infer_schema([None, b"\xff", b"{", b'{"a": 1}']) == "`a` bigint"
    with pytest.raises(InvalidArgument, match="none of the messages is a JSON object"):
        infer_schema([None, b"{", b"[]"])


@given(st.lists(st.dictionaries(st.text(max_size=3), VALUES, min_size=1), min_size=1, max_size=4))
def test_any_messages_have_a_schema_that_more_of_the_same_does_not_change(
    values: list[dict[str, Any]],
) -> None:
    assert schema_of(*values) == schema_of(*values, *values)
