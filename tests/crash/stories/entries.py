"""State beside the records: topics that are created, changed, deleted and created again, and a
group's offsets.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple

from sparrow.broker.broker import Broker
from tests.crash.stories import Notes, assert_between, batch

_TOPIC, _OTHER, _GROUP = "made", "steady", "readers"


_STEPS: Sequence[Callable[[Broker], Awaitable[object]]] = (
    lambda broker: broker.topics.create(_OTHER, 1),
    lambda broker: broker.topics.create(_TOPIC, 1, {"retention.ms": "1000000"}),
    lambda broker: broker.records.publish(_TOPIC, 0, batch(b"a")),
    lambda broker: broker.records.publish(_TOPIC, 0, batch(b"b")),
    lambda broker: broker.topics.configure(_TOPIC, {"retention.ms": "2000000"}),
    lambda broker: broker.topics.delete_records(_TOPIC, {0: 1}),
    lambda broker: broker.groups.commit_offsets(_GROUP, {(_OTHER, 0): (1, "")}),
    lambda broker: broker.topics.delete(_TOPIC),
    lambda broker: broker.groups.commit_offsets(_GROUP, {(_OTHER, 0): (2, "")}),
    lambda broker: broker.topics.create(_TOPIC, 1, {"retention.ms": "3000000"}),
    lambda broker: broker.records.publish(_TOPIC, 0, batch(b"c")),
    lambda broker: broker.topics.delete_records(_TOPIC, {0: -1}),
)


class _State(NamedTuple):
    """The visible state."""

    retention_ms: str | None = None
    start: int = -1
    end: int = -1
    committed: int | None = None


class Entries:
    """Topics and offsets: after a crash everything is as after the last step that returned, or as
    after the pending one.
    """

    name = "entries"
    _STATES: Sequence[_State] = (
        _State(),
        _State(),
        _State("1000000", 0, 0),
        _State("1000000", 0, 1),
        _State("1000000", 0, 2),
        _State("2000000", 0, 2),
        _State("2000000", 1, 2),
        _State("2000000", 1, 2, 1),
        _State(None, -1, -1, 1),
        _State(None, -1, -1, 2),
        _State("3000000", 0, 0, 2),
        _State("3000000", 0, 1, 2),
        _State("3000000", 1, 1, 2),
    )

    def __init__(self) -> None:
        self.notes = Notes()

    async def live(self, broker: Broker) -> AsyncGenerator[None, Broker]:
        for number, step in enumerate(_STEPS, start=1):
            self.notes.add("asked", number)
            await step(broker)
            assert self._observe(broker) == self._STATES[number]
            self.notes.add("done", number)
            if number == 6:
                broker = yield

    async def check(self, broker: Broker, notes: Notes) -> None:
        assert_between(self._observe(broker), list(self._STATES), notes)

    def _observe(self, broker: Broker) -> _State:
        committed = next((each.offset for each in broker.groups.fetch_offsets(_GROUP)), None)
        topic = broker.parts.topic_registry.find(_TOPIC)
        if topic is None:
            return _State(committed=committed)
        partition = topic.partitions[0]
        retention = topic.config.value("retention.ms")
        return _State(retention, partition.start_offset, partition.visible_end, committed)
