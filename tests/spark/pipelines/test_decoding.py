"""Every decoder, with messages that fit and messages that do not: a message becomes a row, or a
reason.
"""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.pipelines.engine.formats import decode
from sparrow.pipelines.model import (
    AvroDecoder,
    ConsoleSink,
    CsvDecoder,
    Flow,
    JsonDecoder,
    ProtobufDecoder,
    RegexDecoder,
    Source,
    TextDecoder,
)
from tests.spark.pipelines.formats import avro, avro_file, protobuf, protobuf_file

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sparrow.pipelines.model import Decoder

pytestmark = pytest.mark.timeout(300)

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def flow(decoder: Decoder | None, key: Decoder | None = None) -> Flow:
    return Flow(name="f", source=Source(topics=["t"]), sink=ConsoleSink(), decode=decoder, key=key)


def decoded(
    spark: SparkSession, decoder: Decoder | None, *values: bytes | None, key: Decoder | None = None
) -> DataFrame:
    rows = [
        (b"7", value, "t", 3, offset, dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
        for offset, value in enumerate(values)
    ]
    return decode(spark.createDataFrame(rows, SCHEMA), flow(decoder, key), lambda *_: "id bigint")


def rows(
    spark: SparkSession, decoder: Decoder | None, *values: bytes | None, key: Decoder | None = None
) -> list[dict[str, Any]]:
    """Return the decoded columns, and `_fault`, in the order of the messages."""
    collected = decoded(spark, decoder, *values, key=key).orderBy("_offset").collect()
    hidden = {"_key", "_value", "_topic", "_partition", "_offset", "_timestamp"}
    return [
        {name: each for name, each in row.asDict(recursive=True).items() if name not in hidden}
        for row in collected
    ]


def naive(*parts: int) -> dt.datetime:
    """Return the time as in Spark's rows: without a zone, in the session's, which is UTC here."""
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


def faults(found: list[dict[str, Any]]) -> list[str | None]:
    return [row["_fault"] for row in found]


def test_json_gives_columns_or_the_field_that_does_not_fit(spark: SparkSession) -> None:
    decoder = JsonDecoder(schema="id bigint not null, amount double, n struct<a: int>")
    found = rows(
        spark,
        decoder,
        b'{"id": 1, "amount": 2.5, "n": {"a": 3}}',
        b'{"id": "x"}',
        b"nope",
        None,
        b"[1]",
        b"\xff",
        b"",
        b'{"amount": 1}',
        b'{"id": 1, "n": {"a": "x"}}',
        b'{"id": 1, "amount": "2.5"}',
        b'{"id": 99999999999999999999}',
        b'{"id": 1}{"id": 2}',
        b'{"id": 1}, {"id": 2}',
        b'{"id": 1} rest',
        b'{"id": 1, "amount": NaN}{}',
        b'{"id": 1, "amount": NaN}\n',
        b' {"id": 1, "n": {}}\n',
    )
    more = "there is more than one JSON object in the value, or something behind it"
    assert found[0] == {"id": 1, "amount": 2.5, "n": {"a": 3}, "_fault": None}
    assert faults(found)[1:] == [
        "the field 'id' is not bigint",
        "the value is not a JSON object",
        "the value is null",
        "the value is not a JSON object",
        "the value is not UTF-8",
        "the value is not a JSON object",
        "the field 'id' is missing or null",
        "the value does not fit the schema",
        "the field 'amount' is not double",
        "the field 'id' is not bigint",
        *[more] * 4,
        None,
        None,
    ]


def test_csv_gives_columns_or_the_unread_text(spark: SparkSession) -> None:
    found = rows(
        spark,
        CsvDecoder(schema="a int, b string", delimiter=";"),
        b'1;"x;y"',
        b"y;x",
        b"1",
        b"1;2;3",
        None,
        b";",
        b"",
    )
    assert found[0] == {"a": 1, "b": "x;y", "_fault": None}
    assert found[5] == {"a": None, "b": None, "_fault": None}
    assert faults(found)[1:5] == [
        "the line does not fit the schema; not read: a (int)",
        "the line does not fit the schema; not read: b (string)",
        "the line does not have 2 fields",
        "the value is null",
    ]
    assert found[6]["_fault"] == "the line does not fit the schema; not read: a (int), b (string)"


def test_regular_expression_matches_whole_lines_and_groups_get_their_types(spark: SparkSession) -> None:
    decoder = RegexDecoder(pattern=r"(?P<level>\w+) (?P<n>\d+|x)( (?P<rest>.*))?", types={"n": "int"})
    found = rows(spark, decoder, b"INFO 3 yes", b"INFO x no", b"INFO 4", b"- INFO 3", b"\xff", None)
    assert found[0] == {"level": "INFO", "n": 3, "rest": "yes", "_fault": None}
    assert found[2] == {"level": "INFO", "n": 4, "rest": None, "_fault": None}
    assert faults(found)[1] == "n is not int: x"
    assert faults(found)[3:] == ["the pattern does not match", "the value is not UTF-8", "the value is null"]


def test_text_and_undecoded_values_are_one_column(spark: SparkSession) -> None:
    found = rows(spark, TextDecoder(), "é".encode(), b"\xff", None)
    assert found[0] == {"value": "é", "_fault": None}
    assert faults(found)[1:] == ["the value is not UTF-8", "the value is null"]
    plain = decoded(spark, None, b"\xff", None)
    assert [row["value"] for row in plain.collect()] == [bytearray(b"\xff"), None]
    assert [row["_fault"] for row in plain.collect()] == [None, None]


def test_key_has_a_column_of_its_own_and_may_be_at_fault(spark: SparkSession) -> None:
    as_text = rows(spark, TextDecoder(), b"v", key=TextDecoder())
    assert as_text == [{"value": "v", "key": "7", "_fault": None}]
    as_struct = rows(spark, None, b"v", key=JsonDecoder(schema="a int"))
    assert as_struct[0]["_fault"] == "key: the value is not a JSON object"
    pattern = RegexDecoder(pattern=r"(?P<n>\d)", types={"n": "int"})
    assert rows(spark, None, b"v", key=pattern)[0]["key"] == {"n": 7}


def test_avro_gives_sparks_types_and_bad_bytes_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    decoder = AvroDecoder(schema_file=avro_file(tmp_path))
    found = rows(
        spark,
        decoder,
        avro(),
        b"\x02",
        b"",
        None,
        avro() + b"x",
        avro(any="text", other=None),
        avro(any=None),
    )
    assert found[0] == {
        "id": 1,
        "at": naive(2024, 1, 1),
        "price": decimal.Decimal("1.25"),
        "kind": "A",
        "other": "B",
        "any": "7",
        "size": 1 << 40,
        "tags": {"x": 1},
        "lines": [{"sku": "s", "ref": "00000000-0000-0000-0000-000000000005"}],
        "hour": "01:02:03",
        "day": dt.date(2024, 2, 3),
        "_fault": None,
    }
    assert faults(found)[1:5] == [
        "the record ends too early",
        "the record ends too early",
        "the value is null",
        "there are bytes behind the record",
    ]
    assert (found[5]["any"], found[5]["other"], found[6]["any"]) == ("text", None, None)


def test_avro_with_a_registrys_prefix_is_read_behind_it(spark: SparkSession, tmp_path: Path) -> None:
    decoder = AvroDecoder(schema_file=avro_file(tmp_path), has_registry_prefix=True)
    found = rows(spark, decoder, b"\0\0\0\0\1" + avro(), avro())
    assert found[0]["id"] == 1
    assert faults(found) == [None, "the value does not begin with a zero and a schema's id"]


def test_avro_schema_that_contains_itself_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "node.avsc"
    path.write_text(
        '{"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}'
    )
    with pytest.raises(InvalidConfig, match="the type Node contains itself"):
        decoded(spark, AvroDecoder(schema_file=str(path)), b"")


def test_protobuf_gives_sparks_types_and_bad_bytes_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    decoder = ProtobufDecoder(descriptor_file=protobuf_file(tmp_path), message="shop.Order")
    order = protobuf(
        id=5, big=2**64 - 1, kind=1, raw=b"ab", lines=[{"sku": "q"}], note={"value": "n"}, tags={"x": 3}
    )
    at = protobuf(at=dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC), kind=9)
    found = rows(spark, decoder, order, b"\xff\xff", None, at)
    assert found[0] == {
        "id": 5,
        "big": decimal.Decimal(2**64 - 1),
        "kind": "SOME",
        "lines": [{"sku": "q"}],
        "at": None,
        "note": "n",
        "tags": {"x": 3},
        "raw": bytearray(b"ab"),
        "_fault": None,
    }
    assert str(faults(found)[1]).startswith("Error parsing message")
    assert faults(found)[2] == "the value is null"
    assert (found[3]["at"], found[3]["kind"], found[3]["id"]) == (
        naive(2023, 11, 14, 22, 13, 20),
        "9",
        0,
    )


