"""A pipeline judged before Spark starts: everything that is wrong with it as far as that can be known without running it, all at once.

Each module looks at one thing and yields findings; none of them needs PySpark or Java, imports a module of the pipeline, or asks a broker. What cannot be known
(columns behind a Python function, types of inferred schemas) is left to the run: a check that is not sure is silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import by_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.spark.pipelines.checks.finding import Finding
    from sparrow.spark.pipelines.model import Pipeline


def check(pipeline: Pipeline) -> None:
    """Judge a pipeline.

    Raises:
        InvalidConfig: every fault, one per line, each with file and line if it came from a file.
    """
    found = faults(pipeline)
    if found:
        raise InvalidConfig("\n".join(found))


def faults(pipeline: Pipeline) -> list[str]:
    """All that is wrong, as sentences in the order of the file."""
    from sparrow.spark.pipelines.reading import placed

    whole = placed(pipeline)
    return by_line(finding.sentence() for judge in _judges() for finding in judge(whole))


def _judges() -> list[Callable[[Pipeline], Iterator[Finding]]]:
    """Loaded when something is judged: a SQL parser is not light."""
    from sparrow.spark.pipelines.checks.files import judge_files
    from sparrow.spark.pipelines.checks.flows import judge_graph
    from sparrow.spark.pipelines.checks.names import judge_names
    from sparrow.spark.pipelines.checks.options import judge_options
    from sparrow.spark.pipelines.checks.rows import judge_rows
    from sparrow.spark.pipelines.checks.schemas import judge_schemas
    from sparrow.spark.pipelines.checks.streaming import judge_streaming

    return [judge_names, judge_graph, judge_files, judge_schemas, judge_options, judge_rows, judge_streaming]
