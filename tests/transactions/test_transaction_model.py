"""Random transactions of several producers, with restarts, against a list: the records that readers
of committed records see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparrow.base.errors import SparrowError
from sparrow.broker.groups.offsets import NO_MEMBER, OffsetAndMetadata
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.broker.reading.reader import ReadDelivery, Reader
from tests.broker.batches import values
from tests.repetitions import repetitions
from tests.transactions.machine import Machine, read_committed

T = TypeVar("T")

TOPICS = ("a", "b")
IDS = ("one", "two", "three")
TIMEOUT_MS = 60_000


@dataclass
class Entry:
    """A record in the model's log: its value, and the transaction it is in ("" committed or in
    none, None aborted).
    """

    value: bytes
    transaction: str | None


class Transactions(RuleBasedStateMachine):
    """The broker beside lists."""

    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.machine = Machine()
        self.broker = self.run(self.machine.start())
        self.logs: dict[str, list[Entry]] = {}
        for topic in TOPICS:
            self.run(self.broker.topics.create(topic, 1))
            self.logs[topic] = []
        self.producers: dict[str, ProducerIdentity] = {}
        self.sequences: dict[tuple[str, str], int] = {}
        self.open: dict[str, int] = {}
        """Ids with an open transaction, and the time of its beginning."""
        self.offset: int | None = None
        self.pending: dict[str, int] = {}
        self.written = 0

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.broker.close())
            self.loop.close()

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def decided(self, transactional_id: str, *, commit: bool) -> None:
        for log in self.logs.values():
            for entry in log:
                if entry.transaction == transactional_id:
                    entry.transaction = "" if commit else None
        self.open.pop(transactional_id, None)
        offset = self.pending.pop(transactional_id, None)
        if commit and offset is not None:
            self.offset = offset

    @rule(transactional_id=st.sampled_from(IDS))
    def initialize_producer(self, transactional_id: str) -> None:
        self.producers[transactional_id] = self.run(
            self.broker.transactions.initialize(transactional_id, TIMEOUT_MS)
        )
        self.decided(transactional_id, commit=False)
        for topic in TOPICS:
            self.sequences[transactional_id, topic] = 0

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), topic=st.sampled_from(TOPICS), count=st.integers(1, 3))
    def send(self, data: st.DataObject, topic: str, count: int) -> None:
        transactional_id = data.draw(st.sampled_from(sorted(self.producers)))
        producer, service = self.producers[transactional_id], self.broker.transactions
        sequence = self.sequences[transactional_id, topic]
        records = [b"%d" % (self.written + each) for each in range(count)]
        self.written += count
        assert self.run(service.add_partitions(transactional_id, producer, [(topic, 0)])) == {}

        async def publish() -> None:
            batch = self.machine.batch(producer, sequence, *records)
            await self.broker.records.publish(topic, 0, batch, admit=service.admission(transactional_id))

        self.run(publish())
        self.sequences[transactional_id, topic] += count
        self.open.setdefault(transactional_id, self.machine.clock.wall_ms())
        self.logs[topic] += [Entry(each, transactional_id) for each in records]

    @rule(topic=st.sampled_from(TOPICS))
    def send_in_no_transaction(self, topic: str) -> None:
        value = b"%d" % self.written
        self.written += 1

        async def publish() -> None:
            batch = self.machine.batch(ProducerIdentity(-1, -1), -1, value, transactional=False)
            await self.broker.records.publish(topic, 0, batch)

        self.run(publish())
        self.logs[topic].append(Entry(value, ""))

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), offset=st.integers(0, 99))
    def commit_offset(self, data: st.DataObject, offset: int) -> None:
        transactional_id = data.draw(st.sampled_from(sorted(self.producers)))
        producer, service = self.producers[transactional_id], self.broker.transactions
        offsets = {("a", 0): OffsetAndMetadata(offset)}
        self.run(
            service.commit_offsets(
                transactional_id, producer, "g", offsets, committer=NO_MEMBER, adds_group=True
            )
        )
        self.open.setdefault(transactional_id, self.machine.clock.wall_ms())
        self.pending[transactional_id] = offset

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans(), bumps_epoch=st.booleans())
    def end(self, data: st.DataObject, *, commit: bool, bumps_epoch: bool) -> None:
        transactional_id = data.draw(st.sampled_from(sorted(self.open)))
        producer = self.producers[transactional_id]
        self.producers[transactional_id] = self.run(
            self.broker.transactions.end(transactional_id, producer, commit=commit, bumps_epoch=bumps_epoch)
        )
        if bumps_epoch:
            for topic in TOPICS:
                self.sequences[transactional_id, topic] = 0
        self.decided(transactional_id, commit=commit)

    @rule(seconds=st.sampled_from([1, 20, 40]))
    def time_passes(self, seconds: int) -> None:
        self.machine.clock.advance(seconds)
        self.run(self.broker.parts.transaction_coordinator.tick())
        now_ms = self.machine.clock.wall_ms()
        for transactional_id, began_ms in list(self.open.items()):
            if began_ms + TIMEOUT_MS < now_ms:
                self.decided(transactional_id, commit=False)
                del self.producers[transactional_id]  # fenced

    @rule(clean=st.booleans(), power_fails=st.booleans())
    def restart(self, *, clean: bool, power_fails: bool) -> None:
        if clean:
            self.run(self.broker.close())
        else:
            self.run(self.machine.stop(self.broker, power_fails=power_fails))
        self.broker = self.run(self.machine.start())

    @rule(topic=st.sampled_from(TOPICS))
    def checkpoint(self, topic: str) -> None:
        self.run(self.broker.parts.topic_registry.get(topic).partition(0).checkpoint())

    @rule(topic=st.sampled_from(TOPICS))
    def delete_records_before_the_last_stable_offset(self, topic: str) -> None:
        partition = self.broker.parts.topic_registry.get(topic).partition(0)
        everything, visible = self.logs[topic], self.visible(topic)
        with suppress(SparrowError):
            self.run(self.broker.topics.delete_records(topic, {0: partition.last_stable_offset}))
            first_open = next((n for n, each in enumerate(everything) if each.transaction), len(everything))
            assert len(visible) <= first_open
            self.logs[topic] = everything[first_open:]

    def visible(self, topic: str) -> list[bytes]:
        found = []
        for entry in self.logs[topic]:
            if entry.transaction:
                break
            if entry.transaction is not None:
                found.append(entry.value)
        return found

    async def delivered(self, topic: str) -> list[bytes | None]:
        """Return what the native frontend's reader delivers."""
        reader = Reader(committed=True)
        partition = self.broker.parts.topic_registry.get(topic).partition(0)
        reader.add(partition, partition.start_offset)
        found: list[bytes | None] = []
        while deliveries := await reader.read(300, max_records=2, max_wait_ms=0):
            for each in deliveries:
                assert isinstance(each, ReadDelivery), each
                assert each.next_offset <= partition.last_stable_offset
                found += values(each.data, each.offset)
        reader.close()
        return found

    @invariant()
    def readers_of_committed_records_see_exactly_those(self) -> None:
        if not hasattr(self, "loop"):
            return
        for topic in TOPICS:
            assert self.run(read_committed(self.broker, topic)) == self.visible(topic)
            assert self.run(self.delivered(topic)) == self.visible(topic)
        assert self.broker.parts.group_registry.committed_offset("g", ("a", 0)) == self.offset
        assert bool(self.broker.parts.group_registry.pending("g")) == bool(self.pending)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=repetitions(25), stateful_step_count=25, deadline=None)
