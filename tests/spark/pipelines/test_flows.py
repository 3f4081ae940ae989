"""Flows from topics to topics on a real broker: decoding, steps, expectations, dead letters,
restarts.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pytest

import sparrow.sync
from sparrow.base.errors import InvalidConfig, SparrowError
from sparrow.pipelines.engine.progress import DONE, FAILED, RUNNING, SKIPPED, STOPPED
from sparrow.pipelines.model import (
    ConsoleSink,
    DeduplicateStep,
    Every,
    Expectation,
    Flow,
    JsonDecoder,
    ParquetSink,
    PythonStep,
    Source,
    SqlStep,
    TextDecoder,
    TopicSink,
    WatermarkStep,
    WindowStep,
)
from sparrow.spark.wire import Target, connect
from tests.spark.pipelines.flows import orders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparrow.pipelines.engine.progress import Progress
    from tests.spark.pipelines.flows import Environment

pytestmark = pytest.mark.timeout(300)

POSITIVE = Expectation(name="positive", check="amount > 0")
TO_CLEAN = TopicSink(topic="clean", key="id")


def order(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "amount": number, **fields}


def ids(values: list[dict[str, Any]]) -> list[int]:
    return sorted(value["id"] for value in values)


def test_rows_reach_their_topic_once_and_bad_ones_the_dead_letters_with_the_reason(
    environment: Environment,
) -> None:
    environment.publish("orders", [order(n) if n % 5 else b"bad" for n in range(20)], key=b"k")
    gross = SqlStep(query="SELECT *, amount * 2 AS gross FROM input WHERE id <> 3")
    flow = orders(
        steps=[gross],
        expect=[
            replace(POSITIVE, check="amount > 2"),
            Expectation(name="few", check="id < 19", otherwise="drop"),
        ],
        dead_letters="orders.dead",
        sink=replace(TO_CLEAN, headers={"source": "_topic"}),
        batch=7,
    )
    (outcome,) = environment.done(flow)
    assert (outcome.progress.state, outcome.progress.rows, outcome.progress.batches) == (DONE, 20, 3)
    assert outcome.progress.refused == {"undecodable": 4, "positive": 2, "few": 1}
    assert outcome.progress.lag == 0
    environment.done(flow)
    assert ids(environment.values("clean")) == [n for n in range(3, 19) if n % 5 and n != 3]
    first = next(each for each in environment.messages("clean") if each.key() == b"4")
    assert (first.value(), first.headers()) == (
        b'{"id":4,"amount":4.0,"at":null,"gross":8.0}',
        [("source", b"orders")],
    )
    dead = {int(dict(each.headers())["offset"]): each for each in environment.messages("orders.dead")}
    assert sorted(dead) == [0, 1, 2, 5, 10, 15]
    assert (dead[5].key(), dead[5].value()) == (b"k", b"bad")
    assert dict(dead[5].headers()) == {
        "reason": b"the value is not a JSON object",
        "flow": b"clean",
        "topic": b"orders",
        "partition": b"0",
        "offset": b"5",
    }
    assert dead[1].value() == b'{"id": 1, "amount": 1}'
    headers = dict(dead[1].headers())
    assert (headers["expectation"], headers["reason"]) == (
        b"positive",
        b"the expectation positive failed: amount > 2",
    )


def test_expectation_that_stops_names_itself_and_the_message(environment: Environment) -> None:
    environment.publish("orders", [order(1), order(2, amount=-1), order(3)])
    flow = orders(expect=[replace(POSITIVE, otherwise="stop")], sink=TO_CLEAN)
    text = environment.failed(flow)
    assert text == (
        "flow clean, batch 0: the expectation 'positive' (amount > 0) failed for topic orders, "
        "partition 0, offset 1"
    )
    (outcome,) = environment.run(replace(flow, expect=[]))
    assert outcome.progress.state == DONE
    assert ids(environment.values("clean")) == [1, 2, 3]


def test_message_that_cannot_be_decoded_stops_a_flow_without_dead_letters(environment: Environment) -> None:
    environment.publish("orders", [order(1), b"bad"])
    (outcome,) = environment.run(orders(sink=TO_CLEAN))
    assert outcome.progress.state == FAILED
    assert outcome.failure is not None
    assert outcome.failure.text == (
        "flow clean, batch 0: topic orders, partition 0, offset 1 cannot be decoded: the value is "
        "not a JSON object;"
        " name a topic for such messages by dead_letters"
    )
    assert "org.apache.spark" in outcome.failure.detail


def test_late_rows_are_left_out_of_windows_that_are_final(environment: Environment) -> None:
    def at(minute: int, number: int = 1) -> dict[str, Any]:
        return {"id": number, "amount": 1.0, "at": f"2024-01-01T00:{minute:02}:00Z"}

    flow = orders(
        batch=2,
        steps=[
            WatermarkStep(column="at", delay_ms=60_000),
            WindowStep(column="at", length_ms=300_000, by=["id"], select={"total": "sum(amount)"}),
        ],
        expect=[Expectation(name="some", check="total > 0")],
        dead_letters="dead",
        sink=TopicSink(topic="totals"),
    )
    # A row is late only if an earlier batch has already begun with the watermark that it is behind.
    minutes = [0, 1, 20, 21, 22, 23, 2, 24, 40, 41]
    environment.publish("orders", [at(minute) for minute in minutes])
    environment.done(flow)
    environment.done(flow)
    found = {value["window_start"][11:16]: value["total"] for value in environment.values("totals")}
    assert found == {"00:00": 2.0, "00:20": 5.0}
    assert sorted(environment.values("totals")[0]) == ["id", "total", "window_end", "window_start"]


def test_messages_with_the_same_id_pass_once_over_batches_and_restarts(environment: Environment) -> None:
    flow = orders(
        batch=2,
        steps=[DeduplicateStep(within_ms=3_600_000)],
        sink=TO_CLEAN,
    )
    for number, message_id in enumerate(["a", "b", "a", "c", "b"]):
        environment.publish("orders", [order(number)], headers={"message-id": message_id.encode()})
    environment.publish("orders", [order(7), order(7)])
    environment.done(flow)
    environment.publish("orders", [order(9)], headers={"message-id": b"c"})
    environment.publish("orders", [order(8)], headers={"message-id": b"d"})
    environment.done(flow)
    assert ids(environment.values("clean")) == [0, 1, 3, 7, 7, 8]


def test_flows_that_feed_each_other_run_in_order_over_topics_and_files(environment: Environment) -> None:
    environment.publish("orders", [order(n) for n in range(6)])
    path = str(environment.directory / "files")
    flows = [
        Flow(
            name="sums",
            source=Source(flow="filed"),
            steps=[SqlStep(query="SELECT id, big FROM input WHERE big")],
            sink=TopicSink(topic="big"),
        ),
        Flow(
            name="filed",
            source=Source(flow="clean"),
            decode=JsonDecoder(schema="id bigint, amount double"),
            steps=[SqlStep(query="SELECT *, amount > 3 AS big, id % 2 AS odd FROM input")],
            sink=ParquetSink(path=path, partition_by=["odd"]),
        ),
        orders(sink=TO_CLEAN),
    ]
    environment.done(*flows)
    environment.publish("orders", [order(7)])
    environment.done(*flows)
    assert ids(environment.values("big")) == [4, 5, 7]
    assert sorted(row.id for row in environment.spark.read.parquet(path).collect()) == [0, 1, 2, 3, 4, 5, 7]


def test_flows_behind_a_failed_one_are_skipped_and_others_end_in_peace(environment: Environment) -> None:
    environment.publish("orders", [b"bad"])
    environment.publish("other", [order(1)])
    endless = Flow(
        name="endless",
        source=Source(topics=["other"]),
        decode=TextDecoder(),
        sink=TopicSink(topic="copy", value="value"),
        trigger=Every(interval_ms=0),
    )
    after = Flow(name="after", source=Source(topics=["clean"]), decode=TextDecoder(), sink=ConsoleSink())
    with sparrow.sync.connect(environment.broker.url) as client:
        client.admin.ensure_topic("clean")
    outcomes = environment.run(orders(sink=TO_CLEAN), after, endless)
    assert [each.progress.state for each in outcomes] == [FAILED, SKIPPED, STOPPED]
    assert [query for query in environment.spark.streams.active if str(query.name).startswith("p.")] == []


def test_stop_ends_streams_and_the_next_start_goes_on_where_they_were(environment: Environment) -> None:
    environment.publish("orders", [order(n) for n in range(10)])
    stop = threading.Event()
    seen: list[str] = []

    def on_progress(flows: Any) -> None:
        progress: Progress = flows[0]
        seen.append(progress.state)
        if progress.rows >= 4:
            stop.set()

    flow = orders(batch=2, sink=TO_CLEAN, trigger=Every(interval_ms=50))
    (outcome,) = environment.run(flow, on_progress=on_progress, stop=stop)
    assert outcome.progress.state == STOPPED
    assert {RUNNING, STOPPED} <= set(seen)
    with connect(Target(url=environment.broker.url)) as session:
        (report,) = session.call("pipeline.list")["pipelines"]
    assert (report["name"], report["flow"], report["state"]) == ("p", "clean", STOPPED)
    assert (report["rows"], report["batch"]) == (outcome.progress.rows, outcome.progress.batch)
    environment.publish("orders", [order(10)])
    (outcome,) = environment.done(flow, once=True)
    assert outcome.progress.state == DONE
    assert ids(environment.values("clean")) == list(range(11))


def test_inferred_schema_stays_that_of_the_first_start(environment: Environment) -> None:
    flow = orders(decode=JsonDecoder(sample=2), sink=TO_CLEAN, dead_letters="dead")
    environment.publish("orders", [{"id": 1, "amount": 1}, {"id": 2}, {"id": 3, "amount": 1.5}])
    environment.done(flow)
    environment.publish("orders", [{"id": 4, "more": "x"}])
    environment.done(flow)
    found = sorted(environment.values("clean"), key=itemgetter("id"))
    assert found == [{"id": n, "amount": 1 if n == 1 else None} for n in (1, 2, 4)]
    assert [dict(each.headers())["reason"] for each in environment.messages("dead")] == [
        b"the field 'amount' is not bigint"
    ]


def test_python_steps_are_functions_of_files_or_themselves(environment: Environment) -> None:
    (environment.directory / "steps.py").write_text(
        "from pyspark.sql import functions as F\n"
        "RATE = 3\n"
        "def _times(values):\n"
        "    return values * RATE\n"
        "def enrich(df):\n"
        "    times = F.pandas_udf(_times, 'double')\n"
        "    return df.withColumn('gross', times('amount'))\n"
    )

    def doubled(df: DataFrame) -> DataFrame:
        return df.withColumn("twice", df["gross"] * 2)

    enrich = PythonStep(function=f"{environment.directory}/steps.py:enrich")
    environment.publish("orders", [order(2)])
    environment.done(orders(steps=[enrich, PythonStep(function=doubled)], sink=TO_CLEAN))
    assert environment.values("clean") == [{"id": 2, "amount": 2.0, "at": None, "gross": 6.0, "twice": 12.0}]


def test_fault_at_the_start_is_reported_with_the_flow(environment: Environment) -> None:
    environment.publish("orders", [order(1)])

    def nothing(df: Any) -> None:
        return None

    for flow, text in (
        (orders(steps=[PythonStep(function=nothing)], sink=TO_CLEAN), "the function nothing gave NoneType"),
        (
            orders(sink=TopicSink(topic="x", key="ids")),
            r"column 'ids', which the rows do not have; did you mean 'id'\?",
        ),
        (orders(steps=[SqlStep(query="SELECT nothing FROM input")], sink=TO_CLEAN), "nothing"),
        (orders(source=Source(topics=["nowhere"]), sink=TO_CLEAN), "nowhere"),
    ):
        with pytest.raises(SparrowError, match=f"^flow clean(, batch 0)?: .*{text}"):
            _run_or_raise(environment, flow)
    assert environment.spark.streams.active == []


def _run_or_raise(environment: Environment, flow: Flow) -> None:
    """Some faults are found before a flow starts, some by its query."""
    (outcome,) = environment.run(flow)
    if outcome.failure is not None:
        raise InvalidConfig(outcome.failure.text)
