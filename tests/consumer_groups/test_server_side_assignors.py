"""The guarantees of the server-side assignors, for any members and topics."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from sparrow.broker.groups.consumer.assignors import ASSIGNORS, Wish, ranges, uniform
from sparrow.broker.groups.consumer.member import Assignment
from sparrow.broker.groups.consumer.topics import TopicView

topics_lists = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(
    lambda counts: [TopicView(f"t{i}", uuid.UUID(int=i + 1), n) for i, n in enumerate(counts)]
)


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, Wish]:
    topics = draw(topics_lists)
    members = draw(st.integers(1, 6))
    return {
        f"m{i}": Wish(
            draw(st.lists(st.sampled_from(topics), unique=True)), draw(st.sampled_from([None, f"i{i}"]))
        )
        for i in range(members)
    }


def all_of(topics: object) -> set[tuple[uuid.UUID, int]]:
    return {(t.topic_id, n) for t in topics for n in range(t.partitions)}  # type: ignore[attr-defined]


@given(wishes(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_wanted_partition_has_one_reader_that_wants_it(wanted: dict[str, Wish], name: str) -> None:
    result = ASSIGNORS[name](wanted)
    assert result.keys() == wanted.keys()
    given_out = [p for partitions in result.values() for p in partitions]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == all_of({topic for wish in wanted.values() for topic in wish.topics})
    for member, partitions in result.items():
        assert partitions <= all_of(wanted[member].topics)


@given(topics_lists, st.integers(1, 6))
def test_uniform_gives_equal_members_shares_that_differ_by_one_at_most(
    topics: list[TopicView], members: int
) -> None:
    sizes = [len(p) for p in uniform({f"m{i}": Wish(topics) for i in range(members)}).values()]
    assert max(sizes) - min(sizes) <= 1


@given(topics_lists, st.integers(1, 6))
def test_uniform_moves_no_more_than_it_must_when_a_member_comes_or_goes(
    topics: list[TopicView], members: int
) -> None:
    before = uniform({f"m{i}": Wish(topics) for i in range(members)})
    after = uniform(
        {f"m{i}": Wish(topics, previous=before.get(f"m{i}", frozenset())) for i in range(members + 1)}
    )
    assert _moved(before, after) == len(after[f"m{members}"])
    back = uniform({m: Wish(topics, previous=after[m]) for m in before})
    assert _moved(after, back) == len(after[f"m{members}"])


def _moved(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    return sum(len(partitions - before.get(member, frozenset())) for member, partitions in after.items())


@given(wishes())
def test_uniform_moves_nothing_when_nothing_changed(wanted: dict[str, Wish]) -> None:
    before = uniform(wanted)
    again = uniform({m: Wish(w.topics, w.instance_id, before[m]) for m, w in wanted.items()})
    assert again == before


@given(st.integers(1, 9), st.integers(1, 6))
def test_range_splits_topics_of_the_same_size_alike(partitions: int, members: int) -> None:
    one, other = (TopicView(name, uuid.uuid4(), partitions) for name in ("a", "b"))
    for assigned in ranges({f"m{i}": Wish([one, other]) for i in range(members)}).values():
        numbers = {t.name: sorted(n for i, n in assigned if i == t.topic_id) for t in (one, other)}
        assert numbers["a"] == numbers["b"]
        assert numbers["a"] == list(range(min(numbers["a"], default=0), max(numbers["a"], default=-1) + 1))


def test_range_orders_static_members_by_their_instance() -> None:
    topic = TopicView("a", uuid.uuid4(), 2)
    assigned = ranges({"x": Wish([topic], "i2"), "y": Wish([topic], "i1")})
    assert assigned == {"y": frozenset({(topic.topic_id, 0)}), "x": frozenset({(topic.topic_id, 1)})}
