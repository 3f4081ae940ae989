"""Writes of tasks and commits of drivers, on a real broker and without Spark: each batch exists
once, as a whole or not at all.
"""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparrow.testing
from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    InvalidRecord,
    InvalidTransactionTimeout,
    NotAuthorized,
    SinkFenced,
    SinkTaken,
    SparrowError,
    StageExpired,
    UnknownSink,
)
from sparrow.spark.sink import committer
from sparrow.spark.sink import task as tasks
from tests.repetitions import repetitions
from tests.spark.kafka import read_messages
from tests.spark.sink.proxy import CuttingProxy
from tests.spark.sink.tasks import Query, describe, make_topic, read_rows, read_values

if TYPE_CHECKING:
    pass


_numbers = count()


def test_rows_are_seen_when_their_batch_is_committed_and_not_before(broker, topic):
    query = Query(broker, topic=topic, query=topic)

    written = [query.write_values(0, b"a", b"b", task=0), query.write_values(0, b"c", task=1)]

    assert read_values(broker, topic) == []
    assert query.commit(*written) is False
    assert sorted(read_values(broker, topic)) == [b"a", b"b", b"c"]
    assert [each.rows for each in written] == [2, 1]


def test_a_commit_that_is_said_again_changes_nothing_and_says_so(broker, topic):
    query = Query(broker, topic=topic, query=topic)
    written = query.write_values(0, b"a")
    query.commit(written)

    assert query.commit(written) is True
    assert read_values(broker, topic) == [b"a"]


def test_a_batch_that_is_run_again_after_its_commit_writes_nothing(broker, topic):
    query = Query(broker, topic=topic, query=topic)
    query.commit(query.write_values(7, b"a"))

    again = Query(broker, topic=topic, query=topic, run="after a restart")
    written = again.write_values(7, b"a", task=0), again.write_values(7, b"b", task=1)

    assert [each.stage for each in written] == [None, None]
    assert again.commit(*written) is True
    assert read_values(broker, topic) == [b"a"]


def test_a_batch_that_was_staged_by_a_driver_that_died_is_written_by_the_next_one(broker, topic):
    Query(broker, topic=topic, query=topic, run="first").write_values(0, b"lost")

    second = Query(broker, topic=topic, query=topic, run="second")
    second.commit(second.write_values(0, b"a"))

    assert read_values(broker, topic) == [b"a"]
    assert describe(broker, topic)["open_stages"] == 0


def test_records_of_losing_attempts_are_dropped_at_the_commit(broker, topic):
    query = Query(broker, topic=topic, query=topic)
    query.write_values(0, b"first attempt")
    winner = query.write_values(0, b"second attempt")
    query.write_values(0, b"speculation")

    query.commit(winner)

    assert read_values(broker, topic) == [b"second attempt"]
    assert describe(broker, topic)["open_stages"] == 0


def test_an_abort_after_the_commit_does_nothing(broker, topic):
    query = Query(broker, topic=topic, query=topic)
    written = query.write_values(0, b"a")
    query.commit(written)

    query.abort(written)

    assert read_values(broker, topic) == [b"a"]


def test_an_abort_drops_the_batch_which_can_be_written_again(broker, topic):
    query = Query(broker, topic=topic, query=topic)
    query.abort(query.write_values(0, b"a"), None)
    assert describe(broker, topic)["open_stages"] == 0

    query.commit(query.write_values(0, b"b"))

    assert read_values(broker, topic) == [b"b"]


def test_an_abort_without_a_broker_fails_nothing(topic):
    with sparrow.testing.broker() as gone:
        make_topic(gone, topic)
        query = Query(gone, topic=topic, retries="0")
        written = query.write_values(0, b"a")

    query.abort(written)


def test_tasks_without_rows_cost_the_broker_nothing(broker, topic):
    query = Query(broker, topic=topic, query=topic)

    empty = query.write(1, [], []), query.write(1)

    assert [each.stage for each in empty] == [None, None]
    assert query.commit(*empty) is False
    with pytest.raises(UnknownSink):
        describe(broker, topic)


def test_a_fresh_checkpoint_has_the_sink_even_if_its_first_batch_has_no_rows(broker, topic):
    """Such is the checkpoint of a stream that begins at the end of its topics."""
    old = Query(broker, topic=topic, query="old", run="old", sinkId=topic)
    old.commit(old.write_values(7, b"a"))
    fresh = Query(broker, topic=topic, query="fresh", run="fresh", sinkId=topic)

    fresh.commit(fresh.write(0))
    fresh.commit(fresh.write_values(1, b"b"))

    assert read_values(broker, topic) == [b"a", b"b"]
    assert describe(broker, topic)["last_batch"] == 1


