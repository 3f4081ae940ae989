"""Rows of a table that a Spark stream wrote, as Spark's own readers see it: files that its list has
(`_spark_metadata`), and no others.

A batch's files become part of the table when the list gets the batch's entry. Files of a killed
batch are beside them, and belong to no table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from sparrow.base.errors import StorageFailed

if TYPE_CHECKING:
    import pyarrow as pa

LIST: Final = "_spark_metadata"
_COMPACTED: Final = ".compact"
_VERSION: Final = "v1"


def committed_files(directory: str) -> list[str]:
    """Return the table's files.

    Raises:
        StorageFailed: the list cannot be read.
    """
    files: dict[str, None] = {}
    for path in _entries(f"{directory}/{LIST}"):
        with open(path, encoding="utf-8") as file:
            version, *lines = file.read().splitlines()
        if version != _VERSION:
            raise StorageFailed(f"{path} has the version {version}; {_VERSION} is known here")
        for action in map(json.loads, lines):
            name = unquote(urlsplit(action["path"]).path)
            if action["action"] == "add":
                files[name] = None
            else:
                files.pop(name, None)
    return list(files)


def uncommitted_files(directory: str) -> list[str]:
    """Return files in the directory that are not the table's: those of killed batches."""
    committed = {os.path.basename(path) for path in committed_files(directory)}
    return [
        name for name in sorted(os.listdir(directory)) if name.endswith(".parquet") and name not in committed
    ]


def read_table(directory: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the table's rows in record batches.

    Raises:
        StorageFailed: it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in committed_files(directory):
        try:
            # Microseconds suffice for all years; otherwise Spark's times are read as nanoseconds,
            # which do not.
            with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
                yield from file.iter_batches(columns=list(columns))
        except (OSError, pa.ArrowException) as error:
            raise StorageFailed(f"{path} cannot be read: {error}") from error


def _entries(listed: str) -> list[str]:
    """Return the entries from the newest one that has all before it ("9.compact") to the end."""
    try:
        names = os.listdir(listed)
    except FileNotFoundError:
        return []
    plain = {int(name): name for name in names if name.isdecimal()}
    compacted = {
        int(number): name
        for name in names
        if (number := name.removesuffix(_COMPACTED)) != name and number.isdecimal()
    }
    first = max(compacted, default=0)
    found = plain | compacted
    return [f"{listed}/{found[number]}" for number in sorted(found) if number >= first]
