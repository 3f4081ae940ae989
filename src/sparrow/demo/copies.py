"""The copy of a pipeline's file that the stage runs, with names, places and sizes of its own, and room for what it makes.

The file in the package is an example that users run by themselves; the copy differs in nothing else.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import sparrow.sync
from sparrow.base.errors import Conflict, TopicExists
from sparrow.demo.tables import LIST

if TYPE_CHECKING:
    from sparrow.demo.comparing import Subject
    from sparrow.demo.plan import Context

PLANNED_BATCHES: Final = 8
TABLE_FLOW: Final = "table"
_MAX_NAMES: Final = 1000
_PACE_S: Final = 2
"""A batch every so often, so that the sums have begun before the table is done."""
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Short lives: what the first of Java's compilers makes is quick enough, and made at once.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Job:
    """A pipeline that is ready to be run.

    Args:
        file: the copy.
        table_checkpoint, sums_checkpoint: of its two flows.
        table: the directory of its files.
        topic: gets the sums.
        rows: how many messages there are.
        batches: in how many the table's flow takes them.
    """

    file: str
    table_checkpoint: str
    sums_checkpoint: str
    table: str
    chart: str
    topic: str
    rows: int
    batches: int


def prepare(context: Context, subject: Subject, rows: int) -> Job:
    """All that has to be there before the pipeline runs.

    Raises:
        Conflict: something is in the way.
    """
    topic = make_topic(context.url, f"{context.topic}.{subject.sums_flow}")
    out = os.path.abspath(context.out_dir)
    clear(f"{out}/table")
    work = os.path.abspath(context.work_dir)
    size = max(1, -(-rows // PLANNED_BATCHES))
    job = Job(
        file=f"{work}/{subject.file}",
        table_checkpoint=f"{work}/checkpoints/{TABLE_FLOW}",
        sums_checkpoint=f"{work}/checkpoints/{subject.sums_flow}",
        table=f"{out}/table",
        chart=f"{out}/chart.png",
        topic=topic,
        rows=rows,
        batches=-(-rows // size),
    )
    write_copy(job, subject, source_topic=context.topic, max_rows=size)
    return job


def write_copy(job: Job, subject: Subject, *, source_topic: str, max_rows: int) -> None:
    """Write the file."""
    import yaml

    text = resources.files("sparrow.demo").joinpath(subject.file).read_text("utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    document |= {
        "checkpoints": os.path.dirname(job.table_checkpoint),
        "trigger": {"every": f"{_PACE_S} s"},
        "spark": document["spark"] | _SETTINGS,
    }
    flows = document["flows"]
    flows[TABLE_FLOW]["from"] |= {"topics": source_topic, "max_rows_per_trigger": max_rows}
    flows[TABLE_FLOW]["to"]["parquet"] = job.table
    flows[subject.sums_flow]["to"]["topic"] = job.topic
    subject.adapt(flows)
    with open(job.file, "w", encoding="utf-8") as out:
        yaml.safe_dump(document, out, allow_unicode=True, sort_keys=False, width=110)


def make_topic(url: str, name: str) -> str:
    """A compacted topic of this name, or of the next one that is free."""
    with sparrow.sync.connect(url) as client:
        for number in range(1, _MAX_NAMES):
            free = name if number == 1 else f"{name}-{number}"
            try:
                client.admin.create_topic(free, partitions=1, config={"cleanup.policy": "compact"})
            except TopicExists:
                continue
            return free
    raise Conflict(f"the broker has {_MAX_NAMES} topics like {name} already; delete some of them")


def clear(table: str) -> None:
    """Remove the table of a run before; nothing else.

    Raises:
        Conflict: there is something that is no such table.
    """
    if not os.path.lexists(table):
        return
    if (
        os.path.islink(table)
        or not os.path.isdir(table)
        or (os.listdir(table) and not os.path.isdir(f"{table}/{LIST}"))
    ):
        raise Conflict(
            f"{table} is in the way, and no table of a demonstration; move it away, or say another place by --out"
        )
    shutil.rmtree(table)
