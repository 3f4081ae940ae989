"""Producer ids: their owners, who may use them, and those of earlier versions."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.clock import ManualClock
from sparrow.base.errors import Overloaded, UnknownProducer
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.id_cipher import IdCipher
from sparrow.broker.producer_ids import BLOCK, MAX_CIPHERS, MAX_KNOWN, ProducerIds
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore, StorageOptions
from tests.broker.batches import batch

ALICE, MALLORY = Principal("alice"), Principal("mallory")
NEVER_MS = 1 << 40
IDS = st.integers(0, (1 << 63) - 1)


@given(st.binary(min_size=32, max_size=32), st.text(max_size=20), IDS)
def test_the_cipher_is_a_permutation_of_63_bits(secret: bytes, owner: str, number: int) -> None:
    cipher = IdCipher(secret, owner)
    assert 0 <= cipher.seal(number) < 1 << 63
    assert cipher.open(cipher.seal(number)) == number
    assert cipher.seal(cipher.open(number)) == number


def test_ids_of_one_owner_say_nothing_of_each_other() -> None:
    cipher = IdCipher(bytes(32), "User:alice")
    ids = [cipher.seal(number) for number in range(2000)]
    assert len(set(ids)) == len(ids)
    for bit in range(63):  # each bit is set in about half of them: 1000 ± 6.7 standard deviations
        assert 850 < sum(each >> bit & 1 for each in ids) < 1150, bit
    flips = [(a ^ b).bit_count() for a, b in pairwise(ids)]
    assert 30 < sum(flips) / len(flips) < 33


async def loaded(meta: MemoryMetaStore) -> ProducerIds:
    ids = ProducerIds(meta)
    await ids.load()
    return ids


async def test_an_id_is_of_use_to_the_principal_it_was_given_to_alone() -> None:
    ids = await loaded(MemoryMetaStore())
    given_to_alice = [(await ids.allocate(str(ALICE))).producer_id for _ in range(200)]
    for each in given_to_alice:
        ids.check(ALICE, each, ())
        for other in (MALLORY, ANONYMOUS, Principal("alice", "System")):
            with pytest.raises(UnknownProducer, match="was not given to"):
                ids.check(other, each, {each})
            with pytest.raises(UnknownProducer):
                ids.resume(each, 0, other)
    assert ids.resume(given_to_alice[0], 3, ALICE).epoch == 3


async def test_guessed_neighbouring_and_future_ids_are_refused() -> None:
    meta = MemoryMetaStore()
    ids = await loaded(meta)
    known = {(await ids.allocate(str(ALICE))).producer_id for _ in range(50)}
    future = IdCipher(ids._secret, str(ALICE)).seal(BLOCK + 1)
    guesses = {each + step for each in known for step in (-1, 1, 2, 1 << 32)} | set(range(3000)) | {future}
    guesses |= {int.from_bytes(os.urandom(8), "big") >> 1 for _ in range(3000)}
    for guess in guesses - known:
        with pytest.raises(UnknownProducer):
            ids.check(ALICE, guess & (1 << 63) - 1, {guess & (1 << 63) - 1})


async def test_ids_hold_over_restarts_and_never_repeat() -> None:
    meta = MemoryMetaStore()
    seen: set[int] = set()
    for start in range(5):  # none of these runs ends: each is killed
        ids = await loaded(meta)
        for each in seen:
            ids.check(ALICE, each, ())
        new = [(await ids.allocate(str(ALICE))).producer_id for _ in range(start * BLOCK // 2 + 3)]
        assert not seen.intersection(new)
        assert len(set(new)) == len(new)
        seen.update(new[:100])


async def test_another_broker_with_the_same_counter_refuses_them() -> None:
    ours, theirs = await loaded(MemoryMetaStore()), await loaded(MemoryMetaStore())
    for _ in range(20):
        mine = (await ours.allocate(str(ALICE))).producer_id
        await theirs.allocate(str(ALICE))
        with pytest.raises(UnknownProducer):
            theirs.check(ALICE, mine, {mine})


async def test_memory_of_checks_is_bounded() -> None:
    ids = await loaded(MemoryMetaStore())
    first = (await ids.allocate(str(ALICE))).producer_id
    for number in range(MAX_KNOWN + 10):
        other = Principal(f"user-{number}")
        ids.check(other, (await ids.allocate(str(other))).producer_id, ())
    assert (len(ids._known), len(ids._ciphers)) == (MAX_KNOWN, MAX_CIPHERS)
    ids.check(ALICE, first, ())
    with pytest.raises(UnknownProducer):
        ids.check(MALLORY, first, ())


async def test_new_ids_are_none_of_the_old_counter() -> None:
    meta = MemoryMetaStore()
    await meta.write([Put("counter", "producer-id", str(1 << 62).encode())])
    ids = await loaded(meta)
    for _ in range(50):
        assert (await ids.allocate(str(ALICE))).producer_id >= 1 << 62


# ── ids of earlier versions ───────────────────────────────────────────────────────────────────────


class Machine:
    """A disk and a meta store as an earlier version left them: ids 0 to 999 were reserved."""

    def __init__(self) -> None:
        self.fs = FaultyFileSystem(0)
        self.meta = MemoryMetaStore()
        self.clock = ManualClock()

    async def start(self) -> Broker:
        self.meta._closed = False
        logs = LocalLogStore("/data", self.fs, self.clock, StorageOptions(flush_threads=0, worker_threads=0))
        config = BrokerConfig(tick_interval_ms=NEVER_MS, retention_check_interval_ms=NEVER_MS)
        broker = Broker(config=config, clock=self.clock, log_store=logs, meta_store=self.meta)
        await broker.start()
        return broker

    async def old(self) -> Broker:
        """Start the broker of the earlier version: producer 7 has written batches 0 to 2."""
        await self.meta.write([Put("counter", "producer-id", b"1000")])
        broker = await self.start()
        await broker.topics.create("orders", 2)
        for sequence in range(3):
            await broker.records.publish("orders", 0, self.numbered(sequence), is_built_here=True)
        return broker

    def numbered(self, sequence: int, producer_id: int = 7) -> bytes:
        return batch(
            b"%d" % sequence,
            timestamp_ms=self.clock.wall_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )


async def test_an_old_producer_continues_after_an_upgrade_and_nobody_else_as_it() -> None:
    machine = Machine()
    broker = await machine.old()
    with pytest.raises(Overloaded, match="try again"):
        broker.records.publish("orders", 0, machine.numbered(3), principal=ALICE)
    await broker.parts.producer_ids.settle()
    assert (await broker.records.publish("orders", 0, machine.numbered(2), principal=ALICE)).base_offset == 2
    assert (await broker.records.publish("orders", 0, machine.numbered(3), principal=ALICE)).base_offset == 3
    assert (await broker.records.publish("orders", 1, machine.numbered(0), principal=ALICE)).base_offset == 0
    with pytest.raises(UnknownProducer):
        broker.records.publish("orders", 0, machine.numbered(4), principal=MALLORY)
    await broker._maintenance.stop()
    machine.fs.kill()

    broker = await machine.start()
    with pytest.raises(UnknownProducer):
        broker.records.publish("orders", 0, machine.numbered(4), principal=MALLORY)
    assert (await broker.records.publish("orders", 0, machine.numbered(4), principal=ALICE)).base_offset == 4
    await broker.close()


async def test_an_old_id_that_the_partition_does_not_know_is_refused() -> None:
    machine = Machine()
    broker = await machine.old()
    for index, producer_id in ((0, 8), (1, 7), (0, 1000), (0, 999)):
        with pytest.raises(UnknownProducer):
            broker.records.publish("orders", index, machine.numbered(0, producer_id), principal=MALLORY)
    assert broker.records.resume_producer(7, 0, principal=ALICE).producer_id == 7
    await broker.close()


async def test_only_one_of_two_successors_continues_as_an_old_producer() -> None:
    machine = Machine()
    broker = await machine.old()
    for principal in (MALLORY, ALICE):
        with pytest.raises(Overloaded):
            broker.records.publish("orders", 0, machine.numbered(3), principal=principal)
    await asyncio.sleep(0)
    await broker.parts.producer_ids.settle()
    with pytest.raises(UnknownProducer):  # an error, not a message that is dropped as a duplicate
        broker.records.publish("orders", 0, machine.numbered(3), principal=ALICE)
    await broker.close()
