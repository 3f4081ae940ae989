"""Connections of all doors together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrow.frontends.places import SURE_PART, Places


@given(
    total=st.integers(1, 200),
    doors=st.integers(1, 9),
    comers=st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=400),
)
def test_the_total_is_never_passed_and_every_door_always_gets_its_sure_part(
    total: int, doors: int, comers: list[tuple[int, bool]]
) -> None:
    places = Places(total)
    counts = [0] * doors
    may_come = [places.of(lambda door=door: counts[door]) for door in range(doors)]
    for number, comes in comers:
        door = number % doors
        if comes and may_come[door]():
            counts[door] += 1
        elif not comes and counts[door]:
            counts[door] -= 1
        assert sum(counts) <= total
    sure = total // (SURE_PART * doors)
    for door in range(doors):
        assert counts[door] >= sure or may_come[door]()


def test_one_door_may_use_nearly_all_that_the_others_do_not() -> None:
    places = Places(19_000)
    count = 0
    may_come = places.of(lambda: count)
    places.of(lambda: 0)
    places.of(lambda: 0)
    while may_come():
        count += 1
    assert count == 19_000 - 2 * (19_000 // 12)


def test_without_a_total_there_is_always_room() -> None:
    assert Places().of(lambda: 10**9)()
