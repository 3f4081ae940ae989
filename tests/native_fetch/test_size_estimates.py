"""`topic.weigh` and `topic.reach` against the batches themselves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument, OffsetOutOfRange, UnknownPartition, UnknownTopic
from sparrow.storage.index import SegmentIndex
from sparrow.storage.size_estimate import LogExtent, estimate_offset, estimate_position
from tests.native_fetch.test_fetch import filled

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from tests.native_frontend.raw import RawClient

INTERVAL = 100
_batches = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 400)), max_size=60)


class Laid:
    """Batches of some (records, bytes) in a segment that starts at offset 1000."""

    def __init__(self, batches: list[tuple[int, int]]) -> None:
        self.index = SegmentIndex(1000, INTERVAL)
        self.ends, self.positions = [1000], [0]
        for records, size in batches:
            self.index.add(self.ends[-1] + records - 1, self.positions[-1], size, -1)
            self.ends.append(self.ends[-1] + records)
            self.positions.append(self.positions[-1] + size)
        self.extent = LogExtent(self.index, self.positions[-1], self.ends[-1])
        self.step_bytes = INTERVAL + 2 * max((size for _, size in batches), default=0)

    def bytes_before(self, offset: int) -> int:
        """Return the bytes of whole batches that end before or at `offset`."""
        return max(p for e, p in zip(self.ends, self.positions, strict=True) if e <= max(offset, 1000))


@given(_batches)
def test_a_position_is_wrong_by_a_step_at_most_grows_and_is_exact_at_the_ends(
    batches: list[tuple[int, int]],
) -> None:
    laid = Laid(batches)
    found = [estimate_position(laid.extent, offset) for offset in range(995, laid.extent.end + 5)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, laid.extent.size_bytes)
    for offset in range(1000, laid.extent.end + 1):
        assert abs(estimate_position(laid.extent, offset) - laid.bytes_before(offset)) <= laid.step_bytes


@given(_batches, st.integers(0, 300), st.integers(1, 5000))
def test_estimate_ends_with_a_batch_within_the_limit_or_after_one_step(
    batches: list[tuple[int, int]], at: int, max_bytes: int
) -> None:
    laid = Laid(batches)
    start = 1000 + at % (laid.extent.end - 999)
    found = estimate_offset(laid.extent, start, max_bytes)
    assert found in laid.ends
    assert found > start or start == laid.extent.end
    weight = laid.bytes_before(found) - laid.bytes_before(start)
    assert weight <= max(max_bytes, 0) + laid.step_bytes
    if found < laid.extent.end:
        assert laid.extent.size_bytes - laid.bytes_before(start) + laid.step_bytes > max_bytes


async def call(client: RawClient, verb: str, *ranges: tuple[int, int, int], topic: str = "orders") -> Any:
    name = "ranges" if verb == "topic.weigh" else "points"
    (result,) = (await client.call(verb, topic=topic, **{name: list(ranges)})).values()
    return result


async def test_the_whole_log_is_estimated_exactly_and_parts_add_up(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", *[[bytes(1000 + 37 * n)] for n in range(60)])
    size = broker.parts.topic_registry.get("orders").partitions[0].log.size_bytes
    assert await call(client, "topic.weigh", (0, 0, 60), (0, 0, 1000)) == [size, size]
    parts = await call(client, "topic.weigh", *[(0, n, n + 10) for n in range(0, 60, 10)])
    assert sum(parts) == size
    assert parts == sorted(parts)
    assert await call(client, "topic.weigh", (0, 60, 60), (0, 30, 20), (0, 70, 80)) == [0, 0, 0]


async def test_a_topic_is_cut_into_parts_of_about_equal_size(broker: Broker, client: RawClient) -> None:
    await broker.topics.create("orders", 1, {"segment.bytes": "200000"})
    await filled(broker, "orders", *[[bytes(5000)] for _ in range(200)])
    cuts = [0]
    while cuts[-1] < 200:
        cuts += await call(client, "topic.reach", (0, cuts[-1], 100_000))
    counts = [b - a for a, b in itertools.pairwise(cuts)]
    assert max(counts) <= 20
    assert min(counts[:-1]) >= 15
    assert await call(client, "topic.reach", (0, 200, 100)) == [200]


async def test_offsets_removed_by_retention_are_skipped(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", *[[bytes(5000)] for _ in range(20)])
    await broker.topics.delete_records("orders", {0: 10})
    (weight,) = await call(client, "topic.weigh", (0, 0, 20))
    assert 45_000 < weight < 60_000
    (reached,) = await call(client, "topic.reach", (0, 0, 1))
    assert 10 < reached <= 12


async def test_bad_ranges_are_refused(broker: Broker, client: RawClient) -> None:
    await filled(broker, "orders", [b"a"])
    for verb in ("topic.weigh", "topic.reach"):
        with pytest.raises(UnknownTopic):
            await call(client, verb, (0, 0, 1), topic="none")
        with pytest.raises(UnknownPartition):
            await call(client, verb, (5, 0, 1))
        with pytest.raises(InvalidArgument, match="negative"):
            await call(client, verb, (0, -1, 1))
        with pytest.raises(InvalidArgument, match="10000"):
            await call(client, verb, *[(0, 0, 1)] * 10_001)
        with pytest.raises(InvalidArgument):
            await client.call(verb, topic="orders", ranges=7, points=7)
    with pytest.raises(OffsetOutOfRange):
        await call(client, "topic.reach", (0, 5, 1))