def test_a_broker_that_allows_short_transactions_only_keeps_stages_as_long_as_that(sparrow_topic):
    with sparrow.testing.broker(transaction_max_timeout_ms="1m") as broker:
        query = Query(broker, topic=sparrow_topic, query=sparrow_topic)
        query.write_values(0, b"a")
        (stage,) = describe(broker, sparrow_topic)["stages"]
        assert 0 < stage["left_ms"] <= 60_000
        longer = Query(broker, topic=sparrow_topic, query=sparrow_topic, stageTimeout="2m")
        with pytest.raises(InvalidTransactionTimeout, match=r"transactions\.max_timeout"):
            longer.write_values(1, b"a")


def test_a_run_that_was_followed_by_another_is_fenced_wherever_it_is(broker, topic):
    old = Query(broker, topic=topic, query=topic, run="old")
    staged = old.write_values(0, b"old")
    new = Query(broker, topic=topic, query=topic, run="new")
    new.commit(new.write_values(0, b"new"))

    with pytest.raises(SinkFenced, match="run 'new'"):
        old.write_values(1, b"older")
    with suppress(SinkFenced):
        assert old.commit(staged) is True
    assert read_values(broker, topic) == [b"new"]


def test_a_fresh_checkpoint_counts_its_batches_again(broker, topic):
    first = Query(broker, topic=topic, query=f"{topic}-1", sinkId=topic)
    first.commit(first.write_values(0, b"a"))
    first.commit(first.write_values(1, b"b"))

    fresh = Query(broker, topic=topic, query=f"{topic}-2", run="fresh", sinkId=topic)
    fresh.commit(fresh.write_values(0, b"c"))

    assert read_values(broker, topic) == [b"a", b"b", b"c"]
    with pytest.raises(SinkFenced):
        first.write_values(2, b"d")


def test_taking_over_a_sink_of_another_query_needs_an_option(broker, topic):
    first = Query(broker, topic=topic, query=f"{topic}-1", sinkId=topic)
    first.commit(first.write_values(9, b"a"))

    with pytest.raises(SinkTaken, match=f"{topic}-1"):
        Query(broker, topic=topic, query=f"{topic}-2", run="other", sinkId=topic).write_values(5, b"b")
    taking = Query(broker, topic=topic, query=f"{topic}-2", run="other", sinkId=topic, takeOver="true")
    taking.commit(taking.write_values(5, b"c"))

    assert read_values(broker, topic) == [b"a", b"c"]


