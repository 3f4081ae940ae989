"""FETCH over a session brings all records of the log, in order, as they were published."""

from __future__ import annotations

import itertools
import resource
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparrow.testing
from sparrow.base.errors import SparrowError
from sparrow.protocol.native import messages as m
from sparrow.records.batch import parse_header, split
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.records.record import decode
from sparrow.spark.wire import FetchWanted, Session, Target, connect
from sparrow.spark.wire.buffers import KEPT_BUFFERS, STEP_BYTES, Buffers
from tests.repetitions import repetitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparrow.testing.running_broker import RunningBroker

SECONDS = 60
_names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def session(running: RunningBroker) -> Iterator[Session]:
    with connect(Target(running.url)) as made:
        yield made


def published(session: Session, batches: Sequence[bytes]) -> str:
    """Create a topic with these batches."""
    topic = next(_names)
    session.call("topic.create", {"name": topic, "partitions": 1, "config": {"segment.bytes": "100000"}})
    channel = session.open_channel(m.OpenProducer(idempotent=False))
    for batch in batches:
        channel.send(m.Publish(1, topic, 0), batch)
        head = channel.receive().head
        assert isinstance(head, m.Confirm)
        assert head.confirmations[0].failure is None
    channel.close()
    return topic


def body(batch: bytes | memoryview) -> bytes:
    """Return a batch without the fields that the broker stamps."""
    return bytes(batch[8:12]) + bytes(batch[16:])


