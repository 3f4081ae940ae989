"""The walk over records: the rules, and that both implementations are equal."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.records import validation, walker
from sparrow.records.builder import build_batch
from sparrow.records.walker import MAX_LISTED, MAX_TIMESTAMP, MIN_TIMESTAMP, FaultKind
from tests.records.columns import NOW_MS, mixed_columns, uniform_columns
from tests.records.malformed import CASES, RIGHT, Case, record

Walk = Callable[..., walker.Walked]

compiled: Any = None
if validation.IS_COMPILED:
    from sparrow.records import _walker as compiled  # type: ignore[attr-defined,no-redef,unused-ignore]

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="no compiled walker here: there was no C compiler at `make setup`"
)
WALKS = pytest.mark.parametrize(
    "walk",
    [
        pytest.param(walker.walk, id="python"),
        pytest.param(getattr(compiled, "walk", None), id="compiled", marks=needs_compiled),
    ],
)


def ask(
    walk: Walk,
    data: bytes,
    count: int,
    base: int = NOW_MS,
    *,
    start: int = 0,
    earliest: int = MIN_TIMESTAMP,
    latest: int = MAX_TIMESTAMP,
    needs_keys: bool = False,
    release_gil: bool = False,
) -> walker.Walked:
    return walk(data, start, len(data), count, base, earliest, latest, needs_keys, release_gil)


@WALKS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_record_with_one_thing_wrong_is_refused_with_its_place(walk: Walk, case: Case) -> None:
    found = ask(walk, case.records, case.count)
    assert found == (case.kind, case.index, case.at, -1, (), ())
    assert all(type(each) is not bool for each in found)


@WALKS
@pytest.mark.parametrize("name", RIGHT)
def test_a_record_that_is_unusual_but_right_passes(walk: Walk, name: str) -> None:
    kind, count, end, *_ = ask(walk, RIGHT[name], 1)
    assert (kind, count, end) == (FaultKind.NONE, 1, len(RIGHT[name]))


@WALKS
def test_every_prefix_of_good_records_is_refused(walk: Walk) -> None:
    data = b"".join(record(n, headers=b"\x02\x02n\x02x") for n in range(3))
    assert ask(walk, data, 3)[0] == FaultKind.NONE
    assert all(ask(walk, data[:size], 3)[0] != FaultKind.NONE for size in range(len(data)))


@WALKS
@pytest.mark.parametrize("release_gil", [False, True])
def test_records_may_lie_anywhere_in_the_data(walk: Walk, release_gil: bool) -> None:
    data = b"before" + record() + b"behind"
    found = walk(memoryview(data), 6, len(data) - 6, 1, 5, MIN_TIMESTAMP, MAX_TIMESTAMP, False, release_gil)
    assert found == (FaultKind.NONE, 1, len(data) - 6, 5, (), ())


@WALKS
@pytest.mark.parametrize(("start", "end"), [(-1, 2), (3, 2), (0, 99)])
def test_a_range_outside_of_the_data_is_a_value_error(walk: Walk, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="records at"):
        walk(b"abc", start, end, 1, 0, 0, 0, False, False)


@WALKS
@pytest.mark.parametrize(
    ("times", "untimely", "greatest"),
    [
        ([0, 5, 10], (), 10),
        ([-1, 5, 11], (2,), 11),  # -1 is no timestamp
        ([-2, 5, -3], (0, 2), 5),
        ([-1, -1], (), -1),
        ([-7, -1], (0,), -7),
    ],
)
def test_records_outside_of_the_time_allowed_are_listed(
    walk: Walk, times: list[int], untimely: tuple[int, ...], greatest: int
) -> None:
    data = b"".join(record(n, timestamp=time - 3) for n, time in enumerate(times))
    kind, _, _, found, listed, _ = ask(walk, data, len(times), 3, earliest=0, latest=10)
    assert (kind, found, listed) == (FaultKind.NONE, greatest, untimely)


@WALKS
def test_records_without_a_key_are_listed_if_asked_and_the_first_hundred_alone(walk: Walk) -> None:
    data = b"".join(record(n, key=(-1, b"") if n != 7 else (1, b"k")) for n in range(300))
    listed = tuple(n for n in range(300) if n != 7)[:MAX_LISTED]
    assert ask(walk, data, 300, needs_keys=True)[5] == listed
    assert ask(walk, data, 300)[5] == ()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200, 8191, 8192, 8193, 9000])
def test_records_of_one_size_pass_whatever_the_width_of_their_offsets(count: int) -> None:
    data = build_batch([b"x"] * count, timestamps=[NOW_MS + n // 3 for n in range(count)])
    expected = (FaultKind.NONE, count, len(data), NOW_MS + (count - 1) // 3, (), ())
    assert ask(walker.walk, data, count, start=61) == expected
    if compiled is not None:
        assert ask(compiled.walk, data, count, start=61) == expected


# ── both alike ────────────────────────────────────────────────────────────────────────────────────


def same(data: bytes, start: int, count: int, base: int, **terms: Any) -> walker.Walked:
    found = ask(compiled.walk, data, count, base, start=start, **terms)
    assert ask(walker.walk, data, count, base, start=start, **terms) == found
    return found


@needs_compiled
@given(
    st.one_of(mixed_columns(), uniform_columns()),
    st.booleans(),
    st.integers(-2, 2),
    st.integers(),
    st.data(),
)
def test_both_walks_are_alike_on_good_records_and_on_changed_ones(
    columns: dict[str, Any], needs_keys: bool, more: int, seed: int, data: st.DataObject
) -> None:
    batch = build_batch(**columns)
    count = len(columns["values"])
    base = int.from_bytes(batch[27:35], "big", signed=True)
    terms = {"earliest": NOW_MS - 10, "latest": NOW_MS + 5_000, "needs_keys": needs_keys}
    assert same(batch, 61, count, base, **terms)[0] == FaultKind.NONE
    same(batch, 61, count + more, base, **terms)
    rng = random.Random(seed)  # hypothesis shrinks, the generator is quick
    for _ in range(20):
        changed = bytearray(batch)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            changed[rng.randrange(61, len(batch))] = rng.choice((rng.randrange(256), 0, 1, 0x7F, 0x80, 0xFF))
        same(bytes(changed), 61, count, rng.choice((base, MAX_TIMESTAMP, MIN_TIMESTAMP)), **terms)
        same(bytes(changed[: rng.randrange(61, len(batch) + 1)]), 61, count, base, **terms)


@needs_compiled
@given(st.binary(max_size=60), st.integers(0, 4), st.sampled_from([0, NOW_MS, MAX_TIMESTAMP, MIN_TIMESTAMP]))
def test_both_walks_are_alike_on_arbitrary_bytes(data: bytes, count: int, base: int) -> None:
    same(data, 0, count, base, needs_keys=True, earliest=0, latest=NOW_MS)
    # Behind a length that fits, more is checked.
    if 6 <= len(data) < 64:
        same(bytes([2 * len(data)]) + data, 0, 1, base)


@needs_compiled
@given(st.binary(max_size=6))
def test_both_walks_take_the_same_names_for_utf8(name: bytes) -> None:
    try:
        name.decode()
        is_text = True
    except UnicodeDecodeError:
        is_text = False
    data = record(headers=b"\x02" + bytes([2 * len(name)]) + name + b"\x01")
    assert (same(data, 0, 1, 0)[0] == FaultKind.NONE) is is_text


@needs_compiled
def test_the_names_of_all_two_and_three_byte_characters_are_judged_alike() -> None:
    firsts = [0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1]
    firsts += [0xF3, 0xF4, 0xF5, 0xFF]
    for first in firsts:
        for second in (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF):
            for rest in (b"", b"\x80", b"\xbf", b"\x80\x80", b"\xbf\xbf", b"\x80\x80\x80", b"\x80\x7f"):
                name = bytes((first, second)) + rest
                same(record(headers=b"\x02" + bytes([2 * len(name)]) + name + b"\x01"), 0, 1, 0)
