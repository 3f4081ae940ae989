"""Protocol Buffers by Google's library: one message, described by a descriptor set.

Types are mapped to Spark's: messages to structs, repeated fields to arrays, maps to maps, enums to
the names of their values, unsigned integers to the next wider type, `Timestamp` and `Duration` to a
timestamp and seconds, wrappers to their content. A field with presence is null if it is not set;
other fields then have their default, as the format defines.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as T

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import suggestion
from sparrow.pipelines.engine.formats.parser import Undecodable, python_parser

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from sparrow.pipelines.engine.formats.parser import Decode, Parser

_UNSIGNED_64: Final = T.DecimalType(20, 0)
_MAX_DEPTH: Final = 32
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_PREFIX_BYTES: Final = 5
_MILLION: Final = 1_000_000


def protobuf_parser(descriptor_file: str, message: str, *, has_registry_prefix: bool) -> Parser:
    """Return a parser of messages.

    Raises:
        InvalidConfig: the descriptors cannot be read, do not have the message, or the message
            contains itself.
    """
    try:
        with open(descriptor_file, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InvalidConfig(
            f"the descriptors {descriptor_file} cannot be read: {error.strerror}; protoc writes "
            "them by --descriptor_set_out"
        ) from None
    descriptor = _find(data, message)
    fields = _struct(descriptor, ()).fields
    return python_parser(fields, _DecodeFactory(data, message, has_registry_prefix))


def _find(data: bytes, message: str) -> Descriptor:
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(data)
    except DecodeError as error:
        raise InvalidConfig(f"the file of descriptors is not a descriptor set: {error}") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except KeyError:
        names = [
            f"{file.package}.{each.name}".strip(".") for file in files.file for each in file.message_type
        ]
        raise InvalidConfig(
            f"the descriptors have no message {message!r}{suggestion(message, names)}"
        ) from None
    except TypeError as error:
        raise InvalidConfig(
            f"the descriptors do not belong together: {error}; write them by protoc --include_imports"
        ) from None


# ── types ─────────────────────────────────────────────────────────────────────────────────────────


def _struct(descriptor: Descriptor, outer: tuple[str, ...]) -> T.StructType:
    if descriptor.full_name in outer or len(outer) > _MAX_DEPTH:
        raise InvalidConfig(f"the message {descriptor.full_name} contains itself; Spark has no types that do")
    inner = (*outer, descriptor.full_name)
    return T.StructType([T.StructField(field.name, _type(field, inner)) for field in descriptor.fields])


def _type(field: FieldDescriptor, outer: tuple[str, ...]) -> T.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return T.MapType(_single(entry["key"], outer), _single(entry["value"], outer))
    single = _single(field, outer)
    return T.ArrayType(single) if field.is_repeated else single


def _single(field: FieldDescriptor, outer: tuple[str, ...]) -> T.DataType:
    if field.message_type is None:
        return _scalars(field)
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return T.TimestampType()
    if name == _DURATION:
        return T.DoubleType()
    if name in _WRAPPERS:
        return _scalars(field.message_type.fields_by_name["value"])
    return _struct(field.message_type, outer)


def _scalars(field: FieldDescriptor) -> T.DataType:
    kinds: dict[int, T.DataType] = {
        field.CPPTYPE_INT32: T.IntegerType(),
        field.CPPTYPE_UINT32: T.LongType(),
        field.CPPTYPE_INT64: T.LongType(),
        field.CPPTYPE_UINT64: _UNSIGNED_64,
        field.CPPTYPE_FLOAT: T.FloatType(),
        field.CPPTYPE_DOUBLE: T.DoubleType(),
        field.CPPTYPE_BOOL: T.BooleanType(),
        field.CPPTYPE_ENUM: T.StringType(),
    }
    if field.cpp_type == field.CPPTYPE_STRING:
        return T.BinaryType() if field.type == field.TYPE_BYTES else T.StringType()
    return kinds[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


# ── values ────────────────────────────────────────────────────────────────────────────────────────


class _DecodeFactory:
    """Picklable factory of the decode function in a worker."""

    def __init__(self, data: bytes, message: str, has_prefix: bool) -> None:
        self._data, self._message, self._has_prefix = data, message, has_prefix

    def __call__(self) -> Decode:
        return _reader(self._data, self._message, self._has_prefix)


@lru_cache(maxsize=64)
def _reader(data: bytes, message: str, has_prefix: bool) -> Decode:
    from google.protobuf import message_factory

    descriptor = _find(data, message)
    kind = message_factory.GetMessageClass(descriptor)
    shape = _message(descriptor)

    def decode(value: bytes) -> Any:
        return shape(kind.FromString(_without_prefix(value) if has_prefix else value))

    return decode


def _without_prefix(value: bytes) -> bytes:
    """Skip the registry's prefix. After a zero and the schema's id, it has the position of the
    message in the schema: a count and that many indexes, as zigzag varints.
    """
    if len(value) <= _PREFIX_BYTES or value[0] != 0:
        raise Undecodable("the value does not begin with a zero, a schema's id and the message's index")
    count, at = _varint(value, _PREFIX_BYTES)
    for _ in range(count >> 1):
        _, at = _varint(value, at)
    return value[at:]


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(value[at : at + _PREFIX_BYTES]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, at + shift + 1
    raise Undecodable("the message's index ends too early")


def _message(descriptor: Descriptor) -> Callable[[Any], dict[str, Any]]:
    readers = [(field.name, _field(field)) for field in descriptor.fields]
    return lambda message: {name: read(message) for name, read in readers}


def _field(field: FieldDescriptor) -> Callable[[Any], Any]:
    name = field.name
    if _is_map(field):
        shape = _value(field.message_type.fields_by_name["value"])
        return lambda message: [(key, shape(each)) for key, each in getattr(message, name).items()]
    shape = _value(field)
    if field.is_repeated:
        return lambda message: [shape(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: shape(getattr(message, name)) if message.HasField(name) else None
    return lambda message: shape(getattr(message, name))


def _value(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    if field.message_type is None:
        return _as_is
    kind = field.message_type.full_name
    if kind == _TIMESTAMP:
        return lambda value: value.seconds * _MILLION + value.nanos // 1000
    if kind == _DURATION:
        return lambda value: value.seconds + value.nanos / 1e9
    if kind in _WRAPPERS:
        return lambda value: value.value
    return _message(field.message_type)


def _as_is(value: Any) -> Any:
    return value
