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
    from sparrow.demo import history, pipeline, stages

    pipeline.check_installed()
    return stages.run(plan, history.find(plan.repo), pipeline.run_stage)
