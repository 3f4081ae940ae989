"""A plugin of pytest: brokers that tests open on a path run over a shard of a cluster in memory.

    .venv/bin/pytest -p tests.cluster.swapped_stores tests/broker tests/queues

So the suites of the broker, of Kafka's clients and of Spark's sink hold the stores of cluster mode,
too. The engines of a path outlive its brokers, as a data directory does. Brokers in processes of
their own keep their files.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from sparrow.broker.broker import Broker
from sparrow.server.engine import Stores, open_local_stores, start_broker
from sparrow.server.server import Server
from tests.cluster.shards import ShardBench
from tests.http_idempotency.keyed import Keyed
from tests.queues.work import Work

if TYPE_CHECKING:
    from sparrow.cluster.shard import OwnedShard
    from sparrow.server.config import ServerConfig

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
    "test_offsets_that_a_log_gives_again_after_it_lost_its_tail_are_new_messages": "a ledger loses no tail",
    "test_a_start_behind_a_log_that_lost_its_tail_is_moved_back": "a ledger loses no tail",
    "test_a_record_is_leased_before_its_sync": "an append is its own sync",
    "test_the_only_epoch_ends_at_the_end": "it names the epoch of a single broker",
    "test_a_leader_epoch_that_never_was_is_refused": "it names the epoch of a single broker",
    "test_a_restart_and_a_crash_repeat_no_tick_and_lose_none": "it copies files",
    "test_a_crash_between_plan_and_states_is_finished_by_the_next_start": "it copies files",
}
"""Tests that are about files, and why."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = ON_FILES.get(item.name.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"over a cluster: {reason}"))


_BENCHES: dict[str, ShardBench] = {}


def _opened(path: str, opened: AsyncExitStack) -> OwnedShard:
    shard = _BENCHES.setdefault(path, ShardBench()).open()
    opened.push_async_callback(shard.close)
    return shard


async def _open_broker(self: Broker, opened: AsyncExitStack) -> None:
    if self._log_store is not None and self._meta_store is not None:
        self._logs, self._meta = self._log_store, self._meta_store
        return
    assert self._path is not None
    shard = _opened(self._path, opened)
    self._logs, self._meta = shard.logs, shard.meta


async def _open_server(config: ServerConfig, opened: AsyncExitStack) -> Stores:
    shard = _opened(config.data_dir, opened)
    return Stores(shard.logs, shard.meta)


def _copy(self: Work | Keyed) -> str:
    """Copy what is committed now, as a kill -9 leaves it."""
    self._copies += 1
    path = f"{self.path}-{self._copies}"
    _BENCHES[path] = _BENCHES[self.path].copy()
    return path


Broker._open_stores = _open_broker  # type: ignore[method-assign]
Work.copied = Keyed.copied = _copy  # type: ignore[method-assign]
for function in (Server.__init__, start_broker):
    assert open_local_stores in function.__defaults__
    function.__defaults__ = tuple(
        _open_server if each is open_local_stores else each for each in function.__defaults__
    )
