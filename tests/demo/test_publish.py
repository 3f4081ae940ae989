"""The order in which a source is published: shuffled, the same every time; the source is never held
in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.demo.history import CommitMessage
from sparrow.demo.stages import BLOCK, shuffled


def messages(count: int) -> Iterator[CommitMessage]:
    return (CommitMessage(str(n), b"{}") for n in range(count))


@given(st.integers(0, 3 * BLOCK))
@settings(max_examples=15)
def test_every_message_is_published_once_and_the_same_way_every_time(count):
    order = [each.id for block in shuffled(messages(count)) for each in block]
    assert sorted(order, key=int) == [str(n) for n in range(count)]
    assert order == [each.id for block in shuffled(messages(count)) for each in block]


def test_order_is_another_one():
    (block,) = shuffled(messages(100))
    assert [each.id for each in block] != [each.id for each in messages(100)]


def test_one_block_is_read_at_a_time():
    read = []
    source = (read.append(each.id) or each for each in messages(10 * BLOCK))
    blocks = shuffled(source)
    next(blocks)
    assert len(read) == BLOCK
