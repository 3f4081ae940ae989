"""Runs pipelines on Spark's Structured Streaming: one query per flow, and one for its dead letters.

Only the public API of DataFrames is used, so that the same runs in a session of Spark Connect. Importing this loads PySpark.
"""

from sparrow.spark.pipelines.engine.failures import Failure
from sparrow.spark.pipelines.engine.progress import Progress
from sparrow.spark.pipelines.engine.running import Outcome, run

__all__ = ["Failure", "Outcome", "Progress", "run"]
