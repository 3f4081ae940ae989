"""Static tables for joins: read when the pipeline starts, the same for the whole run.

Spark reads files and databases. Delta Lake and Iceberg are read by their Python libraries through
Arrow, so that no JAR is needed; the table must then fit into the driver's memory, as a table for a
join should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from sparrow.base.errors import InvalidConfig, NotFound
from sparrow.pipelines.engine.failures import first_line
from sparrow.pipelines.model import DeltaTable, FileTable, IcebergTable, JdbcTable
from sparrow.pipelines.secrets import read_secret_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from sparrow.pipelines.model import Table


def read_table(spark: SparkSession, table: Table) -> DataFrame:
    """Read the table as it is now.

    Raises:
        NotFound, InvalidConfig: it does not exist, or cannot be read.
    """
    try:
        return _read(spark, table)
    except PySparkException as error:
        raise InvalidConfig(f"the table {table.name} cannot be read: {first_line(error)}") from error


def _read(spark: SparkSession, table: Table) -> DataFrame:
    match table:
        case FileTable():
            reader = spark.read.format(table.format).options(**table.options)
            return (reader.schema(table.schema) if table.schema else reader).load(table.path)
        case JdbcTable():
            return spark.read.format("jdbc").options(**_jdbc(table)).load()
        case DeltaTable():
            return _of_arrow(spark, _delta(table), table.schema)
        case IcebergTable():
            return _of_arrow(spark, _iceberg(table), table.schema)


def _of_arrow(spark: SparkSession, rows: pa.Table, schema: str | None) -> DataFrame:
    df = spark.createDataFrame(rows)
    if schema is None:
        return df
    wanted = spark.createDataFrame([], schema).schema
    return df.select([df[field.name].cast(field.dataType).alias(field.name) for field in wanted.fields])


def _delta(table: DeltaTable) -> Any:
    from sparrow.pipelines.engine.sinks.libraries import deltalake

    library = deltalake()
    try:
        found = library.DeltaTable(
            table.path, version=table.version, storage_options=dict(table.options) or None
        )
        return found.to_pyarrow_table()
    except library.exceptions.TableNotFoundError:
        raise NotFound(f"the table {table.name}: there is no table of Delta Lake at {table.path}") from None
    except library.exceptions.DeltaError as error:
        raise InvalidConfig(f"the table {table.name} at {table.path} cannot be read: {error}") from None


def _iceberg(table: IcebergTable) -> Any:
    from sparrow.pipelines.engine.sinks.libraries import load_iceberg

    return load_iceberg(table.catalog, table.table, table.properties).scan().to_arrow()


def _jdbc(table: JdbcTable) -> dict[str, str]:
    options = {**table.options, "url": table.url, "dbtable": table.table}
    if table.user is not None:
        options["user"] = table.user
    if table.password_file is not None:
        options["password"] = read_secret_file(table.password_file)
    if table.driver is not None:
        options["driver"] = table.driver
    if table.schema is not None:
        options["customSchema"] = table.schema
    return options
