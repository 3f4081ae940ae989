"""`redrive`: dead letters back to where they came from, chosen by SQL, each once.

Letters of a queue are chosen by Spark and sent by the broker, letter by letter exactly once: the queue of dead letters then knows them as done, as after `sparrow queue redrive`, and what a
consumer has leased or has finished is left alone.

Other letters (of pipelines, of Kafka Connect, of anybody; or all, where another topic is named to send them to) are sent by Spark in one transaction. In the same transaction the topic
`NAME.redriven` gets a mark for each (its key is the letter's partition and offset), and letters that have a mark are passed over. So a letter and its mark are there together or not at all, and a second run
sends nothing twice. Two runs at the same time cannot both commit: the broker takes one write of each number for the sink `spark-redrive-NAME`, and each run numbers its own after the last
one that it saw before it looked at the marks.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import Conflict, InvalidArgument, InvalidTopicName, NotFound
from sparrow.base.units import counted
from sparrow.spark.pipelines.builtin.cluster import Cluster, Progress, quiet
from sparrow.spark.pipelines.builtin.conditions import check_condition
from sparrow.spark.pipelines.builtin.letters import COLUMNS, as_letters, sent_back
from sparrow.spark.pipelines.builtin.topics import Topic, count_of, linked, ranges_between, read, topics_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrow.spark.wire.link import Link

MARKS_SUFFIX: Final = ".redriven"
_SINK_PREFIX: Final = "spark-redrive-"
_LETTERS_PER_CALL: Final = 10_000
_POLL_S: Final = 0.05
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, for people."""

    partition: int
    offset: int
    reason: str | None
    error: str | None
    origin_topic: str | None
    key: str | None


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a run of `redrive` did, or would do."""

    topic: str
    """The dead-letter topic."""
    matched: int
    """Letters that match and were not sent back before by Spark."""
    sent: int
    failed: int = 0
    """Could not be sent; they are where they were."""
    left: int = 0
    """Match, and were left alone: sent back by the queue before, leased, or without a topic to go to."""
    targets: Mapping[str, int] | None = None
    """How many matched for each topic; "" is none."""
    sample: tuple[Letter, ...] = ()
    """Of a dry run: the first that match."""
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Wanted:
    where: str | None
    to: str | None
    is_dry_run: bool
    connection: Mapping[str, str]
    cluster: Cluster
    progress: Progress


def redrive(
    name: str,
    *,
    where: str | None = None,
    to: str | None = None,
    dry_run: bool = False,
    connection: Mapping[str, str] | None = None,
    spark: Any = None,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
    progress: Progress = quiet,
) -> Redriven:
    """Send dead letters back, each once.

    Args:
        name: of a queue, or of a topic of dead letters.
        where: SQL over the letters (`letters.COLUMNS`); only those for which it is true.
        to: another topic for all of them.
        dry_run: only count them, and show some.
        connection: options of `format("sparrow")` by which the broker is reached.
        spark, master, remote, conf: where it runs, as for `sparrow.spark.session`.
        progress: is told what is being done.

    Raises:
        UnknownTopic: there is neither such a queue nor such a topic.
        InvalidArgument: the condition is none, or the queue keeps no dead letters.
        Conflict: another redrive of these letters is under way.
    """
    if where is not None:
        check_condition(where, COLUMNS)
    wanted = _Wanted(
        where, to, dry_run, connection or {}, Cluster(spark, master, remote, conf or {}), progress
    )
    with linked(wanted.connection) as link:
        queue, dead = _resolved(link, name)
        if dead is None:
            return Redriven(name, 0, 0)
        batch = _next_batch(link, dead.name)
        marks = _maybe_marks(link, dead)
        if not sum(dead.ends.values()) - sum(dead.starts.values()):
            return Redriven(dead.name, 0, 0, is_dry_run=dry_run)
        progress(f"looking through {counted(count_of(ranges_between(link, [dead], None, None)), 'letter')}")
        with wanted.cluster.session("sparrow-redrive") as spark_session:
            letters = _chosen(spark_session, link, dead, marks, wanted)
            if queue is not None:
                letters = letters.where(f"queue = '{_quoted(queue)}'")
            return _redrive(link, letters, dead, batch, wanted)


def _resolved(link: Link, name: str) -> tuple[str | None, Topic | None]:
    """The queue, if it is one, and its dead-letter topic; None: there are no letters yet."""
    try:
        found = link.call("queue.describe", {"name": name})
    except NotFound:
        return None, topics_named(link, [name])[0]
    if found["kind"] == "dead":
        return None, topics_named(link, [name])[0]
    topic = found["policy"].get("dead_letter_topic", f"{name}.dead")
    if topic is None:
        raise InvalidArgument(
            f"queue {name!r} keeps no dead letters: what it cannot deliver is dropped (dead_letter_topic)"
        )
    try:
        return name, topics_named(link, [topic or f"{name}.dead"])[0]
    except NotFound:
        return name, None


def _chosen(spark: SparkSession, link: Link, dead: Topic, marks: Topic | None, wanted: _Wanted) -> DataFrame:
    ranges = ranges_between(link, [dead], None, None)
    letters = as_letters(read(spark, wanted.connection, ranges, with_headers=True))
    if wanted.where:
        letters = letters.where(wanted.where)
    marked = ranges_between(link, [marks], None, None) if marks is not None else {}
    if count_of(marked):
        done = (
            read(spark, wanted.connection, marked, "key")
            .selectExpr("CAST(key AS STRING) AS _mark")
            .distinct()
        )
        letters = letters.join(done, letters_mark(letters) == done["_mark"], "left_anti")
    return letters


def letters_mark(letters: DataFrame) -> Any:
    """The key of a letter's mark."""
    from pyspark.sql import functions as f

    return f.concat_ws(":", letters["partition"].cast("string"), letters["offset"].cast("string"))


