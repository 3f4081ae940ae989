"""Any content of a file is answered with sentences."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow import pipelines
from sparrow.base.errors import InvalidConfig
from sparrow.pipelines.checks import faults
from sparrow.pipelines.checks.columns import FlowColumns
from sparrow.pipelines.checks.conditions import fault_of_aggregate, fault_of_condition
from sparrow.pipelines.checks.sqltext import parse_query, resolve
from sparrow.pipelines.ddl import parse_schema
from tests.pipelines_check.queries import EXPRESSIONS, QUERIES, SCHEMAS
from tests.pipelines_check.test_right_files import WHOLE
from tests.repetitions import repetitions

_QUIET = settings(
    max_examples=repetitions(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
_WORDS = st.sampled_from(
    [
        "name",
        "flows",
        "tables",
        "from",
        "to",
        "decode",
        "steps",
        "expect",
        "sql",
        "window",
        "join",
        "on",
        "by",
        "json",
        "schema",
        "topic",
        "key",
        "mode",
        "trigger",
        "once",
        "every",
        "true",
        "null",
        "5",
        "-1",
        "1e999",
    ]
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.text(max_size=8) | _WORDS
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_WORDS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def judged(path):
    """Return every fault of a file; raise any other error than InvalidConfig."""
    try:
        return faults(pipelines.load(str(path)))
    except InvalidConfig as error:
        return error.text.splitlines()


def paths_in(value, path=()):
    """Yield the paths of all parts."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in parts:
        yield from paths_in(inner, (*path, key))


def replaced(value, path, other):
    """Return a copy with another value at the path."""
    if not path:
        return other
    key, *rest = path
    if isinstance(value, dict):
        return {name: replaced(inner, rest, other) if name == key else inner for name, inner in value.items()}
    return [replaced(inner, rest, other) if at == key else inner for at, inner in enumerate(value)]


GOOD = yaml.safe_load(WHOLE)
PATHS = list(paths_in(GOOD))


@pytest.mark.slow
@_QUIET
@given(path=st.sampled_from(PATHS), other=_VALUES)
def test_any_value_anywhere_is_reported_by_sentences(home, path, other):
    (home / "p.yml").write_text(yaml.safe_dump(replaced(GOOD, path, other), allow_unicode=True))
    assert all(isinstance(each, str) and each for each in judged("p.yml"))


@pytest.mark.slow
@_QUIET
@given(at=st.integers(0, len(WHOLE)), length=st.integers(0, 40), other=st.text(max_size=12))
def test_any_damage_to_a_file_is_reported_by_sentences(home, at, length, other):
    damaged = WHOLE[:at] + other + WHOLE[at + length :]
    (home / "p.yml").write_bytes(damaged.encode("utf-8", "surrogatepass"))
    judged("p.yml")


@pytest.mark.slow
@_QUIET
@given(data=st.binary(max_size=80))
def test_any_bytes_are_reported_by_sentences(home, data):
    (home / "p.yml").write_bytes(data)
    assert judged("p.yml") != []


_COLUMNS = FlowColumns({"id": "BIGINT", "name": "STRING", "at": "TIMESTAMP", "x": None})
_TOKENS = st.sampled_from(
    [
        *" ".join((*QUERIES, *EXPRESSIONS)).replace("(", " ( ").replace(")", " ) ").split(),
        "'",
        "`",
        "\\",
        ";",
        "--",
        "/*",
    ]
)


@pytest.mark.slow
@_QUIET
@given(text=st.lists(_TOKENS, max_size=14).map(" ".join) | st.text(max_size=30))
def test_any_text_as_sql_is_read_or_refused_in_a_sentence(text):
    for read in (
        lambda: resolve(parse_query(text), {"input": _COLUMNS}),
        lambda: fault_of_condition(text, _COLUMNS),
        lambda: fault_of_aggregate(text, _COLUMNS, ["id"]),
    ):
        with suppress(ValueError):
            read()


@pytest.mark.slow
@_QUIET
@given(
    text=st.text("ab:<>,()`' 1", max_size=20)
    | st.lists(st.sampled_from(" ".join(SCHEMAS).replace("<", " < ").split()), max_size=10).map(" ".join)
)
def test_any_text_as_a_schema_is_read_or_refused_in_a_sentence(text):
    with suppress(ValueError):
        assert parse_schema(text)
