"""`redrive`: sends dead letters, chosen by SQL, back to their topics, each once.

Dead letters of a queue are chosen by Spark and sent by the broker, each exactly once: the queue of
dead letters then counts them as done, as after `sparrow queue redrive`, and dead letters that a
consumer has leased or has finished are not sent.

Other dead letters (of pipelines, Kafka Connect and other programs; or all, if `to` names another
topic) are sent by Spark in one transaction. In the same transaction the topic `NAME.redriven` gets
a marker for each (its key is the partition and offset of the dead letter), and dead letters with a
marker are skipped. So a sent record and its marker exist together or not at all, and a second run
sends nothing twice. Two runs at the same time cannot both commit: the broker takes one write of
each number for the sink `spark-redrive-NAME`, and each run uses the number after the last one that
it saw before it read the markers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import Conflict, InvalidArgument, InvalidTopicName, NotFound
from sparrow.base.units import counted
from sparrow.pipelines.builtin.cluster import Cluster, Progress, quiet
from sparrow.pipelines.builtin.conditions import check_condition
from sparrow.pipelines.builtin.dead_letters import COLUMNS, as_dead_letters, sent_back
from sparrow.pipelines.builtin.topics import (
    SourceTopic,
    connected,
    count_of,
    ranges_between,
    read,
    topics_named,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrow.spark.wire.session import Session

_MARKERS_SUFFIX: Final = ".redriven"
_SINK_PREFIX: Final = "spark-redrive-"
_RECORDS_PER_CALL: Final = 10_000
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
    """Result of a run of `redrive`, or of a dry run."""

    topic: str
    """The dead-letter topic."""
    matched: int
    """Number that match and were not sent back before by Spark."""
    sent: int
    failed: int = 0
    """Number that could not be sent; they are unchanged."""
    left: int = 0
    """Number that match and were not sent: sent back by the queue before, leased, or without a
    target topic.
    """
    targets: Mapping[str, int] | None = None
    """Number that match for each target topic; "" is none."""
    sample: tuple[Letter, ...] = ()
    """In a dry run: the first that match."""
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
        where: SQL over the dead letters (`dead_letters.COLUMNS`); only those for which it is true.
        to: another topic for all of them.
        dry_run: only count them, and show some.
        connection: options of `format("sparrow")` for the connection to the broker.
        spark, master, remote, conf: the session, as for `sparrow.spark.session`.
        progress: called with a sentence at each step.

    Raises:
        UnknownTopic: there is neither such a queue nor such a topic.
        InvalidArgument: the condition is wrong, or the queue keeps no dead letters.
        Conflict: another redrive of these dead letters is running.
    """
    if where is not None:
        check_condition(where, COLUMNS)
    wanted = _Wanted(
        where, to, dry_run, connection or {}, Cluster(spark, master, remote, conf or {}), progress
    )
    with connected(wanted.connection) as session:
        queue, dead = _resolved(session, name)
        if dead is None:
            return Redriven(name, 0, 0)
        batch = _next_batch(session, dead.name)
        markers = _maybe_markers(session, dead)
        if not sum(dead.ends.values()) - sum(dead.starts.values()):
            return Redriven(dead.name, 0, 0, is_dry_run=dry_run)
        progress(
            f"looking through {counted(count_of(ranges_between(session, [dead], None, None)), 'letter')}"
        )
        with wanted.cluster.session("sparrow-redrive") as spark_session:
            dead_letters = _chosen(spark_session, session, dead, markers, wanted)
            if queue is not None:
                dead_letters = dead_letters.where(f"queue = '{_quoted(queue)}'")
            return _redrive(session, dead_letters, dead, batch, wanted)


def _resolved(session: Session, name: str) -> tuple[str | None, SourceTopic | None]:
    """Return the queue, if it is one, and its dead-letter topic, or None if there is no dead letter
    yet.
    """
    try:
        found = session.call("queue.describe", {"name": name})
    except NotFound:
        return None, topics_named(session, [name])[0]
    if found["kind"] == "dead":
        return None, topics_named(session, [name])[0]
    topic = found["policy"].get("dead_letter_topic", f"{name}.dead")
    if topic is None:
        raise InvalidArgument(
            f"queue {name!r} keeps no dead letters: what it cannot deliver is dropped (dead_letter_topic)"
        )
    try:
        return name, topics_named(session, [topic or f"{name}.dead"])[0]
    except NotFound:
        return name, None


