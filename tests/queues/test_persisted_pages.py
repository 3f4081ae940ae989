"""Persisted form of record states: its content, and that pages of earlier versions stay
readable.
"""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import DirectoryUnreadable, NewerFormat
from sparrow.base.queue_policy import QueuePolicy
from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.persistence import definition as definitions
from sparrow.broker.queues.persistence import pages
from sparrow.broker.queues.rules.leases import Lease
from sparrow.broker.queues.rules.record_state import (
    COUNT_SHIFT,
    DELAYED,
    DONE,
    GAP,
    LEASE_SHIFT,
    LEASED,
    LEVEL_SHIFT,
    MOVING,
    PERSISTED,
    READY,
    STATE_MASK,
)
from sparrow.meta.store import Entry

WALL_MS = 1_700_000_000_000


def entry(value: bytes) -> Entry:
    return Entry(pages.PAGE, "q//t/0/3", value, 1)


def page(runs, leases) -> bytes | None:
    held = RangeMap()
    for first, end, value in runs:
        held.set(3 * RangeMap.PAGE + first, 3 * RangeMap.PAGE + end, value)
    return pages.encode_page(held.columns(3), leases, lambda: (1000, WALL_MS))


def test_a_page_of_nothing_to_keep_is_no_entry() -> None:
    assert page([(0, 10, READY), (10, 20, GAP)], {}) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4095),
            st.integers(1, 60),
            st.sampled_from([READY, LEASED, DELAYED, MOVING, DONE, GAP]),
            st.integers(0, 9),
            st.integers(0, 3),
        ),
        max_size=30,
    )
)
def test_page_restores_only_persisted_states(drawn) -> None:
    leases = {7: Lease("ann", 1, 2, 0, "oops", "REJECTED")}
    held = RangeMap()
    for first, size, state, level, count in drawn:
        lease = 7 if count and state not in (DONE, GAP) else 0
        value = state | level << LEVEL_SHIFT | count << COUNT_SHIFT | lease << LEASE_SHIFT
        held.set(first, min(first + size, 4096), value)
    kept = pages.encode_page(held.columns(0), leases, lambda: (0, WALL_MS))
    back = RangeMap()
    for first, end, value, lease in pages.decode_page(entry(kept), 0, 0, WALL_MS).runs() if kept else ():
        assert lease is None or (lease.consumer, lease.error, lease.reason) == ("ann", "oops", "REJECTED")
        back.set(first, end, value | (7 << LEASE_SHIFT if lease is not None else 0))
    for first, end, value in held.runs(0, 4096):
        expected = value if value & PERSISTED[value & STATE_MASK] else 0
        assert [run[2] for run in back.runs(first, end)] == [expected]


@pytest.mark.parametrize(
    ("jump_ms", "left_ms"),
    [(0, 3000), (1000, 2000), (9000, 0), (-50_000, 3000)],
    ids=["at once", "a second later", "after its end", "the clock was set back"],
)
def test_a_lease_is_never_longer_after_a_restart(jump_ms, left_ms) -> None:
    kept = page([(5, 6, LEASED | 1 << COUNT_SHIFT | 9 << LEASE_SHIFT)], {9: Lease("ann", 1, 2, 4000)})
    ((first, end, _, lease),) = pages.decode_page(entry(kept), 3, 77, WALL_MS + jump_ms).runs()
    assert (first, end) == (3 * 4096 + 5, 3 * 4096 + 6)
    assert lease.due_ms == 77 + left_ms


def test_a_page_of_version_1_is_read() -> None:
    """Written by the first release that had queues: 4 done, then one leased to "ann" for the second
    time.
    """
    written = bytes.fromhex(
        "95019197a3616e6e01cf0000018bcfe56800cf0000018bcfe573b8cd0bb8a46f6f7073a0"
        "939200ff92cd0122009206ffc406000004000500c406020001000000"
    )
    runs = list(pages.decode_page(entry(written), 0, 1000, WALL_MS).runs())
    assert [(first, end, value) for first, end, value, _ in runs] == [(0, 4, 6), (4, 5, 0x122)]
    lease = runs[1][3]
    assert (lease.consumer, lease.first_ms, lease.error, lease.due_ms) == ("ann", 1, "oops", 4000)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00",
        b"\x91\x01",
        msgspec.msgpack.encode([1, [], [[6, 4]], b"\0\0", b"\1\0"]),
        msgspec.msgpack.encode([1, [], [[6, 4]], b"\0\0", b"\0\0"]),
        msgspec.msgpack.encode([1, [], [[6, -1]], b"\0\0", b"\1\0"]),
        msgspec.msgpack.encode([1, [], [[6, -1]], b"", b""]),
        msgspec.msgpack.encode([1, [], [[6, -1]], b"\0", b"\0"]),
        msgspec.msgpack.encode([1, [], [[6, -1]], b"\1\0", b"\0\0"]),
        msgspec.msgpack.encode([1, [], [[6, -1]], b"\0\0\0\0", b"\0\0\0\0"]),
        msgspec.msgpack.encode([1, [], [[6, -1]], b"\0\0\0\x10", b"\0\0\0\0"]),
        msgspec.msgpack.encode([1, [], [[6, -1]], b"\0\0\1\0", b"\0\0"]),
    ],
    ids=[
        "empty",
        "no array",
        "too short",
        "no such kind or lease",
        "no such lease",
        "no such kind",
        "no run",
        "half a number",
        "begins late",
        "begins twice",
        "ends with the page",
        "a run without kind",
    ],
)
def test_invalid_page_is_refused(value) -> None:
    with pytest.raises(DirectoryUnreadable, match="q//t/0/3"):
        pages.decode_page(entry(value), 3, 0, 0)


def test_a_page_of_a_later_version_is_refused() -> None:
    with pytest.raises(NewerFormat, match="later Sparrow"):
        pages.decode_page(entry(msgspec.msgpack.encode([2, "what", "ever"])), 3, 0, 0)


def test_a_definition_of_version_1_is_read() -> None:
    stored = msgspec.msgpack.encode(
        [
            1,
            bytes(range(16)),
            "queue",
            ["orders", "more"],
            {"lease_ms": 5000, "subscribers": ["a", "b"]},
            True,
            42,
        ]
    )
    found = definitions.decode(Entry(definitions.KIND, "jobs", stored, 1))
    assert (found.name, found.topics, found.is_paused) == ("jobs", ("orders", "more"), True)
    assert found.policy == QueuePolicy(lease_ms=5000, subscribers=("a", "b"))
    assert definitions.decode(Entry("queue", "jobs", found.entry().value, 1)) == found
