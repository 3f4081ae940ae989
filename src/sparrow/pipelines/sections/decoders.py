"""`decode` and `key` of a flow: the decoders that turn bytes into columns.

decode: {json: {schema: "id bigint, amount double"}}
decode: {regex: {pattern: '(?P<level>\\w+) (?P<text>.*)'}}
key: text
"""

from __future__ import annotations

from typing import Any

from sparrow.base.settings import BOOLEAN, TEXT, integer
from sparrow.base.shapes import Part
from sparrow.pipelines.model import (
    AvroDecoder,
    CsvDecoder,
    JsonDecoder,
    ProtobufDecoder,
    RegexDecoder,
    TextDecoder,
)
from sparrow.pipelines.sections.words import TEXTS_BY_NAME, WORD, NodeSection, Variant, needed, one_of

_MAX_SAMPLE = 1_000_000


def _avro(values: dict[str, Any]) -> AvroDecoder:
    return AvroDecoder(
        schema_file=values["schema_file"], has_registry_prefix=values.get("registry_prefix", False)
    )


def _protobuf(values: dict[str, Any]) -> ProtobufDecoder:
    has_registry_prefix = values.pop("registry_prefix", False)
    return ProtobufDecoder(**values, has_registry_prefix=has_registry_prefix)


def _csv(values: dict[str, Any]) -> CsvDecoder:
    # In YAML a bare `null` is not a name.
    null = {"null": values.pop("null_value")} if "null_value" in values else {}
    return CsvDecoder(**values, **null)


_NEEDED = needed(WORD)
DECODER = one_of(
    "a decoder",
    {
        "json": Variant(
            NodeSection("the decoder json", {"schema": Part(WORD), "sample": Part(integer(1, _MAX_SAMPLE))}),
            lambda values: JsonDecoder(**values),
        ),
        "avro": Variant(
            NodeSection(
                "the decoder avro",
                {"schema_file": _NEEDED, "registry_prefix": Part(BOOLEAN)},
                "schema_file",
                {"schema": "the schema is in a file of its own; name it by 'schema_file'"},
            ),
            _avro,
        ),
        "protobuf": Variant(
            NodeSection(
                "the decoder protobuf",
                {"descriptor_file": _NEEDED, "message": _NEEDED, "registry_prefix": Part(BOOLEAN)},
                advice={
                    "proto": "a .proto file must be compiled: protoc --include_imports "
                    "--descriptor_set_out=FILE; name"
                    " FILE by 'descriptor_file'"
                },
            ),
            _protobuf,
        ),
        "csv": Variant(
            NodeSection(
                "the decoder csv",
                {
                    "schema": _NEEDED,
                    "delimiter": Part(TEXT),
                    "quote": Part(TEXT),
                    "escape": Part(TEXT),
                    "null_value": Part(TEXT),
                },
                "schema",
            ),
            _csv,
        ),
        "regex": Variant(
            NodeSection("the decoder regex", {"pattern": _NEEDED, "types": Part(TEXTS_BY_NAME)}, "pattern"),
            lambda values: RegexDecoder(**values),
        ),
        "text": Variant(NodeSection("the decoder text", {}), lambda _: TextDecoder()),
    },
    {"raw": "leave 'decode' out to have the bytes as they are, in the column 'value'"},
)
