"""The Spark stage: a pipeline that is killed in the middle, started again, and compared with what
plain Python makes of the same messages.

It runs a copy of the file in the package, an example that users can run, with other names, paths
and sizes. The first run continues until batches of both queries are committed and the table's next
one has begun; then all its processes are killed (-9). A batch that has begun and is not committed
then must be done again by the second run, which takes what is left and ends.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import sparrow.sync
from sparrow.base.errors import InvalidArgument
from sparrow.demo import chart, comparison, surroundings
from sparrow.demo.pipeline_run import PipelineRun
from sparrow.demo.report import Check, StageResult
from sparrow.pipelines.sparklist import uncommitted_files
from sparrow.pipelines.status import QueryBatches, batches_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.demo.history import History, Sample
    from sparrow.demo.surroundings import Context

RUN_TIMEOUT_S: Final = 600.0
"""Much more than a busy machine needs, so that a run without end is given up."""
PLANNED_BATCHES: Final = 8
FILE: Final = "commits.yml"
TABLE_FLOW, SUMS_FLOW = "table", "weekly"
_PACKAGES: Final = ("matplotlib", "pyarrow", "pyspark", "sqlglot", "yaml")
_EXTRA: Final = "pip install 'sparrow-broker[demo]'"
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
    """A pipeline that is ready to be run."""

    file: str
    """The copy."""
    table_checkpoint: str
    sums_checkpoint: str
    table: str
    """The directory of its files."""
    topic: str
    """The topic of the sums."""
    batches: int
    """Number of batches of the table's flow."""


@dataclass(frozen=True)
class Cut:
    """The state at the kill."""

    table: QueryBatches
    sums: QueryBatches
    processes: int


def check_installed() -> None:
    """Check that what the stage needs is there.

    Raises:
        InvalidArgument: a package is missing, or Java; the text says how to install it.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise InvalidArgument(f"the demonstration needs {', '.join(missing)}; install it by {_EXTRA}")
    from sparrow.spark.session import check_java

    check_java()


def run_stage(
    context: Context, source: History | Sample, progress: Callable[[int, int], None]
) -> StageResult:
    """Run the pipeline with a kill in the middle, compare, and draw the chart.

    Raises:
        SparrowError: it cannot be run to its end.
    """
    job = prepare(context)
    with sparrow.sync.connect(context.url, client_name="demo") as client:
        client.admin.create_topic(job.topic, partitions=1, config={"cleanup.policy": "compact"})

    def show() -> None:
        progress(min(batches_of(job.table_checkpoint).committed, job.batches), job.batches)

    began = time.monotonic()
    with PipelineRun(job.file, url=context.url, log=f"{job.file}.1.log", is_once=False) as run:
        run.wait_until(lambda: _is_time(job), RUN_TIMEOUT_S, show)
        processes = run.kill()
    # Now nothing changes any more.
    cut = Cut(batches_of(job.table_checkpoint), batches_of(job.sums_checkpoint), processes)
    killed = time.monotonic()
    with PipelineRun(job.file, url=context.url, log=f"{job.file}.2.log", is_once=True) as run:
        run.wait(RUN_TIMEOUT_S, show)
    ended = time.monotonic()
    sums = comparison.read_sums(context.url, job.topic)
    chart_path = os.path.join(os.path.abspath(context.out_dir), surroundings.CHART)
    counts = {key: commits for key, (commits, _, _) in sums.items()}
    chart.draw_weeks(counts, chart_path, title=source.title)
    figures = {
        "rows": context.total,
        "batches": batches_of(job.table_checkpoint).committed + batches_of(job.sums_checkpoint).committed,
        "results": len(sums),
        "files left by the kill": len(uncommitted_files(job.table)),
        "first run s": round(killed - began, 1),
        "second run s": round(ended - killed, 1),
    }
    checks = [_cut_check(job, cut), *comparison.checks(source, job.table, sums)]
    return StageResult(checks=checks, figures=figures, table_path=job.table, chart_path=chart_path)


def prepare(context: Context) -> PipelineJob:
    """Prepare the copy and the directories.

    Raises:
        Conflict: something is in the way.
    """
    table = os.path.join(os.path.abspath(context.out_dir), surroundings.TABLE)
    surroundings.clear(table)
    work = os.path.abspath(context.work_dir)
    size = max(1, -(-context.total // PLANNED_BATCHES))
    job = PipelineJob(
        file=f"{work}/{FILE}",
        table_checkpoint=f"{work}/checkpoints/{TABLE_FLOW}",
        sums_checkpoint=f"{work}/checkpoints/{SUMS_FLOW}",
        table=table,
        topic=f"{context.topic}.{SUMS_FLOW}",
        batches=-(-context.total // size),
    )
    _write_copy(job, source_topic=context.topic, max_rows=size)
    return job


def _write_copy(job: PipelineJob, *, source_topic: str, max_rows: int) -> None:
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


def _is_time(job: PipelineJob) -> bool:
    """Return True if the run is in the middle: batches of both queries are committed, and the
    table's next one has begun.
    """
    table = batches_of(job.table_checkpoint)
    if not table.is_in_one or table.committed < min(2, job.batches - 1):
        return False
    # The table does not wait for the sums: the last batch must be one of the second run in any
    # case.
    return batches_of(job.sums_checkpoint).committed > 0 or table.committed >= job.batches - 2


def _cut_check(job: PipelineJob, cut: Cut) -> Check:
    """Return the check that the pipeline was killed in the middle, and then ran to its end."""
    ended = batches_of(job.table_checkpoint)
    is_begun = cut.table.begun > 0 and cut.processes > 0
    held = is_begun and cut.table.committed < ended.committed and not ended.is_in_one
    where = f"in batch {cut.table.begun}" if cut.table.is_in_one else f"behind batch {cut.table.committed}"
    detail = (
        f"kill -9 of {cut.processes} processes {where} of {ended.committed} of the table,"
        f" after {cut.sums.committed} of {batches_of(job.sums_checkpoint).committed} of the sums"
    )
    return Check("the pipeline was killed in the middle, and went on to its end", held, detail)
