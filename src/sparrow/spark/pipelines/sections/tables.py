"""`tables`: what does not change while the pipeline runs, to be joined with.

tables:
  customers: {parquet: ./customers}
  rates: {jdbc: {url: jdbc:postgresql://db/shop, table: rates, user: reader, password_file: ./secret}}
"""

from __future__ import annotations

from typing import Any

from sparrow.base.faults import Misfit, faults_of, misfit
from sparrow.base.options import Kind, integer
from sparrow.base.shapes import Part, Section
from sparrow.spark.pipelines.model import (
    FILE_FORMATS,
    DeltaTable,
    FileTable,
    IcebergTable,
    JdbcTable,
    Table,
)
from sparrow.spark.pipelines.sections.words import TEXTS_BY_NAME, WORD, Variant, one_of

_NEEDED = Part(WORD, is_required=True)
_COMMON = {"schema": Part(WORD), "options": Part(TEXTS_BY_NAME)}
NOT_IN_THE_FILE = {
    "password": "a password does not stand in this file; name a file that has it by 'password_file'",
    "username": "the user is called 'user'",
}


def _file(word: str) -> Variant:
    section = Section(f"a table of {word}", {word: _NEEDED, **_COMMON})
    return Variant(
        section, lambda values: ("file", {"format": word, "path": values.pop(word), **values}), False
    )


def _delta(values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "delta", {"path": values.pop("delta"), **values}


def _iceberg(values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "iceberg", {"table": values.pop("iceberg"), **values}


_DELTA = Section("a table of delta", {"delta": _NEEDED, "version": Part(integer(0, 2**62)), **_COMMON})
_ICEBERG = Section(
    "a table of iceberg",
    {
        "iceberg": _NEEDED,
        "catalog": Part(WORD),
        "schema": Part(WORD),
        "properties": Part(TEXTS_BY_NAME, is_secret=True),
    },
)
_JDBC = Section(
    "a table of jdbc",
    {
        "url": Part(WORD, is_required=True, is_secret=True),
        "table": _NEEDED,
        "user": Part(WORD),
        "password_file": Part(WORD),
        "driver": Part(WORD),
        "schema": Part(WORD),
        "options": Part(TEXTS_BY_NAME, is_secret=True),
    },
    advice=NOT_IN_THE_FILE,
)
_BODY = one_of(
    "a table",
    {
        **{word: _file(word) for word in FILE_FORMATS},
        "delta": Variant(_DELTA, _delta, is_nested=False),
        "iceberg": Variant(_ICEBERG, _iceberg, is_nested=False),
        "jdbc": Variant(_JDBC, lambda values: ("jdbc", values)),
    },
)
_CLASSES: dict[str, type[Any]] = {
    "file": FileTable,
    "delta": DeltaTable,
    "iceberg": IcebergTable,
    "jdbc": JdbcTable,
}


def _read(given: object) -> tuple[Table, ...]:
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise misfit("tables are a mapping of names, such as {customers: {parquet: ./customers}}")
    found, faults = [], []
    for name, body in given.items():
        try:
            word, values = _BODY.read(body)
            found.append(_CLASSES[word](name=str(name), **values))
        except ValueError as error:
            faults += [each.under(str(name)) for each in faults_of(error, body)]
    if faults:
        raise Misfit(faults)
    return tuple(found)


def _schema() -> dict[str, object]:
    return {"type": ["object", "null"], "additionalProperties": dict(_BODY.schema())}  # type: ignore[operator]


TABLES: Kind[tuple[Table, ...]] = Kind("tables", _read, schema=_schema)
