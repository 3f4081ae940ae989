"""Columns of records for property tests: small, often with the sizes at which numbers grow by a
byte.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NOW_MS = 1_700_000_000_000

contents = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.sampled_from([0, 1, 52, 53, 54, 63, 64, 65, 8185, 8191, 8192]).map(bytes),
)
names = st.text(max_size=8)
header_lists = st.lists(st.tuples(names, st.one_of(st.none(), st.binary(max_size=70))), max_size=3).map(tuple)
times = st.one_of(
    st.just(NOW_MS),
    st.integers(NOW_MS - 70, NOW_MS + 70),
    st.integers(NOW_MS, NOW_MS + 10_000),
    st.sampled_from([0, 1, 2**41, 2**61, 2**62 - 1]),
)


@st.composite
def mixed_columns(draw: st.DrawFn) -> dict[str, Any]:
    """Draw records that differ in everything."""
    count = draw(st.integers(1, 12))

    def column(each: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(each, min_size=count, max_size=count))

    return {
        "values": column(contents),
        "keys": draw(st.one_of(st.none(), st.lists(contents, min_size=count, max_size=count))),
        "headers": draw(st.one_of(st.none(), st.lists(header_lists, min_size=count, max_size=count))),
        "timestamps": column(times),
    }


@st.composite
def uniform_columns(draw: st.DrawFn) -> dict[str, Any]:
    """Draw records that differ in content only, now and then interrupted by one that differs more;
    enough of them for every width of offset.
    """
    count = draw(st.sampled_from([7, 8, 20, 63, 64, 65, 100, 200]))
    size = draw(st.sampled_from([0, 1, 56, 63, 64, 100]))
    values: list[bytes | None] = [bytes([n & 0xFF]) * size for n in range(count)]
    key_size = draw(st.sampled_from([None, 0, 8, 64]))
    keys: list[bytes | None] | None = (
        None if key_size is None else [bytes([n & 0xFF]) * key_size for n in range(count)]
    )
    for index in draw(st.lists(st.integers(0, count - 1), max_size=2)):
        values[index] = draw(contents)
        if keys:
            keys[index] = draw(contents)
    step = draw(st.sampled_from([0, 0, 1, 7, 200, -3]))
    headers: list[Any] | None = None
    if draw(st.booleans()):
        headers = [()] * count
        headers[draw(st.integers(0, count - 1))] = draw(header_lists)
    return {
        "values": values,
        "keys": keys,
        "headers": headers,
        "timestamps": [NOW_MS + n // 3 * step for n in range(count)],
    }


columns = st.one_of(mixed_columns(), uniform_columns())


def expected(columns: dict[str, Any], base_offset: int = 0) -> list[tuple[Any, ...]]:
    """Return these columns as records: (offset, timestamp, key, value, headers)."""
    count = len(columns["values"])
    keys = columns["keys"] or [None] * count
    headers = columns["headers"] or [()] * count
    rows = zip(columns["timestamps"], keys, columns["values"], headers, strict=True)
    return [(base_offset + n, *row) for n, row in enumerate(rows)]
