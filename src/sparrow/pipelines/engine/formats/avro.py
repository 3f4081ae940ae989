"""Avro by fastavro: one record in its binary form, written with the schema of a file.

Types are mapped to Spark's: records to structs, arrays and maps to theirs, enums and UUIDs to
strings, logical dates, times of day (as strings), timestamps and decimals to theirs. A union with
null is a nullable column; of int and long it is a bigint, of float and double a double; any other
is a string of JSON.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as T

from sparrow.base.errors import InvalidConfig
from sparrow.pipelines.engine.formats.parser import Undecodable, python_parser

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.pipelines.engine.formats.parser import Decode, Parser

    Shape = Callable[[Any], Any]

_PREFIX_BYTES: Final = 5
_PRIMITIVES: Final[dict[str, T.DataType]] = {
    "null": T.StringType(),
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
    "enum": T.StringType(),
    "fixed": T.BinaryType(),
}
_LOGICAL: Final[dict[str, T.DataType | None]] = {
    "decimal": None,
    "date": T.DateType(),
    "timestamp-millis": T.TimestampType(),
    "timestamp-micros": T.TimestampType(),
    "local-timestamp-millis": T.TimestampNTZType(),
    "local-timestamp-micros": T.TimestampNTZType(),
    "time-millis": T.StringType(),
    "time-micros": T.StringType(),
    "uuid": T.StringType(),
}


def avro_parser(schema_file: str, *, has_registry_prefix: bool) -> Parser:
    """Return a parser of records.

    Raises:
        InvalidConfig: the schema cannot be read, is not a record, or refers to itself.
    """
    schema = _load(schema_file)
    return python_parser(_fields(schema), _DecodeFactory(json.dumps(schema), has_registry_prefix))


def _load(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            schema = json.load(file)
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"the Avro schema {path} cannot be read: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidConfig(f"the Avro schema {path} is not that of a record")
    return schema


def _fields(schema: dict[str, Any]) -> list[T.StructField]:
    try:
        return list(_Types().record(schema).fields)
    except RecursionError as error:
        raise InvalidConfig(f"the Avro schema: {error}; Spark has no types that contain themselves") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidConfig(f"the Avro schema is not one: {error!r}") from None


class _Types:
    """Mapping of Avro's types to Spark's, with the names seen so far."""

    def __init__(self) -> None:
        self._named: dict[str, T.DataType | None] = {}

    def record(self, schema: dict[str, Any], space: str = "") -> T.StructType:
        name, space = _full_name(schema, space)
        self._named[name] = None
        fields = [T.StructField(field["name"], self.of(field["type"], space)) for field in schema["fields"]]
        made = T.StructType(fields)
        self._named[name] = made
        return made

    def of(self, schema: Any, space: str) -> T.DataType:
        if isinstance(schema, list):
            return self._union([each for each in schema if each != "null"], space)
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._by_name(schema, space)
        return self._complex(schema, space)

    def _complex(self, schema: dict[str, Any], space: str) -> T.DataType:
        kind = schema["type"]
        if schema.get("logicalType") in _LOGICAL:
            return _logical(schema)
        if kind == "record":
            return self.record(schema, space)
        if kind == "array":
            return T.ArrayType(self.of(schema["items"], space))
        if kind == "map":
            return T.MapType(T.StringType(), self.of(schema["values"], space))
        if kind in ("enum", "fixed"):
            self._named[_full_name(schema, space)[0]] = _PRIMITIVES[kind]
            return _PRIMITIVES[kind]
        return self.of(kind, space)

    def _union(self, members: list[Any], space: str) -> T.DataType:
        if len(members) == 1:
            return self.of(members[0], space)
        names = {each for each in members if isinstance(each, str)}
        if len(names) == len(members) and names == {"int", "long"}:
            return T.LongType()
        if len(names) == len(members) and names == {"float", "double"}:
            return T.DoubleType()
        return T.StringType()

    def _by_name(self, name: str, space: str) -> T.DataType:
        full = name if "." in name or not space else f"{space}.{name}"
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise RecursionError(f"the type {name} contains itself or is not there")
        return found


def _logical(schema: dict[str, Any]) -> T.DataType:
    kind = _LOGICAL[schema["logicalType"]]
    return kind or T.DecimalType(schema["precision"], schema.get("scale", 0))


def _full_name(schema: dict[str, Any], space: str) -> tuple[str, str]:
    name = str(schema.get("name", ""))
    space = name.rpartition(".")[0] or schema.get("namespace", space)
    short = name.rpartition(".")[2]
    return (f"{space}.{short}" if space else short), space


class _DecodeFactory:
    """Picklable factory of the decode function in a worker."""

    def __init__(self, schema: str, has_prefix: bool) -> None:
        self._schema, self._has_prefix = schema, has_prefix

    def __call__(self) -> Decode:
        return _reader(self._schema, self._has_prefix)


@lru_cache(maxsize=64)
def _reader(schema_text: str, has_prefix: bool) -> Decode:
    from fastavro import parse_schema, schemaless_reader

    plain = json.loads(schema_text)
    schema = parse_schema(plain)
    shape = _shape(T.StructType(_fields(plain)))

    def decode(value: bytes) -> Any:
        stream = io.BytesIO(_without_prefix(value) if has_prefix else value)
        try:
            record = schemaless_reader(stream, schema, None)
        except EOFError:
            raise Undecodable("the record ends too early") from None
        if stream.read(1):
            raise Undecodable("there are bytes behind the record")
        return shape(record)

    return decode


def _without_prefix(value: bytes) -> bytes:
    if len(value) < _PREFIX_BYTES or value[0] != 0:
        raise Undecodable("the value does not begin with a zero and a schema's id")
    return value[_PREFIX_BYTES:]


def _shape(kind: T.DataType) -> Shape:
    """Return the conversion from fastavro's value to the value that Arrow takes for the type."""
    if isinstance(kind, T.StructType):
        inner = {field.name: _shape(field.dataType) for field in kind.fields}
        return lambda value: (
            None if value is None else {name: shape(value[name]) for name, shape in inner.items()}
        )
    if isinstance(kind, T.ArrayType):
        item = _shape(kind.elementType)
        return lambda value: None if value is None else [item(each) for each in value]
    if isinstance(kind, T.MapType):
        item = _shape(kind.valueType)
        return lambda value: None if value is None else [(name, item(each)) for name, each in value.items()]
    return _text if isinstance(kind, T.StringType) else _as_is


def _as_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str | None:
    """Convert a string, an enum, a UUID, a time of day, or any member of a union to text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (dict, list, bool, int, float)):
        return json.dumps(value, default=_plain)
    return str(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)
