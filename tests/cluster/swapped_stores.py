"""A plugin of pytest: brokers that tests open on a path run over a shard of a cluster in memory.

    .venv/bin/pytest -p tests.cluster.swapped_stores tests/broker tests/queues

So the suites of the broker hold the stores of cluster mode, too. The engines of a path outlive its
brokers, as a data directory does.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from sparrow.broker.broker import Broker
from tests.cluster.shards import ShardBench

_BENCHES: dict[str, ShardBench] = {}


async def _open_stores(self: Broker, opened: AsyncExitStack) -> None:
    if self._log_store is not None and self._meta_store is not None:
        self._logs, self._meta = self._log_store, self._meta_store
        return
    assert self._path is not None
    shard = _BENCHES.setdefault(self._path, ShardBench()).open()
    opened.push_async_callback(shard.close)
    self._logs, self._meta = shard.logs, shard.meta


Broker._open_stores = _open_stores  # type: ignore[method-assign]
