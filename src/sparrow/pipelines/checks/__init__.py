"""Checks of a pipeline before Spark starts. They find every fault that can be known without running
it, all at once.

Each module looks at one thing and yields findings; none of them needs PySpark or Java, imports a
module of the pipeline, or asks a broker. Faults that cannot be known (columns behind a Python
function, types of inferred schemas) are left to the run: a check that is not sure is silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import by_line
from sparrow.pipelines.locations import with_locations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.pipelines.checks.findings import Finding
    from sparrow.pipelines.model import PipelineModel


def check(pipeline: PipelineModel) -> None:
    """Check a pipeline.

    Raises:
        InvalidConfig: every fault, one per line, each with file and line if it came from a file.
    """
    found = faults(pipeline)
    if found:
        raise InvalidConfig("\n".join(found))


def faults(pipeline: PipelineModel) -> list[str]:
    """Return every fault as a sentence, in the order of the file."""
    whole = with_locations(pipeline)
    return by_line(finding.sentence() for judge in _judges() for finding in judge(whole) if finding.is_known)


def _judges() -> list[Callable[[PipelineModel], Iterator[Finding]]]:
    """Load the checks when they are first needed, because the SQL parser is slow to import."""
    from sparrow.pipelines.checks.files import judge_files
    from sparrow.pipelines.checks.flows import judge_graph
    from sparrow.pipelines.checks.names import judge_names
    from sparrow.pipelines.checks.options import judge_options
    from sparrow.pipelines.checks.rows import judge_rows
    from sparrow.pipelines.checks.schemas import judge_schemas
    from sparrow.pipelines.checks.streams import judge_streaming

    return [judge_names, judge_graph, judge_files, judge_schemas, judge_options, judge_rows, judge_streaming]
