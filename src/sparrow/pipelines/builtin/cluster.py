"""The Spark session of a built-in pipeline, and plain errors for its failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparrow.base import errors
from sparrow.base.errors import InvalidArgument, SparrowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], object]
"""Called with a sentence about the current step."""
_RAISED: Final = re.compile(r"sparrow\.base\.errors\.(\w+): (.+)")


def quiet(_: str) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """An existing session, or the options to make one."""

    spark: SparkSession | None = None
    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, object] = field(default_factory=dict)

    @contextmanager
    def session(self, name: str) -> Iterator[SparkSession]:
        """Provide a session for one pipeline. One that was made for it is stopped at the end.

        Raises:
            SparrowError: the failure in Spark, as a sentence; its cause has the full error.
        """
        import sparrow.spark
        from sparrow.spark.quiet_loggers import quiet_loggers
        from sparrow.spark.session import active_session

        is_own = self.spark is None and active_session() is None
        spark = self.spark
        if spark is None:
            spark = sparrow.spark.session(name=name, master=self.master, remote=self.remote, conf=self.conf)
        try:
            with quiet_loggers(), plain_errors():
                yield spark
        finally:
            if is_own:
                spark.stop()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Translate Spark's errors to one sentence: the error that Sparrow raised in a task, or the
    first line of Spark's text.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _plain(error) from error


def _plain(error: Any) -> SparrowError:
    text = str(error)
    for kind, sentence in reversed(_RAISED.findall(text)):
        found = getattr(errors, kind, None)
        if found is errors.OffsetOutOfRange:
            what = sentence.partition(". Set failOnDataLoss")[0]
            return found(f"records were deleted while they were read ({what}); run it again")
        if isinstance(found, type) and issubclass(found, SparrowError):
            return found(sentence.strip())
    condition = getattr(error, "getCondition", lambda: None)() or ""
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__).strip()
    if condition.startswith(
        ("PARSE_SYNTAX_ERROR", "DATATYPE_MISMATCH", "UNRESOLVED_", "CAST_", "INVALID_PARAMETER")
    ):
        return InvalidArgument(f"Spark refuses it: {first}")
    return SparrowError(f"Spark failed: {first}")
