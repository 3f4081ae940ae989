"""Tables at the end of flows: their content, and that a batch is not written twice if Spark did not
learn of its commit.
"""

from __future__ import annotations

import datetime as dt
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from pyiceberg.catalog import load_catalog

from sparrow.base.errors import Conflict, InvalidConfig
from sparrow.pipelines.engine.sinks import delta, iceberg, jdbc
from sparrow.pipelines.model import (
    ConsoleSink,
    DeltaSink,
    DeltaTable,
    Expectation,
    FileTable,
    IcebergSink,
    IcebergTable,
    JdbcSink,
    JdbcTable,
    JoinStep,
    ParquetSink,
    SqlStep,
    TopicSink,
)
from tests.spark.pipelines.flows import orders

if TYPE_CHECKING:
    from types import ModuleType

    from tests.spark.pipelines.flows import Environment


pytestmark = pytest.mark.timeout(300)


def order(number: int) -> dict[str, Any]:
    return {"id": number, "amount": number / 2, "at": f"2024-01-0{1 + number % 2}T00:00:00Z"}


BY_DAY = SqlStep(query="SELECT id, amount, at, CAST(at AS DATE) AS day, _offset FROM input")


def break_once(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Simulate the death of the process after the second batch is committed and before Spark
    knows.
    """
    real, calls = module.write_batch, []

    def write(*args: Any, **options: Any) -> None:
        real(*args, **options)
        calls.append(args)
        if len(calls) == 2:
            raise RuntimeError("killed")

    monkeypatch.setattr(module, "write_batch", write)


def test_delta_gets_each_batch_once_though_spark_runs_one_again(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(environment.directory / "table")
    flow = orders(batch=4, steps=[BY_DAY], sink=DeltaSink(path=path, partition_by=["day"]))
    environment.publish("orders", [order(n) for n in range(10)])
    break_once(monkeypatch, delta)
    assert environment.failed(flow) == "flow clean, batch 1: RuntimeError: killed"
    environment.done(flow)
    table = deltalake.DeltaTable(path)
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(10))
    assert rows[3] == {
        "id": 3,
        "amount": 1.5,
        "at": dt.datetime(2024, 1, 2, tzinfo=dt.UTC),
        "day": dt.date(2024, 1, 2),
    }
    assert table.metadata().partition_columns == ["day"]
    with pytest.raises(
        InvalidConfig, match="has the columns id long, amount double, at timestamp, day date; the flow has"
    ):
        environment.run(replace(flow, name="other", steps=[]))


def test_iceberg_gets_each_batch_once_though_spark_runs_one_again(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{environment.directory}/catalog.db",
        "warehouse": f"file://{environment.directory}/warehouse",
    }
    sink = IcebergSink(table="shop.orders", properties=properties)
    flow = orders(batch=4, steps=[BY_DAY], sink=sink)
    environment.publish("orders", [order(n) for n in range(10)])
    break_once(monkeypatch, iceberg)
    assert environment.failed(flow) == "flow clean, batch 1: RuntimeError: killed"
    environment.done(flow)
    catalog = load_catalog("default", **properties)
    table = catalog.load_table("shop.orders")
    rows = table.scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(10))
    assert {row["at"] for row in rows} == {dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in (1, 2)}
    assert [snapshot.summary["sparrow.batch"] for snapshot in table.snapshots()] == ["0", "1", "2"]
    catalog.engine.dispose()


def test_parquet_of_another_checkpoint_is_refused_before_rows_are_lost(environment: Environment) -> None:
    path = str(environment.directory / "table")
    flow = orders(sink=ParquetSink(path=path))
    environment.publish("orders", [order(n) for n in range(3)])
    environment.done(flow)
    shutil.rmtree(environment.directory / "checkpoints")
    with pytest.raises(Conflict, match="was written with another checkpoint"):
        environment.run(flow)
    assert environment.spark.read.parquet(path).count() == 3


@pytest.mark.parametrize("key", [(), ("id",)])
def test_database_gets_rows_at_least_once_and_by_key_exactly_once(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...]
) -> None:
    url = f"jdbc:derby:memory:{environment.directory.name};create=true"
    driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    sink = JdbcSink(url=url, table="orders", key=key, driver=driver)
    keep = SqlStep(query="SELECT id % 3 AS id, amount, _timestamp, _partition, _offset FROM input")
    flow = orders(batch=4, steps=[keep], sink=sink)
    environment.publish("orders", [order(n) for n in range(8)])
    break_once(monkeypatch, jdbc)
    assert environment.failed(flow) == "flow clean, batch 1: RuntimeError: killed"
    environment.done(flow)
    reader = environment.spark.read.format("jdbc").option("url", url).option("driver", driver)
    rows = [(row.id, row.amount) for row in reader.option("dbtable", "orders").load().collect()]
    if key:
        assert sorted(rows) == [(0, 3.0), (1, 3.5), (2, 2.5)]
    else:
        assert sorted(rows) == sorted((n % 3, n / 2) for n in [*range(8), *range(4, 8)])


def test_console_shows_the_first_rows_of_each_batch_and_takes_all(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Expectation(name="few", check="id < 40", otherwise="drop")
    environment.publish("orders", [order(n) for n in range(50)])
    (outcome,) = environment.done(orders(expect=[few], sink=ConsoleSink(rows=2)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "── clean, batch 0 ──"
    assert len(lines) == 3
    assert lines[1].startswith("  id=0  amount=0.0  at=datetime.datetime(2024, 1, 1")
    assert (outcome.progress.rows, outcome.progress.refused) == (50, {"few": 10})


def test_tables_of_all_kinds_are_joined(environment: Environment) -> None:
    spark, here = environment.spark, environment.directory
    names = spark.createDataFrame([(0, "ann"), (1, "bob")], "id bigint, name string")
    names.write.parquet(f"{here}/parquet")
    (here / "cities.csv").write_text("id,city\n1,Rome\n")
    deltalake.write_deltalake(f"{here}/delta", names.withColumnRenamed("name", "nick").toArrow())
    catalog = {"type": "sql", "uri": f"sqlite:///{here}/c.db", "warehouse": f"file://{here}/w"}
    loaded = load_catalog("default", **catalog)
    loaded.create_namespace("shop")
    arrow = names.withColumnRenamed("name", "full").toArrow()
    loaded.create_table("shop.people", schema=arrow.schema).append(arrow)
    loaded.engine.dispose()
    url = f"jdbc:derby:memory:{here.name};create=true"
    driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    jdbc_rows = names.withColumnRenamed("name", "alias").write.format("jdbc").option("driver", driver)
    jdbc_rows.option("url", url).option("dbtable", "people").save()
    tables = [
        FileTable(name="people", format="parquet", path=f"{here}/parquet"),
        FileTable(
            name="cities",
            format="csv",
            path=f"{here}/cities.csv",
            schema="id bigint, city string",
            options={"header": "true"},
        ),
        DeltaTable(name="nicks", path=f"{here}/delta"),
        IcebergTable(name="fulls", table="shop.people", properties=catalog),
        JdbcTable(name="aliases", url=url, table="people", driver=driver),
    ]
    flow = orders(
        steps=[
            JoinStep(table="people", on=["id"]),
            JoinStep(table="cities", on=["id"], how="left"),
            SqlStep(query="SELECT i.*, n.nick FROM input i JOIN Nicks n ON i.id = n.id"),
            JoinStep(table="fulls", on=["id"]),
            JoinStep(table="aliases", on=["id"]),
            SqlStep(query="SELECT id, name, city, nick, full, alias FROM input"),
        ],
        sink=TopicSink(topic="clean"),
    )
    environment.publish("orders", [order(n) for n in range(3)])
    environment.done(flow, tables=tables)
    found = sorted(tuple(value.values()) for value in environment.values("clean"))
    assert found == [(0, "ann", None, "ann", "ann", "ann"), (1, "bob", "Rome", "bob", "bob", "bob")]
