"""How the state of records is kept: facts of the meta store.

Per lane and source there is one fact for the start (everything before it is finished) and one for each page of 4096 offsets behind it
of which the log alone does not tell everything. So an acknowledgement rewrites one small page, however many records are under way, and
a page of which all is finished is deleted.

    queue-start   <queue id>/<lane>/<topic id>/<partition>           [version, start]
    queue-page    <queue id>/<lane>/<topic id>/<partition>/<page>    [version, marks, kinds, starts, runs]
    queue-failed  <queue id>/<topic id>/<partition>/<page>           [version, ranges]     (parents that failed)

    mark          [consumer, first ms, last ms, due (wall ms), remaining ms, error, reason]
    kind          [value without mark, number of the mark in `marks` or -1]; kind 0 is what need not be kept
    starts        where each run begins within the page: u16, little-endian
    runs          the kind of each run: u16, little-endian; a run ends where the next begins, the last with the page

Columns, because a page of thousands of runs is then written by a few calls of C.

The end of a lease is kept as wall time and as the time that remained when it was written first; whichever is shorter holds after a
restart, so that a clock that jumped meanwhile can end a lease early, but never make it longer than it was at the beginning. A mark is
written with every page that has records of it, so it is encoded once.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sparrow.base.errors import DirectoryUnreadable, NewerFormat
from sparrow.broker.queues.ranges import RangeMap
from sparrow.broker.queues.values import BELOW_MARK, MARK_SHIFT, Mark, must_be_kept

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable

    from sparrow.meta.store import Fact

START: Final = "queue-start"
PAGE: Final = "queue-page"
FAILED: Final = "queue-failed"
VERSION: Final = 1

_NOT_KEPT: Final = (0, -1)

KeptRun = tuple[int, int, int, Mark | None]
"""First offset, end, value without its mark, the mark."""


class _Mark(msgspec.Struct, array_like=True):
    consumer: str
    first_ms: int
    last_ms: int
    due_wall_ms: int
    remaining_ms: int
    error: str
    reason: str


class _Page(msgspec.Struct, array_like=True):
    version: int
    marks: list[_Mark]
    kinds: list[tuple[int, int]]
    starts: bytes
    runs: bytes


class _Start(msgspec.Struct, array_like=True):
    version: int
    start: int


class _Failed(msgspec.Struct, array_like=True):
    version: int
    runs: list[tuple[int, int]]


_Kept = TypeVar("_Kept", _Page, _Start, _Failed)

_encode = msgspec.msgpack.Encoder().encode


def source_key(queue_id: uuid.UUID, lane: str, topic_id: uuid.UUID, partition: int) -> str:
    """The key of a source's start, and the beginning of the keys of its pages."""
    return f"{queue_id.hex}/{lane}/{topic_id.hex}/{partition}"


def failed_key(queue_id: uuid.UUID, topic_id: uuid.UUID, partition: int) -> str:
    """The beginning of the keys of a source's failed parents."""
    return f"{queue_id.hex}/{topic_id.hex}/{partition}"


def encode_start(start: int) -> bytes:
    return _encode(_Start(VERSION, start))


def decode_start(fact: Fact) -> int:
    """Raises DirectoryUnreadable, NewerFormat."""
    return _decoded(fact, _Start).start


def encode_page(
    columns: tuple[array[int], array[int]], marks: dict[int, Mark], now_ms: int, wall_ms: int
) -> bytes | None:
    """What must be kept of a page; None if nothing must.

    Args:
        columns: the page's, as `RangeMap.columns` has them.
        now_ms: monotonic.
    """
    starts, values = columns
    kept_marks: list[msgspec.Raw] = []
    numbers: dict[int, int] = {0: -1}
    kinds = [_NOT_KEPT]
    codes: dict[int, int] = {}
    for value in set(values):
        if not must_be_kept(value):
            codes[value] = 0
            continue
        number = value >> MARK_SHIFT
        if number not in numbers:
            numbers[number] = len(kept_marks)
            kept_marks.append(msgspec.Raw(_kept_mark(marks[number], now_ms, wall_ms)))
        codes[value] = len(kinds)
        kinds.append((value & BELOW_MARK, numbers[number]))
    if len(kinds) == 1:
        return None
    runs = array("H", map(codes.__getitem__, values))
    return _encode([VERSION, kept_marks, kinds, _bytes(starts), _bytes(runs)])


