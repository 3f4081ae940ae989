"""Sparrow's topics in Spark: `format("sparrow")` for batches and streams, a session that is quick
with them, pipelines. Needs the extra `spark`.

    spark = sparrow.spark.session("orders")
    orders = spark.readStream.format("sparrow").option("subscribe", "orders").load()

Importing this registers the format with the active session, if there is one. It loads no PySpark by
itself.
"""

from __future__ import annotations

import importlib
from typing import Any

from sparrow.spark.session import active_session, read, register, register_here, session

__all__ = ["pipelines", "read", "register", "session"]


def __getattr__(name: str) -> Any:
    # Pipelines are loaded when they are asked for.
    if name == "pipelines":
        return importlib.import_module("sparrow.pipelines")
    raise AttributeError(f"module 'sparrow.spark' has no attribute {name!r}")


register_here(active_session())
