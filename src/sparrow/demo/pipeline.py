"""The Spark stage: a pipeline that is killed in the middle, started again, and compared with what
plain Python makes of the same messages.

It runs a copy of the file in the package, an example that users can run, with other names, paths
and sizes. The first run continues until batches of both queries are committed and the table's next
one has begun; then all its processes are killed (-9). A batch that has begun and is not committed
then must be done again by the second run, which takes what is left and ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self

import sparrow.sync
from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.demo import chart, surroundings, verification
from sparrow.demo.report import Check, StageResult
from sparrow.pipelines.sparklist import uncommitted_files
from sparrow.pipelines.status import QueryBatches, batches_of

if TYPE_CHECKING:
    from sparrow.demo.history import History, Sample
    from sparrow.demo.surroundings import Context, Progress

RUN_TIMEOUT_S: Final = 600.0
"""Much more than a busy machine needs, so that a run without end is given up."""
PLANNED_BATCHES: Final = 8
FILE: Final = "commits.yml"
TABLE_FLOW, SUMS_FLOW = "table", "weekly"
_PACKAGES: Final = ("matplotlib", "pyarrow", "pyspark", "sqlglot", "yaml")
POLL_S: Final = 0.01
_MASTER: Final = f"local[{min(4, os.cpu_count() or 1)}]"
"""This machine, whatever the environment says of others; a demonstration is too small for many
cores.
"""
_SAID: Final = "sparrow: "
"""Prefix of the errors of commands."""
_END_S: Final = 10.0
"""Time in which processes must be gone after kill -9."""
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
    """A pipeline that is ready to be run: the copy of the file, the directory of the table, the
    topic of the sums, and the number of batches of the table's flow.
    """

    file: str
    table_checkpoint: str
    sums_checkpoint: str
    table: str
    topic: str
    batches: int


def check_installed() -> None:
    """Check that what the stage needs is there.

    Raises:
        InvalidArgument: a package is missing, or Java; the text says how to install it.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise InvalidArgument(
            f"the demonstration needs {', '.join(missing)}; install it by pip install 'sparrow-broker[demo]'"
        )
    from sparrow.spark.session import check_java

    check_java()


def run_stage(context: Context, source: History | Sample, progress: Progress) -> StageResult:
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
    with PipelineRun(job.file, context.url, f"{job.file}.1.log", is_once=False, during=show) as run:
        run.wait_until(lambda: _is_time(job))
        processes = run.kill()
    # Now nothing changes any more.
    cut = batches_of(job.table_checkpoint), batches_of(job.sums_checkpoint)
    killed = time.monotonic()
    with PipelineRun(job.file, context.url, f"{job.file}.2.log", is_once=True, during=show) as run:
        run.wait()
    ended = time.monotonic()
    sums = verification.read_sums(context.url, job.topic)
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
    checks = [_cut_check(job, *cut, processes), *verification.pipeline_checks(source, job.table, sums)]
    return StageResult(checks, figures, {"table": job.table, "chart": chart_path})


def prepare(context: Context) -> PipelineJob:
    """Prepare the copy and the directories.

    Raises:
        Conflict: something is in the way.
    """
    import yaml

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
    text = resources.files("sparrow.demo").joinpath(FILE).read_text("utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    document |= {
        "checkpoints": os.path.dirname(job.table_checkpoint),
        "trigger": {"every": f"{_PACE_S} s"},
        "spark": document["spark"] | _SETTINGS,
    }
    flows = document["flows"]
    flows[TABLE_FLOW]["from"] |= {"topics": context.topic, "max_rows_per_trigger": size}
    flows[TABLE_FLOW]["to"]["parquet"] = job.table
    flows[SUMS_FLOW]["to"]["topic"] = job.topic
    with open(job.file, "w", encoding="utf-8") as out:
        yaml.safe_dump(document, out, allow_unicode=True, sort_keys=False, width=110)
    return job


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


def _cut_check(job: PipelineJob, table: QueryBatches, sums: QueryBatches, processes: int) -> Check:
    """Return the check that the pipeline was killed in the middle, and then ran to its end.

    Args:
        table, sums: batches of the flows at the kill.
        processes: number of processes that were killed.
    """
    ended = batches_of(job.table_checkpoint)
    is_begun = table.begun > 0 and processes > 0
    held = is_begun and table.committed < ended.committed and not ended.is_in_one
    where = f"in batch {table.begun}" if table.is_in_one else f"behind batch {table.committed}"
    detail = (
        f"kill -9 of {processes} processes {where} of {ended.committed} of the table,"
        f" after {sums.committed} of {batches_of(job.sums_checkpoint).committed} of the sums"
    )
    return Check("the pipeline was killed in the middle, and went on to its end", held, detail)


