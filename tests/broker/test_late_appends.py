"""A partition over a log that confirms appends late: results of its producers, and the content of a
checkpoint.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import OutOfOrderSequence, SparrowError, UnknownTopic
from sparrow.broker.configs.topic import TopicConfig
from sparrow.broker.measures import Measures
from sparrow.broker.partition import Partition
from sparrow.broker.producers import TransactionEnd
from sparrow.broker.publishes import ACKS_LEADER
from sparrow.broker.record_checks import RecordChecks
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.late import LateLogStore
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions
from sparrow.storage.store import LogId
from tests.broker.batches import batch

if TYPE_CHECKING:
    from collections.abc import Container

    from sparrow.broker.publishes import Published

WHERE = LogId("orders", uuid.UUID(int=7), 0)
ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0, flush_interval_ms=0)
LATE_FAILURE = r"no room|does not answer"
CLOCK = ManualClock()


def anybody(producer_id: int, remembered: Container[int]) -> None:
    """Accept any owner of a producer id."""


class Run:
    """A partition over a store that confirms appends on command, and another one after a
    restart.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.fs = FaultyFileSystem(seed=1)
        self.start()

    def start(self) -> None:
        self.store = LateLogStore(LocalLogStore("/data", self.fs, options=ON_THE_LOOP))
        self.store.hold()
        self.partition = Partition(
            WHERE,
            TopicConfig({}, {}),
            self.store,
            CLOCK,
            self.loop,
            measures=Measures(),
            checks=RecordChecks(),
        )
        self.partition.attach(*self.partition.load())

    def send(
        self, sequence: int, epoch: int = 0, *, transactional: bool = False
    ) -> asyncio.Future[Published]:
        data = batch(
            b"%d" % sequence,
            timestamp_ms=CLOCK.wall_ms(),
            producer_id=7,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        return self.partition.publish(data, ACKS_LEADER, lambda _, __: None, owns=anybody)


@pytest.fixture
async def run() -> Run:
    return Run(asyncio.get_running_loop())


async def test_a_checkpoint_holds_batches_that_were_confirmed_late(run: Run) -> None:
    run.send(0)
    run.store.release(1)
    await run.partition.checkpoint()  # in the same iteration of the loop
    run.fs.kill()
    run.start()
    again = run.send(0)
    run.store.release()
    assert (await again).base_offset == 0
    assert run.partition.visible_end == 1


async def test_a_batch_whose_append_failed_late_is_taken_when_it_is_sent_again(run: Run) -> None:
    run.store.failing = 1.0
    failed = run.send(0)
    run.store.release(1)
    run.store.failing = 0.0
    again = run.send(0)
    run.store.release(1)
    with pytest.raises(SparrowError, match=LATE_FAILURE):
        await failed
    assert (await again).base_offset == 0


@pytest.mark.parametrize("kept_before", [0, 2])
async def test_no_sequence_passes_over_one_whose_append_failed_late(run: Run, kept_before: int) -> None:
    for sequence in range(kept_before):
        run.send(sequence)
    run.store.release(kept_before)
    run.store.failing = 1.0
    failed = [run.send(kept_before), run.send(kept_before + 1)]
    run.store.failing = 0.0
    run.store.release(1)
    with pytest.raises(OutOfOrderSequence, match=f"{kept_before} is next"):
        run.send(kept_before + 2)
    for each in failed:
        with pytest.raises(SparrowError, match=LATE_FAILURE):
            await each
    again = [run.send(kept_before + number) for number in range(3)]
    run.store.release(3)
    assert [(await each).base_offset for each in again] == list(range(kept_before, kept_before + 3))


async def test_the_retry_of_a_pending_batch_gets_the_same_result(run: Run) -> None:
    first, again = run.send(0), run.send(0)
    run.store.release(2)
    assert (await first, run.partition.visible_end) == (await again, 1)


async def test_a_new_epoch_whose_first_batch_failed_leaves_the_old_one(run: Run) -> None:
    run.send(0)
    run.store.release(1)
    run.store.failing = 1.0
    failed = run.send(0, epoch=1)
    run.store.failing = 0.0
    run.store.release(1)
    with pytest.raises(SparrowError, match=LATE_FAILURE):
        await failed
    next_ = run.send(1)
    run.store.release(1)
    assert (await next_).base_offset == 1


async def test_the_last_stable_offset_counts_a_transaction_from_the_moment_its_batch_is_in_the_log(
    run: Run,
) -> None:
    promise = run.send(0, transactional=True)
    assert run.partition.last_stable_offset == run.partition.visible_end == 0
    run.store.release(1)
    assert (run.partition.visible_end, run.partition.last_stable_offset) == (1, 0)
    run.store.release()
    await run.partition.end_transactions([TransactionEnd(7, 0, commit=True)])
    assert run.partition.last_stable_offset == run.partition.visible_end == 2
    await promise


async def test_a_checkpoint_right_behind_a_marker_holds_the_end_of_the_transaction(run: Run) -> None:
    run.store.release()
    await run.send(0, transactional=True)
    run.store.hold()
    ending = asyncio.create_task(run.partition.end_transactions([TransactionEnd(7, 0, commit=False)]))
    await asyncio.sleep(0)
    run.store.release(1)
    await run.partition.checkpoint()
    run.fs.kill()
    ending.cancel()
    run.start()
    assert run.partition.open_transactions() == []
    assert [each.producer_id for each in run.partition.aborted_transactions(0, 2)] == [7]


async def test_a_publish_that_is_pending_when_its_topic_is_deleted_says_so(run: Run) -> None:
    promise = run.send(0)
    await run.partition.delete()
    with pytest.raises(UnknownTopic):
        await promise
