"""The connection limit that all frontends share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrow.frontends.transport.connection_limit import GUARANTEED_SHARE, ConnectionLimit


@given(
    total=st.integers(1, 200),
    frontend_count=st.integers(1, 9),
    comers=st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=400),
)
def test_the_total_is_never_exceeded_and_every_frontend_gets_its_guaranteed_share(
    total: int, frontend_count: int, comers: list[tuple[int, bool]]
) -> None:
    connection_limit = ConnectionLimit(total)
    counts = [0] * frontend_count
    may_come = [
        connection_limit.of(lambda frontend=frontend: counts[frontend]) for frontend in range(frontend_count)
    ]
    for number, comes in comers:
        frontend = number % frontend_count
        if comes and may_come[frontend]():
            counts[frontend] += 1
        elif not comes and counts[frontend]:
            counts[frontend] -= 1
        assert sum(counts) <= total
    sure = total // (GUARANTEED_SHARE * frontend_count)
    for frontend in range(frontend_count):
        assert counts[frontend] >= sure or may_come[frontend]()


def test_one_frontend_may_use_nearly_all_that_the_others_do_not() -> None:
    connection_limit = ConnectionLimit(19_000)
    count = 0
    may_come = connection_limit.of(lambda: count)
    connection_limit.of(lambda: 0)
    connection_limit.of(lambda: 0)
    while may_come():
        count += 1
    assert count == 19_000 - 2 * (19_000 // 12)


def test_without_a_total_there_is_always_room() -> None:
    assert ConnectionLimit().of(lambda: 10**9)()
