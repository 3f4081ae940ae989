"""Checks of schemas, wherever they are declared, and the columns that each decoder makes of a
message.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from sparrow.base.faults import suggestion
from sparrow.pipelines.checks.columns import UNKNOWN, FlowColumns
from sparrow.pipelines.checks.findings import Finding
from sparrow.pipelines.ddl import parse_schema, parse_type
from sparrow.pipelines.model import (
    HEADER_COLUMNS,
    KEY_COLUMN,
    META_COLUMNS,
    VALUE_COLUMN,
    AvroDecoder,
    CsvDecoder,
    JsonDecoder,
    ProtobufDecoder,
    RegexDecoder,
    TextDecoder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.pipelines.model import Decoder, Flow, PipelineModel, Table

_META_TYPES: dict[str, str | None] = {
    "_key": "BINARY",
    "_topic": "STRING",
    "_partition": "INT",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMP",
    "_value": "BINARY",
}
_HEADER_TYPES: dict[str, str | None] = {
    "_headers": "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>",
    "_message_id": "STRING",
}
_AVRO = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_RESERVED = {*META_COLUMNS, *HEADER_COLUMNS}
_MAX_FILE_BYTES = 16 << 20


class WrongSchema(ValueError):
    """A fault of a schema; `field` is the setting of the decoder that holds it."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def judge_schemas(pipeline: PipelineModel) -> Iterator[Finding]:
    """Check all schemas."""
    for table in pipeline.tables:
        if table.schema is not None:
            try:
                parse_schema(table.schema)
            except ValueError as error:
                yield Finding(table, ("schema",), _sentence(error))
    for flow in pipeline.flows:
        yield from _judge_decoder(flow.decode)
        yield from _judge_decoder(flow.key)
        yield from _judge_together(flow)


def _judge_decoder(decoder: Decoder | None) -> Iterator[Finding]:
    if decoder is None:
        return
    if isinstance(decoder, JsonDecoder) and (decoder.schema is None) == (decoder.sample is None):
        yield Finding(
            decoder,
            (),
            "needs either a schema, such as \"id bigint, at timestamp\", or 'sample: 1000' to infer one",
        )
    if isinstance(decoder, CsvDecoder):
        yield from _judge_characters(decoder)
    try:
        columns = columns_of_decoder(decoder, VALUE_COLUMN)
    except WrongSchema as error:
        yield Finding(decoder, (error.field,), str(error))
        return
    for name in columns.types:
        if name in _RESERVED:
            yield Finding(
                decoder,
                (_FIELDS.get(type(decoder), "schema"),),
                f"the column {name!r} has the name of one that each row has beside its own; rename "
                "it where it is made",
            )
    if isinstance(decoder, RegexDecoder):
        yield from _judge_types(decoder, columns)


def _judge_characters(decoder: CsvDecoder) -> Iterator[Finding]:
    for name in ("quote", "escape"):
        text = getattr(decoder, name)
        if len(text) > 1:
            yield Finding(decoder, (name,), f"is one character, not {text!r}")
    if not decoder.delimiter:
        yield Finding(decoder, ("delimiter",), "is at least one character")


def _judge_types(decoder: RegexDecoder, columns: FlowColumns) -> Iterator[Finding]:
    for name in decoder.types:
        if not columns.has(name):
            yield Finding(
                decoder,
                ("types", name),
                f"the pattern has no group {name!r}{suggestion(name, columns.types)}",
            )


def _judge_together(flow: Flow) -> Iterator[Finding]:
    """Check that the column of a decoded key has a name that the decoded value does not use."""
    if flow.key is None or "decode" in flow.unread:
        return
    try:
        values = columns_of_decoder(flow.decode, VALUE_COLUMN)
    except WrongSchema:
        return
    if KEY_COLUMN in values.types:
        yield Finding(
            flow,
            ("key",),
            f"the decoded key is the column {KEY_COLUMN!r}, and the decoded value has one of that name",
        )


def decoded_columns(flow: Flow) -> FlowColumns:
    """Return the columns of a row before the first step; they are unknown if a schema is wrong,
    which `judge_schemas` reports.
    """
    if not flow.unread.isdisjoint(("decode", "key")):
        return UNKNOWN
    try:
        values = columns_of_decoder(flow.decode, VALUE_COLUMN)
        key = columns_of_decoder(flow.key, KEY_COLUMN) if flow.key is not None else None
    except WrongSchema:
        return UNKNOWN
    found = values
    if key is not None:
        is_text = isinstance(flow.key, TextDecoder)
        found = found.with_others({KEY_COLUMN: "STRING" if is_text else None})
    meta = _META_TYPES | (_HEADER_TYPES if flow.has_headers else {})
    return found.with_others(meta)