def _redrive(link: Link, letters: DataFrame, dead: Topic, batch: int, wanted: _Wanted) -> Redriven:
    from pyspark.sql import functions as f

    target = f.lit(wanted.to) if wanted.to else f.col("origin_topic")
    letters = letters.withColumn("_target", target).withColumn(
        "_queue", f.lit(None).cast("string") if wanted.to else f.col("queue")
    )
    groups = letters.groupBy("_queue", "_target").count().collect()
    targets: dict[str, int] = {}
    for group in groups:
        targets[group["_target"] or ""] = targets.get(group["_target"] or "", 0) + group["count"]
    matched = sum(targets.values())
    if wanted.is_dry_run:
        return Redriven(dead.name, matched, 0, targets=targets, sample=_sample(letters), is_dry_run=True)
    done = Redriven(dead.name, matched, 0, targets=targets)
    missing = missing_topics(link, [name for name in targets if name], wanted.to)
    free = [
        each for each in groups if not each["_queue"] and each["_target"] and each["_target"] not in missing
    ]
    sent = failed = 0
    for queue in sorted({group["_queue"] for group in groups if group["_queue"]}):
        moved, refused = _through_queue(link, queue, letters.where(f.col("_queue") == queue))
        sent, failed = sent + moved, failed + refused
    if free:
        ours = letters.where(
            f.col("_queue").isNull() & f.col("_target").isin([each["_target"] for each in free])
        )
        sent += _in_one_transaction(link, ours, dead, batch, wanted)
    return Redriven(done.topic, matched, sent, failed, matched - sent - failed, targets)


def _sample(letters: DataFrame) -> tuple[Letter, ...]:
    columns = ("partition", "offset", "reason", "error", "origin_topic", "key")
    rows = letters.orderBy("partition", "offset").select(*columns).limit(_SHOWN).collect()
    return tuple(Letter(*row) for row in rows)


def missing_topics(link: Link, names: list[str], to: str | None) -> set[str]:
    """Topics that letters came from and that are gone, or that nothing can be called: a header may say anything. A topic that is named is made."""
    if not names or to is not None:
        return set()
    try:
        answer = link.call(
            "topic.watch", {"topics": names, "known": {}, "isolation": "read_committed", "wait_ms": 0}
        )
    except InvalidTopicName:
        if len(names) == 1:
            return set(names)
        return set().union(*[missing_topics(link, [name], to) for name in names])
    return set(answer["missing"])


# ── by the broker ─────────────────────────────────────────────────────────────────────────────────


