"""A new regular expression over many topics holds the loop for a bounded number of names at a
time.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest

from sparrow.base.errors import InvalidRegularExpression
from sparrow.broker.groups import topic_regexes
from sparrow.broker.groups.topic_regexes import TopicRegexes
from sparrow.broker.topics.name_matches import SLICE


@dataclass(frozen=True)
class Topic:
    name: str


class Counted:
    """An expression that counts the names it is matched with."""

    def __init__(self, compiled):
        self._compiled = compiled
        self.asked = 0

    def fullmatch(self, name):
        self.asked += 1
        return self._compiled.fullmatch(name)


@pytest.fixture
def counted(monkeypatch):
    made = []
    compile_regex = topic_regexes.compile_regex

    def compiled(regex):
        made.append(Counted(compile_regex(regex)))
        return made[-1]

    monkeypatch.setattr(topic_regexes, "compile_regex", compiled)
    return made


async def test_a_hundred_thousand_topics_are_matched_in_slices(counted):
    topics = [Topic(f"orders-{number}") for number in range(100_000)]
    regexes = TopicRegexes(topics)
    between = [0]

    async def pause():
        between.append(counted[0].asked)

    await regexes.learn("orders-.*7", pause)
    between.append(counted[0].asked)
    assert between[-1] == len(topics)
    assert max(b - a for a, b in itertools.pairwise(between)) <= SLICE
    assert regexes.matching("orders-.*7") == {t.name for t in topics if t.name.endswith("7")}
    assert counted[0].asked == len(topics)  # it was in the cache
    await regexes.learn("orders-.*7", pause)
    assert counted[0].asked == len(topics)


@pytest.mark.parametrize("seed", range(20))
async def test_topics_that_come_and_go_meanwhile_are_seen(seed):
    choose = random.Random(seed)
    topics = {f"t{number}": Topic(f"t{number}") for number in range(5 * SLICE)}

    class Live:
        def __iter__(self):
            return iter(topics.values())

    regexes = TopicRegexes(Live())

    async def pause():
        for _ in range(200):
            name = f"t{choose.randrange(6 * SLICE)}"
            if name in topics:
                del topics[name]
                regexes.topic_deleted(name)
            else:
                topics[name] = Topic(name)
                regexes.topic_created(name)

    await regexes.learn("t.*[02468]", pause)
    assert regexes.matching("t.*[02468]") == {name for name in topics if name[-1] in "02468"}


async def test_invalid_expression_is_refused_and_forgotten():
    regexes = TopicRegexes([Topic("a")])

    async def pause():
        raise AssertionError

    with pytest.raises(InvalidRegularExpression):
        await regexes.learn("(", pause)
    assert not regexes._learning
