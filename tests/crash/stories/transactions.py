"""A Kafka client with transactions over two topics and a group's offsets; number n writes n, and
commits offset n.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress

from sparrow.base.errors import ConcurrentTransactions
from sparrow.broker.broker import Broker
from sparrow.broker.groups.offsets import NO_MEMBER, OffsetAndMetadata
from sparrow.broker.producer_ids import ProducerIdentity
from tests.crash.stories import Notes, batch
from tests.transactions.machine import read_committed

_ID, _GROUP, _TOPICS = "loader", "loaders", ("left", "right")


class Transactions:
    """Readers of committed records see the committed transactions, in both topics, and nothing
    else; the offsets match.
    """

    name = "transactions"

    def __init__(self) -> None:
        self.notes = Notes()

    async def live(self, broker: Broker) -> AsyncGenerator[None, Broker]:
        for topic in _TOPICS:
            await broker.topics.create(topic, 1)
        self.notes.add("prepared")
        producer = await _initialize(broker)
        sequence = 0
        for number in range(5):
            ended = await self._transaction(broker, producer, sequence, number)
            sequence = sequence + 1 if ended == producer else 0
            producer = ended
            if number == 1:
                broker = yield

    async def _transaction(
        self, broker: Broker, producer: ProducerIdentity, sequence: int, number: int
    ) -> ProducerIdentity:
        transactions = broker.transactions
        bumps_epoch, commit = number >= 3, number % 3 != 1
        for topic in _TOPICS:
            assert await transactions.add_partitions(_ID, producer, [(topic, 0)]) == {}
            data = batch(
                b"%d" % number,
                producer_id=producer.producer_id,
                epoch=producer.epoch,
                sequence=sequence,
                transactional=True,
            )
            await broker.records.publish(topic, 0, data, admit=transactions.admission(_ID))
        offsets = {(_TOPICS[0], 0): OffsetAndMetadata(number)}
        if not bumps_epoch:
            await transactions.add_group(_ID, producer, _GROUP)
        refused = await transactions.commit_offsets(
            _ID, producer, _GROUP, offsets, committer=NO_MEMBER, adds_group=bumps_epoch
        )
        assert refused == {}
        if commit:
            self.notes.add("asked", number)
        ended = await transactions.end(_ID, producer, commit=commit, bumps_epoch=bumps_epoch)
        if commit:
            self.notes.add("done", number)
        return ended

    async def check(self, broker: Broker, notes: Notes) -> None:
        if not notes.all("prepared"):
            return
        await _initialize(broker)  # the producer comes back, and its open transaction is aborted
        left, right = [[int(value) for value in await read_committed(broker, topic)] for topic in _TOPICS]
        assert left == right == sorted(set(left))
        assert set(notes.all("done")) <= set(left) <= set(notes.all("asked"))
        committed = broker.parts.group_registry.committed_offset(_GROUP, (_TOPICS[0], 0))
        assert committed == (left[-1] if left else None)
        assert not broker.parts.group_registry.pending(_GROUP)
        for topic in _TOPICS:
            partition = broker.parts.topic_registry.get(topic).partition(0)
            assert partition.last_stable_offset == partition.visible_end


async def _initialize(broker: Broker) -> ProducerIdentity:
    with suppress(ConcurrentTransactions):
        return await broker.transactions.initialize(_ID, 60_000)
    return await broker.transactions.initialize(_ID, 60_000)