def _through_queue(link: Link, queue: str, letters: DataFrame) -> tuple[int, int]:
    """How many were sent, and how many could not be."""
    places = letters.select("partition", "offset").orderBy("partition", "offset").toArrow()
    pairs = list(
        zip(places.column("partition").to_pylist(), places.column("offset").to_pylist(), strict=True)
    )
    moved = failed = 0
    for first in range(0, len(pairs), _LETTERS_PER_CALL):
        progress = _redriven_by_broker(link, queue, pairs[first : first + _LETTERS_PER_CALL])
        moved, failed = moved + progress["moved"], failed + progress["failed"]
        if progress["error"]:
            raise Conflict(
                f"the redrive of queue {queue!r} ended early: {progress['error']}; {counted(moved, 'letter')} were sent back, run it again for the others"
            )
    return moved, failed


def _redriven_by_broker(link: Link, queue: str, letters: list[tuple[int, int]]) -> Mapping[str, Any]:
    where = {"letters": [list(pair) for pair in letters]}
    progress = link.call("queue.redrive", {"name": queue, "where": where})
    while progress["is_running"]:
        time.sleep(_POLL_S)
        progress = link.call("queue.redrive_progress", {"name": queue})
    return dict(progress)


# ── by Spark ──────────────────────────────────────────────────────────────────────────────────────


def _next_batch(link: Link, dead: str) -> int:
    """The number of this run's write. Asked before the marks are looked at; see above."""
    try:
        return int(link.call("sink.describe", {"sink": f"{_SINK_PREFIX}{dead}"})["last_batch"]) + 1
    except NotFound:
        return 0


def _maybe_marks(link: Link, dead: Topic) -> Topic | None:
    name = f"{dead.name}{MARKS_SUFFIX}"
    try:
        return topics_named(link, [name])[0]
    except NotFound:
        return None


def _in_one_transaction(link: Link, letters: DataFrame, dead: Topic, batch: int, wanted: _Wanted) -> int:
    """How many were sent.

    Raises:
        Conflict: another run committed first; nothing was sent.
    """
    marks, run = f"{dead.name}{MARKS_SUFFIX}", uuid.uuid4().hex
    _keep_marks(link, dead.name, marks)
    before = topics_named(link, [marks])[0]
    _write(letters, marks, run, {"sinkId": f"{_SINK_PREFIX}{dead.name}", "batchId": str(batch)}, wanted)
    after = topics_named(link, [marks])[0]
    added = {marks: {number: (before.ends[number], end) for number, end in after.ends.items()}}
    if count_of(added):
        written = read(letters.sparkSession, wanted.connection, added, "value")
        sent = written.where(f"CAST(value AS STRING) = '{run}'").count()
        if sent:
            return sent
    raise Conflict(
        f"another redrive of {dead.name!r} went on at the same time; nothing was sent, run this one again"
    )


def _write(letters: DataFrame, marks: str, run: str, sink: Mapping[str, str], wanted: _Wanted) -> None:
    from pyspark.sql import functions as f

    record = f.struct(f.col("_target").alias("topic"), sent_back().alias("record"))
    no_headers = f.array().cast("array<struct<key:string,value:binary>>")
    mark = f.struct(
        f.lit(marks).alias("topic"),
        f.struct(
            letters_mark(letters).cast("binary").alias("key"),
            f.lit(run).cast("binary").alias("value"),
            no_headers.alias("headers"),
        ).alias("record"),
    )
    rows = letters.select(f.explode(f.array(record, mark)).alias("row")).select("row.topic", "row.record.*")
    options = {**wanted.connection, "includeHeaders": "true", **sink}
    rows.write.format("sparrow").mode("append").options(**options).save()


def _keep_marks(link: Link, dead: str, marks: str) -> None:
    """The marks are kept as long as the letters: they are younger."""
    config = {each["name"]: each["value"] for each in link.call("topic.describe", {"name": dead})["config"]}
    wanted = {"retention.ms": config.get("retention.ms", "-1"), "retention.bytes": "-1"}
    try:
        link.call("topic.configure", {"name": marks, "set": wanted, "unset": []})
    except NotFound:
        link.call("topic.create", {"name": marks, "partitions": 1, "config": wanted})


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")
