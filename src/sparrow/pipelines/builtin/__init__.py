"""Ready-made pipelines, each one call: `archive`, `replay`, `compact_table`, `stats`, `redrive`.

Each looks at the broker and the directories first, and starts Spark only when there is something to
do. The results are plain frozen dataclasses; errors are those of `sparrow.base.errors`. Nothing
here loads PySpark or Arrow before a pipeline needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrow.pipelines.builtin.archives import Archived, ArchivedTopic, archive
    from sparrow.pipelines.builtin.compaction import Compacted, compact_table
    from sparrow.pipelines.builtin.redrives import Letter, Redriven, redrive
    from sparrow.pipelines.builtin.replays import Replayed, replay
    from sparrow.pipelines.builtin.statistics import TopicStats, stats

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
    "Archived": "archives",
    "ArchivedTopic": "archives",
    "archive": "archives",
    "Compacted": "compaction",
    "compact_table": "compaction",
    "Letter": "redrives",
    "Redriven": "redrives",
    "redrive": "redrives",
    "Replayed": "replays",
    "replay": "replays",
    "TopicStats": "statistics",
    "stats": "statistics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