def _bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(data: bytes) -> array[int]:
    numbers = array("H")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _kept_mark(mark: Mark, now_ms: int, wall_ms: int) -> bytes:
    if mark.kept is None:
        remaining_ms = max(0, mark.due_ms - now_ms) if mark.due_ms else 0
        due_wall_ms = wall_ms + remaining_ms if mark.due_ms else 0
        mark.kept = _encode(
            _Mark(
                mark.consumer,
                mark.first_ms,
                mark.last_ms,
                due_wall_ms,
                remaining_ms,
                mark.error,
                mark.reason,
            )
        )
    return mark.kept


def decode_page(fact: Fact, page: int, now_ms: int, wall_ms: int) -> list[KeptRun]:
    """What was kept of a page.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    kept = _decoded(fact, _Page)
    base = page << RangeMap.PAGE_BITS
    marks = [_mark(each, now_ms, wall_ms) for each in kept.marks]
    try:
        starts, runs = _numbers(kept.starts), _numbers(kept.runs)
        ends = [*starts[1:], RangeMap.PAGE]
        found: list[KeptRun] = []
        for first, end, kind in zip(starts, ends, runs, strict=True):
            value, index = kept.kinds[kind]
            if kind:
                found.append((base + first, base + end, value, marks[index] if index >= 0 else None))
    except (IndexError, ValueError):
        raise _unreadable(fact) from None
    return found


def _mark(kept: _Mark, now_ms: int, wall_ms: int) -> Mark:
    due_ms = 0
    if kept.due_wall_ms:
        due_ms = now_ms + max(0, min(kept.due_wall_ms - wall_ms, kept.remaining_ms))
        due_ms = due_ms or 1  # 0 means none
    return Mark(kept.consumer, kept.first_ms, kept.last_ms, due_ms, kept.error, kept.reason)


def encode_failed(runs: Iterable[tuple[int, int, int]], page: int) -> bytes | None:
    """The failed parents of a page; None if there are none."""
    base = page << RangeMap.PAGE_BITS
    failed = [(first - base, end - base) for first, end, _ in runs]
    return _encode(_Failed(VERSION, failed)) if failed else None


def decode_failed(fact: Fact, page: int) -> list[tuple[int, int]]:
    """Raises DirectoryUnreadable, NewerFormat."""
    base = page << RangeMap.PAGE_BITS
    return [(base + first, base + end) for first, end in _decoded(fact, _Failed).runs]


def page_of(fact: Fact) -> int:
    """The number at the end of a page's key."""
    number = fact.key.rpartition("/")[2]
    if not number.isdecimal():
        raise _unreadable(fact)
    return int(number)


def _decoded(fact: Fact, kind: type[_Kept]) -> _Kept:
    try:
        version = msgspec.msgpack.decode(fact.value, type=list[msgspec.Raw])[0]
        number = msgspec.msgpack.decode(version, type=int)
        if number > VERSION:
            raise NewerFormat(
                f"the {fact.kind} {fact.key!r} was written by a later Sparrow (version {number}); start that one"
            )
        return msgspec.msgpack.decode(fact.value, type=kind)
    except (msgspec.DecodeError, IndexError):
        raise _unreadable(fact) from None


def _unreadable(fact: Fact) -> DirectoryUnreadable:
    return DirectoryUnreadable(
        f"the {fact.kind} {fact.key!r} of the meta store cannot be read; restore meta.db from a backup"
    )
