"""The step of events.yml: any function from a DataFrame to a DataFrame works."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_area(visits: DataFrame) -> DataFrame:
    """Add the area of a page: the first part of its path."""
    from pyspark.sql import functions

    first = functions.split_part(visits["page"], functions.lit("/"), functions.lit(2))
    return visits.withColumn("area", functions.when(first == "", "home").otherwise(first))
