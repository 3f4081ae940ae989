"""`tables`: static tables for joins, which do not change while the pipeline runs.

tables:
  customers: {parquet: ./customers}
  rates: {jdbc: {url: jdbc:postgresql://db/shop, table: rates,
                 user: reader, password_file: ./secret}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparrow.base.faults import NOTHING, Misfit, faults_of, misfit
from sparrow.base.settings import Kind, integer
from sparrow.base.shapes import Part, rest_of
from sparrow.pipelines.model import (
    FILE_FORMATS,
    DeltaTable,
    FileTable,
    IcebergTable,
    JdbcTable,
    Table,
    Unread,
)
from sparrow.pipelines.sections.words import TEXTS_BY_NAME, WORD, NodeSection, Variant, needed, one_of

_NEEDED = needed(WORD)
_COMMON = {"schema": Part(WORD), "options": Part(TEXTS_BY_NAME)}
NOT_IN_THE_FILE = {
    "password": "a password does not belong in this file; name a file that has it by 'password_file'",
    "username": "the user is called 'user'",
}


@dataclass(frozen=True, slots=True)
class _Body:
    """A table that has no name yet."""

    kind: type[Any]
    values: dict[str, Any]
    unread: frozenset[str] = frozenset()

    def named(self, name: str) -> Table:
        table: Table = self.kind(name=name, unread=self.unread, **self.values)
        return table


def _file(word: str) -> Variant:
    section = NodeSection(f"a table of {word}", {word: _NEEDED, **_COMMON})
    return Variant(
        section,
        lambda values: _Body(FileTable, {"format": word, "path": values.pop(word), **values}),
        is_nested=False,
    )


def _delta(values: dict[str, Any]) -> _Body:
    return _Body(DeltaTable, {"path": values.pop("delta"), **values})


def _iceberg(values: dict[str, Any]) -> _Body:
    return _Body(IcebergTable, {"table": values.pop("iceberg"), **values})


_DELTA = NodeSection("a table of delta", {"delta": _NEEDED, "version": Part(integer(0, 2**62)), **_COMMON})
_ICEBERG = NodeSection(
    "a table of iceberg",
    {
        "iceberg": _NEEDED,
        "catalog": Part(WORD),
        "schema": Part(WORD),
        "properties": Part(TEXTS_BY_NAME, is_secret=True),
    },
)
_JDBC = NodeSection(
    "a table of jdbc",
    {
        "url": needed(WORD, is_secret=True),
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
        "jdbc": Variant(_JDBC, lambda values: _Body(JdbcTable, values)),
    },
)


def _read(given: object) -> tuple[Table, ...]:
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise misfit("tables are a mapping of names, such as {customers: {parquet: ./customers}}")
    found: list[Any] = []
    faults = []
    for name, body in given.items():
        try:
            read = _BODY.read(body)
        except ValueError as error:
            faults += [each.under(str(name)) for each in faults_of(error, body)]
            read = rest_of(error)
        found.append(Unread(name=str(name)) if read is NOTHING else read.named(str(name)))
    if faults:
        raise Misfit(faults, tuple(found))
    return tuple(found)


def _schema() -> dict[str, object]:
    return {"type": ["object", "null"], "additionalProperties": dict(_BODY.schema())}  # type: ignore[operator]


TABLES: Kind[tuple[Table, ...]] = Kind("tables", _read, schema=_schema)
