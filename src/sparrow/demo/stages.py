"""The demonstration: its stages one after the other, each with a progress bar, and the report of
them all.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import sparrow.sync
from sparrow.base.errors import InvalidArgument
from sparrow.demo import surroundings, verification
from sparrow.demo.crew import LEASE_MS, CrewJob, work_off
from sparrow.demo.display import Bars
from sparrow.demo.plan import Context
from sparrow.demo.publish import publish
from sparrow.demo.report import DemoReport, StageFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparrow.client.results import QueueStatistics
    from sparrow.demo.crew import Worked
    from sparrow.demo.message import CommitSource
    from sparrow.demo.plan import DemoPlan
    from sparrow.demo.report import Check, StageResult

TOPIC = "commits"
PARTITIONS = 4
_PARENT_WAIT_MS = 3_600_000
"""Long, as parents come after their children, in a long history much later."""
_DELIVERY_LIMIT = 50
"""High, so that a killed worker does not make a job a dead letter."""


def run(
    plan: DemoPlan, source: CommitSource, pipeline: Callable[[Context, CommitSource], StageResult]
) -> DemoReport:
    """Run all stages.

    Args:
        pipeline: the stage with Spark.

    Raises:
        SparrowError: a stage failed; the text says which.
    """
    began = time.monotonic()
    total = source.count()
    if not total:
        raise InvalidArgument(f"there is nothing to show: there are no {source.title}")
    out_dir = surroundings.output_directory(plan.out_dir)
    with ExitStack() as stack:
        work_dir = stack.enter_context(surroundings.work_directory(keep=plan.keep))
        bars = stack.enter_context(Bars())
        demo = _Demonstration(plan, source, total, bars, work_dir=work_dir, out_dir=out_dir)
        with bars.stage("start"):
            demo.start(stack.enter_context(surroundings.broker(plan, work_dir)))
        demo.publish()
        demo.verify(demo.work())
        result = demo.run_pipeline(pipeline)
        outputs = {"table": result.table_path, "chart": result.chart_path}
        if plan.keep:
            outputs["kept"] = work_dir
        report = demo.report(outputs, time.monotonic() - began)
    return _written(report, out_dir)


def _written(report: DemoReport, out_dir: str) -> DemoReport:
    path = os.path.join(out_dir, "report.json")
    report = replace(report, outputs={**report.outputs, "report": path})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report.as_dict(), file, indent=2, ensure_ascii=False)
        file.write("\n")
    return report


class _Demonstration:
    """The state that the stages share."""

    def __init__(
        self, plan: DemoPlan, source: CommitSource, total: int, bars: Bars, *, work_dir: str, out_dir: str
    ) -> None:
        self._plan = plan
        self._source = source
        self._bars = bars
        self._work_dir = work_dir
        self._out_dir = out_dir
        self._total = total
        self._url = ""
        self._topic = ""
        self._stages: list[StageFigures] = []
        self._checks: list[Check] = []

    @property
    def _handled_topic(self) -> str:
        return f"{self._topic}.handled"

    def start(self, url: str) -> None:
        """Create the queue, and the topic of handled commits."""
        self._url = url
        self._topic = surroundings.free_name(url, TOPIC)
        policy: sparrow.Policy = {
            "lease_ms": LEASE_MS,
            "delivery_limit": _DELIVERY_LIMIT,
            "order": "parented",
            "parent_wait_ms": _PARENT_WAIT_MS,
        }
        with sparrow.sync.connect(url, client_name="demo") as client:
            client.admin.create_queue(self._topic, policy=policy, partitions=PARTITIONS)
            client.admin.create_topic(self._handled_topic, partitions=1)

    def publish(self) -> None:
        """Publish the commits, newest first and shuffled."""
        with self._bars.stage("publish") as bar:
            messages = self._source.messages()
            done = publish(self._url, self._topic, messages, lambda sent: bar.advance(sent, self._total))
        figures = {"messages": done.messages, "parents": done.parents, "merges": done.merges}
        self._note("publish", done.seconds, figures | {"acknowledged/s": _rate(done.messages, done.seconds)})

    def work(self) -> Worked:
        """Process the jobs by workers, of which one is killed."""
        job = CrewJob(
            url=self._url,
            queue=self._topic,
            handled_topic=self._handled_topic,
            total=self._total,
            workers=self._plan.workers,
            log_dir=os.path.join(self._work_dir, "workers"),
        )
        with self._bars.stage("work") as bar:
            worked = work_off(job, lambda done: bar.advance(done, self._total))
        self._note(
            "work",
            worked.seconds,
            {
                "jobs": worked.acknowledged,
                "workers": self._plan.workers,
                "handled/s": _rate(worked.acknowledged, worked.seconds - worked.waited_s),
                "waited for leases of the dead s": round(worked.waited_s, 1),
                "lease to acknowledgement p50 ms": worked.percentile_ms(0.5),
                "p99 ms": worked.percentile_ms(0.99),
            },
        )
        return worked

    def verify(self, worked: Worked) -> None:
        """Compare what was handled with the source."""
        began = time.monotonic()
        with self._bars.stage("verify") as bar:
            handled = verification.read_lines(self._url, self._handled_topic, bar.advance)
            found = verification.compare(handled, self._source.truth())
            queue = self._statistics()
        self._checks += verification.checks(found, worked, queue)
        shares = sorted(found.by_worker.items())
        figures: dict[str, object] = {
            "handled by each": " + ".join(f"{count:,}" for _, count in shares),
            "handled twice": found.repeats,
            "came again": len(found.again),
            "longest chain": found.longest_chain,
        }
        self._note("verify", time.monotonic() - began, figures)

    def run_pipeline(self, pipeline: Callable[[Context, CommitSource], StageResult]) -> StageResult:
        """Run the pipeline, which is killed in the middle."""
        began = time.monotonic()
        with self._bars.stage("pipeline") as bar:
            context = Context(
                url=self._url,
                topic=self._topic,
                work_dir=self._work_dir,
                out_dir=self._out_dir,
                progress=bar.advance,
            )
            result = pipeline(context, self._source)
        self._checks += result.checks
        self._note("pipeline", time.monotonic() - began, result.figures)
        return result

    def report(self, outputs: Mapping[str, str], seconds: float) -> DemoReport:
        """Return the report."""
        if self._plan.broker is not None:
            outputs = {**outputs, "topics": f"{self._topic}, {self._topic}.*; they stay on the broker"}
        return DemoReport(
            title=f"{self._total:,} {self._source.title}",
            note=self._source.note,
            stages=tuple(self._stages),
            checks=tuple(self._checks),
            outputs=outputs,
            seconds=round(seconds, 1),
        )

    def _statistics(self) -> QueueStatistics:
        with sparrow.sync.connect(self._url, client_name="demo") as client:
            return client.admin.describe_queue(self._topic).statistics

    def _note(self, name: str, seconds: float, figures: Mapping[str, object]) -> None:
        self._stages.append(StageFigures(name, round(seconds, 3), figures))


def _rate(count: int, seconds: float) -> int:
    return round(count / max(seconds, 1e-9))
