"""A plugin of pytest: brokers that tests open on a path run over a shard of a cluster in memory.

    .venv/bin/pytest -p tests.cluster.swapped_stores tests/broker tests/queues

So the suites of the broker hold the stores of cluster mode, too. The engines of a path outlive its
brokers, as a data directory does.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from sparrow.broker.broker import Broker
from tests.cluster.shards import ShardBench

ON_FILES = {
    "test_very_many_records_are_checked_in_the_thread": "it expects that an append is done at once",
    "test_a_topic_may_lower_acks_all_to_the_page_cache": "there is no page cache",
    "test_a_reader_that_is_behind_does_not_wait_at_the_end_of_a_segment": "there are no segments",
    "test_a_directory_of_the_format_before_the_journal_keeps_leases_and_acknowledgements": "it reads files",
    "test_a_lease_on_a_record_that_did_not_survive_is_dropped": "it changes files",
    "test_a_batch_of_old_records_sent_again_after_a_crash_is_recognised_after_housekeeping_too": "it copies",
    "test_a_stored_configuration_that_cannot_be_read_stops_the_start": "it changes the SQLite file",
    "test_the_log_directory_has_sizes_of_logs_that_were_not_opened_since_the_start": "it names a directory",
    "test_acknowledged_messages_stay_so_wherever_a_change_of_the_subscribers_crashes": "it copies files",
}
"""Tests that are about files, and why."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = ON_FILES.get(item.name.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"over a cluster: {reason}"))


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
