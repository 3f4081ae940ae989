"""The promises of a partition to producers over any `LogStore`: a model of clients that retry.

It belongs to the conformance of log stores because a store may complete or refuse appends late: a
partition's state of its producers must be right at every moment, also in a checkpoint.

    TestPartition = partition_conformance(open_store)

`open_store(fs)` opens the store on a file system, which outlives the simulated process.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull, OutOfOrderSequence, Overloaded
from sparrow.broker.configs.topic import TopicConfig
from sparrow.broker.measures import Measures
from sparrow.broker.partition import Partition
from sparrow.broker.producers import TransactionEnd
from sparrow.broker.publishes import ACKS_ALL, ACKS_LEADER, Published
from sparrow.broker.record_checks import RecordChecks
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.control import maybe_parse_marker
from sparrow.records.record import decode
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.late import LateLogStore
from sparrow.storage.store import LogId
from tests.repetitions import repetitions

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from sparrow.storage.store import LogStore

PLACE = LogId("orders", uuid.UUID(int=7), 0)
TRANSACTIONAL = 13
PRODUCERS = (11, 12, TRANSACTIONAL)
IN_FLIGHT = 5
LATELY = 5
"""Acknowledged batches that a client may send once more."""


def _failure_of(promise: asyncio.Future[Published]) -> BaseException | None:
    return None if promise.cancelled() else promise.exception()


def _anybody(producer_id: int, remembered: Container[int]) -> None:
    """Accept any owner of a producer id."""


@dataclass
class Message:
    """One batch of a client: sent, perhaps repeatedly, until its response arrives."""

    sequence: int
    values: list[bytes]
    transaction: int
    promise: asyncio.Future[Published] | None = None
    """None: not sent yet."""
    base_offset: int = -1
    """The acknowledged offset; -1 before."""


@dataclass
class ClientModel:
    """An idempotent client by its protocol: sequences in order, a few in flight."""

    producer_id: int
    next_sequence: int = 0
    unheard: list[Message] = field(default_factory=list)
    acknowledged: list[Message] = field(default_factory=list)
    transaction: int = 0
    ended: dict[int, bool] = field(default_factory=dict)
    """Transactions that ended: True if committed."""

    @property
    def is_transactional(self) -> bool:
        return self.producer_id == TRANSACTIONAL

    def new_message(self, count: int) -> Message:
        first = self.next_sequence
        self.next_sequence += count
        values = [f"{self.producer_id}.{first + number}".encode() for number in range(count)]
        message = Message(first, values, self.transaction)
        self.unheard.append(message)
        return message

    def batch(self, message: Message, now_ms: int) -> bytes:
        return build_batch(
            message.values,
            timestamps=now_ms,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=message.sequence,
            transactional=self.is_transactional,
        )


@dataclass
class InLog:
    """The content of the log, read by the plain model: a loop over all batches."""

    sequences: Mapping[int, list[tuple[int, int]]]
    """(first sequence, records) by producer, in the order of the log."""
    values: Mapping[int, bytes]
    open: Mapping[int, int]
    aborted: list[tuple[int, int, int]]
    end: int

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.end)


def read_log(batches: Iterator[memoryview], end: int) -> InLog:
    sequences: dict[int, list[tuple[int, int]]] = defaultdict(list)
    values: dict[int, bytes] = {}
    open_: dict[int, int] = {}
    aborted = []
    for view in batches:
        (header, _), *_ = split(view)
        if header.is_control:
            marker = maybe_parse_marker(bytes(view))
            assert marker is not None
            first = open_.pop(marker.producer_id, None)
            if first is not None and marker.type.name == "ABORT":
                aborted.append((marker.producer_id, first, marker.offset))
            continue
        sequences[header.producer_id].append((header.base_sequence, header.record_count))
        values.update({record.offset: record.value for record in decode(view)})
        if header.is_transactional:
            open_.setdefault(header.producer_id, header.base_offset)
    return InLog(sequences, values, open_, aborted, end)


class PartitionMachine(RuleBasedStateMachine):
    """Clients, a partition and a store whose appends complete when the machine says so."""

    open_inner: Callable[[FaultyFileSystem], LogStore]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.fs = FaultyFileSystem(seed=5)
        self.clients = {each: ClientModel(each) for each in PRODUCERS}
        self.seed = 0
        self.failing = 0.0
        self.run(self.start())

    # ── the partition ──

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    async def start(self) -> None:
        self.seed += 1
        self.store = LateLogStore(type(self).open_inner(self.fs), seed=self.seed, failing=self.failing)
        self.store.hold()
        self.partition = Partition(
            PLACE,
            TopicConfig({}, {}),
            self.store,
            self.clock,
            self.loop,
            measures=Measures(),
            checks=RecordChecks(),
        )
        self.partition.attach(*self.partition.load())

    def publish(self, client: ClientModel, message: Message, acks: int) -> asyncio.Future[Published] | None:
        """Return the promise; None if the partition reports that an earlier batch is missing."""
        try:
            data = client.batch(message, self.clock.wall_ms())
            promise = self.partition.publish(data, acks, lambda _, __: None, owns=_anybody)
            # A client may end before it hears of a failure; nobody need be warned of that.
            promise.add_done_callback(_failure_of)
            return promise
        except OutOfOrderSequence:
            return None
        except (DiskFull, Overloaded):
            return None

    def hear(self, client: ClientModel) -> None:
        """Receive the responses; failed batches will be sent again."""
        for message in list(client.unheard):
            promise = message.promise
            if promise is None or not promise.done():
                continue
            message.promise = None
            if promise.exception() is None:
                message.base_offset = promise.result().base_offset
                client.unheard.remove(message)
                client.acknowledged.append(message)

    async def resend(self, client: ClientModel) -> None:
        """Send waiting batches, in order, until one is refused."""
        for message in client.unheard:
            if message.promise is None:
                message.promise = self.publish(client, message, ACKS_LEADER)
                if message.promise is None:
                    return

    # ── what happens ──

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        count=st.integers(1, 3),
        answers=st.integers(0, 3),
        acks=st.sampled_from([ACKS_ALL, ACKS_LEADER]),
    )
    def send(self, producer_id: int, count: int, answers: int, acks: int) -> None:
        """Send a new batch behind others that are in flight; the store may complete some of them in
        this very step.
        """
        client = self.clients[producer_id]

        async def go() -> None:
            if any(message.promise is None for message in client.unheard):
                await self.resend(client)
            if len(client.unheard) < IN_FLIGHT:
                message = client.new_message(count)
                self.store.release(answers)
                message.promise = self.publish(client, message, acks)

        self.run(go())

    @rule(producer_id=st.sampled_from(PRODUCERS), which=st.integers(0, 20), answers=st.integers(0, 2))
    def send_again(self, producer_id: int, which: int, answers: int) -> None:
        """Retry a batch whose first try has completed or is pending: the response is the same."""
        client = self.clients[producer_id]
        candidates = client.acknowledged[-LATELY:] + [m for m in client.unheard if m.promise is not None]
        if not candidates:
            return
        message = candidates[which % len(candidates)]

        async def go() -> None:
            self.store.release(answers)
            again = self.publish(client, message, ACKS_LEADER)
            if message.base_offset >= 0:
                assert again is not None, "an acknowledged batch is known"
                if again.done():
                    assert again.result().base_offset == message.base_offset
            elif again is not None:
                message.promise = again  # both responses are valid for the message

        self.run(go())

    @rule(count=st.integers(1, 6))
    def answer(self, count: int) -> None:
        async def go() -> None:
            self.store.release(count)

        self.run(go())

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def listen(self, producer_id: int) -> None:
        self.hear(self.clients[producer_id])

    @rule(failing=st.sampled_from([0.0, 0.0, 0.3]))
    def weather(self, failing: float) -> None:
        self.failing = self.store.failing = failing

    @rule(answers=st.integers(0, 3))
    def checkpoint(self, answers: int) -> None:
        async def go() -> None:
            self.store.release(answers)
            await self.partition.checkpoint()

        self.run(go())

    async def settle(self, client: ClientModel) -> None:
        """Run until every batch of the client is acknowledged."""
        failing, self.store.failing = self.store.failing, 0.0
        self.store.release()
        for _ in range(4 * IN_FLIGHT):
            self.hear(client)
            if not client.unheard:
                break
            await self.resend(client)
            for _ in range(30):
                await asyncio.sleep(0)
        assert not client.unheard, "a client that retries gets everything acknowledged"
        self.store.failing = failing
        self.store.hold()

    @rule(commit=st.booleans(), wait_for_batches=st.booleans())
    def end_transaction(self, *, commit: bool, wait_for_batches: bool) -> None:
        """End a transaction; an abort may come while batches are pending."""
        client = self.clients[TRANSACTIONAL]

        async def go() -> None:
            if wait_for_batches or commit:
                await self.settle(client)
            self.store.release()
            for _ in range(50):
                with suppress(DiskFull, Overloaded):
                    await self.partition.end_transactions([TransactionEnd(TRANSACTIONAL, 0, commit)])
                    break
            else:
                raise AssertionError("no marker was kept")
            self.store.hold()
            client.transaction += 1

        self.run(go())

    @rule(is_kill=st.booleans())
    def restart(self, *, is_kill: bool) -> None:
        """End the process; clients send unacknowledged batches on new connections, in order."""

        async def go() -> None:
            for client in self.clients.values():
                self.hear(client)
            if is_kill:
                self.fs.kill()
            else:
                await self.store.close()
            for client in self.clients.values():
                for message in client.unheard:
                    if message.promise is not None and not message.promise.done():
                        message.promise.cancel()
                    message.promise = None
            await self.start()

        self.run(go())

    @precondition(lambda self: any(client.unheard for client in self.clients.values()))
    @rule()
    def calm(self) -> None:
        """Check that everything is acknowledged after a while without failures."""

        async def go() -> None:
            for client in self.clients.values():
                await self.settle(client)

        self.run(go())

    # ── what holds ──

    def in_log(self) -> InLog:
        log = self.partition.log
        views = []
        offset = log.start_offset
        while offset < log.end_offset:
            chunk = self.run(log.read(offset, 1 << 20))
            for header, view in split(chunk.data):
                views.append(view)
                offset = header.next_offset
        return read_log(iter(views), log.end_offset)

    @invariant()
    def each_batch_is_there_once_and_in_order(self) -> None:
        found = self.in_log()
        for producer_id, batches in found.sequences.items():
            expected = 0
            for first, records in batches:
                assert first == expected, f"producer {producer_id}: {first} lies where {expected} belongs"
                expected += records
        for client in self.clients.values():
            for message in client.acknowledged:
                there = [found.values.get(message.base_offset + n) for n in range(len(message.values))]
                assert there == message.values, "what was acknowledged is where it was said to be"

    @invariant()
    def readers_of_committed_records_see_the_same_as_the_log_says(self) -> None:
        found, partition = self.in_log(), self.partition
        assert partition.last_stable_offset == found.last_stable_offset
        ranges = [
            (each.producer_id, each.first_offset, each.last_offset)
            for each in partition.aborted_ranges(0, found.end)
        ]
        assert ranges == sorted(found.aborted, key=lambda each: each[1])

    def teardown(self) -> None:
        async def go() -> None:
            for client in self.clients.values():
                await self.settle(client)

        try:
            self.run(go())
            self.each_batch_is_there_once_and_in_order()
        finally:
            self.run(self.store.close())
            self.run(asyncio.sleep(0))
            self.loop.close()


def partition_conformance(
    open_store: Callable[[FaultyFileSystem], LogStore], *, examples: int = repetitions(60), steps: int = 40
) -> type:
    """Return the test case of the machine over the stores that `open_store` opens."""
    machine = type("Machine", (PartitionMachine,), {"open_inner": staticmethod(open_store)})
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    return case