def _chosen(
    spark: SparkSession, session: Session, dead: SourceTopic, markers: SourceTopic | None, wanted: _Wanted
) -> DataFrame:
    ranges = ranges_between(session, [dead], None, None)
    dead_letters = as_dead_letters(read(spark, wanted.connection, ranges, with_headers=True))
    if wanted.where:
        dead_letters = dead_letters.where(wanted.where)
    marker_ranges = ranges_between(session, [markers], None, None) if markers is not None else {}
    if count_of(marker_ranges):
        done = (
            read(spark, wanted.connection, marker_ranges, "key")
            .selectExpr("CAST(key AS STRING) AS _marker")
            .distinct()
        )
        dead_letters = dead_letters.join(done, marker_key(dead_letters) == done["_marker"], "left_anti")
    return dead_letters


def marker_key(dead_letters: DataFrame) -> Any:
    """Return the key of a dead letter's marker."""
    from pyspark.sql import functions as f

    return f.concat_ws(":", dead_letters["partition"].cast("string"), dead_letters["offset"].cast("string"))


def _redrive(
    session: Session, dead_letters: DataFrame, dead: SourceTopic, batch: int, wanted: _Wanted
) -> Redriven:
    from pyspark.sql import functions as f

    target = f.lit(wanted.to) if wanted.to else f.col("origin_topic")
    dead_letters = dead_letters.withColumn("_target", target).withColumn(
        "_queue", f.lit(None).cast("string") if wanted.to else f.col("queue")
    )
    groups = dead_letters.groupBy("_queue", "_target").count().collect()
    targets: dict[str, int] = {}
    for group in groups:
        targets[group["_target"] or ""] = targets.get(group["_target"] or "", 0) + group["count"]
    matched = sum(targets.values())
    if wanted.is_dry_run:
        return Redriven(dead.name, matched, 0, targets=targets, sample=_sample(dead_letters), is_dry_run=True)
    done = Redriven(dead.name, matched, 0, targets=targets)
    missing = missing_topics(session, [name for name in targets if name], wanted.to)
    free = [
        each for each in groups if not each["_queue"] and each["_target"] and each["_target"] not in missing
    ]
    sent = failed = 0
    for queue in sorted({group["_queue"] for group in groups if group["_queue"]}):
        moved, refused = _through_queue(session, queue, dead_letters.where(f.col("_queue") == queue))
        sent, failed = sent + moved, failed + refused
    if free:
        ours = dead_letters.where(
            f.col("_queue").isNull() & f.col("_target").isin([each["_target"] for each in free])
        )
        sent += _in_one_transaction(session, ours, dead, batch, wanted)
    return Redriven(done.topic, matched, sent, failed, matched - sent - failed, targets)


def _sample(dead_letters: DataFrame) -> tuple[Letter, ...]:
    columns = ("partition", "offset", "reason", "error", "origin_topic", "key")
    rows = dead_letters.orderBy("partition", "offset").select(*columns).limit(_SHOWN).collect()
    return tuple(Letter(*row) for row in rows)


def missing_topics(session: Session, names: list[str], to: str | None) -> set[str]:
    """Return the origin topics that are deleted or have an impossible name, since a header may hold
    any text. If `to` is given, nothing is missing: that topic is made.
    """
    if not names or to is not None:
        return set()
    try:
        response = session.call(
            "topic.watch", {"topics": names, "known": {}, "isolation": "read_committed", "wait_ms": 0}
        )
    except InvalidTopicName:
        if len(names) == 1:
            return set(names)
        return set().union(*[missing_topics(session, [name], to) for name in names])
    return set(response["missing"])


# ── by the broker ─────────────────────────────────────────────────────────────────────────────────


