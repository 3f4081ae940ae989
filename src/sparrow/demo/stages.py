"""The demonstration: its stages one after the other, each with a progress bar, and the report of
them all.

Commits are published so that causal delivery has work to do: children before their parents, and
shuffled within blocks, so that a parent comes a little or far too late. The whole source is never
in memory: a block is read, shuffled with a fixed seed, and sent by one pipelined producer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import sparrow.sync
from sparrow.base.errors import InvalidArgument
from sparrow.demo import surroundings, verification
from sparrow.demo.crew import LEASE_MS, work_off
from sparrow.demo.report import Check, DemoReport, StageFigures, StageResult
from sparrow.demo.surroundings import Context

if TYPE_CHECKING:
    from rich.progress import Progress

    from sparrow.demo.crew import Worked
    from sparrow.demo.history import CommitMessage, History, Sample
    from sparrow.demo.surroundings import DemoPlan

TOPIC: Final = "commits"
PARTITIONS: Final = 4
BLOCK: Final = 2000
"""Messages that are shuffled among each other, and after which progress is reported."""
_SEED: Final = 20
_PARENT_WAIT_MS: Final = 3_600_000
"""Long, as parents come after their children, in a long history much later."""
_DELIVERY_LIMIT: Final = 50
"""High, so that a killed worker does not make a job a dead letter."""

PipelineStage = Callable[[Context, Any, Callable[[int, int], None]], StageResult]


def run(plan: DemoPlan, source: History | Sample, pipeline: PipelineStage) -> DemoReport:
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
        record = _Record(stack.enter_context(_bars()))
        with record.stage("start"):
            url = stack.enter_context(surroundings.broker(plan, work_dir))
            context = Context(
                url=url,
                topic=surroundings.free_name(url, TOPIC),
                total=total,
                workers=plan.workers,
                work_dir=work_dir,
                out_dir=out_dir,
            )
            _create(context)
        record.publish(context, source)
        record.verify(context, source, record.work(context))
        outputs = record.run_pipeline(context, source, pipeline)
    if plan.keep:
        outputs["kept"] = work_dir
    if plan.broker is not None:
        outputs["topics"] = f"{context.topic}, {context.topic}.*; they stay on the broker"
    outputs["report"] = os.path.join(out_dir, surroundings.REPORT)
    report = DemoReport(
        title=f"{total:,} {source.title}",
        note=source.note,
        stages=tuple(record.stages),
        checks=tuple(record.checks),
        outputs=outputs,
        seconds=round(time.monotonic() - began, 1),
    )
    with open(outputs["report"], "w", encoding="utf-8") as file:
        json.dump(report.as_dict(), file, indent=2, ensure_ascii=False)
        file.write("\n")
    return report


def _create(context: Context) -> None:
    """Create the queue, and the topic of handled commits."""
    policy: sparrow.Policy = {
        "lease_ms": LEASE_MS,
        "delivery_limit": _DELIVERY_LIMIT,
        "order": "parented",
        "parent_wait_ms": _PARENT_WAIT_MS,
    }
    with sparrow.sync.connect(context.url, client_name="demo") as client:
        client.admin.create_queue(context.topic, policy=policy, partitions=PARTITIONS)
        client.admin.create_topic(context.handled_topic, partitions=1)


class _Record:
    """The stages, and what they found."""

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars
        self.stages: list[StageFigures] = []
        self.checks: list[Check] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[tuple[Bar, dict[str, object]]]:
        """Run a stage; yields its bar, and its figures, which are reported if there are any."""
        figures: dict[str, object] = {}
        began = time.monotonic()
        bar = Bar(name, self._bars)
        yield bar, figures
        seconds = time.monotonic() - began
        bar.end(seconds)
        if figures:
            self.stages.append(StageFigures(name, round(seconds, 3), figures))

    def publish(self, context: Context, source: History | Sample) -> None:
        """Publish the commits, newest first and shuffled."""
        with self.stage("publish") as (bar, figures):
            began = time.perf_counter()
            parents = asyncio.run(
                _publish(context, source.messages(), lambda sent: bar.advance(sent, context.total))
            )
            seconds = time.perf_counter() - began
            figures |= {
                "messages": len(parents),
                "parents": sum(parents),
                "merges": sum(each > 1 for each in parents),
                "acknowledged/s": _rate(len(parents), seconds),
            }

    def work(self, context: Context) -> Worked:
        """Process the jobs by workers, of which one is killed."""
        with self.stage("work") as (bar, figures):
            worked = work_off(context, lambda done: bar.advance(done, context.total))
            figures |= {
                "jobs": worked.acknowledged,
                "workers": context.workers,
                "handled/s": _rate(worked.acknowledged, worked.seconds - worked.waited_s),
                "waited for leases of the dead s": round(worked.waited_s, 1),
                "job p50 ms": worked.percentile_ms(0.5),
                "p99 ms": worked.percentile_ms(0.99),
            }
        return worked

    def verify(self, context: Context, source: History | Sample, worked: Worked) -> None:
        """Compare what was handled with the source."""
        with self.stage("verify") as (bar, figures):
            handled = verification.read_lines(context.url, context.handled_topic, bar.advance)
            found = verification.compare(handled, source.truth())
            with sparrow.sync.connect(context.url, client_name="demo") as client:
                queue = client.admin.describe_queue(context.topic).statistics
            self.checks += verification.checks(found, worked, queue)
            figures |= {
                "handled by each": " + ".join(f"{count:,}" for _, count in sorted(found.by_worker.items())),
                "handled twice": found.repeats,
                "came again": len(found.again),
                "longest chain": found.longest_chain,
            }

    def run_pipeline(
        self, context: Context, source: History | Sample, pipeline: PipelineStage
    ) -> dict[str, str]:
        """Run the pipeline, which is killed in the middle; return the paths of its output."""
        with self.stage("pipeline") as (bar, figures):
            result = pipeline(context, source, bar.advance)
            self.checks += result.checks
            figures.update(result.figures)
        return dict(result.outputs)


def _bars() -> AbstractContextManager[Progress | None]:
    """Return the bars of all stages, one below the other; None without a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


