"""A broker that stops at every step of its sinks' batches: readers of committed records see each
committed batch, once and whole.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest

from sparrow.base.errors import DirectoryUnreadable, NewerFormat, SparrowError
from sparrow.broker.broker import Broker
from sparrow.meta.store import Put
from tests.sinks.staging import SINK, TIMEOUT_MS, caller, commit, open_stage, put
from tests.transactions.machine import Machine, read_committed

TOPICS = ("a", "b")
TASKS = 2


class Query:
    """A query that writes batch n as n from each task to each topic. Each start of it is a new
    run.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.committed: list[int] = []
        """Batches that the query knows of."""
        self.asked = -1
        """The last batch whose commit was requested."""
        self.runs = 0

    async def go_on(self, broker: Broker, count: int) -> None:
        """Continue as Spark does after a start: write the batch again whose commit is uncertain."""
        self.runs += 1
        run = f"r-{self.runs}"
        for _ in range(count):
            await self.batch(broker, run, len(self.committed))

    async def batch(self, broker: Broker, run: str, number: int) -> None:
        stages = []
        for task in range(TASKS):
            stage = await broker.sinks.stage(
                SINK, caller(number, run), task=task, attempt=0, timeout_ms=TIMEOUT_MS
            )
            if stage is None:
                assert number <= self.asked
                continue
            for topic in TOPICS:
                await put(self.machine, broker, stage, topic, b"%d" % number)
            stages.append(stage)
        loser = None
        if stages:
            loser = await open_stage(broker, number, run, task=TASKS)
            await put(self.machine, broker, loser, "a", b"-1")
        self.asked = number
        was_committed = await commit(broker, number, *stages, run=run)
        assert not (was_committed and stages)
        self.committed.append(number)

    async def check(self, broker: Broker) -> None:
        """Check the records; call it when nothing is open any more."""
        for topic in TOPICS:
            seen = sorted(map(int, await read_committed(broker, topic)))
            assert seen == sorted(self.committed * TASKS)
            partition = broker.parts.topic_registry.get(topic).partition(0)
            assert partition.last_stable_offset == partition.visible_end


async def stopped_after(steps: int, *, power_fails: bool) -> bool:
    """Run with this many steps allowed, stop, start, continue. Return True if the run ended before
    the stop.
    """
    machine = Machine(steps)
    broker = await machine.start()
    for topic in TOPICS:
        await broker.topics.create(topic, 1)
    query = Query(machine)
    await query.go_on(broker, 1)
    machine.fs.calls_left = steps
    is_done = False
    with suppress(SparrowError):
        await query.go_on(broker, 2)
        await broker.parts.sink_coordinator.tick()
        await broker.parts.transaction_coordinator.tick()
        is_done = machine.fs.calls_left > 0
    for _ in range(2):
        await machine.stop(broker, power_fails=power_fails)
        broker = await machine.start()
        await query.go_on(broker, 1)
        await query.check(broker)
    await broker.close()
    return is_done


@pytest.mark.slow
@pytest.mark.parametrize("power_fails", [False, True])
async def test_every_batch_is_there_once_and_whole_after_a_stop_at_any_step(*, power_fails: bool) -> None:
    steps = 0
    while not await stopped_after(steps, power_fails=power_fails):
        steps += 1
    assert steps > 20


async def test_stages_survive_a_restart_and_the_commit_that_is_asked_again_works() -> None:
    machine = Machine()
    broker = await machine.start()
    await broker.topics.create("a", 1)
    stage = await open_stage(broker, 0)
    await put(machine, broker, stage, "a", b"1")
    empty = await open_stage(broker, 0, task=1)
    await machine.stop(broker, power_fails=True)
    machine.clock.advance(TIMEOUT_MS / 1000)
    broker = await machine.start()
    await broker.parts.sink_coordinator.tick()
    assert await read_committed(broker, "a") == []
    await put(machine, broker, stage, "a", b"2", sequence=1)
    assert not await commit(broker, 0, stage, empty)
    await machine.stop(broker, power_fails=True)
    broker = await machine.start()
    assert await commit(broker, 0, stage, empty)
    assert await read_committed(broker, "a") == [b"1", b"2"]
    assert list(broker.parts.sink_coordinator.stages) == []
    await broker.close()


