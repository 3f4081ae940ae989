"""A disk, a meta store and a clock that outlive the brokers on them, and can stop them at any step;
and readers of committed records.
"""

from __future__ import annotations

from sparrow.base.clock import ManualClock
from sparrow.base.errors import StorageFailed
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.producer_ids import ProducerIdentity
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Write
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.control import ControlType, maybe_parse_marker
from sparrow.records.record import decode
from sparrow.storage.faulty import FaultyFileSystem
from sparrow.storage.local import LocalLogStore
from sparrow.storage.options import StorageOptions

NEVER_MS = 1 << 40
QUIET = BrokerConfig(tick_interval_ms=NEVER_MS, retention_check_interval_ms=NEVER_MS, default_partitions=1)
ON_THE_LOOP = StorageOptions(flush_threads=0, worker_threads=0)


class CuttableMetaStore(MemoryMetaStore):
    """A meta store that fails from the same step on as the disk."""

    fs: FaultyFileSystem

    async def write(self, writes: list[Write] | tuple[Write, ...]) -> None:  # type: ignore[override]
        if self.fs.calls_left is not None:
            self.fs.calls_left -= 1
            if self.fs.calls_left < 0:
                raise StorageFailed("the machine stopped")
        await super().write(writes)


class Machine:
    """Starts brokers on the same disk, one after the other."""

    def __init__(self, seed: int = 0) -> None:
        self.fs = FaultyFileSystem(seed)
        self.meta = CuttableMetaStore()
        self.meta.fs = self.fs
        self.clock = ManualClock()
        self._ended: list[Broker] = []

    async def start(self) -> Broker:
        self.meta._closed = False  # opened again
        logs = LocalLogStore("/data", self.fs, self.clock, ON_THE_LOOP)
        broker = Broker(config=QUIET, clock=self.clock, log_store=logs, meta_store=self.meta)
        await broker.start()
        return broker

    async def stop(self, broker: Broker, *, power_fails: bool = False) -> None:
        """End the process, or the machine, without a word to the broker."""
        self._ended.append(broker)
        await broker._maintenance.stop()
        self.fs.calls_left = None
        if power_fails:
            self.fs.crash()
        else:
            self.fs.kill()

    async def discard(self, broker: Broker) -> None:
        """End the tasks of a broker. The files of one that was stopped before are closed, so that
        it cannot write.
        """
        try:
            await broker.close()
        except StorageFailed:
            if broker not in self._ended:
                raise

    def batch(
        self, producer: ProducerIdentity, sequence: int, *values: bytes, transactional: bool = True
    ) -> bytes:
        return build_batch(
            list(values),
            timestamps=[self.clock.wall_ms()] * len(values),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )


async def read_committed(broker: Broker, topic: str, partition: int = 0) -> list[bytes]:
    """Return the records that a Kafka client makes of Fetch with isolation level read_committed."""
    found: list[bytes] = []
    offset = broker.parts.topic_registry.get(topic).partition(partition).start_offset
    while True:
        (fetched,) = await broker.records.fetch([FetchRequest(topic, partition, offset)], committed=True)
        assert fetched.error is None, fetched.error
        assert fetched.chunk is not None
        if not fetched.chunk.data:
            return found
        waiting = [(each.first_offset, each.producer_id) for each in fetched.aborted]
        assert waiting == sorted(waiting)
        dropped: set[int] = set()
        for header, data in split(fetched.chunk.data):
            while waiting and waiting[0][0] <= header.last_offset:
                dropped.add(waiting.pop(0)[1])
            if header.is_control:
                marker = maybe_parse_marker(data)
                if marker is not None and marker.type is ControlType.ABORT:
                    dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                found += [bytes(r.value or b"") for r in decode(data) if r.offset >= offset]
        offset = fetched.chunk.next_offset