def test_protobuf_with_a_registrys_prefix_skips_the_messages_index(
    spark: SparkSession, tmp_path: Path
) -> None:
    decoder = ProtobufDecoder(
        descriptor_file=protobuf_file(tmp_path), message="shop.Order", has_registry_prefix=True
    )
    prefix = b"\0\0\0\0\1"
    first, nested = prefix + b"\0" + protobuf(id=5), prefix + b"\4\2\6" + protobuf(id=6)
    found = rows(spark, decoder, first, nested, protobuf(id=7), prefix + b"\x80")
    assert [row["id"] for row in found] == [5, 6, None, None]
    assert faults(found)[3] == "the message's index ends too early"


def test_protobuf_message_that_is_not_there_or_contains_itself_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = protobuf_file(tmp_path)
    with pytest.raises(InvalidConfig, match=r"no message 'shop.Ordr'; did you mean 'shop.Order'\?"):
        decoded(spark, ProtobufDecoder(descriptor_file=file, message="shop.Ordr"), b"")
    with pytest.raises(InvalidConfig, match=r"shop.Node contains itself"):
        decoded(spark, ProtobufDecoder(descriptor_file=file, message="shop.Node"), b"")


def test_schema_that_is_none_is_reported_in_a_sentence(spark: SparkSession) -> None:
    with pytest.raises(InvalidConfig, match="the schema 'id bigiant' is not one to Spark"):
        decoded(spark, JsonDecoder(schema="id bigiant"), b"")