_values = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=5)
_batches = st.lists(
    st.builds(
        lambda values, size, compression: build_batch(
            [*values, bytes(size)], timestamps=1_700_000_000_000, compression=compression
        ),
        _values,
        st.sampled_from([0, 10, 5_000, 70_000]),
        st.sampled_from(Compression),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=repetitions(25), deadline=None)
@given(_batches, st.sampled_from([1, 300, 20_000, 1 << 20]), st.integers(1, 4), st.booleans())
def test_reading_ahead_gives_the_log_batch_for_batch(
    session: Session, batches: list[bytes], max_bytes: int, depth: int, is_committed: bool
) -> None:
    topic = published(session, batches)
    (place,) = session.call("topic.offsets", {"name": topic})["offsets"]
    end = place[1]
    found: list[bytes] = []
    wanted, position = 0, 0
    with session.fetch_ahead() as ahead:
        while position < end:
            while len(ahead) < depth:
                wanted = wanted if len(ahead) else position
                ahead.send(FetchWanted(topic, "", 0, min(wanted, end), max_bytes, is_committed))
                wanted += 1
            chunk = ahead.receive()
            for header, view in split(chunk.data):
                if header.base_offset >= position:
                    assert header.base_offset == position
                    found.append(body(view))
                    position = header.next_offset
            assert (chunk.start_offset, chunk.end_offset, chunk.stable_offset) == (0, end, end)
    assert found == [body(batch) for batch in batches]


@settings(max_examples=repetitions(25), deadline=None)
@given(_batches, st.data())
def test_a_fetch_begins_with_the_batch_that_holds_the_offset(
    session: Session, batches: list[bytes], data: st.DataObject
) -> None:
    topic = published(session, batches)
    ends = list(itertools.accumulate(parse_header(batch).record_count for batch in batches))
    offset = data.draw(st.integers(0, ends[-1]))
    chunk = session.fetch(FetchWanted(topic, offset=offset, max_bytes=data.draw(st.integers(1, 200_000))))
    first = sum(end <= offset for end in ends)
    found = [body(view) for _, view in split(chunk.data)]
    assert found == [body(batch) for batch in batches[first : first + len(found)]]
    assert bool(found) == (offset < ends[-1])
    assert chunk.next_offset == (ends[first + len(found) - 1] if found else offset)


def committed(chunk_data: memoryview, aborted: Sequence[tuple[int, int]]) -> list[bytes | None]:
    """Return the values that a reader of committed records keeps (KIP-98)."""
    kept: list[bytes | None] = []
    pending = sorted(aborted, key=lambda each: each[1])
    dropped: set[int] = set()
    for header, view in split(chunk_data):
        while pending and pending[0][1] <= header.last_offset:
            dropped.add(pending.pop(0)[0])
        if header.is_control:
            dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            kept += [record.value for record in decode(view)]
    return kept


def test_transactions_are_told_as_aborted_and_open_ones_are_kept_back(
    running: RunningBroker, session: Session
) -> None:
    now_ms = int(time.time() * 1000)  # of one age, so that all are in one segment
    topic = published(session, [build_batch([b"plain"], timestamps=now_ms)])
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.kafka, "transactional.id": topic, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(SECONDS)
    expected: list[bytes | None] = [b"plain"]
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(SECONDS)
        if number % 2:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
            expected.append(b"%d" % number)
    stable = session.fetch(FetchWanted(topic)).end_offset
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(SECONDS)
    chunk = session.fetch(FetchWanted(topic, max_bytes=1 << 20))
    assert (chunk.next_offset, chunk.stable_offset, chunk.end_offset) == (stable, stable, stable + 1)
    assert len(chunk.aborted) == 3
    assert committed(chunk.data, chunk.aborted) == expected
    everything = session.fetch(FetchWanted(topic, is_committed=False))
    assert (everything.next_offset, everything.aborted) == (stable + 1, [])
    first_aborted = chunk.aborted[0][1]
    assert session.fetch(FetchWanted(topic, offset=first_aborted, max_bytes=1)).aborted == [chunk.aborted[0]]
    known = {topic: {0: stable}}
    answer = session.call("topic.watch", {"topics": [topic], "known": known, "isolation": "read_committed"})
    assert answer["topics"][0]["partitions"] == [[0, 0, stable]]
    producer.commit_transaction(SECONDS)
    wanted = {"topics": [topic], "known": known, "isolation": "read_committed", "wait_ms": 5000}
    assert session.call("topic.watch", wanted)["topics"][0]["partitions"] == [[0, 0, stable + 2]]
    producer.flush(SECONDS)


@pytest.mark.slow
def test_memory_stays_that_of_a_few_chunks_however_much_is_read(running: RunningBroker) -> None:
    with connect(Target(running.url)) as session:
        batch = build_batch([bytes(1000)] * 900, timestamps=1_700_000_000_000)
        topic = published(session, [batch] * 40)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with session.fetch_ahead() as ahead:
            for _ in range(10):
                for number in range(40):
                    ahead.send(FetchWanted(topic, offset=number * 900, max_bytes=1 << 20))
                    if len(ahead) == 3:
                        assert len(ahead.receive().data) == len(batch)
                while len(ahead):
                    assert len(ahead.receive().data) == len(batch)
        assert session.connection()._buffers.kept_bytes <= KEPT_BUFFERS * (len(batch) + STEP_BYTES)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 60_000


# ── the buffers ───────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(1, 3 * STEP_BYTES), st.integers(0, 5)), max_size=30))
def test_a_buffer_that_somebody_looks_at_is_never_given_again(asked: list[tuple[int, int]]) -> None:
    buffers = Buffers()
    held: list[tuple[memoryview, int]] = []
    for number, (size, kept) in enumerate(asked):
        view = buffers.take(size)
        assert len(view) == size
        view[0] = view[-1] = number % 256
        held.append((view[:], number % 256))
        held = held[len(held) - kept :] if kept else []
        del view
        for seen, mark in held:
            assert seen[0] == seen[-1] == mark
    assert len(buffers._kept) <= KEPT_BUFFERS


def test_a_buffer_that_nobody_looks_at_is_used_again() -> None:
    buffers = Buffers()
    for size in (1_000_000, 900_000, 1_000_000, 5):
        buffers.take(size)
        assert len(buffers._kept) == 1
    first = buffers.take(500_000)
    buffers.take(500_000)
    assert len(buffers._kept) == 2
    del first
    buffers.take(500_000)
    assert len(buffers._kept) == 2


# ── nonsense ──────────────────────────────────────────────────────────────────────────────────────

_numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 5)
_texts = st.sampled_from(
    ["orders", "", "none", "read_committed", "*", "\x00", "é" * 300, "__consumer_offsets"]
)
_anything: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | _numbers | _texts | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_texts, inner, max_size=3)
        | st.dictionaries(_numbers, inner, max_size=2)
    ),
    max_leaves=8,
)
_places = st.lists(st.tuples(_numbers, _numbers, _numbers), max_size=4)
_arguments = st.fixed_dictionaries(
    {},
    optional={
        "topic": _texts | _anything,
        "topics": st.lists(_texts, max_size=3) | _anything,
        "known": st.dictionaries(_texts, st.dictionaries(_numbers, _numbers, max_size=2), max_size=2)
        | _anything,
        "ids": st.dictionaries(_texts, _texts, max_size=2) | _anything,
        "isolation": _texts | _anything,
        "wait_ms": st.integers(-5, 5) | _anything,
        "ranges": _places | _anything,
        "points": _places | _anything,
    },
)


@settings(max_examples=repetitions(60), deadline=None)
@given(
    fetches=st.lists(
        st.builds(
            m.Fetch, _numbers, _texts, _texts, _numbers, _numbers, _numbers, _texts, st.integers(-3, 3)
        ),
        max_size=4,
    ),
    verb=st.sampled_from(["topic.watch", "topic.weigh", "topic.reach"]),
    arguments=_arguments,
)
def test_whatever_is_asked_for_is_answered_and_ends_nothing(
    session: Session, fetches: list[m.Fetch], verb: str, arguments: dict[str, object]
) -> None:
    session.call("topic.ensure", {"name": "orders"})
    connection = session.connection()
    deadline = time.monotonic() + SECONDS
    for fetch in fetches:
        connection.send(fetch, deadline=deadline)
    refusals: list[str] = []
    try:
        session.call(verb, {"wait_ms": 1, **arguments}, timeout_s=20)
    except SparrowError as error:
        refusals.append(error.code)
    while len(connection.fetched) < len(fetches):
        connection.receive(deadline)
    answers = [head for head, _ in connection.fetched]
    connection.fetched.clear()
    assert [head.ref for head in answers] == [fetch.ref for fetch in fetches]
    refusals += [head.failure.code for head in answers if head.failure is not None]
    assert not {"INTERNAL", "CONNECTION_LOST", "TIMED_OUT"} & set(refusals)
    assert session.connection() is connection
