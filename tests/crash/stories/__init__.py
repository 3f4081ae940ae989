"""Short lives of brokers that are filmed: each records its requests and promises, and can check a
disk as it was at any moment against them.

Unlike the loads of `tests/crash/loads` they run in one process and always do the same, so that a
crash can be tried at every single step.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from sparrow.broker.broker import Broker
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.record import Record, decode

WALL_MS = 1_700_000_000_000


@dataclass
class Notes:
    """The requests and promises of one story, in order. `upto` cuts them at a moment."""

    entries: list[tuple[str, Any]] = field(default_factory=list)

    def add(self, what: str, value: Any = None) -> None:
        self.entries.append((what, value))

    def all(self, what: str) -> list[Any]:
        return [value for noted, value in self.entries if noted == what]

    def last(self, what: str, default: Any) -> Any:
        return ([default, *self.all(what)])[-1]

    def upto(self, count: int) -> Notes:
        return Notes(self.entries[:count])


class Story(Protocol):
    """A life in two acts: between them the process is killed, and `live` continues with the broker
    that is sent to it.

    `check` runs on each of many brokers that found a disk as a crash at some moment of that life
    left it, possibly twice on the same.
    """

    name: str
    notes: Notes

    def live(self, broker: Broker) -> AsyncGenerator[None, Broker]: ...

    async def check(self, broker: Broker, notes: Notes) -> None:
        """Check the promises in the notes. Raise AssertionError if one does not hold."""
        ...


def batch(
    *values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1, **options: Any
) -> bytes:
    """Return a record batch of values, with the identity of a producer."""
    return build_batch(
        list(values),
        timestamps=WALL_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **options,
    )


async def records_of(broker: Broker, topic: str) -> list[Record]:
    """Return every record of a topic, committed or not; none if the topic does not exist."""
    found: list[Record] = []
    described = broker.parts.topic_registry.find(topic)
    for partition in described.partitions if described is not None else ():
        offset = partition.start_offset
        while offset < partition.visible_end:
            chunk = await partition.log.read(offset, 1 << 20)
            for header, data in split(chunk.data):
                if not header.is_control:
                    found += decode(data, topic, partition.id.partition, min_offset=offset)
                offset = header.next_offset
    return found


def assert_between(observed: Hashable, states: list[Any], notes: Notes) -> None:
    """Check that `observed` is the state after the last promised step, or after the last requested
    one.
    """
    done, asked = notes.last("done", 0), notes.last("asked", 0)
    assert observed in states[done : asked + 1], f"{observed!r} is neither of {states[done : asked + 1]!r}"