class Bar:
    """Progress of one stage on stderr; where that is no terminal, a line when the stage begins, and
    one when it has ended.
    """

    def __init__(self, name: str, progress: Progress | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task(name, total=None)
        self._name = name
        self._done = self._total = 0
        if progress is None:
            print(f"{name} …", file=sys.stderr, flush=True)

    def advance(self, done: int, total: int) -> None:
        """Show that so many of so many are done; the total may grow."""
        self._done, self._total = done, max(done, total)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._done, total=self._total)

    def end(self, seconds: float) -> None:
        """Show that the stage is over."""
        if self._progress is None:
            of = f" {self._done:,} of {self._total:,}" if self._total else ""
            print(f"{self._name}:{of} in {seconds:.1f} s", file=sys.stderr, flush=True)
        self.advance(self._total or 1, self._total or 1)


async def _publish(
    context: Context, messages: Iterable[CommitMessage], progress: Callable[[int], None]
) -> list[int]:
    """Publish all, each acknowledged on stable storage; return how many parents each has.

    Raises:
        SparrowError: something could not be published.
    """
    parents: list[int] = []
    async with (
        sparrow.connect(context.url, client_name="demo") as client,
        client.producer(acks="all") as producer,
    ):
        for block in shuffled(messages):
            for each in block:
                await producer.send(
                    context.topic, each.value, key=each.key, message_id=each.id, parents=each.parents or None
                )
            parents += [len(each.parents) for each in block]
            progress(len(parents))
        await producer.flush()
    return parents


def shuffled(messages: Iterable[CommitMessage]) -> Iterator[list[CommitMessage]]:
    """Yield the messages in blocks, each shuffled."""
    dice = random.Random(_SEED)  # noqa: S311 - an order, not a secret
    rest = iter(messages)
    while block := list(islice(rest, BLOCK)):
        dice.shuffle(block)
        yield block


def _rate(count: int, seconds: float) -> int:
    return round(count / max(seconds, 1e-9))
