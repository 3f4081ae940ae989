"""A correct file is read into the expected model, and no fault is reported for it."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pytest

from sparrow import pipelines
from sparrow.base.errors import InvalidConfig
from sparrow.pipelines.checks import faults
from sparrow.pipelines.sections.words import read_duration_ms, read_timestamp_ms
from tests.pipelines_check.files import clean, sentences

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "pipelines").glob("*.yml"))
WHOLE = """\
name: orders
broker: {url: 'sparrow://broker:9094', user: ann, password_file: secret}
checkpoints: ./state
trigger: {every: 10 seconds}
spark: {spark.sql.shuffle.partitions: 4}
tables:
  people: {csv: people.csv, schema: "id bigint, country string", options: {header: true}}
  rates: {jdbc: {url: 'jdbc:postgresql://db/x', table: rates, user: reader}}
  days: {parquet: 's3a://bucket/days'}
  prices: {iceberg: shop.prices, catalog: main, properties: {type: rest}}
flows:
  clean:
    from: {topics: [a, b], start: {timestamp: 2026-05-01T12:00:00Z}, max_rows_per_trigger: 1000,
           max_bytes_per_trigger: 10 MiB, headers: true,
           options: {minPartitions: 4, failOnDataLoss: false}}
    decode: {csv: {schema: "id bigint, amount double, at timestamp", delimiter: ';', null_value: "NULL"}}
    key: text
    steps:
      - deduplicate:
      - watermark: {column: at, delay: 10 minutes}
      - deduplicate: {by: [id], within: 1 hour}
      - join: {table: people, on: id, how: left}
      - sql: SELECT *, _headers, key AS who FROM input
      - window: {column: at, length: 5 minutes, slide: 1 minute, by: country,
                select: {total: sum(amount), n: count(*)}}
      - python: steps.py:enrich
    expect:
      - {name: positive, check: total > 0}
      - {name: known, check: country IS NOT NULL, otherwise: stop}
    dead_letters: orders.dead
    to: {topic: clean, key: country, value: json,
         headers: {kind: country}, options: {compression: lz4, sinkId: x}}
    trigger: once
  second:
    from: {flow: clean}
    decode: {regex: {pattern: '(?P<n>\\d+) (?P<text>.*)', types: {n: int}}}
    to: {jdbc: {url: 'jdbc:sqlite:x', table: t, key: [n]}}
    mode: update
  third: {from: {pattern: 'x.*', start: end}, steps: [sql: 'SELECT *, _topic AS topic FROM input'],
          to: {delta: ./table, partition_by: topic},
          trigger: continuous}
  fourth: {from: c, decode: {json: {sample: 100}}, steps: [sql: 'SELECT a, b FROM input'],
           to: {iceberg: shop.t}}
