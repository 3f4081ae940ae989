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
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec.json import decode

import sparrow.sync
from sparrow.base.errors import InvalidArgument
from sparrow.demo import surroundings, verification
from sparrow.demo.cluster import running_cluster
from sparrow.demo.crew import LEASE_MS, work_off
from sparrow.demo.report import Check, DemoReport, StageFigures, StageResult
from sparrow.demo.surroundings import Context, Progress
from sparrow.demo.worker import HandledLine

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

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

PipelineStage = Callable[[Context, Any, Progress], StageResult]


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
            fail_over = None
            if plan.cluster:
                brokers = stack.enter_context(running_cluster(work_dir, plan.objects, keep=plan.keep))
                url, fail_over = brokers.url, brokers.kill_owner
            else:
                url = stack.enter_context(surroundings.broker(plan, work_dir))
            context = Context(
                url=url,
                fail_over=fail_over,
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
    """The stages, their figures and their checks."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self.stages: list[StageFigures] = []
        self.checks: list[Check] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[tuple[Progress, dict[str, object]]]:
        """Run a stage with a bar on stderr; where that is no terminal, a line at its begin and one
        at its end. Yields a function that moves the bar, whose total may grow, and the figures of
        the stage, which are reported if there are any.
        """
        figures: dict[str, object] = {}
        began = time.monotonic()
        bars, bar = self._bars, self._bars.add_task(name, total=None)
        if bars.disable:
            print(f"{name} …", file=sys.stderr, flush=True)
        yield lambda done, total: bars.update(bar, completed=done, total=max(done, total)), figures
        seconds = time.monotonic() - began
        done, total = bars.tasks[-1].completed, bars.tasks[-1].total or 0
        if bars.disable:
            of = f" {done:,.0f} of {total:,.0f}" if total else ""
            print(f"{name}:{of} in {seconds:.1f} s", file=sys.stderr, flush=True)
        bars.update(bar, completed=total or 1, total=total or 1)
        if figures:
            self.stages.append(StageFigures(name, round(seconds, 3), figures))

    def publish(self, context: Context, source: History | Sample) -> None:
        """Publish the commits, newest first and shuffled."""
        with self.stage("publish") as (advance, figures):
            began = time.perf_counter()
            parents = asyncio.run(_publish(context, source.messages(), advance))
            seconds = time.perf_counter() - began
            figures |= {
                "messages": len(parents),
                "parents": sum(parents),
                "merges": sum(each > 1 for each in parents),
                "acknowledged/s": round(len(parents) / max(seconds, 1e-9)),
            }

    def work(self, context: Context) -> Worked:
        """Process the jobs by workers, of which one is killed."""
        with self.stage("work") as (advance, figures):
            worked = work_off(context, advance)
            working_s = max(worked.seconds - worked.waited_s, 1e-9)
            figures |= {
                "jobs": worked.acknowledged,
                "workers": context.workers,
                "handled/s": round(worked.acknowledged / working_s),
                "waited for leases of the dead s": round(worked.waited_s, 1),
                **(
                    {} if worked.failed_over is None else {"takeover s": round(worked.failed_over.seconds, 1)}
                ),
                "job p50 ms": worked.percentile_ms(0.5),
                "p99 ms": worked.percentile_ms(0.99),
            }
        return worked

    def verify(self, context: Context, source: History | Sample, worked: Worked) -> None:
        """Compare what was handled with the source."""
        with self.stage("verify") as (advance, figures):
            written = verification.read_topic(context.url, context.handled_topic, advance)
            handled = (decode(record.value or b"", type=HandledLine) for record in written)
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

    def run_pipeline(self, context: Context, source: History | Sample, run: PipelineStage) -> dict[str, str]:
        """Run the pipeline, which is killed in the middle; return the paths of its output."""
        with self.stage("pipeline") as (advance, figures):
            result = run(context, source, advance)
            self.checks += result.checks
            figures.update(result.figures)
        return dict(result.outputs)


def _bars() -> Bars:
    """Return the bars of all stages, one below the other; disabled without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_shown = sys.stderr.isatty()
    return Bars(*columns, console=Console(stderr=True, quiet=not is_shown), disable=not is_shown)


async def _publish(context: Context, messages: Iterable[CommitMessage], advance: Progress) -> list[int]:
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
            advance(len(parents), context.total)
        await producer.flush()
    return parents


def shuffled(messages: Iterable[CommitMessage]) -> Iterator[list[CommitMessage]]:
    """Yield the messages in blocks, each shuffled."""
    dice = random.Random(_SEED)  # noqa: S311 - an order, not a secret
    rest = iter(messages)
    while block := list(islice(rest, BLOCK)):
        dice.shuffle(block)
        yield block
