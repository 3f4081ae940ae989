"""Operations on sinks, one after the other and at the same time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sparrow.base.errors import (
    DiskFull,
    InvalidArgument,
    InvalidRecord,
    InvalidTopicName,
    InvalidTransactionTimeout,
    NotAuthorized,
    NotInTransaction,
    Overloaded,
    ProducerFenced,
    ProducerMismatch,
    SinkFenced,
    SinkTaken,
    StageExpired,
    StorageFailed,
    UnknownPartition,
    UnknownSink,
    UnknownTopic,
)
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.broker.sinks import stage_table
from sparrow.broker.sinks.stage_table import ABANDONED_MS
from sparrow.broker.sinks.state import Caller
from sparrow.broker.sinks.table import KEPT_AT_LEAST_MS, KEPT_MS
from sparrow.broker.transactions.coordinator import TransactionLimits
from sparrow.broker.transactions.state import TransactionState
from sparrow.meta.store import Write
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from tests.records.malformed import with_crc
from tests.sinks.staging import QUERY, SINK, TIMEOUT_MS, caller, commit, open_stage, put
from tests.transactions.machine import Machine, read_committed


def may_write(kind: ResourceType, name: str, who: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, who, "*", Operation.WRITE, Permission.ALLOW)


async def test_staged_records_are_seen_when_their_batch_is_committed(
    machine: Machine, broker: Broker
) -> None:
    stages = [await open_stage(broker, 0, task=task) for task in range(2)]
    for stage, value in zip(stages, (b"1", b"2"), strict=True):
        await put(machine, broker, stage, "a", value)
        await put(machine, broker, stage, "b", value)
    assert await read_committed(broker, "a") == []
    assert not await commit(broker, 0, *stages)
    for topic in ("a", "b"):
        assert await read_committed(broker, topic) == [b"1", b"2"]
    (info,) = broker.sinks.list()
    assert (info.sink, info.query, info.kind, info.last_batch, info.open_stages) == (
        SINK,
        QUERY,
        "stream",
        0,
        0,
    )


async def test_stages_that_are_not_listed_are_dropped_by_the_commit(machine: Machine, broker: Broker) -> None:
    winner, loser, empty = [await open_stage(broker, 0, task=task) for task in range(3)]
    await put(machine, broker, loser, "a", b"lost")
    await put(machine, broker, winner, "a", b"won")
    await commit(broker, 0, winner)
    assert await read_committed(broker, "a") == [b"won"]
    for stage in (winner, loser, empty):
        with pytest.raises(StageExpired):
            broker.sinks.publisher(stage.stage_id)
    counts = broker.parts.sink_coordinator.counts
    assert (counts.committed_batches, counts.committed_stages, counts.aborted_stages) == (1, 1, 2)


async def test_a_commit_that_is_asked_for_again_changes_nothing(machine: Machine, broker: Broker) -> None:
    first = await open_stage(broker, 0)
    await put(machine, broker, first, "a", b"1")
    assert not await commit(broker, 0, first)
    assert await commit(broker, 0, first)
    assert await broker.sinks.stage(SINK, caller(0), task=0, attempt=1, timeout_ms=TIMEOUT_MS) is None
    assert await broker.sinks.abort(SINK, caller(0)) == (True, 0)
    assert await read_committed(broker, "a") == [b"1"]


async def test_the_next_run_meets_a_batch_that_was_committed_and_fences_the_last(
    machine: Machine, broker: Broker
) -> None:
    await commit(broker, 0)
    zombie = await open_stage(broker, 1)
    await put(machine, broker, zombie, "a", b"zombie")
    assert await broker.sinks.stage(SINK, caller(0, "r-2"), task=0, attempt=0, timeout_ms=TIMEOUT_MS) is None
    with pytest.raises(StageExpired):
        await put(machine, broker, zombie, "a", b"more", sequence=1)
    with pytest.raises(SinkFenced, match="r-2"):
        await commit(broker, 1, zombie)
    with pytest.raises(SinkFenced, match="r-2"):
        await open_stage(broker, 1)
    with pytest.raises(SinkFenced, match="r-2"):
        broker.sinks.renew(SINK, "r-1", 1)
    stage = await open_stage(broker, 1, "r-2")
    await put(machine, broker, stage, "a", b"new")
    with pytest.raises(StageExpired):
        await commit(broker, 1, zombie, run="r-2")
    assert not await commit(broker, 1, stage, run="r-2")
    assert await read_committed(broker, "a") == [b"new"]


async def test_a_sink_of_another_query_is_taken(broker: Broker) -> None:
    await commit(broker, 0)
    with pytest.raises(SinkTaken, match=r"q-1.*q-2"):
        await broker.sinks.stage(SINK, caller(4, "r-2", "q-2"), task=0, attempt=0, timeout_ms=TIMEOUT_MS)
    assert await broker.sinks.stage(
        SINK, caller(4, "r-2", "q-2", take_over=True), task=0, attempt=0, timeout_ms=TIMEOUT_MS
    )
    assert broker.sinks.describe(SINK).query == "q-2"


async def test_an_abort_drops_a_batch_and_another_attempt_may_follow(
    machine: Machine, broker: Broker
) -> None:
    stage = await open_stage(broker, 0)
    await put(machine, broker, stage, "a", b"1")
    assert await broker.sinks.abort(SINK, caller(0)) == (False, 1)
    assert await broker.sinks.abort(SINK, caller(0)) == (False, 0)
    again = await open_stage(broker, 0)
    await put(machine, broker, again, "a", b"2")
    await commit(broker, 0, again)
    assert await read_committed(broker, "a") == [b"2"]
    assert broker.parts.topic_registry.get("a").partition(0).last_stable_offset == 4


async def test_an_abort_of_one_stage_leaves_the_others(machine: Machine, broker: Broker) -> None:
    failed, good = [await open_stage(broker, 0, task=task) for task in range(2)]
    for stage in (failed, good):
        await put(machine, broker, stage, "a", b"%d" % stage.task)
    assert await broker.sinks.abort(SINK, caller(0), [failed.stage_id, "9-9-9"]) == (False, 1)
    assert await broker.sinks.abort(SINK, caller(0), [failed.stage_id]) == (False, 0)
    await commit(broker, 0, good)
    assert await read_committed(broker, "a") == [b"1"]


async def test_a_stage_expires_when_nothing_is_heard_of_its_batch(machine: Machine, broker: Broker) -> None:
    quiet, other = await open_stage(broker, 0), await open_stage(broker, 0, sink="other")
    await put(machine, broker, quiet, "a", b"1")
    coordinator = broker.parts.sink_coordinator
    for _ in range(3):
        machine.clock.advance(TIMEOUT_MS / 1000 - 1)
        broker.sinks.renew(SINK, "r-1", 0)
        await coordinator.tick()
        await broker.parts.transaction_coordinator.tick()
    assert [each.sink_id for each in coordinator.stages] == [SINK]
    with pytest.raises(StageExpired):
        broker.sinks.publisher(other.stage_id)
    machine.clock.advance(TIMEOUT_MS / 1000 + 1)
    await coordinator.tick()
    assert coordinator.counts.expired_stages == 2
    with pytest.raises(StageExpired):
        await commit(broker, 0, quiet)
    assert broker.parts.topic_registry.get("a").partition(0).last_stable_offset == 2
    assert await read_committed(broker, "a") == []


async def test_publishing_is_a_sign_of_life_for_all_stages_of_the_batch(
    machine: Machine, broker: Broker
) -> None:
    waiting, working = await open_stage(broker, 0), await open_stage(broker, 0, task=1)
    for number in range(4):
        machine.clock.advance(TIMEOUT_MS / 1000 * 0.7)
        await put(machine, broker, working, "a", b"%d" % number, sequence=number)
        await broker.parts.sink_coordinator.tick()
    assert not await commit(broker, 0, waiting, working)
    assert len(await read_committed(broker, "a")) == 4


async def test_the_expiry_of_a_stage_and_the_commit_of_it_are_one_or_the_other(
    machine: Machine, broker: Broker
) -> None:
    for batch in range(6):
        stage = await open_stage(broker, batch)
        await put(machine, broker, stage, "a", b"%d" % batch)
        machine.clock.advance(TIMEOUT_MS)
        doing = [commit(broker, batch, stage), broker.parts.sink_coordinator.tick()]
        outcome = await asyncio.gather(*(doing if batch % 2 else reversed(doing)), return_exceptions=True)
        expired = any(isinstance(each, StageExpired) for each in outcome)
        assert (b"%d" % batch in await read_committed(broker, "a")) is not expired
        if expired:
            await commit(broker, batch)


async def test_a_commit_and_the_fence_of_its_run_are_one_or_the_other(
    machine: Machine, broker: Broker
) -> None:
    for batch in range(6):
        stage = await open_stage(broker, batch, f"run-{batch}")
        await put(machine, broker, stage, "a", b"%d" % batch)
        fence = broker.sinks.stage(
            SINK, caller(batch, f"run-{batch + 1}"), task=0, attempt=0, timeout_ms=TIMEOUT_MS
        )
        doing = [commit(broker, batch, stage, run=f"run-{batch}"), fence]
        outcome = await asyncio.gather(*(doing if batch % 2 else reversed(doing)), return_exceptions=True)
        is_fenced = any(isinstance(each, SinkFenced) for each in outcome)
        assert (b"%d" % batch in await read_committed(broker, "a")) is not is_fenced
        if is_fenced:
            await commit(broker, batch, run=f"run-{batch + 1}")


async def test_a_stage_that_is_opened_while_its_batch_is_committed_is_never_left_open(
    machine: Machine, broker: Broker
) -> None:
    for batch in range(20):
        first = await open_stage(broker, batch)
        await put(machine, broker, first, "a", b"%d" % batch)
        late, _ = await asyncio.gather(
            broker.sinks.stage(SINK, caller(batch), task=1, attempt=0, timeout_ms=TIMEOUT_MS),
            commit(broker, batch, first),
            return_exceptions=True,
        )
        assert late is None or isinstance(late, StageExpired) or not late.is_open  # type: ignore[union-attr]
        assert broker.sinks.describe(SINK).open_stages == 0
    assert len(await read_committed(broker, "a")) == 20
    assert await machine.meta.scan("sink-stage") == []


async def test_metrics_count_stages_and_commits(machine: Machine, broker: Broker) -> None:
    winner, loser = [await open_stage(broker, 0, task=task) for task in range(2)]
    assert await gathered(broker) == {
        "sparrow_sinks{stream}": 1,
        "sparrow_sink_open_stages{}": 2,
        "sparrow_sink_commits_total{}": 0,
        "sparrow_sink_stages_ended_total{committed}": 0,
        "sparrow_sink_stages_ended_total{aborted}": 0,
        "sparrow_sink_stages_ended_total{expired}": 0,
    }
    await put(machine, broker, loser, "a", b"1")
    await commit(broker, 0, winner)
    await open_stage(broker, 1)
    machine.clock.advance(TIMEOUT_MS / 1000 + 1)
    await broker.parts.sink_coordinator.tick()
    await broker.sinks.commit("once", caller(0, query=""), [])
    assert await gathered(broker) == {
        "sparrow_sinks{stream}": 1,
        "sparrow_sinks{once}": 1,
        "sparrow_sink_open_stages{}": 0,
        "sparrow_sink_commits_total{}": 2,
        "sparrow_sink_stages_ended_total{committed}": 1,
        "sparrow_sink_stages_ended_total{aborted}": 1,
        "sparrow_sink_stages_ended_total{expired}": 1,
    }


async def gathered(broker: Broker) -> dict[str, float]:
    found = await broker.metrics.collect(ANONYMOUS)
    return {
        f"{metric.name}{{{','.join(labels)}}}": value  # type: ignore[misc]
        for metric, values in found.items()
        if metric.name.startswith("sparrow_sink")
        for labels, value in values.items()
    }


async def test_slots_are_used_again_so_that_few_producers_are_known(machine: Machine, broker: Broker) -> None:
    for batch in range(30):
        stages = [await open_stage(broker, batch, task=task) for task in range(3)]
        for stage in stages:
            await put(machine, broker, stage, "a", b"x")
        await commit(broker, batch, *stages)
    assert [each.transactional_id for each in await broker.transactions.list()] == [
        f"sparrow-stage-{slot}" for slot in range(3)
    ]
    assert len(broker.parts.topic_registry.get("a").partition(0).producers()) == 3
    assert len(await read_committed(broker, "a")) == 90


async def test_markers_of_a_partition_are_seen_all_at_once(machine: Machine, broker: Broker) -> None:
    stages = [await open_stage(broker, 0, task=task) for task in range(20)]
    for number, stage in enumerate(stages):
        await put(machine, broker, stage, "a", b"%d" % number)
    partition = broker.parts.topic_registry.get("a").partition(0)
    seen: set[int] = set()

    class Watcher:
        def wake(self) -> None:
            seen.add(partition.last_stable_offset)
            partition.wait(self)

    partition.wait(Watcher())
    await commit(broker, 0, *stages)
    assert seen == {40}


async def test_nothing_of_a_batch_is_committed_on_a_full_disk_and_all_of_it_later(
    machine: Machine, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await open_stage(broker, 0)
    await put(machine, broker, stage, "a", b"1")
    write = machine.meta.write

    async def full(writes: list[Write]) -> None:
        raise DiskFull("the disk is full")

    monkeypatch.setattr(machine.meta, "write", full)
    with pytest.raises(DiskFull):
        await commit(broker, 0, stage)
    with pytest.raises(DiskFull):
        await open_stage(broker, 0, task=1)
    with pytest.raises(DiskFull):
        await broker.sinks.abort(SINK, caller(0))
    machine.clock.advance(2 * TIMEOUT_MS / 1000)
    await broker.parts.sink_coordinator.tick()  # cannot be aborted for now
    broker.sinks.renew(SINK, "r-1", 0)
    monkeypatch.setattr(machine.meta, "write", write)
    await put(machine, broker, stage, "a", b"2", sequence=1)
    assert broker.sinks.describe(SINK).open_stages == 1
    await commit(broker, 0, stage)
    assert await read_committed(broker, "a") == [b"1", b"2"]


async def test_markers_that_cannot_be_written_follow_at_the_next_tick(
    machine: Machine, broker: Broker
) -> None:
    stages = [await open_stage(broker, 0, task=task) for task in range(2)]
    for stage in stages:
        await put(machine, broker, stage, "a", b"x")
    partition = broker.parts.topic_registry.get("a").partition(0)
    append, failing = partition.log.append, True

    def refuse(*given: object, **named: object) -> object:
        if failing:
            raise DiskFull("the disk is full")
        return append(*given, **named)  # type: ignore[arg-type]

    partition.log.append = refuse  # type: ignore[method-assign]
    assert not await commit(broker, 0, *stages)
    assert await read_committed(broker, "a") == []
    stage = await open_stage(broker, 1)
    assert stage.slot == 2, "a slot is not used again before its markers are written"
    failing = False
    await broker.parts.transaction_coordinator.tick()
    assert await read_committed(broker, "a") == [b"x", b"x"]


async def test_a_topic_that_is_deleted_meanwhile_is_left_out(machine: Machine, broker: Broker) -> None:
    stage = await open_stage(broker, 0)
    await put(machine, broker, stage, "a", b"1")
    await put(machine, broker, stage, "b", b"1")
    await broker.topics.delete("a")
    await commit(broker, 0, stage)
    assert await read_committed(broker, "b") == [b"1"]
    await broker.topics.create("a", 1)
    assert await read_committed(broker, "a") == []


async def test_only_batches_of_the_stages_own_producer_are_taken(machine: Machine, broker: Broker) -> None:
    stage, other = await open_stage(broker, 0), await open_stage(broker, 0, task=1)
    publishing = broker.sinks.publisher(stage.stage_id)
    await publishing.join([("a", 0)])
    for producer, wrong in (
        (other.producer, ProducerMismatch),
        (ProducerIdentity(stage.producer_id, stage.epoch + 1), ProducerFenced),
    ):
        with pytest.raises(wrong):
            publishing.publish(("a", 0), machine.batch(producer, 0, b"1"))
    with pytest.raises(NotInTransaction):
        publishing.publish(("b", 0), machine.batch(stage.producer, 0, b"1"))
    with pytest.raises(NotInTransaction):
        broker.records.publish("a", 0, machine.batch(stage.producer, 0, b"1"))


async def test_a_stage_takes_no_batch_that_is_in_no_transaction(machine: Machine, broker: Broker) -> None:
    """Readers would see it at once, and it would stay when the stage is dropped."""
    stage = await open_stage(broker, 0)
    publishing = broker.sinks.publisher(stage.stage_id)
    await publishing.join([("a", 0)])
    in_it = machine.batch(stage.producer, 0, b"staged")
    plain = build_batch([b"plain"])
    of_a_producer = build_batch(
        [b"x"], producer_id=stage.producer_id, producer_epoch=stage.epoch, base_sequence=0
    )
    for data in (plain, of_a_producer, in_it + plain):
        with pytest.raises(NotInTransaction):
            publishing.publish(("a", 0), data)
    assert broker.parts.topic_registry.get("a").partition(0).visible_end == 0
    await publishing.publish(("a", 0), in_it)
    await commit(broker, 0, stage)
    assert await read_committed(broker, "a") == [b"staged"]


async def test_partitions_that_refuse_publishes_are_named_before_they_join(broker: Broker) -> None:
    publishing = broker.sinks.publisher((await open_stage(broker, 0)).stage_id)
    for key, wrong in (
        (("none", 0), UnknownTopic),
        (("a", 7), UnknownPartition),
        (("__consumer_offsets", 0), InvalidTopicName),
    ):
        with pytest.raises(wrong):
            publishing.check(key)


@pytest.mark.parametrize("stage_id", ["", "0", "0-0", "0-0-9", "x-0-0", "-1-0-0", "9" * 5000, "٣-0-0"])
async def test_unknown_stage_is_refused(broker: Broker, stage_id: str) -> None:
    await open_stage(broker, 0)
    with pytest.raises(StageExpired):
        broker.sinks.publisher(stage_id)
    with pytest.raises(StageExpired):
        await broker.sinks.commit(SINK, caller(0), [stage_id])


async def test_a_stage_of_another_sink_or_batch_cannot_be_committed(broker: Broker) -> None:
    stage = await open_stage(broker, 0)
    with pytest.raises(StageExpired, match="batch 1"):
        await commit(broker, 1, stage)
    with pytest.raises(StageExpired, match="other"):
        await commit(broker, 0, stage, sink="other")
    assert [each.sink for each in broker.sinks.list()] == [SINK]
    assert not await commit(broker, 0, stage, stage)


async def test_bad_arguments_are_refused(broker: Broker) -> None:
    for sink, who, timeout_ms, wrong in (
        ("x" * 250, caller(0), 1, InvalidArgument),
        (SINK, caller(-1), 1, InvalidArgument),
        (SINK, caller(0, ""), 1, InvalidArgument),
        (SINK, caller(0), -1, InvalidTransactionTimeout),
        (SINK, caller(0), 900_001, InvalidTransactionTimeout),
    ):
        with pytest.raises(wrong):
            await broker.sinks.stage(sink, who, task=0, attempt=0, timeout_ms=timeout_ms)
    with pytest.raises(InvalidArgument, match="task"):
        await broker.sinks.stage(SINK, caller(0), task=-1, attempt=0, timeout_ms=1)
    assert broker.sinks.list() == []


async def test_a_stage_is_kept_as_long_as_it_asks_for_or_fifteen_minutes(broker: Broker) -> None:
    for timeout_ms, kept_ms in ((0, 900_000), (1234, 1234)):
        stage = await broker.sinks.stage(SINK, caller(0), task=0, attempt=0, timeout_ms=timeout_ms)
        assert stage is not None
        assert broker.parts.sink_coordinator.left_ms(stage) == kept_ms
    broker.parts.sink_coordinator._transactions.limits = TransactionLimits(max_timeout_ms=5000)
    stage = await broker.sinks.stage(SINK, caller(0), task=0, attempt=0, timeout_ms=0)
    assert stage is not None
    assert stage.timeout_ms == 5000


async def test_stages_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_table, "MAX_STAGES_OF_SINK", 3)
    monkeypatch.setattr(stage_table, "MAX_STAGES", 5)
    for task in range(3):
        await open_stage(broker, 0, task=task)
    with pytest.raises(Overloaded, match="copy"):
        await open_stage(broker, 0, task=3)
    for task in range(2):
        await open_stage(broker, 0, sink="other", task=task)
    with pytest.raises(Overloaded, match="all sinks"):
        await open_stage(broker, 0, sink="third")
    await commit(broker, 0)
    await open_stage(broker, 0, sink="third")


async def test_sinks_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrow.broker.sinks.table.MAX_SINKS", 2)
    await commit(broker, 0, sink="one")
    await open_stage(broker, 0, sink="two")
    for doing in (commit(broker, 0, sink="three"), open_stage(broker, 0, sink="three")):
        with pytest.raises(Overloaded, match="sparrow sink delete"):
            await doing
    await broker.sinks.delete("one")
    await commit(broker, 0, sink="three")


async def test_the_oldest_single_writes_make_room_for_new_ones_and_streams_never(
    machine: Machine, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrow.broker.sinks.table.MAX_SINKS", 4)
    monkeypatch.setattr("sparrow.broker.sinks.table._FORGOTTEN_AT_ONCE", 1)

    async def write_once(sink: str) -> None:
        caller_of_one = Caller("", sink, 0)
        stage = await broker.sinks.stage(sink, caller_of_one, task=0, attempt=0, timeout_ms=0)
        assert stage is not None
        await broker.sinks.commit(sink, caller_of_one, [stage.stage_id])

    await commit(broker, 0)
    await broker.sinks.stage("open", Caller("", "open", 0), task=0, attempt=0, timeout_ms=0)
    for name in ("1", "2"):
        await write_once(name)
        machine.clock.advance(1)
    with pytest.raises(Overloaded):  # their drivers may still repeat requests
        await write_once("3")
    machine.clock.advance(KEPT_AT_LEAST_MS / 1000 - 1)
    await write_once("3")
    assert [each.sink for each in broker.sinks.list()] == ["2", "3", SINK, "open"]
    await machine.stop(broker)
    again = await machine.start()
    assert [each.sink for each in again.sinks.list()] == ["2", "3", SINK, "open"]
    await again.close()


async def test_slot_is_not_given_to_others_before_its_commit_ends(machine: Machine, broker: Broker) -> None:
    """A task opens its stage while the commit of its batch waits for the disk."""
    winner = await open_stage(broker, 0)
    publishing = broker.sinks.publisher(winner.stage_id)
    await publishing.join([("a", 0)])
    unconfirmed = publishing.publish(("a", 0), machine.batch(winner.producer, 0, b"1"))
    late = asyncio.ensure_future(open_stage(broker, 0, task=1))
    await asyncio.sleep(0)
    coordinator = broker.parts.sink_coordinator
    while not any(each.task == 1 for each in coordinator.stages):
        await asyncio.sleep(0)
    (stage,) = [each for each in coordinator.stages if each.task == 1]
    stage.is_open = False  # as a waiting commit does
    with pytest.raises(StageExpired):
        await late

    other = await open_stage(broker, 0, sink="other")
    assert other.slot != stage.slot
    stage.is_open = True
    await unconfirmed
    await commit(broker, 0, winner)
    assert (await open_stage(broker, 1, sink="third")).slot in {winner.slot, stage.slot}


async def test_a_stage_whose_client_was_lost_is_not_kept_for_long_unless_it_comes_back(
    machine: Machine, broker: Broker
) -> None:
    wanted = caller(0)
    stages = [await broker.sinks.stage(SINK, wanted, task=task, attempt=0, timeout_ms=0) for task in range(4)]
    complete, killed, back, reopened = [each for each in stages if each is not None]
    for each in (complete, killed, back, reopened):
        await put(machine, broker, each, "a", b"%d" % each.task)
    broker.sinks.publisher(back.stage_id).end(is_complete=False)
    for each in (complete, killed, back, reopened):
        publishing = broker.sinks.publisher(each.stage_id)
        publishing.end(is_complete=each is complete)
        publishing.end(is_complete=False)
    broker.sinks.publisher(back.stage_id)
    broker.sinks.publisher(reopened.stage_id).end(is_complete=True)
    assert broker.sinks.describe(SINK).stages[1].left_ms == ABANDONED_MS
    machine.clock.advance(ABANDONED_MS / 1000 + 1)
    await broker.parts.sink_coordinator.tick()
    assert [each.task for each in broker.sinks.describe(SINK).stages] == [0, 2, 3]
    await commit(broker, 0, complete, back, reopened)
    assert await read_committed(broker, "a") == [b"0", b"2", b"3"]


async def test_a_deleted_sink_is_forgotten_with_its_stages(machine: Machine, broker: Broker) -> None:
    stage = await open_stage(broker, 3)
    await put(machine, broker, stage, "a", b"1")
    assert await broker.sinks.delete(SINK) == 1
    for doing in (broker.sinks.delete(SINK), commit(broker, 3, stage)):
        with pytest.raises((UnknownSink, StageExpired)):
            await doing
    with pytest.raises(UnknownSink):
        broker.sinks.describe(SINK)
    assert broker.parts.topic_registry.get("a").partition(0).last_stable_offset == 2
    assert [await machine.meta.scan(kind) for kind in ("sink", "sink-stage")] == [[], []]


async def test_a_single_write_is_forgotten_a_day_after_its_commit(machine: Machine, broker: Broker) -> None:
    await broker.sinks.commit("once", caller(0, query=""), [])
    await commit(broker, 0)
    machine.clock.advance(KEPT_MS / 1000 - 1)
    await broker.parts.sink_coordinator.tick()
    assert [each.sink for each in broker.sinks.list()] == [SINK, "once"]
    machine.clock.advance(61)
    await broker.parts.sink_coordinator.tick()
    assert [each.sink for each in broker.sinks.list()] == [SINK]
    assert [each.key for each in await machine.meta.scan("sink")] == [SINK]


async def test_transactional_ids_of_stages_are_nobody_elses(broker: Broker) -> None:
    stage = await open_stage(broker, 0)
    service, reserved = broker.transactions, stage.transactional_id
    for doing in (
        service.initialize(reserved, 1000),
        service.add_partitions(reserved, stage.producer, [("a", 0)]),
        service.add_group(reserved, stage.producer, "g"),
        service.end(reserved, stage.producer, commit=True),
    ):
        with pytest.raises(NotAuthorized, match="reserved"):
            await doing
    with pytest.raises(NotAuthorized, match="reserved"):
        service.admission(reserved)
    assert service.describe(reserved).state is TransactionState.EMPTY


async def test_rights_are_those_of_the_transactional_id_and_of_the_topic(machine: Machine) -> None:
    broker = await machine.start()
    for topic in ("a", "b"):
        await broker.topics.create(topic, 1)
    spark, other = Principal("spark"), Principal("other")
    await broker.acls.create(
        [
            may_write(ResourceType.TRANSACTIONAL_ID, SINK, "User:spark"),
            may_write(ResourceType.TOPIC, "a", "User:spark"),
            may_write(ResourceType.TRANSACTIONAL_ID, "its own", "User:other"),
            may_write(ResourceType.TOPIC, "b", "User:other"),
        ]
    )
    stage = await broker.sinks.stage(
        SINK, caller(0), task=0, attempt=0, timeout_ms=TIMEOUT_MS, principal=spark
    )
    assert stage is not None
    publishing = broker.sinks.publisher(stage.stage_id, principal=spark)
    publishing.check(("a", 0))
    with pytest.raises(NotAuthorized, match="'b'"):
        publishing.check(("b", 0))
    with pytest.raises(NotAuthorized):
        broker.sinks.publisher(stage.stage_id, principal=other)
    for doing in (
        broker.sinks.stage(SINK, caller(0), task=0, attempt=0, timeout_ms=1, principal=other),
        broker.sinks.commit(SINK, caller(0), [stage.stage_id], principal=other),
        broker.sinks.abort(SINK, caller(0), principal=other),
        broker.sinks.delete(SINK, principal=other),
    ):
        with pytest.raises(NotAuthorized):
            await doing
    with pytest.raises(NotAuthorized):
        broker.sinks.renew(SINK, "r-1", 0, principal=other)
    with pytest.raises(NotAuthorized):
        broker.sinks.describe(SINK, principal=other)
    with pytest.raises(StageExpired):
        await broker.sinks.commit("its own", caller(0), [stage.stage_id], principal=other)
    assert broker.sinks.list(principal=other) == []
    assert [each.sink for each in broker.sinks.list(principal=spark)] == [SINK]
    assert broker.sinks.describe(SINK, principal=spark).stages[0].partitions == []
    await broker.close()


async def test_readers_of_everything_see_records_before_their_commit(
    machine: Machine, broker: Broker
) -> None:
    stage = await open_stage(broker, 0)
    await put(machine, broker, stage, "a", b"1")
    (fetched,) = await broker.records.fetch([FetchRequest("a", 0, 0)])
    assert fetched.chunk is not None
    assert fetched.chunk.records == 1


async def test_a_wrong_record_does_not_get_into_a_stage(machine: Machine, broker: Broker) -> None:
    stage = await open_stage(broker, 0)
    publishing = broker.sinks.publisher(stage.stage_id)
    await publishing.join([("a", 0)])
    wrong = bytearray(machine.batch(stage.producer, 0, b"1"))
    wrong[61] ^= 2  # the length of the record
    with pytest.raises(InvalidRecord):
        publishing.publish(("a", 0), with_crc(wrong))
    await put(machine, broker, stage, "a", b"right")
    assert not await commit(broker, 0, stage)
    assert await read_committed(broker, "a") == [b"right"]


async def test_a_commit_waits_for_a_large_batch_that_is_being_checked(
    machine: Machine, broker: Broker
) -> None:
    stage, loser = [await open_stage(broker, 0, task=task) for task in range(2)]
    promises = []
    for each in (stage, loser):
        publishing = broker.sinks.publisher(each.stage_id)
        await publishing.join([("a", 0)])
        large = build_batch(
            [bytes(3 << 20)],
            timestamps=machine.clock.wall_ms(),
            compression=Compression.ZSTD,
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            base_sequence=0,
            transactional=True,
        )
        promises.append(publishing.publish(("a", 0), large))
    assert not any(promise.done() for promise in promises)
    assert not await commit(broker, 0, stage)
    assert promises[0].done()
    assert await read_committed(broker, "a") == [bytes(3 << 20)]
    with contextlib.suppress(
        NotInTransaction, ProducerFenced
    ):  # or it was appended in time, and aborted with its stage
        await promises[1]
    assert await read_committed(broker, "a") == [bytes(3 << 20)]


async def test_commit_waits_for_pending_writes_and_fails_with_them(machine: Machine) -> None:
    broker = await machine.start()
    await broker.topics.create("a", 1)
    stage = await open_stage(broker, 0)
    publishing = broker.sinks.publisher(stage.stage_id)
    await publishing.join([("a", 0)])
    machine.fs.sync_errors = 1.0
    future = publishing.publish(("a", 0), machine.batch(stage.producer, 0, b"1"))
    for _ in range(2):
        with pytest.raises(StorageFailed):
            await commit(broker, 0, stage)
    with pytest.raises(StorageFailed):
        await future
    assert await read_committed(broker, "a") == []
    assert broker.sinks.describe(SINK).last_batch == -1
    await machine.stop(broker)
