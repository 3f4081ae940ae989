"""What the state of queues takes, without what other threads of the process allocate meanwhile."""

from __future__ import annotations

import tracemalloc

_QUEUES = tracemalloc.Filter(True, "*/sparrow/broker/queues/*")


def traced_bytes() -> int:
    """What was allocated by the modules of queues since tracing began, and is still held."""
    snapshot = tracemalloc.take_snapshot().filter_traces([_QUEUES])
    return sum(trace.size for trace in snapshot.traces)
