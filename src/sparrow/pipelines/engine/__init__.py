"""Engine that runs pipelines on Spark's Structured Streaming: one query per flow, and one for its
dead letters.

Only the public API of DataFrames is used, so that the same code runs in a session of Spark Connect.
Importing this package loads PySpark.
"""

from sparrow.pipelines.engine.failures import Failure
from sparrow.pipelines.engine.progress import Progress
from sparrow.pipelines.engine.runner import Outcome, run

__all__ = ["Failure", "Outcome", "Progress", "run"]
