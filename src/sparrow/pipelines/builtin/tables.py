"""Tables that are not archives, opened as data frames: Parquet, CSV, JSON, Delta and Iceberg,
detected by the files in the directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidArgument
from sparrow.base.faults import suggestion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "csv", "json", "delta", "iceberg")
_BY_SUFFIX: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".ndjson": "json",
    ".jsonl": "json",
}
_LOOKED_AT: Final = 10_000


def check_format(given: str | None) -> None:
    """Check that the format is supported.

    Raises:
        InvalidArgument: it is not.
    """
    if given is not None and given not in FORMATS:
        raise InvalidArgument(
            f"format is {given!r}{suggestion(given, FORMATS) or '.'} It is one of {', '.join(FORMATS)}."
        )


def format_of(path: str) -> str:
    """Return the format of the table in a directory.

    Raises:
        InvalidArgument: there is no table, or its format is not clear.
    """
    if not os.path.exists(path):
        raise InvalidArgument(f"{path}: no such file or directory")
    if os.path.isdir(os.path.join(path, "_delta_log")):
        return "delta"
    if newest_iceberg_metadata(path):
        return "iceberg"
    suffixes = {os.path.splitext(name)[1] for name in _data_files(path)}
    found = {_BY_SUFFIX[suffix] for suffix in suffixes if suffix in _BY_SUFFIX}
    if len(found) != 1:
        what = f"files of several formats ({', '.join(sorted(found))})" if found else "no table that is known"
        raise InvalidArgument(f"{path} has {what}; say which by format: {', '.join(FORMATS)}")
    return found.pop()


def _data_files(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    names: list[str] = []
    for _, directories, files in os.walk(path):
        directories[:] = [name for name in directories if not name.startswith(("_", "."))]
        names += [name.removesuffix(".gz") for name in files if not name.startswith(("_", "."))]
        if len(names) > _LOOKED_AT:
            break
    return names


def open_table(spark: SparkSession, path: str, kind: str) -> DataFrame:
    """Return the rows of a table."""
    if kind == "delta":
        return _parquet(spark, path, _delta_files(path))
    if kind == "iceberg":
        return _parquet(spark, "", _iceberg_files(path))
    reader = spark.read
    if kind == "csv":
        separator = "\t" if path.endswith(".tsv") else ","
        reader = reader.option("header", "true").option("inferSchema", "true").option("sep", separator)
    return reader.format(kind).load(plain_path(os.path.abspath(path)))


def _parquet(spark: SparkSession, base: str, files: list[str]) -> DataFrame:
    if not files:
        raise InvalidArgument(f"{base or 'the table'} has no rows")
    reader = spark.read.option("basePath", plain_path(base)) if base else spark.read
    return reader.parquet(*[plain_path(file) for file in files])


def _delta_files(path: str) -> list[str]:
    table = delta_table(path)
    features = getattr(table.protocol(), "reader_features", None) or ()
    if "deletionVectors" in features or "columnMapping" in features:
        raise InvalidArgument(
            f"{path} is a Delta table with {', '.join(features)}, which cannot be read here"
        )
    return [os.path.join(os.path.abspath(path), file) for file in _relative(table.file_uris(), path)]


def _relative(uris: list[str], path: str) -> list[str]:
    root = os.path.abspath(path)
    return [os.path.relpath(uri.removeprefix("file://"), root) for uri in uris]


def delta_table(path: str) -> Any:
    """Return the Delta table of a directory.

    Raises:
        InvalidArgument: the library is not installed, or it is not a Delta table.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise InvalidArgument(
            f"{path} is a Delta table; that needs deltalake: pip install 'sparrow-broker[delta]'"
        ) from None
    try:
        return DeltaTable(path)
    except DeltaError as error:
        raise InvalidArgument(f"{path} cannot be opened as a Delta table: {error}") from None


def newest_iceberg_metadata(path: str) -> str | None:
    """Return the metadata file that was written last, or None if it is not an Iceberg table."""
    found = sorted(Path(path).glob("metadata/*.metadata.json")) if os.path.isdir(path) else []
    return str(found[-1]) if found else None


def _iceberg_files(path: str) -> list[str]:
    try:
        from pyiceberg.table import StaticTable
    except ImportError:
        raise InvalidArgument(
            f"{path} is an Iceberg table; that needs pyiceberg: pip install 'sparrow-broker[iceberg]'"
        ) from None
    table = StaticTable.from_metadata(newest_iceberg_metadata(path) or path)
    tasks = list(table.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise InvalidArgument(f"{path} has delete files, which cannot be read here; rewrite the table first")
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def plain_path(path: str) -> str:
    """Return a local path as Spark takes it: with its file system, and wildcards escaped."""
    escaped = "".join(f"\\{letter}" if letter in "[]{}*?\\" else letter for letter in path)
    return f"file:{escaped}" if escaped.startswith("/") else escaped
