from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.pipelines.flows import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrow.testing.running import RunningBroker


@pytest.fixture
def place(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> Place:
    """A broker, a session and a directory for one test's pipeline."""
    return Place(spark, broker, tmp_path)
