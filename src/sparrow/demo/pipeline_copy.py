"""The copy of a pipeline's file that the stage runs, with other names, paths and sizes, and the
directories and the topic of its output.

The file in the package is an example that users can run; the copy differs in nothing else.
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
    from sparrow.demo.plan import Context

PLANNED_BATCHES: Final = 8
FILE: Final = "commits.yml"
TABLE_FLOW: Final = "table"
SUMS_FLOW: Final = "weekly"
_MAX_NAMES: Final = 1000
_PACE_S: Final = 2
"""Interval of batches, long enough that the sums have begun before the table is done."""
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The run is short: the first of Java's compilers is quick enough, and starts at once.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class PipelineJob:
    """A pipeline that is ready to be run.

    Args:
        file: the copy.
        table_checkpoint, sums_checkpoint: of its two flows.
        table: the directory of its files.
        topic: gets the sums.
        rows: number of messages.
        batches: number of batches of the table's flow.
    """

    file: str
    table_checkpoint: str
    sums_checkpoint: str
    table: str
    chart: str
    topic: str
    rows: int
    batches: int


def prepare(context: Context, rows: int) -> PipelineJob:
    """Prepare the copy, the directories and the topic.

    Raises:
        Conflict: something is in the way.
    """
    topic = make_topic(context.url, f"{context.topic}.{SUMS_FLOW}")
    out = os.path.abspath(context.out_dir)
    clear(f"{out}/table")
    work = os.path.abspath(context.work_dir)
    size = max(1, -(-rows // PLANNED_BATCHES))
    job = PipelineJob(
        file=f"{work}/{FILE}",
        table_checkpoint=f"{work}/checkpoints/{TABLE_FLOW}",
        sums_checkpoint=f"{work}/checkpoints/{SUMS_FLOW}",
        table=f"{out}/table",
        chart=f"{out}/chart.png",
        topic=topic,
        rows=rows,
        batches=-(-rows // size),
    )
    write_copy(job, source_topic=context.topic, max_rows=size)
    return job


def write_copy(job: PipelineJob, *, source_topic: str, max_rows: int) -> None:
    """Write the file."""
    import yaml

    text = resources.files("sparrow.demo").joinpath(FILE).read_text("utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    document |= {
        "checkpoints": os.path.dirname(job.table_checkpoint),
        "trigger": {"every": f"{_PACE_S} s"},
        "spark": document["spark"] | _SETTINGS,
    }
    flows = document["flows"]
    flows[TABLE_FLOW]["from"] |= {"topics": source_topic, "max_rows_per_trigger": max_rows}
    flows[TABLE_FLOW]["to"]["parquet"] = job.table
    flows[SUMS_FLOW]["to"]["topic"] = job.topic
    with open(job.file, "w", encoding="utf-8") as out:
        yaml.safe_dump(document, out, allow_unicode=True, sort_keys=False, width=110)


def make_topic(url: str, name: str) -> str:
    """Create a compacted topic of this name, or of the next one that is free."""
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
    """Remove the table of an earlier run; nothing else.

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
            f"{table} is in the way, and no table of a demonstration; move it away, or say another "
            "place by --out"
        )
    shutil.rmtree(table)
