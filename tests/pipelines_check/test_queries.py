"""SQL and schemas of many kinds, read without Spark. The tests with Spark compare the results with
Spark's.
"""

from __future__ import annotations

import pytest

from sparrow.pipelines.checks.columns import UNKNOWN, FlowColumns
from sparrow.pipelines.checks.conditions import fault_of_condition
from sparrow.pipelines.checks.sqltext import parse_query, resolve
from sparrow.pipelines.ddl import parse_schema, parse_type
from tests.pipelines_check.queries import EXPRESSIONS, PEOPLE, QUERIES, SCHEMA, SCHEMAS, WRONG_QUERIES

SOURCES = {"input": FlowColumns.of(parse_schema(SCHEMA)), "people": FlowColumns.of(parse_schema(PEOPLE))}


@pytest.mark.parametrize("query", QUERIES)
def test_a_right_query_is_not_called_wrong(query):
    assert resolve(parse_query(query), SOURCES).missing == ()


@pytest.mark.parametrize("query", WRONG_QUERIES)
def test_a_column_that_is_not_there_is_found(query):
    assert len(resolve(parse_query(query), SOURCES).missing) == 1


@pytest.mark.parametrize("query", [*QUERIES, *WRONG_QUERIES])
def test_unknown_columns_are_not_reported_as_missing(query):
    assert resolve(parse_query(query), {"input": UNKNOWN, "people": SOURCES["people"]}).missing == ()


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_right_condition_is_not_called_wrong(text):
    assert fault_of_condition(text, SOURCES["input"]) == ""


def test_types_go_through_a_query():
    found = resolve(
        parse_query("SELECT id + 1 AS a, at, amount > 1 AS b, cast(id AS string) AS c FROM input"), SOURCES
    )
    assert found.columns == FlowColumns({"a": "BIGINT", "at": "TIMESTAMP", "b": "BOOLEAN", "c": "STRING"})


def test_names_that_only_spark_gives_leave_the_columns_open():
    assert resolve(parse_query("SELECT count(*), id FROM input GROUP BY id"), SOURCES).columns.is_open
    assert resolve(parse_query("SELECT place.* FROM input"), SOURCES).columns.is_open


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_right_schema_is_read(schema):
    assert parse_schema(schema)


def test_schema_says_names_types_and_nullability():
    found = parse_schema("id bigint NOT NULL, `a``b` array<struct<x: int, y dec>>, t time(3)")
    assert [(each.name, each.type, each.is_nullable) for each in found] == [
        ("id", "BIGINT", False),
        ("a`b", "ARRAY<STRUCT<`x`: INT, `y`: DECIMAL(10, 0)>>", True),
        ("t", None, True),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a column's name is missing"),
        ("a", "the column 'a' has no type"),
        ("a int,", "a column's name is missing"),
        ("a int b int", "'b' is not understood; a column is a name and a type"),
        ("a-b int", "there is no type '-'"),
        (
            "'a' int",
            "a column's name is missing before \"'a'\"; put a name with other characters in backquotes",
        ),
        ("a bigit", "there is no type 'bigit'; did you mean 'bigint'?"),
        ("a array", "'<' is missing after the type 'array'"),
        ("a array<int", "'>' is missing after what is in the array"),
        ("a map<int>", "',' is missing after the type of a map's keys, before '>'"),
        ("a struct<x int", "'>' is missing after the fields of a struct"),
        ("a decimal(40)", "decimal(40,0): there are at most 38 digits, of which the scale is a part"),
        ("a decimal(3,4)", "decimal(3,4): there are at most 38 digits, of which the scale is a part"),
        ("a varchar(3)", "the type 'varchar' is for tables of a catalog; say string"),
        ("a time(x)", "a number is missing in the parentheses after 'time'"),
        ("a int NOT x", "NULL is missing after NOT"),
        ("a int COMMENT x", "a text in quotes is missing after COMMENT"),
        ("a int, A string", "the column 'A' occurs twice; to Spark, case makes no difference"),
        ("a " + "array<" * 200 + "int" + ">" * 200, "types are nested deeper than 100"),
    ],
)
def test_a_wrong_schema_says_what_is_wrong(text, sentence):
    with pytest.raises(ValueError) as caught:
        parse_schema(text)
    assert str(caught.value) == sentence


def test_one_type_is_read_alone():
    assert parse_type("decimal(4, 2)") == "DECIMAL(4, 2)"
    with pytest.raises(ValueError, match="is not understood"):
        parse_type("int, string")