# ── the process ───────────────────────────────────────────────────────────────────────────────────


class PipelineRun:
    """One run of `sparrow pipeline run` as users run it: a process with its own session, which can
    be killed as a whole. End it by `kill` or `wait`, or use it in a `with` block, which leaves no
    process behind.

    Args:
        file: of the pipeline; its directory is the one that the run works in.
        log: gets what Spark and Java write.
        during: called repeatedly while the run is waited for.
    """

    def __init__(
        self, file: str, url: str, log: str, *, is_once: bool, during: Callable[[], None] = lambda: None
    ) -> None:
        self._log = log
        self._during = during
        self._outcomes = f"{log}.json"
        command = [sys.executable, "-m", "sparrow", "pipeline", "run", file, "--json", "--master", _MASTER]
        with open(log, "wb") as errors, open(self._outcomes, "wb") as out:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                command + ["--once"] * is_once,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                # Not on the command line, which everybody on the machine may read: the URL may have
                # a token.
                env={**os.environ, **_scratch(f"{log}.tmp"), "SPARROW_URL": url, "PYTHONUNBUFFERED": "1"},
                cwd=os.path.dirname(file),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait until a condition holds that the run will reach.

        Raises:
            SparrowError: the run has ended before, or it takes too long.
        """
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while not is_reached():
            if self._process.poll() is not None:
                raise SparrowError(f"the pipeline ended too early: {self._reason()}")
            if time.monotonic() > deadline:
                raise SparrowError(f"the pipeline needs over {RUN_TIMEOUT_S:.0f} s; its log is {self._log}")
            self._during()
            time.sleep(POLL_S)

    def wait(self) -> None:
        """Wait until it has ended by itself, without an error.

        Raises:
            SparrowError: it has failed, or takes too long.
        """
        self.wait_until(lambda: self._process.poll() is not None)
        if self._process.returncode:
            raise SparrowError(f"the pipeline failed: {self._reason()}")

    def kill(self) -> int:
        """Kill the driver, its Java, and Spark's Python processes (-9), and return their number."""
        session = self._process.pid
        if self._process.poll() is None:
            # Stop everything while the others are looked for.
            os.killpg(session, signal.SIGSTOP)
        found = killed = _kill(session)
        self._process.wait()
        deadline = time.monotonic() + _END_S
        while killed and time.monotonic() < deadline:
            time.sleep(POLL_S)
            killed = _kill(session)
        return found

    def _reason(self) -> str:
        """Return why it failed: its own error, else the last line that it wrote."""
        said = surroundings.last_lines(self._log)
        own = [line.removeprefix(_SAID) for line in said if line.startswith(_SAID)]
        failures = []
        for line in surroundings.last_lines(self._outcomes):
            with suppress(ValueError, KeyError, TypeError):
                failures.append(str(json.loads(line)["outcome"]["failure"]["text"]))
        lines = failures or own or said
        return lines[-1] if lines else f"it said nothing; exit code {self._process.returncode}"


def _scratch(path: str) -> dict[str, str]:
    """Create a directory for the temporary files of Python, Spark and Java, which leave them when
    they are killed; return the environment that names it.
    """
    os.makedirs(path, exist_ok=True)
    java = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={path}".strip()
    return {"TMPDIR": path, "SPARK_LOCAL_DIRS": path, "SPARK_SUBMIT_OPTS": java}


def _kill(session: int) -> int:
    """Kill the processes of a session (Spark's Python daemons have their own process groups), and
    return their number. Without /proc the others end by themselves when Java is gone.
    """
    found = 0
    has_proc = os.path.isdir("/proc/self")
    for name in os.listdir("/proc") if has_proc else [str(session)]:
        with suppress(OSError):
            if name.isdecimal() and os.getsid(int(name)) == session and not (has_proc and _is_dead(name)):
                os.kill(int(name), signal.SIGKILL)
                found += 1
    return found


def _is_dead(pid: str) -> bool:
    """Return True if the process has ended and waits for its parent."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
