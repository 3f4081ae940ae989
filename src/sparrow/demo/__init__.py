"""`sparrow demo`: a git history through a queue, workers of which one is killed, and a Spark
pipeline; every step is checked.

Begin reading at `stages.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.demo.report import DemoReport
    from sparrow.demo.surroundings import DemoPlan


def run(plan: DemoPlan) -> DemoReport:
    """Run the demonstration, after checking that everything it needs is there.

    Raises:
        InvalidArgument: the input cannot be read, or a package or Java is missing; the text says
            how to get it.
        SparrowError: a stage failed.
    """
    from sparrow.base.errors import InvalidArgument
    from sparrow.demo import cluster, history, pipeline, stages

    if plan.cluster and plan.broker is not None:
        raise InvalidArgument("--cluster starts brokers of its own; leave out --broker")
    if plan.objects is not None and not plan.cluster:
        raise InvalidArgument("--objects is for --cluster; add that")
    if plan.cluster:
        cluster.check_installed()
    pipeline.check_installed()
    return stages.run(plan, history.find(plan.repo), pipeline.run_stage)
