from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.pipelines.flows import Environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrow.testing.running_broker import RunningBroker


@pytest.fixture
def environment(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> Environment:
    """Return a broker, a session and a directory for one test's pipeline."""
    return Environment(spark, broker, tmp_path)
