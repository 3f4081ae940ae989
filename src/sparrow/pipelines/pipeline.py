"""A pipeline as programs use it: its model, with the methods that check and run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparrow.pipelines import checks
from sparrow.pipelines.model import PipelineModel


@dataclass(frozen=True, kw_only=True)
class Pipeline(PipelineModel):
    """Flows from topics to topics and tables, made in Python or read from a file."""

    def check(self) -> None:
        """Check the pipeline as far as that is possible before Spark starts.

        Raises:
            InvalidConfig: every fault, one per line, each with its file and line.
        """
        checks.check(self)

    def run(self, **options: Any) -> Any:
        """Check the pipeline, then run it. See `engine.run` for the options and the result.

        Raises:
            InvalidConfig: see `check`.
        """
        self.check()
        from sparrow.pipelines import engine  # loads PySpark

        return engine.run(self, **options)


def run(pipeline: Pipeline, **options: Any) -> Any:
    """Check a pipeline, then run it. See `engine.run` for the options and the result.

    Raises:
        InvalidConfig: every fault of the pipeline, each with its location.
    """
    return pipeline.run(**options)