"""


@pytest.fixture
def whole(home):
    (home / "secret").write_text("x\n")
    (home / "people.csv").write_text("id,country\n")
    (home / "p.yml").write_text(WHOLE)
    return pipelines.load("p.yml")


def test_a_file_that_says_everything_is_right(whole):
    assert faults(whole) == []


def test_a_file_is_read_into_the_model_of_python(whole, home):
    clean = whole.flow("clean")
    assert clean == pipelines.Flow(
        name="clean",
        source=pipelines.Source(
            topics=("a", "b"),
            start=1_777_636_800_000,
            max_rows_per_trigger=1000,
            max_bytes_per_trigger=10 << 20,
            headers=True,
            options={"minPartitions": "4", "failOnDataLoss": "false"},
        ),
        decode=pipelines.CsvDecoder(
            schema="id bigint, amount double, at timestamp", delimiter=";", null="NULL"
        ),
        key=pipelines.TextDecoder(),
        steps=(
            pipelines.DeduplicateStep(),
            pipelines.WatermarkStep(column="at", delay_ms=600_000),
            pipelines.DeduplicateStep(by=("id",), within_ms=3_600_000),
            pipelines.JoinStep(table="people", on=("id",), how="left"),
            pipelines.SqlStep(query="SELECT *, _headers, key AS who FROM input"),
            pipelines.WindowStep(
                column="at",
                length_ms=300_000,
                slide_ms=60_000,
                by=("country",),
                select={"total": "sum(amount)", "n": "count(*)"},
            ),
            pipelines.PythonStep(function=f"{home}/steps.py:enrich"),
        ),
        expect=(
            pipelines.Expectation(name="positive", check="total > 0"),
            pipelines.Expectation(name="known", check="country IS NOT NULL", otherwise="stop"),
        ),
        dead_letters="orders.dead",
        sink=pipelines.TopicSink(
            topic="clean",
            key="country",
            headers={"kind": "country"},
            options={"compression": "lz4", "sinkId": "x"},
        ),
        trigger=pipelines.Once(),
    )
    assert whole.trigger == pipelines.Every(interval_ms=10_000)
    assert whole.flow("third").trigger == pipelines.Every(interval_ms=0)
    assert whole.flow("third").sink == pipelines.DeltaSink(path=f"{home}/table", partition_by=("topic",))
    assert whole.spark == {"spark.sql.shuffle.partitions": "4"}


def test_paths_are_relative_to_the_file_and_uris_stay(whole, home, monkeypatch):
    monkeypatch.chdir("/")
    moved = pipelines.load(str(home / "p.yml"))
    assert moved == pipelines.Pipeline(**{**vars(whole), "file": str(home / "p.yml")})
    assert moved.checkpoints == f"{home}/state"
    assert moved.broker.password_file == f"{home}/secret"
    assert moved.table("days").path == "s3a://bucket/days"
    assert moved.checkpoint_of(moved.flow("clean"), is_dead=True) == f"{home}/state/clean.dead"
    assert moved.query_name(moved.flow("clean")) == "orders.clean"


def test_every_node_knows_its_line(whole):
    flow = whole.flow("clean")
    assert str(flow.location) == "p.yml:12"
    assert [str(step.location) for step in flow.steps] == [f"p.yml:{line}" for line in (*range(19, 25), 26)]
    assert str(flow.expect[1].location) == "p.yml:29"
    assert flow.sink.location.at("options", "sinkId") == "p.yml:32"
    assert str(whole.table("rates").location) == "p.yml:8"


def test_broker_options_are_those_of_the_source(whole):
    assert whole.broker.options() == {
        "url": "sparrow://broker:9094",
        "user": "ann",
        "passwordFile": whole.broker.password_file,
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_right(path, monkeypatch):
    monkeypatch.delenv("SPARROW_URL", raising=False)
    assert len(EXAMPLES) >= 3
    assert faults(pipelines.load(str(path))) == []


def test_a_pipeline_made_in_python_is_judged_the_same():
    pipeline = pipelines.Pipeline(
        name="orders",
        flows=[
            pipelines.Flow(
                name="clean",
                source=pipelines.Source(topics=["orders"]),
                decode=pipelines.JsonDecoder(schema="id bigint"),
                steps=[
                    pipelines.SqlStep(query="SELECT idd FROM input"),
                    pipelines.PythonStep(function=lambda df: df),
                    pipelines.JoinStep(table="x", on=["id"], how="outer"),
                ],
                expect=[pipelines.Expectation(name="a", check="id > 0", otherwise="ignore")],
                sink=pipelines.ConsoleSink(),
                mode="replace",
            )
        ],
    )
    with pytest.raises(InvalidConfig) as caught:
        pipeline.check()
    assert caught.value.text.splitlines() == [
        "flows.clean.expect[0].otherwise: cannot be 'ignore'; it takes one of dead_letter, drop, stop",
        "flows.clean.mode: cannot be 'replace'; it takes one of append, update, complete",
        "flows.clean.steps[2].how: cannot be 'outer'; it takes one of inner, left, left_semi, left_anti",
        "flows.clean.steps[0]: there is no column 'idd' here; did you mean 'id'?",
        "flows.clean.steps[2].table: there is no table 'x'; declare it in the tables of the pipeline",
        "flows.clean.mode: 'replace' cannot be written to console; it takes append, update, complete",
    ]


def test_one_topic_or_column_may_be_alone_in_python_too():
    assert pipelines.Source(topics="orders") == pipelines.Source(topics=["orders"])
    assert pipelines.DeduplicateStep(by="id").by == ("id",)
    assert pipelines.JsonDecoder(schema="id bigint").schema == "id bigint"


def test_secrets_are_not_in_the_words_of_a_pipeline():
    broker = pipelines.Broker(token="secret-1", password="secret-2")
    sink = pipelines.JdbcSink(url="jdbc:x", table="t", options={"password": "secret-3"})
    assert "secret" not in repr((broker, sink)).replace("password_file", "")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500 ms", 500),
        ("1 second", 1000),
        ("90 Seconds", 90_000),
        ("10 minutes", 600_000),
        ("1h30m", 5_400_000),
        ("1 hour 30 minutes", 5_400_000),
        ("2 days", 172_800_000),
        ("1 week", 604_800_000),
        ("250 milliseconds", 250),
        (1500, 1500),
        ("0", 0),
    ],
)
def test_durations_are_words_or_units(text, ms):
    assert read_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "soon", "minutes", "10 minuts", "-1 s", "1 second ago", None, True, "9" * 50]
)
def test_invalid_duration_is_refused(text):
    with pytest.raises(ValueError):
        read_duration_ms(text)


@pytest.mark.parametrize(
    "given",
    [
        1_777_636_800_000,
        "2026-05-01T12:00:00Z",
        "2026-05-01 14:00:00+02:00",
        dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 5, 1, 12),  # noqa: DTZ001 - what YAML makes of a time without a zone
    ],
)
def test_points_in_time_are_utc_unless_they_say_otherwise(given):
    assert read_timestamp_ms(given) == 1_777_636_800_000


def test_a_date_is_its_midnight():
    assert read_timestamp_ms(dt.date(2026, 5, 1)) == read_timestamp_ms("2026-05-01T00:00:00Z")


def test_a_function_is_found_in_a_package_without_running_it(home):
    (home / "shop").mkdir()
    (home / "shop" / "__init__.py").write_text("raise RuntimeError('it ran')\n")
    (home / "shop" / "steps.py").write_text(
        "from other import enrich, clean as tidy\nraise RuntimeError('it ran')\n"
    )
    for name, sentence in (
        ("shop.steps:enrich", None),
        ("shop.steps:tidy", None),
        ("shop.steps:nope", f"{home}/shop/steps.py has no function 'nope'"),
        (
            "shop.none:f",
            "there is no module 'shop.none'; modules are looked for beside the file and on Python's path",
        ),
        ("shop.steps.more:f", "there is no module 'shop.steps.more': 'shop.steps' is no package"),
        ("json:dumps", None),
        ("sys:exit", None),
    ):
        (home / "p.yml").write_text(clean(steps=(f"python: {name}",)))
        expected = [] if sentence is None else [f"8: flows.clean.steps[0].python: {sentence}"]
        assert sentences("p.yml") == expected
    assert "shop" not in sys.modules


def test_flow_may_read_a_table_that_another_flow_will_write(home):
    table = "tables: {totals: {parquet: ./out}}"
    other = "  other: {from: x, steps: [sql: 'SELECT * FROM input JOIN totals USING (id)'], to: console}"
    (home / "p.yml").write_text(clean(to="{parquet: ./out}", top=(other, table)))
    assert sentences("p.yml") == []


def test_the_former_path_is_the_same_package() -> None:
    from sparrow import pipelines
    from sparrow.spark import pipelines as by_attribute
    from sparrow.spark.pipelines import Pipeline, builtin

    assert by_attribute is pipelines
    assert Pipeline is pipelines.Pipeline
    assert callable(builtin.stats)