def columns_of_decoder(decoder: Decoder | None, name: str) -> FlowColumns:
    """Return the columns that a decoder makes of a message's key or value.

    Args:
        name: the column of a text, or of bytes that are not decoded.

    Raises:
        WrongSchema: a setting of the decoder is wrong.
    """
    if decoder is None:
        return FlowColumns({name: "BINARY"})
    if isinstance(decoder, TextDecoder):
        return FlowColumns({name: "STRING"})
    reader: Callable[[Any], FlowColumns] = _READERS[type(decoder)]
    return reader(decoder)


def _of_ddl(decoder: JsonDecoder | CsvDecoder) -> FlowColumns:
    if decoder.schema is None:
        return UNKNOWN
    try:
        return FlowColumns.of(parse_schema(decoder.schema))
    except ValueError as error:
        raise WrongSchema("schema", _sentence(error)) from None


def _of_regex(decoder: RegexDecoder) -> FlowColumns:
    types: dict[str, str | None] = {}
    wrong = []
    for name, kind in decoder.types.items():
        try:
            types[name] = parse_type(kind)
        except ValueError as error:
            wrong.append(f"{kind!r} is no type for {name!r}: {error}")
    if wrong:
        raise WrongSchema("types", "; ".join(wrong))
    try:
        names = list(re.compile(decoder.pattern).groupindex)
    except (re.error, OverflowError, RecursionError) as error:
        raise WrongSchema("pattern", f"is no regular expression: {error}") from None
    if not names:
        raise WrongSchema("pattern", "has no named groups, which become columns; write them as (?P<name>…)")
    return FlowColumns({name.lower(): types.get(name, "STRING") for name in names})


def _of_avro(decoder: AvroDecoder) -> FlowColumns:
    data = _contents(decoder.schema_file)
    if data is None:
        return UNKNOWN
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    field, path = "schema_file", decoder.schema_file
    try:
        schema = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WrongSchema(field, f"{path} is not JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise WrongSchema(
            field, f"{path} is not the schema of a record of Avro; columns come from its fields"
        )
    try:
        parse_schema(schema)
    except UnknownType as error:
        raise WrongSchema(field, f"{path} names the type {error.name!r}, which nothing declares") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise WrongSchema(field, f"{path} is no schema of Avro: {error}") from None
    fields = schema.get("fields", [])
    return FlowColumns({str(each["name"]).lower(): _avro_type(each["type"]) for each in fields})


def _avro_type(kind: object) -> str | None:
    if isinstance(kind, list):
        rest = [each for each in kind if each != "null"]
        return _avro_type(rest[0]) if len(rest) == 1 else None
    return _AVRO.get(kind) if isinstance(kind, str) else None


def _of_protobuf(decoder: ProtobufDecoder) -> FlowColumns:
    data = _contents(decoder.descriptor_file)
    if data is None:
        return UNKNOWN
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    except DecodeError:
        files = []
    if not files:
        raise WrongSchema(
            "descriptor_file",
            f"{decoder.descriptor_file} is no descriptor set; write one by protoc "
            "--include_imports --descriptor_set_out",
        )
    messages = {
        f"{file.package}.{message.name}".strip("."): message
        for file in files
        for message in file.message_type
    }
    if decoder.message not in messages:
        if any(decoder.message.startswith(f"{name}.") for name in messages):
            return UNKNOWN
        raise WrongSchema(
            "message",
            f"{decoder.descriptor_file} has no message "
            f"{decoder.message!r}{suggestion(decoder.message, messages)}",
        )
    return FlowColumns({each.name.lower(): None for each in messages[decoder.message].field})


def _contents(path: str) -> bytes | None:
    """Return the file's content, or None if it cannot be read, which another check reports."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except OSError:
        return None


def _sentence(error: ValueError) -> str:
    return f"is no schema: {error}"


_READERS: dict[type[Any], Callable[[Any], FlowColumns]] = {
    JsonDecoder: _of_ddl,
    CsvDecoder: _of_ddl,
    RegexDecoder: _of_regex,
    AvroDecoder: _of_avro,
    ProtobufDecoder: _of_protobuf,
}
_FIELDS: dict[type[Any], str] = {
    RegexDecoder: "pattern",
    AvroDecoder: "schema_file",
    ProtobufDecoder: "descriptor_file",
}


def columns_of_table(table: Table) -> FlowColumns:
    """Return the columns of a table, as far as they are declared."""
    if table.schema is None:
        return UNKNOWN
    try:
        return FlowColumns.of(parse_schema(table.schema))
    except ValueError:
        return UNKNOWN
