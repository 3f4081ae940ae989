"""The sink, with a driver that dies at a commit on command of a file: before its effect, or between
its effect and Spark's note of it.

Spark runs this in its own processes, which find it by PYTHONPATH.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace

import psutil

from sparrow.spark.datasource import SparrowDataSource
from sparrow.spark.sink.stream import StreamWriter, stream_writer

DEATH_FILE = "SPARROW_TEST_DEATH_FILE"
"""The environment variable that names the file; its content is "before" or "after"."""

MAX_BATCH_BYTES = 128
ROWS_AT_ONCE = 40
PAUSE_S = 0.03


class MortalSink(SparrowDataSource):
    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema, overwrite):
        return MortalWriter(stream_writer(self.options, schema, overwrite)._plan)


class MortalWriter(StreamWriter):
    """A sink whose tasks are slow, so that kills mostly hit them in the middle."""

    def __init__(self, plan):
        # A task writes several batches for each partition, so that some are there when it is
        # killed.
        super().__init__(replace(plan, max_batch_bytes=MAX_BATCH_BYTES))

    def write(self, iterator):
        return super().write(slowly(iterator))

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        how = ordered_death()
        if how == "before":
            die()
        super().commit(messages, batchId)
        if how == "after":
            die()


def slowly(batches):
    """Yield the same rows, a few at a time."""
    for batch in batches:
        for first in range(0, batch.num_rows, ROWS_AT_ONCE):
            time.sleep(PAUSE_S)
            yield batch.slice(first, ROWS_AT_ONCE)


def ordered_death() -> str:
    """Return the order to die at this commit, once; "" to live."""
    path = os.environ[DEATH_FILE]
    try:
        with open(path, encoding="utf-8") as file:
            how = file.read()
        os.unlink(path)
    except FileNotFoundError:
        return ""
    return how


def die() -> None:
    """Kill the JVM and the driver above it, and then this process."""
    above = psutil.Process().parents()
    java = next(number for number, each in enumerate(above) if each.name() == "java")
    for each in (above[java], above[java + 1]):
        with suppress(psutil.NoSuchProcess):
            each.kill()
    os.kill(os.getpid(), signal.SIGKILL)
