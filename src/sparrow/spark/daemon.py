"""The process from which Spark forks its Python workers, with everything loaded that they need.

`spark.python.daemon.module=sparrow.spark.daemon` starts it instead of `pyspark.daemon`. A worker that is forked here finds NumPy, Arrow and the kernels in memory
(half a second less for its first task), and `gc.freeze` keeps them out of the collection that PySpark runs after every task (20 ms less for each).

Nothing here opens a socket or starts a thread, since neither outlives a fork; libraries that start threads of their own when they are loaded are told to have one.
What cannot be loaded is loaded, or fails, in the worker, where the error reaches its user. Spark plans in further processes, two for
each micro-batch of a sink; their daemons load the same but pandas and the kernels.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

_FOR_ALL = (
    "pyarrow.compute",
    "pyspark.sql.worker.utils",
    "sparrow.spark.datasource",
    "sparrow.spark.sink.batch",
    "sparrow.spark.sink.stream",
    "sparrow.spark.source.batch",
    "sparrow.spark.source.stream",
)
_FOR_TASKS = ("numpy", "pandas", "pyspark.sql.pandas.types")
_TASK_MODULE = "pyspark.worker"
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""What NumPy and Arrow ask before they start threads."""


def preload(worker_module: str) -> None:
    """Load what workers that run `worker_module` need."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    is_for_tasks = worker_module == _TASK_MODULE
    for name in (worker_module, *_FOR_ALL, *(_FOR_TASKS if is_for_tasks else ())):
        _load(name)
    if is_for_tasks:
        _warm_kernels()
    gc.collect()
    gc.freeze()


def _load(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - whoever needs it will see why it cannot be loaded
        print(f"sparrow.spark.daemon: {name} is not preloaded: {error}", file=sys.stderr)


def _warm_kernels() -> None:
    try:
        from sparrow.spark.kernels import warm

        warm()
    except Exception as error:  # noqa: BLE001 - as above
        print(f"sparrow.spark.daemon: the kernels are not preloaded: {error}", file=sys.stderr)


def main() -> None:
    """What `python -m sparrow.spark.daemon MODULE` does."""
    from pyspark.daemon import manager

    preload(sys.argv[1] if len(sys.argv) > 1 else _TASK_MODULE)
    manager()


if __name__ == "__main__":
    main()
