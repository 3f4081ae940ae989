"""Memory of the state of queues, without what other threads of the process allocate meanwhile."""

from __future__ import annotations

import tracemalloc

_QUEUES = tracemalloc.Filter(True, "*/sparrow/broker/queues/*")


def traced_bytes() -> int:
    """Return the bytes that modules of queues allocated since tracing began and did not free."""
    snapshot = tracemalloc.take_snapshot().filter_traces([_QUEUES])
    return sum(trace.size for trace in snapshot.traces)