def _through_queue(session: Session, queue: str, dead_letters: DataFrame) -> tuple[int, int]:
    """Redrive by the broker. Return the number sent, and the number that could not be sent."""
    positions = dead_letters.select("partition", "offset").orderBy("partition", "offset").toArrow()
    pairs = list(
        zip(positions.column("partition").to_pylist(), positions.column("offset").to_pylist(), strict=True)
    )
    moved = failed = 0
    for first in range(0, len(pairs), _RECORDS_PER_CALL):
        progress = _redriven_by_broker(session, queue, pairs[first : first + _RECORDS_PER_CALL])
        moved, failed = moved + progress["moved"], failed + progress["failed"]
        if progress["error"]:
            raise Conflict(
                f"the redrive of queue {queue!r} ended early: {progress['error']}; "
                f"{counted(moved, 'letter')} were sent back, run it again for the others"
            )
    return moved, failed


def _redriven_by_broker(
    session: Session, queue: str, dead_letters: list[tuple[int, int]]
) -> Mapping[str, Any]:
    where = {"letters": [list(pair) for pair in dead_letters]}
    progress = session.call("queue.redrive", {"name": queue, "where": where})
    while progress["is_running"]:
        time.sleep(_POLL_S)
        progress = session.call("queue.redrive_progress", {"name": queue})
    return dict(progress)


# ── by Spark ──────────────────────────────────────────────────────────────────────────────────────


def _next_batch(session: Session, dead: str) -> int:
    """Return the number of this run's write. It is asked for before the markers are read; see the
    module.
    """
    try:
        return int(session.call("sink.describe", {"sink": f"{_SINK_PREFIX}{dead}"})["last_batch"]) + 1
    except NotFound:
        return 0


def _maybe_markers(session: Session, dead: SourceTopic) -> SourceTopic | None:
    name = f"{dead.name}{_MARKERS_SUFFIX}"
    try:
        return topics_named(session, [name])[0]
    except NotFound:
        return None


def _in_one_transaction(
    session: Session, dead_letters: DataFrame, dead: SourceTopic, batch: int, wanted: _Wanted
) -> int:
    """Send the records and their markers. Return the number sent.

    Raises:
        Conflict: another run committed first; nothing was sent.
    """
    markers, run = f"{dead.name}{_MARKERS_SUFFIX}", uuid.uuid4().hex
    _keep_markers(session, dead.name, markers)
    before = topics_named(session, [markers])[0]
    _write(
        dead_letters, markers, run, {"sinkId": f"{_SINK_PREFIX}{dead.name}", "batchId": str(batch)}, wanted
    )
    after = topics_named(session, [markers])[0]
    added = {markers: {number: (before.ends[number], end) for number, end in after.ends.items()}}
    if count_of(added):
        written = read(dead_letters.sparkSession, wanted.connection, added, "value")
        sent = written.where(f"CAST(value AS STRING) = '{run}'").count()
        if sent:
            return sent
    raise Conflict(
        f"another redrive of {dead.name!r} went on at the same time; nothing was sent, run this one again"
    )


def _write(dead_letters: DataFrame, markers: str, run: str, sink: Mapping[str, str], wanted: _Wanted) -> None:
    from pyspark.sql import functions as f

    record = f.struct(f.col("_target").alias("topic"), sent_back().alias("record"))
    no_headers = f.array().cast("array<struct<key:string,value:binary>>")
    marker = f.struct(
        f.lit(markers).alias("topic"),
        f.struct(
            marker_key(dead_letters).cast("binary").alias("key"),
            f.lit(run).cast("binary").alias("value"),
            no_headers.alias("headers"),
        ).alias("record"),
    )
    rows = dead_letters.select(f.explode(f.array(record, marker)).alias("row")).select(
        "row.topic", "row.record.*"
    )
    options = {**wanted.connection, "includeHeaders": "true", **sink}
    rows.write.format("sparrow").mode("append").options(**options).save()


def _keep_markers(session: Session, dead: str, markers: str) -> None:
    """Keep the markers as long as the dead letters. That is enough, because they are younger."""
    config = {
        each["name"]: each["value"] for each in session.call("topic.describe", {"name": dead})["config"]
    }
    wanted = {"retention.ms": config.get("retention.ms", "-1"), "retention.bytes": "-1"}
    try:
        session.call("topic.configure", {"name": markers, "set": wanted, "unset": []})
    except NotFound:
        session.call("topic.create", {"name": markers, "partitions": 1, "config": wanted})


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")