@pytest.mark.slow
def test_uncommitted_stages_expire(broker, topic):
    query = Query(broker, topic=topic, query=topic, stageTimeout="1s")
    orphan = query.write_values(0, b"orphan")
    deadline = time.monotonic() + 30
    while describe(broker, topic)["open_stages"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    with pytest.raises(StageExpired, match="stageTimeout: 1000 ms"):
        query.commit(orphan)
    query.commit(query.write_values(0, b"a"))
    assert read_values(broker, topic) == [b"a"]


def test_rows_go_to_the_topics_that_their_column_names(broker, topic):
    other = make_topic(broker, f"{topic}-other", partitions=3)
    query = Query(broker, columns="topic value", query=topic)
    rows = [{"topic": name, "value": b"%d" % n} for n, name in enumerate([topic, other, topic, other, other])]

    query.commit(query.write(0, rows))

    assert read_values(broker, topic) == [b"0", b"2"]
    assert sorted(read_values(broker, other)) == [b"1", b"3", b"4"]


def test_a_topic_that_does_not_exist_is_made_as_for_any_producer(broker, sparrow_topic):
    query = Query(broker, topic=sparrow_topic, query=sparrow_topic)

    query.commit(query.write_values(0, b"a"))

    assert read_values(broker, sparrow_topic) == [b"a"]


def test_a_row_without_a_topic_is_named_and_nothing_of_its_batch_is_seen(broker, topic):
    query = Query(broker, columns="topic key value", query=topic)
    rows = [{"topic": topic, "value": b"good"}, {"key": b"k7", "value": b"x" * 100}]

    with pytest.raises(InvalidArgument, match=r"a row names no topic.*key b'k7', value b'xxx.*…"):
        query.write(0, rows)
    assert read_values(broker, topic) == []
    assert describe(broker, topic)["open_stages"] == 0


def test_a_task_that_fails_takes_back_its_own_stage_and_no_other(broker, topic):
    query = Query(broker, columns="partition value", topic=topic, query=topic)
    other = query.write(0, [{"value": b"a"}], task=1)
    with pytest.raises(InvalidRecord):
        query.write(0, [{"value": b"b"}, {"partition": 5, "value": b"c"}])

    assert describe(broker, topic)["open_stages"] == 1
    query.commit(other, query.write(0, [{"value": b"d"}]))
    assert sorted(read_values(broker, topic)) == [b"a", b"d"]


def test_a_task_that_writes_to_too_many_topics_is_stopped(broker, topic, monkeypatch):
    monkeypatch.setattr(tasks, "MAX_TOPICS", 3)
    query = Query(broker, columns="topic value", query=topic)

    with pytest.raises(InvalidArgument, match="more than 3 topics"):
        query.write(0, [{"topic": f"{topic}-{n}", "value": b""} for n in range(4)])


def test_many_topics_in_one_task_are_each_written_whole(broker, topic, monkeypatch):
    monkeypatch.setattr(tasks, "_ROOMY_TOPICS", 2)
    query = Query(broker, columns="topic value", query=topic)
    rows = [{"topic": f"{topic}-{n % 5}", "value": b"%d" % n * 5000} for n in range(100)]

    query.commit(query.write(0, rows))

    for number in range(5):
        expected = [b"%d" % n * 5000 for n in range(number, 100, 5)]
        assert sorted(read_values(broker, f"{topic}-{number}")) == sorted(expected)


def test_a_partition_that_the_topic_does_not_have_is_refused(broker, topic):
    query = Query(broker, columns="partition value", topic=topic, query=topic)

    with pytest.raises(InvalidRecord, match="partition 3; the topic has 0 to 0"):
        query.write(0, [{"partition": 3, "value": b"a"}])


def test_partition_column_wins_over_the_key_and_null_leaves_it_to_the_key(broker, sparrow_topic):
    topic = make_topic(broker, sparrow_topic, partitions=3)
    query = Query(broker, columns="key partition value", topic=topic, query=topic)
    rows = [{"key": b"same", "partition": n, "value": b"given"} for n in (0, 1, 2)]
    rows += [{"key": b"same", "value": b"by key"}] * 2

    query.commit(query.write(0, rows))

    assert sorted(len(each) for each in read_rows(broker, topic, "value")) == [1, 1, 3]


def test_rows_without_a_time_get_that_of_their_writing_and_others_keep_theirs(broker, topic):
    before_ms = time.time_ns() // 1_000_000
    query = Query(broker, columns="timestamp value", topic=topic, query=topic)

    query.commit(query.write(0, [{"timestamp": 1234, "value": b"old"}, {"value": b"new"}]))

    (old, new) = (row["timestamp"] for row in read_rows(broker, topic, "timestamp")[0])
    assert old == 1234
    assert before_ms <= new <= time.time_ns() // 1_000_000


def test_a_commit_whose_answer_is_lost_is_asked_for_again_and_committed_once(broker, topic):
    with CuttingProxy(broker.host, broker.port, "sink.commit") as proxy:
        query = Query(broker, topic=topic, query=topic, url=proxy.url)

        query.commit(query.write_values(0, b"a"))

        assert proxy.cuts == 1
    assert read_values(broker, topic) == [b"a"]


def test_a_stage_whose_answer_is_lost_is_opened_again(broker, topic):
    with CuttingProxy(broker.host, broker.port, "sink.stage") as proxy:
        query = Query(broker, topic=topic, query=topic, url=proxy.url)

        query.commit(query.write_values(0, b"a"))

        assert proxy.cuts == 1
    assert read_values(broker, topic) == [b"a"]
    assert describe(broker, topic)["open_stages"] == 0


def test_a_driver_waits_for_a_broker_that_comes_back_and_no_longer():
    now = [0.0]
    asked: list[float] = []

    def ask(session) -> str:
        asked.append(now[0])
        if now[0] < 20:
            raise ConnectionLost("not yet")
        return "answer"

    def sleep(pause_s: float) -> None:
        now[0] += pause_s

    def patiently(patience_s: float) -> str:
        return committer.patiently(
            lambda: ask(None), patience_s=patience_s, clock=lambda: now[0], sleep=sleep
        )

    assert patiently(60) == "answer"
    assert len(asked) < 20
    now[0] = 0.0
    with pytest.raises(ConnectionLost):
        patiently(10)
    assert now[0] <= 10


def test_a_refusal_is_not_asked_for_again():
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        raise SinkFenced("no")

    with pytest.raises(SinkFenced):
        committer.patiently(ask)
    assert len(asked) == 1


@pytest.mark.slow
def test_a_batch_is_committed_by_a_broker_that_was_killed_after_it_was_staged(tmp_path, sparrow_topic):
    with sparrow.testing.broker(process=True, data_dir=str(tmp_path / "data")) as broker:
        make_topic(broker, sparrow_topic)
        query = Query(broker, topic=sparrow_topic, query=sparrow_topic)
        written = query.write_values(0, *(b"%d" % n for n in range(1000)))
        broker.kill()
        broker.restart()

        query.commit(written)

        assert read_values(broker, sparrow_topic) == [b"%d" % n for n in range(1000)]


def test_errors_of_the_sink_are_sparrows_own(broker):
    with pytest.raises(SparrowError, match=r"'' .* cannot be the id of a run"):
        Query(broker, topic="t", run="").write_values(0, b"a")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_client_reads_the_written_records_byte_for_byte(broker, sparrow_topic, compression):
    topic = make_topic(broker, sparrow_topic, partitions=2)
    columns = "key value headers partition timestamp"
    query = Query(broker, columns=columns, topic=topic, query=topic, compression=compression)
    rows = [
        {"partition": n % 2, "timestamp": n, "key": key, "value": value, "headers": headers}
        for n, (key, value, headers) in enumerate(
            [
                (b"k", b"v", [{"key": "name", "value": b"content"}]),
                (None, None, None),
                (b"", b"", []),
                (b"\x00\xff", b"y" * 3000, [{"key": "", "value": None}, {"key": "n", "value": b""}]),
                (None, b"z" * 100_000, None),
            ]
        )
    ]

    query.commit(query.write(0, rows[:2], rows[2:]))

    found = read_messages(broker, topic)
    assert {number: [_as_row(each) for each in messages] for number, messages in found.items()} == {
        0: [{**row, "headers": row["headers"] or []} for row in rows[::2]],
        1: [{**row, "headers": row["headers"] or []} for row in rows[1::2]],
    }


def _as_row(message) -> dict:
    headers = [{"key": name, "value": content} for name, content in message.headers() or []]
    return {
        "partition": message.partition(),
        "timestamp": message.timestamp()[1],
        "key": message.key(),
        "value": message.value(),
        "headers": headers,
    }


_contents = st.none() | st.binary(max_size=20)
_headers = st.lists(st.fixed_dictionaries({"key": st.text(max_size=4), "value": _contents}), max_size=3)
_rows = st.fixed_dictionaries(
    {"key": _contents, "value": _contents, "headers": _headers, "partition": st.integers(0, 1)}
)


@settings(
    max_examples=repetitions(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    written=st.lists(st.lists(_rows, max_size=8), max_size=4),
    compression=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
)
def test_written_records_are_read_in_the_order_of_their_task(broker, written, compression):
    topic = f"order-{next(_numbers)}"
    make_topic(broker, topic, partitions=2)
    query = Query(
        broker,
        columns="key value headers partition",
        topic=topic,
        query=topic,
        compression=compression,
        maxBatchBytes="1024",
    )

    query.commit(query.write(0, *written))

    expected = [
        [
            {"key": row["key"], "value": row["value"], "headers": row["headers"] or None}
            for part in written
            for row in part
            if row["partition"] == number
        ]
        for number in (0, 1)
    ]
    assert read_rows(broker, topic, "key", "value", "headers") == expected


def test_missing_right_to_a_sink_names_the_right_to_grant(sparrow_topic):
    with sparrow.testing.broker(users={"ann": "pencil-2B"}, acl_default="deny") as broker:
        query = Query(broker, topic=sparrow_topic, query="7d1c", user="ann", password="pencil-2B")
        named = Query(broker, topic=sparrow_topic, sinkId="orders", user="ann", password="pencil-2B")

        with pytest.raises(NotAuthorized, match=r"'7d1c'.*name it by sinkId, or grant.*'spark-write-'"):
            query.write_values(0, b"a")
        with pytest.raises(NotAuthorized, match=r"'orders'.*WRITE on the transactional id"):
            named.write_values(0, b"a")
