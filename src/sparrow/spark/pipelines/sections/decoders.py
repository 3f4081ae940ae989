"""`decode` and `key` of a flow: how bytes become columns.

decode: {json: {schema: "id bigint, amount double"}}
decode: {regex: {pattern: '(?P<level>\\w+) (?P<text>.*)'}}
key: text
"""

from __future__ import annotations

from typing import Any

from sparrow.base.faults import misfit
from sparrow.base.options import BOOLEAN, TEXT, integer
from sparrow.base.shapes import Part, Section
from sparrow.spark.pipelines.model import (
    AvroDecoder,
    CsvDecoder,
    JsonDecoder,
    ProtobufDecoder,
    RegexDecoder,
    TextDecoder,
)
from sparrow.spark.pipelines.sections.words import TEXTS_BY_NAME, WORD, Variant, one_of

_MAX_SAMPLE = 1_000_000


def _json(values: dict[str, Any]) -> JsonDecoder:
    if ("schema" in values) == ("sample" in values):
        raise misfit(
            "needs either a schema, such as \"id bigint, at timestamp\", or 'sample: 1000' to infer one"
        )
    return JsonDecoder(**values)


def _avro(values: dict[str, Any]) -> AvroDecoder:
    return AvroDecoder(
        schema_file=values["schema_file"], has_registry_prefix=values.get("registry_prefix", False)
    )


def _protobuf(values: dict[str, Any]) -> ProtobufDecoder:
    has_registry_prefix = values.pop("registry_prefix", False)
    return ProtobufDecoder(**values, has_registry_prefix=has_registry_prefix)


def _csv(values: dict[str, Any]) -> CsvDecoder:
    for name in ("quote", "escape"):
        if len(values.get(name, "-")) > 1:
            raise misfit(f"is one character, not {values[name]!r}", name)
    if values.get("delimiter") == "":
        raise misfit("is at least one character", "delimiter")
    # In YAML a bare `null` is no name.
    null = {"null": values.pop("null_value")} if "null_value" in values else {}
    return CsvDecoder(**values, **null)


_NEEDED = Part(WORD, is_required=True)
DECODER = one_of(
    "a decoder",
    {
        "json": Variant(
            Section("the decoder json", {"schema": Part(WORD), "sample": Part(integer(1, _MAX_SAMPLE))}),
            _json,
        ),
        "avro": Variant(
            Section(
                "the decoder avro",
                {"schema_file": _NEEDED, "registry_prefix": Part(BOOLEAN)},
                "schema_file",
                {"schema": "the schema is in a file of its own; name it by 'schema_file'"},
            ),
            _avro,
        ),
        "protobuf": Variant(
            Section(
                "the decoder protobuf",
                {"descriptor_file": _NEEDED, "message": _NEEDED, "registry_prefix": Part(BOOLEAN)},
                advice={
                    "proto": "a .proto file must be compiled: protoc --include_imports --descriptor_set_out=FILE; name"
                    " FILE by 'descriptor_file'"
                },
            ),
            _protobuf,
        ),
        "csv": Variant(
            Section(
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
            Section("the decoder regex", {"pattern": _NEEDED, "types": Part(TEXTS_BY_NAME)}, "pattern"),
            lambda values: RegexDecoder(**values),
        ),
        "text": Variant(Section("the decoder text", {}), lambda _: TextDecoder()),
    },
    {"raw": "leave 'decode' out to have the bytes as they are, in the column 'value'"},
)
