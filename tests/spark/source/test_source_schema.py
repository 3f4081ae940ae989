"""Choice of columns, and the errors for schemas that do not fit."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from sparrow.base.errors import InvalidArgument
from sparrow.spark.options.declare import Values
from sparrow.spark.options.source import read_source_options
from sparrow.spark.source.schema import TYPES, checked_columns, source_schema

KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def values(**given: str) -> Values:
    return read_source_options({"subscribe": "t", **given})


def test_the_columns_are_those_of_the_kafka_source() -> None:
    schema = source_schema(values())
    assert schema.names == KAFKA
    assert [field.dataType.simpleString() for field in schema] == [
        "binary",
        "binary",
        "string",
        "int",
        "bigint",
        "timestamp",
        "int",
    ]


def test_headers_come_on_request() -> None:
    schema = source_schema(values(includeHeaders="true"))
    assert schema.names == [*KAFKA, "headers"]
    assert schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_columns_are_given_in_the_order_that_was_asked_for() -> None:
    assert source_schema(values(columns="offset,VALUE,headers")).names == ["offset", "value", "headers"]


def test_a_schema_of_the_user_chooses_columns() -> None:
    schema = StructType().add("Offset", LongType()).add("topic", StringType())
    assert checked_columns(schema, values()) == ("offset", "topic")


def test_every_misfit_of_a_schema_is_named() -> None:
    schema = StructType().add("value", StringType()).add("ofset", LongType()).add("partition", LongType())
    with pytest.raises(InvalidArgument) as raised:
        checked_columns(schema, values())
    text = raised.value.text
    assert "value is binary, not string (read it as binary, then CAST(value AS STRING))" in text
    assert "there is no column 'ofset'; did you mean 'offset'?" in text
    assert "partition is int, not bigint" in text


def test_a_column_named_twice_or_no_column_is_refused() -> None:
    twice = StructType().add("partition", IntegerType()).add("PARTITION", IntegerType())
    with pytest.raises(InvalidArgument, match="partition is there twice"):
        checked_columns(twice, values())
    with pytest.raises(InvalidArgument, match="it has no columns"):
        checked_columns(StructType(), values())


def test_a_schema_and_the_option_columns_must_agree() -> None:
    schema = StructType().add("value", TYPES["value"])
    with pytest.raises(InvalidArgument, match="give one of the two"):
        checked_columns(schema, values(columns="value,offset"))
