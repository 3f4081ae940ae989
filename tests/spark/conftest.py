"""Spark for tests: one session for the whole process, and one process for all tests that need it
(`tests/schedule.py`).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparrow.testing
from tests.spark.class_archive import SHORT_LIVED, java

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from sparrow.testing.running_broker import RunningBroker

HERE = Path(__file__).parent
_TIMEOUT_S = 600
_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    # Many small queries, each compiled again: the first of the JVM's compilers makes code that is
    # quick enough, at a fraction of the time.
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A Python process of Spark's may need more than the default, 15 s, on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests that need Spark."""
    for item in items:
        if HERE in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            # The first of them starts the JVM, on a machine that may be busy.
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a session of two cores, made as users make theirs."""
    if not java():
        pytest.skip("Spark needs Java, and there is none: install default-jre-headless, or set JAVA_HOME")
    _be_the_only_one(tmp_path_factory)
    # Python processes of the JVM run this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    import sparrow.spark

    conf = {**_CONF, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = sparrow.spark.session(name="sparrow-tests", master="local[2]", conf=conf)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    _end_gateway()


def _be_the_only_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let one process of a run have a session; a second one would pass as well, but cost half a
    minute.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    try:
        (tmp_path_factory.getbasetemp().parent / "spark-session").touch(exist_ok=False)
    except FileExistsError:
        pytest.fail(
            "a second process starts a Spark session; tests/schedule.py is to keep these tests together"
        )


def _end_gateway() -> None:
    """End the JVM that PySpark started, which else lives as long as this process."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if process.stdin is not None:
        process.stdin.close()
    process.wait(30)


@pytest.fixture(autouse=True)
def plain_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Undo what PySpark's loggers do to pytest: one that does not propagate gets pytest's handler,
    and puts a format of its own on it, for all tests behind.
    """
    yield
    for logger in logging.Logger.manager.loggerDict.values():
        if type(logger).__name__ == "PySparkLogger":
            logger.propagate = True  # type: ignore[union-attr]
    plugin = request.config.pluginmanager.get_plugin("logging-plugin")
    if plugin is not None:
        plugin.caplog_handler.setFormatter(plugin.formatter)
        plugin.report_handler.setFormatter(plugin.formatter)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """Return a broker of this process, with an empty data directory."""
    with sparrow.testing.broker() as running:
        yield running
