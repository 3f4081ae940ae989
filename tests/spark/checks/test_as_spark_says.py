"""The results of the checks without Spark equal Spark's: for queries, conditions and schemas."""

from __future__ import annotations

import pytest

from sparrow.pipelines.checks.columns import FlowColumns
from sparrow.pipelines.checks.sqltext import parse_query, resolve
from sparrow.pipelines.ddl import parse_schema
from tests.pipelines_check.queries import EXPRESSIONS, PEOPLE, QUERIES, SCHEMA, SCHEMAS, WRONG_QUERIES

SOURCES = {"input": FlowColumns.of(parse_schema(SCHEMA)), "people": FlowColumns.of(parse_schema(PEOPLE))}
_JUDGED = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "BINARY",
    "STRING",
    "TIMESTAMP",
)
"""Types from which a check draws conclusions."""


@pytest.fixture(scope="module")
def views(spark):
    spark.createDataFrame([], SCHEMA).createOrReplaceTempView("input")
    spark.createDataFrame([], PEOPLE).createOrReplaceTempView("people")
    yield spark
    spark.catalog.dropTempView("input")
    spark.catalog.dropTempView("people")


def test_right_queries_have_the_columns_that_spark_gives_them(views):
    for query in QUERIES:
        schema = views.sql(query).schema
        ours = resolve(parse_query(query), SOURCES).columns
        assert ours.is_open or list(ours.types) == [name.lower() for name in schema.names], query
        for name, kind in ours.types.items():
            theirs = next(field for field in schema.fields if field.name.lower() == name)
            # A number's width may differ: no check depends on it.
            if kind in _JUDGED and not kind.endswith(("INT", "FLOAT", "DOUBLE")):
                assert _type(theirs) == kind, (query, name)


def test_columns_missing_in_the_checks_are_missing_in_spark(views):
    from pyspark.errors import AnalysisException

    for query in WRONG_QUERIES:
        with pytest.raises(AnalysisException) as caught:
            _ = views.sql(query).schema
        assert "UNRESOLVED_COLUMN" in str(caught.value) or "GROUP" in str(caught.value), query


def test_right_conditions_are_conditions_to_spark(views):
    for text in EXPRESSIONS:
        assert views.sql(f"SELECT {text} AS c FROM input").schema["c"].dataType.simpleString() == "boolean", (
            text
        )


def test_schemas_are_read_as_spark_reads_them(views):
    for text in SCHEMAS:
        theirs = views.createDataFrame([], text).schema
        ours = parse_schema(text)
        assert [(each.name, each.is_nullable) for each in ours] == [
            (field.name, field.nullable) for field in theirs.fields
        ], text
        for mine, field in zip(ours, theirs.fields, strict=True):
            if mine.type in _JUDGED:
                assert _type(field) == mine.type, text


def _type(field):
    text = field.dataType.simpleString().upper()
    return "STRING" if text.startswith(("STRING", "CHAR", "VARCHAR")) else text
