"""Messages of Avro and Protocol Buffers, and the files that describe them."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid
from typing import TYPE_CHECKING, Any

import fastavro
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

if TYPE_CHECKING:
    from pathlib import Path

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": ["null", "Kind"]},
        {"name": "any", "type": ["null", "int", "string"]},
        {"name": "size", "type": ["int", "long"]},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
                    ],
                },
            },
        },
        {"name": "hour", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
RECORD = {
    "id": 1,
    "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    "price": decimal.Decimal("1.25"),
    "kind": "A",
    "other": "B",
    "any": 7,
    "size": 1 << 40,
    "tags": {"x": 1},
    "lines": [{"sku": "s", "ref": uuid.UUID(int=5)}],
    "hour": dt.time(1, 2, 3),
    "day": dt.date(2024, 2, 3),
}


def avro_file(directory: Path) -> str:
    """Write the schema of orders to a file."""
    path = directory / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return str(path)


def avro(**fields: Any) -> bytes:
    """Return an order in Avro."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), {**RECORD, **fields})
    return stream.getvalue()


def protobuf_file(directory: Path) -> str:
    """Write the descriptors of shop.Order to a file."""
    path = directory / "order.desc"
    path.write_bytes(_descriptors().SerializeToString())
    return str(path)


def protobuf(**fields: Any) -> bytes:
    """Return an order in Protocol Buffers."""
    pool = descriptor_pool.DescriptorPool()
    for file in _descriptors().file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return order(**fields).SerializeToString()


def _descriptors() -> descriptor_pb2.FileDescriptorSet:
    found = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        found.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    file = found.file.add(
        name="order.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="SOME", number=1)
    file.message_type.add(name="Line").field.add(name="sku", number=1, type=9, label=1)
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=11, label=1, type_name=".shop.Node")
    order = file.message_type.add(name="Order")
    for number, (name, type_, label, type_name) in enumerate(_FIELDS, 1):
        field = order.field.add(name=name, number=number, type=type_, label=label)
        if type_name:
            field.type_name = type_name
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    return found


_FIELDS = (
    ("id", 3, 1, ""),
    ("big", 4, 1, ""),
    ("kind", 14, 1, ".shop.Kind"),
    ("lines", 11, 3, ".shop.Line"),
    ("at", 11, 1, ".google.protobuf.Timestamp"),
    ("note", 11, 1, ".google.protobuf.StringValue"),
    ("tags", 11, 3, ".shop.Order.TagsEntry"),
    ("raw", 12, 1, ""),
)
