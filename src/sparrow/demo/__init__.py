"""`sparrow demo`: a git history, or a log file, through a queue, workers of which one is killed, and a Spark pipeline; every step is checked.

Begin reading at `stages.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.demo.message import Source
    from sparrow.demo.plan import Plan
    from sparrow.demo.report import Report

__all__ = ["run"]


def run(plan: Plan) -> Report:
    """Do what was planned, after seeing that all it needs is there.

    Raises:
        InvalidArgument: the input cannot be read, or a package or Java is missing; the text says how to get it.
        SparrowError: a stage could not be done.
    """
    from sparrow.demo import pipeline, stages

    pipeline.check_installed()
    return stages.run(plan, _source(plan), pipeline.run_stage)


def _source(plan: Plan) -> Source:
    from sparrow.demo.history import find

    if plan.file is not None:
        from sparrow.demo.lines import LogFile

        return LogFile(plan.file)
    return find(plan.repo)
