"""Pipelines that are there already, each one call: `archive`, `replay`, `compact_table`, `stats`, `redrive`.

Each looks at the broker and the directories first, and starts Spark only when there is something for it to do. What they return are plain
frozen dataclasses; errors are those of `sparrow.base.errors`. Nothing here loads PySpark or Arrow before a pipeline needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrow.spark.pipelines.builtin.archiving import Archived, ArchivedTopic, archive
    from sparrow.spark.pipelines.builtin.compacting import Compacted, compact_table
    from sparrow.spark.pipelines.builtin.measuring import TopicStats, stats
    from sparrow.spark.pipelines.builtin.redriving import Letter, Redriven, redrive
    from sparrow.spark.pipelines.builtin.replaying import Replayed, replay

__all__ = [
    "Archived",
    "ArchivedTopic",
    "Compacted",
    "Letter",
    "Redriven",
    "Replayed",
    "TopicStats",
    "archive",
    "compact_table",
    "redrive",
    "replay",
    "stats",
]

_HOMES = {
    "Archived": "archiving",
    "ArchivedTopic": "archiving",
    "archive": "archiving",
    "Compacted": "compacting",
    "compact_table": "compacting",
    "Letter": "redriving",
    "Redriven": "redriving",
    "redrive": "redriving",
    "Replayed": "replaying",
    "replay": "replaying",
    "TopicStats": "measuring",
    "stats": "measuring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
