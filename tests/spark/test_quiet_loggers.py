"""Commands quiet PySpark's loggers for a while; their class stays PySpark's own, which its errors
need.
"""

from __future__ import annotations

import logging

from sparrow.spark.quiet_loggers import quiet_loggers


def test_quiet_loggers_are_pysparks_own_and_have_their_levels_again_afterwards():
    names = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    with quiet_loggers():
        assert {logging.getLogger(name).level for name in names} == {logging.CRITICAL}
        for name in names:
            logging.getLogger(name).error("one that takes more arguments", errorClass="ANY")  # type: ignore[call-arg]
    assert {logging.getLogger(name).level for name in names} == {logging.WARNING}
