"""Application of the model's decoders: choice of the parser, and its use on the columns of the
source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparrow.base.errors import InvalidConfig
from sparrow.pipelines.engine.columns import FAULT, column, meta_columns
from sparrow.pipelines.engine.formats.avro import avro_parser
from sparrow.pipelines.engine.formats.csv import csv_parser
from sparrow.pipelines.engine.formats.json import json_parser
from sparrow.pipelines.engine.formats.protobuf import protobuf_parser
from sparrow.pipelines.engine.formats.text import regex_parser, text_parser
from sparrow.pipelines.model import (
    KEY_COLUMN,
    VALUE_COLUMN,
    AvroDecoder,
    CsvDecoder,
    JsonDecoder,
    ProtobufDecoder,
    RegexDecoder,
    TextDecoder,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from sparrow.pipelines.engine.formats.parser import Parser
    from sparrow.pipelines.model import Decoder, Flow

    Infer = Callable[[str, int], str]
    """Column ("key" or "value") and number of messages → their schema as DDL."""

_KEY, _VALUE = "_parsed_key", "_parsed_value"


def decode(df: DataFrame, flow: Flow, infer: Infer) -> DataFrame:
    """Return the decoded columns of the source, with the meta columns and `_fault`.

    Args:
        infer: called for the schema of JSON that is to be inferred.

    Raises:
        InvalidConfig: a schema cannot be used.
    """
    value = _parser(df.sparkSession, flow.decode, VALUE_COLUMN, infer) if flow.decode else None
    key = _parser(df.sparkSession, flow.key, KEY_COLUMN, infer) if flow.key else None
    parsed = [
        parser.parse(F.col(source)).alias(name)
        for parser, source, name in ((value, VALUE_COLUMN, _VALUE), (key, KEY_COLUMN, _KEY))
        if parser
    ]
    values = value.columns(column(_VALUE)) if value else [F.col(VALUE_COLUMN)]
    keys = _key_columns(key) if key else []
    return df.select("*", *parsed).select(*values, *keys, *meta_columns(df), _fault(value, key).alias(FAULT))


def _key_columns(parser: Parser) -> list[Column]:
    columns = parser.columns(column(_KEY))
    if len(parser.fields) == 1 and parser.fields[0].name == KEY_COLUMN:
        return columns
    return [F.struct(*columns).alias(KEY_COLUMN)]


def _fault(value: Parser | None, key: Parser | None) -> Column:
    faults = [F.lit(None).cast("string")]
    if key:
        # A record without a key is not at fault; its key is null.
        reason = F.concat(F.lit("key: "), key.fault(F.col(KEY_COLUMN), column(_KEY)))
        faults.insert(0, F.when(F.col(KEY_COLUMN).isNotNull(), reason))
    if value:
        faults.insert(0, value.fault(F.col(VALUE_COLUMN), column(_VALUE)))
    return F.coalesce(*faults)


def _parser(spark: SparkSession, decoder: Decoder, source: str, infer: Infer) -> Parser:
    match decoder:
        case JsonDecoder():
            return json_parser(_schema(spark, decoder.schema or infer(source, decoder.sample or 1000)))
        case CsvDecoder():
            return csv_parser(decoder, _schema(spark, decoder.schema))
        case RegexDecoder():
            types = {name: _schema(spark, f"x {kind}")["x"].dataType for name, kind in decoder.types.items()}
            return regex_parser(decoder.pattern, types)
        case AvroDecoder():
            return avro_parser(decoder.schema_file, has_registry_prefix=decoder.has_registry_prefix)
        case ProtobufDecoder():
            return protobuf_parser(
                decoder.descriptor_file, decoder.message, has_registry_prefix=decoder.has_registry_prefix
            )
        case TextDecoder():
            return text_parser(source)


def _schema(spark: SparkSession, ddl: str) -> T.StructType:
    """Parse DDL by Spark, with a session of either kind."""
    from pyspark.errors import PySparkException

    try:
        return spark.createDataFrame([], ddl).schema
    except PySparkException as error:
        raise InvalidConfig(f"the schema {ddl!r} is not one to Spark: {error}") from None
