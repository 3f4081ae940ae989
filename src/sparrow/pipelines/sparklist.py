"""The table that a Spark stream wrote as Parquet files, as Spark's own readers see it: the files
that its list has (`_spark_metadata`), and no others.

A batch's files become part of the table when the list gets the batch's entry. Files of a killed
batch are beside them, and belong to no table.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from sparrow.base.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIST: Final = "_spark_metadata"
_VERSION: Final = "v1"


def read_table(directory: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the table's rows.

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
                for batch in file.iter_batches(columns=list(columns)):
                    yield from (tuple(row[name] for name in columns) for row in batch.to_pylist())
        except (OSError, pa.ArrowException) as error:
            raise StorageFailed(f"{path} cannot be read: {error}") from error


def committed_files(directory: str) -> list[str]:
    """Return the table's files.

    Raises:
        StorageFailed: the list cannot be read.
    """
    listed = f"{directory}/{LIST}"
    names = [each for each in sorted(os.listdir(listed)) if each[0] != "."] if os.path.isdir(listed) else []
    files: dict[str, None] = {}
    for name in names:
        with open(f"{listed}/{name}", encoding="utf-8") as file:
            version, *lines = file.read().splitlines()
        if version != _VERSION:
            raise StorageFailed(f"{listed}/{name} has the version {version}; {_VERSION} is known here")
        # "9.compact" has the files of the entries before it again. The sink of a stream only adds.
        files |= dict.fromkeys(unquote(urlsplit(json.loads(each)["path"]).path) for each in lines)
    return list(files)


def uncommitted_files(directory: str) -> list[str]:
    """Return files in the directory that are not the table's: those of killed batches."""
    committed = {os.path.basename(path) for path in committed_files(directory)}
    parquet = [name for name in sorted(os.listdir(directory)) if name.endswith(".parquet")]
    return [name for name in parquet if name not in committed]
