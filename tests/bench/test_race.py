"""The order in which contenders run, and the comparison of their figures."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import pytest

from bench import race
from bench.kept import keeping
from bench.peers.daemon import NotInstalled
from bench.race import Contender, Results, Round, against_best, against_redis
from bench.results import OURS, RATIO, SYNCED, UNSYNCED, Measurement, Target
from bench.together import Span


@pytest.fixture
def events(monkeypatch):
    """Return the events in their order. Brokers only report their starts and ends; clients need one
    second for each message.
    """
    happened = []

    @contextmanager
    def broker(name):
        happened.append(f"{name} starts")
        if name == "Missing":
            raise NotInstalled("Missing is not installed")
        yield name
        happened.append(f"{name} ends")

    names = (OURS, "Kafka", "Redis", "Missing")
    monkeypatch.setattr(race, "_BROKERS", {name: partial(broker, name) for name in names})
    monkeypatch.setattr(race, "together", lambda *roles: [role(None) for role in roles])
    return happened


def contender(events, broker, client="", strength=SYNCED, work=None, share=1.0):
    def role(count, start):
        events.append(f"{broker} {client}".strip())
        if work:
            work()
        return Span(0.0, float(count))

    return Contender(
        broker,
        client,
        "as it says",
        lambda address, queue: None,
        lambda address, queue, count: [partial(role, count)],
        share,
        strength,
    )


def test_brokers_take_turns_round_after_round(events):
    both = [contender(events, OURS), contender(events, "Redis", "a"), contender(events, "Redis", "b")]
    found = race.race(both, 2, 100)
    once = ["sparrow starts", "sparrow", "sparrow ends", "Redis starts", "Redis a", "Redis b", "Redis ends"]
    assert events == once * 2
    assert [len(results.rounds) for results in found.values()] == [2, 2, 2]


def test_slower_contender_gets_its_share_of_the_messages(events):
    slow = contender(events, "Redis", share=0.1)
    (found,) = race.race([slow], 1, 100)[slow].rounds
    assert found.messages == 10


def test_missing_peer_is_reported_and_looked_up_once(events):
    missing, present = contender(events, "Missing"), contender(events, "Redis")
    found = race.race([missing, present], 2, 1)
    row = found[missing].row("rate", "msg/s", missing, lambda each: each.rate)
    assert (row.runs, row.note, row.failed) == ([], "Missing is not installed", False)
    assert events.count("Missing starts") == 1
    assert len(found[present].rounds) == 2


def test_contender_that_fails_has_no_figure_and_the_others_go_on(events, capsys):
    attempts = []

    def work():
        attempts.append("one")
        if len(attempts) == 2:
            raise RuntimeError("the stream is gone\nfor ever")

    broken, other = contender(events, "Redis", "broken", work=work), contender(events, "Redis", "other")
    found = race.race([broken, other], 3, 1)
    row = found[broken].row("rate", "msg/s", broken, lambda each: each.rate)
    assert (row.runs, row.note, row.failed) == ([], "failed: the stream is gone", True)
    assert len(attempts) == 2
    assert len(found[other].rounds) == 3
    assert "for ever" in capsys.readouterr().err


def test_broker_that_starts_slowly_is_kept_where_asked_and_sees_no_name_twice(events):
    queues = []
    both = [
        Contender(name, "", "", lambda _, queue: queues.append(queue), lambda *_: [])
        for name in ("Kafka", "Redis")
    ]
    with keeping(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(race, "together", lambda *_: [Span(0, 1)])
        for _ in range(2):
            race.race(both, 1, 1)
    assert events == [
        *("Kafka starts", "Redis starts", "Redis ends", "Redis starts", "Redis ends"),
        "Kafka ends",
    ]
    assert len(set(queues)) == 4


def rows(events, *figures):
    """Return the rows of contenders, each (broker, strength, runs)."""
    found = {}
    for broker, strength, runs in figures:
        who = contender(events, broker, strength=strength)
        found[who] = Measurement(
            f"rate: {who}", "msg/s", runs=runs, figure="rate", broker=broker, strength=strength
        )
    return found


def test_only_peers_of_the_same_strength_are_compared_round_by_round(events):
    found = rows(
        events,
        (OURS, SYNCED, [10.0, 20.0]),
        ("Kafka", UNSYNCED, [100.0, 100.0]),
        ("Redis", SYNCED, [5.0, 40.0]),
        ("RabbitMQ", SYNCED, [2.0, 8.0]),
    )
    ours = next(iter(found.values()))
    best = against_best("ratio", ours, found, more_is_better=True)
    assert (best.runs, best.unit, best.figure) == ([2.0, 0.5], RATIO, "rate")
    assert against_best("ratio", ours, found, more_is_better=False).runs == [5.0, 2.5]


def test_redis_alone_is_the_yardstick_where_a_figure_says_so(events):
    found = rows(
        events,
        (OURS, SYNCED, [10.0, 20.0]),
        ("Redis", SYNCED, [5.0, 40.0]),
        ("RabbitMQ", SYNCED, [2.0, 8.0]),
    )
    ours = next(iter(found.values()))
    ratio = against_redis(ours, found, Target(1.1, at_least=False), more_is_better=False)
    assert (ratio.runs, ratio.unit, ratio.verdict) == ([2.0, 0.5], RATIO, "MISSED")
    assert ratio.name == f"{ours.name}, of Redis's"


def test_without_redis_the_row_says_how_to_get_it(events):
    found = rows(events, (OURS, SYNCED, [10.0]), ("Redis", SYNCED, []))
    ours = next(iter(found.values()))
    ratio = against_redis(ours, found, Target(1.0), more_is_better=True)
    assert (ratio.runs, ratio.verdict) == ([], "")
    assert "apt-get install redis-server" in ratio.note


def test_without_a_peer_of_its_strength_there_is_no_ratio(events):
    found = rows(events, (OURS, SYNCED, [10.0]), ("Kafka", UNSYNCED, [1.0]), ("Redis", SYNCED, []))
    ours = next(iter(found.values()))
    best = against_best("ratio", ours, found, more_is_better=True)
    assert (best.runs, best.note) == ([], "no peer of this strength was measured")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [([1.0, 1.2, 9.0], ""), ([1.0, 2.0, 4.0], "does not keep up with the rate: 1,000 msg/s"), ([], "")],
)
def test_peer_that_falls_behind_in_most_rounds_is_marked(seconds, said):
    rounds = [Round(2_000, [Span(5.0, 5.1), Span(5.0, 5.0 + each)]) for each in seconds]
    assert Results(rounds).behind(2_000) == said