async def test_records_staged_before_a_restart_are_durable_when_committed() -> None:
    machine = Machine()
    broker = await machine.start()
    await broker.topics.create("a", 1)
    stage = await open_stage(broker, 0)
    publishing = broker.sinks.publisher(stage.stage_id)
    await publishing.join([("a", 0)])
    future = publishing.publish(("a", 0), machine.batch(stage.producer, 0, b"1"))
    await machine.stop(broker)  # unconfirmed bytes are in the page cache
    future.cancel()
    broker = await machine.start()
    assert not await commit(broker, 0, stage)
    await machine.stop(broker, power_fails=True)
    broker = await machine.start()
    assert await read_committed(broker, "a") == [b"1"]
    await broker.close()


async def test_sinks_and_fences_survive_a_restart() -> None:
    machine = Machine()
    broker = await machine.start()
    for number in range(3):
        await commit(broker, number, run=f"r-{number}")
    before = broker.sinks.describe(SINK)
    await machine.stop(broker)
    broker = await machine.start()
    assert broker.sinks.describe(SINK) == before
    with pytest.raises(SparrowError, match="r-2"):
        await commit(broker, 3, run="r-1")
    await broker.close()


async def test_many_sinks_commit_side_by_side() -> None:
    machine = Machine()
    broker = await machine.start()
    await broker.topics.create("a", 1)

    async def query(sink: str) -> None:
        for number in range(5):
            stages = await asyncio.gather(
                *(open_stage(broker, number, sink=sink, task=task) for task in range(3))
            )
            for stage in stages:
                await put(machine, broker, stage, "a", f"{sink}-{number}".encode())
            await commit(broker, number, *stages, sink=sink)

    await asyncio.gather(*(query(f"s{number}") for number in range(8)))
    assert sorted(await read_committed(broker, "a")) == sorted(
        f"s{sink}-{number}".encode() for sink in range(8) for number in range(5) for _ in range(3)
    )
    await broker.close()


@pytest.mark.parametrize(
    ("kind", "key", "value", "wrong"),
    [
        ("sink", "s", b"\xc1", DirectoryUnreadable),
        ("sink", "s", b"\x97\x63\xa0\xa0\x00\x00\x00\x90", NewerFormat),
        ("sink-stage", "x", b"\x9a\x01\xa0\xa0\x00\x00\x00\x01\x00\x00\x00", DirectoryUnreadable),
        ("sink-stage", "0", b"\x9a\x63\xa0\xa0\x00\x00\x00\x01\x00\x00\x00", NewerFormat),
    ],
)
async def test_entries_that_cannot_be_read_are_named(
    kind: str, key: str, value: bytes, wrong: type[SparrowError]
) -> None:
    machine = Machine()
    await machine.meta.write([Put(kind, key, value)])
    with pytest.raises(wrong, match=f"{kind}"):
        await machine.start()


async def test_entries_are_stored_as_before() -> None:
    """The bytes are those of format version 1."""
    machine = Machine()
    broker = await machine.start()
    await commit(broker, 0)
    await open_stage(broker, 1, "r-2")
    (sink,) = await machine.meta.scan("sink")
    (stage,) = await machine.meta.scan("sink-stage")
    assert sink.key == SINK
    assert sink.value.hex() == "9701a3712d31a3722d320100cf0000018bcfe5680091a3722d31"
    assert stage.key == "0"
    producer_id = msgspec.msgpack.decode(stage.value)[7]
    assert producer_id > 1 << 32  # eight bytes of the value
    assert stage.value.hex() == (
        f"9a01a4636f7079a3722d32010000cdea60cf{producer_id:016x}00cf0000018bcfe56800"
    )
    await broker.close()
