"""A Spark that writes nothing by itself, for commands: failures become a sentence.

Its logging is configured before Java starts, by a file of this package. The setting
`spark.log.level` comes too late for what Spark logs while it starts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Options of the JVM that spark-submit, and so PySpark, starts; beside
`spark.driver.extraJavaOptions`, which is the user's.
"""
_CONFIGURATION: Final = "log4j2.configurationFile"
_FILE: Final = Path(__file__).with_name("quiet.log4j2.properties")
_SETTINGS: Final = {"spark.ui.showConsoleProgress": "false"}


def quiet_settings(environment: MutableMapping[str, str] = os.environ) -> Mapping[str, object]:
    """Return settings of a quiet session that this process is about to start.

    Args:
        environment: of the JVM; gets the path of the logging configuration, unless the user set
            one.
    """
    given = environment.get(_OPTIONS, "")
    if _CONFIGURATION not in given:
        environment[_OPTIONS] = f"{given} -D{_CONFIGURATION}={_FILE.as_uri()}".strip()
    return _SETTINGS


@contextmanager
def quiet_loggers() -> Iterator[None]:
    """Drop log messages of PySpark with whole stacks of Java: errors say the same in a sentence."""
    loggers = _talkative()
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _talkative() -> list[logging.Logger]:
    """Return True for the two loggers that PySpark's own class creates; they get arguments that
    others do not take.
    """
    from pyspark.logger import PySparkLogger

    contexts = map(PySparkLogger.getLogger, ("SQLQueryContextLogger", "DataFrameQueryContextLogger"))
    return [logging.getLogger("py4j"), *contexts]
