"""The process from which Spark forks its Python workers, with everything loaded that they need.

`spark.python.daemon.module=sparrow.spark.daemon` starts it instead of `pyspark.daemon`. A worker
that is forked here finds NumPy, Arrow and the kernels in memory (half a second less for its first
task), and `gc.freeze` keeps them out of the collection that PySpark runs after every task (20 ms
less for each).

Nothing here opens a socket or starts a thread, since neither outlives a fork; libraries that start
threads when they are loaded are limited to one. A module that cannot be loaded here is loaded, or
fails, in the worker, where the error reaches its user. The processes on the driver in which Spark
plans come out of `pyspark.daemon` whatever is set, and load what they need themselves.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable

_NEEDED = (
    "pyspark.worker",
    "numpy",
    "pyarrow.compute",
    "pyspark.sql.pandas.types",
    "pyspark.sql.worker.utils",
    "sparrow.spark.datasource",
    "sparrow.spark.sink.batch",
    "sparrow.spark.sink.stream",
    "sparrow.spark.source.batch",
    "sparrow.spark.source.stream",
)
_WHERE_INSTALLED = ("pandas",)
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Variables that NumPy and Arrow read before they start threads."""


def preload() -> None:
    """Load the modules that workers need."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    installed = [name for name in _WHERE_INSTALLED if importlib.util.find_spec(name) is not None]
    for name in (*_NEEDED, *installed):
        _load(name)
    _warm_kernels()
    gc.collect()
    gc.freeze()


def _load(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - the worker that needs it shows why it cannot be loaded
        print(f"sparrow.spark.daemon: {name} is not preloaded: {error}", file=sys.stderr)


def _warm_kernels() -> None:
    try:
        from sparrow.spark.kernels import warm

        warm()
    except Exception as error:  # noqa: BLE001 - as above
        print(f"sparrow.spark.daemon: the kernels are not preloaded: {error}", file=sys.stderr)


def main() -> None:
    """Run `python -m sparrow.spark.daemon pyspark.worker`."""
    from pyspark import daemon

    preload()
    daemon.worker = _ends_quietly(daemon.worker)
    daemon.manager()


def _ends_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """Let a worker without a listener end without a stack trace: Spark ends idle workers that way,
    and all workers when it stops.
    """

    def quiet(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return quiet


if __name__ == "__main__":
    main()
