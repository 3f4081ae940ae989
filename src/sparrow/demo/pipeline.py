"""The Spark stage: a pipeline that is killed in the middle, started again, and compared with what
plain Python makes of the same messages.

The first run continues until batches of both queries are committed and the table's next one has
begun; then all its processes are killed (-9). The second run takes what is left and ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument
from sparrow.demo import comparison
from sparrow.demo.pipeline_copy import PipelineJob, prepare
from sparrow.demo.pipeline_run import PipelineRun, QueryBatches, batches_of
from sparrow.demo.report import Check, StageResult
from sparrow.demo.tables import uncommitted_files

if TYPE_CHECKING:
    from sparrow.demo.message import CommitSource
    from sparrow.demo.plan import Context

RUN_TIMEOUT_S: Final = 600.0
"""Much more than a busy machine needs, so that a run without end is given up."""
_PACKAGES: Final = ("matplotlib", "pyarrow", "pyspark", "sqlglot", "yaml")
_EXTRA: Final = "pip install 'sparrow-broker[demo]'"


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


def run_stage(context: Context, source: CommitSource) -> StageResult:
    """Run the pipeline with a kill in the middle, compare, and draw the chart.

    Raises:
        SparrowError: it cannot be run to its end.
    """
    job = prepare(context, source.count())
    steps = _Steps(context.progress, job)
    began = time.monotonic()
    cut = _run_until_cut(job, context, steps)
    killed = time.monotonic()
    _run_to_the_end(job, context, steps)
    ended = time.monotonic()
    figures = {"first run s": round(killed - began, 1), "second run s": round(ended - killed, 1)}
    sums = comparison.read_sums(context.url, job.topic)
    checks = [_cut_check(job, cut), *comparison.checks(source, job.table, sums)]
    steps.done(1)
    comparison.draw(sums, job.chart, title=source.title)
    steps.done(0)
    told = _figures(job, len(sums)) | figures
    return StageResult(checks=checks, figures=told, table_path=job.table, chart_path=job.chart)


def _figures(job: PipelineJob, results: int) -> dict[str, object]:
    return {
        "rows": job.rows,
        "batches": batches_of(job.table_checkpoint).committed + batches_of(job.sums_checkpoint).committed,
        "results": results,
        "files left by the kill": len(uncommitted_files(job.table)),
    }


# ── the two runs ──────────────────────────────────────────────────────────────────────────────────


def _run_until_cut(job: PipelineJob, context: Context, steps: _Steps) -> Cut:
    """Start the first run, and kill it in the middle."""
    with PipelineRun(job.file, url=context.url, log=f"{job.file}.1.log", is_once=False) as run:
        run.wait_until(lambda: _is_time(job), RUN_TIMEOUT_S, steps.look)
        processes = run.kill()
    # Now nothing changes any more.
    return Cut(batches_of(job.table_checkpoint), batches_of(job.sums_checkpoint), processes)


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


def _run_to_the_end(job: PipelineJob, context: Context, steps: _Steps) -> None:
    """Run the second run."""
    steps.restarted()
    with PipelineRun(job.file, url=context.url, log=f"{job.file}.2.log", is_once=True) as run:
        run.wait(RUN_TIMEOUT_S, steps.look)


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


class _Steps:
    """Progress of the stage: batches of the table, and steps for the rest that take about as
    long.
    """

    START, SUMS, COMPARED, DRAWN = 4, 2, 1, 1

    def __init__(self, progress: Callable[[int, int], None], job: PipelineJob) -> None:
        self._progress, self._job = progress, job
        self._total = 2 * self.START + job.batches + self.SUMS + self.COMPARED + self.DRAWN
        self._base = self._before = 0
        self.look()

    def look(self) -> None:
        """Show the progress that the checkpoints have."""
        committed = min(batches_of(self._job.table_checkpoint).committed, self._job.batches)
        started = self._base + (self.START if committed > self._before else 0)
        self._progress(started + committed, self._total)

    def restarted(self) -> None:
        """Note that the second run begins."""
        self._base = self.START
        self._before = batches_of(self._job.table_checkpoint).committed

    def done(self, left: int) -> None:
        """Show that all but so many steps are done."""
        self._progress(self._total - left, self._total)
