"""The columns that are written, and the errors for those that cannot be. Needs PySpark's types, no
JVM.
"""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparrow.base.errors import InvalidArgument
from sparrow.spark.sink.schema import columns_of

TEXT, BYTES, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def schema(**columns: DataType) -> StructType:
    """Return a schema; Spark's own reader of schemas as text needs a JVM."""
    found = StructType()
    for name, kind in columns.items():
        found = found.add(name, kind)
    return found


def pairs(*fields: tuple[str, DataType]) -> ArrayType:
    return ArrayType(schema(**dict(fields)))


HEADERS = pairs(("key", TEXT), ("value", BYTES))


def told(topic: str | None = "orders", **columns: DataType) -> str:
    with pytest.raises(InvalidArgument) as raised:
        columns_of(schema(**columns), topic=None if topic == "" else topic)
    return raised.value.text


def test_the_columns_of_sparks_kafka_sink_are_found_by_name():
    columns = schema(
        extra=DoubleType(),
        timestamp=TimestampType(),
        headers=HEADERS,
        value=BYTES,
        partition=INT,
        key=TEXT,
        topic=TEXT,
    )

    found = columns_of(columns, topic=None)

    assert found.indexes == {
        "value": 3,
        "key": 5,
        "headers": 2,
        "topic": 6,
        "partition": 4,
        "timestamp": 1,
    }


def test_value_alone_is_enough_with_a_topic_by_option():
    assert columns_of(schema(value=TEXT), topic="orders").indexes == {"value": 0}


def test_a_topic_by_option_leaves_the_column_out_even_if_it_could_not_be_written():
    found = columns_of(schema(value=TEXT, topic=INT), topic="orders")

    assert "topic" not in found.indexes


def test_headers_can_be_left_out():
    columns = schema(value=TEXT, headers=INT)

    assert "headers" not in columns_of(columns, topic="orders", includes_headers=False).indexes


def test_columns_are_found_in_any_case_and_the_exact_one_wins():
    assert columns_of(schema(Value=TEXT, KEY=BYTES), topic="t").indexes == {"value": 0, "key": 1}
    assert columns_of(schema(VALUE=INT, value=TEXT), topic="t").indexes == {"value": 1}


@pytest.mark.parametrize("kind", [ByteType(), ShortType(), INT, LONG])
def test_partition_may_be_any_whole_number(kind):
    assert "partition" in columns_of(schema(value=TEXT, partition=kind), topic="t").indexes


@pytest.mark.parametrize("kind", [TimestampType(), LONG])
def test_timestamp_may_be_a_timestamp_or_milliseconds(kind):
    assert "timestamp" in columns_of(schema(value=TEXT, timestamp=kind), topic="t").indexes


def test_every_wrong_column_is_named_with_its_remedy():
    text = told(
        value=schema(a=INT),
        key=LONG,
        headers=MapType(TEXT, TEXT),
        partition=TEXT,
        timestamp=TimestampNTZType(),
    )

    headers_advice = "select array(struct('name' AS key, CAST(content AS BINARY) AS value)) AS headers"
    time_kinds = "timestamp, or bigint (milliseconds since 1970)"
    assert text.splitlines() == [
        "these rows cannot be written to a topic:",
        "- column value is struct<a:int>, and must be string or binary; select to_json(`value`) AS value",
        "- column key is bigint, and must be string or binary; select CAST(`key` AS STRING) AS key",
        (
            "- column headers is map<string,string>, and must be "
            f"array<struct<key:string,value:binary>>; {headers_advice}"
        ),
        "- column partition is string, and must be int; select CAST(`partition` AS INT) AS partition",
        (
            f"- column timestamp is timestamp_ntz, and must be {time_kinds}; select CAST(`timestamp` "
            "AS TIMESTAMP) AS timestamp"
        ),
        (
            "Their columns: value struct<a:int>, key bigint, headers map<string,string>, partition "
            "string, timestamp timestamp_ntz"
        ),
    ]


def test_rows_without_a_value_are_told_which_column_could_be_one():
    assert "select `text` AS value" in told(id=LONG, text=TEXT)
    assert "select to_json(struct(*)) AS value" in told(id=LONG, text=TEXT, note=TEXT)


def test_rows_without_a_topic_are_told_so():
    assert "nothing says which topic is written to; give the option topic" in told("", value=TEXT)


def test_two_columns_of_one_name_are_refused():
    assert "there are 2 columns value; leave one" in told(Value=TEXT, VALUE=TEXT)


@pytest.mark.parametrize(
    "kind",
    [
        pairs(("name", TEXT), ("value", BYTES)),
        pairs(("key", BYTES), ("value", BYTES)),
        pairs(("key", TEXT), ("value", BYTES), ("more", INT)),
        ArrayType(TEXT),
        TEXT,
    ],
)
def test_headers_of_another_shape_are_refused(kind):
    assert "column headers is" in told(value=TEXT, headers=kind)


def test_a_schema_of_a_thousand_columns_is_not_told_in_full():
    text = told(**{f"c{number}": INT for number in range(1000)})

    assert text.endswith("c29 int, and 970 more")
