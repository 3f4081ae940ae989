"""Persisted form of the state of records: entries of the meta store.

Each subscriber and source has one entry for the start (everything before it is finished) and one
for each page of 4096 offsets behind it whose state the log alone does not show. So an
acknowledgement rewrites one small page, however many records are in flight, and a page of finished
records is deleted.

    queue-start    <queue id>/<subscriber>/<topic id>/<partition>
                   [version, start]
    queue-page     <queue id>/<subscriber>/<topic id>/<partition>/<page>
                   [version, leases, kinds, starts, runs]
    queue-failed   <queue id>/<topic id>/<partition>/<page>
                   [version, ranges]     (parents that failed)

    lease     [consumer, first ms, last ms, due (wall ms), remaining ms, error, reason]
    kind      [value without lease, index of the lease in `leases` or -1]; kind 0: not persisted
    starts    where each run begins within the page: u16, little-endian
    runs      the kind of each run: u16, little-endian; a run ends where the next begins, the last
              with the page

They are columns because a page of thousands of runs is then written by a few calls of C.

The end of a lease is persisted as wall time and as the time that remained when it was written
first; the shorter one holds after a restart, so that a clock that jumped meanwhile can end a lease
early, but never make it longer than it was at the beginning. A lease is written with every page
that has records of it, so it is encoded once.
"""

from __future__ import annotations

import sys
from array import array
from itertools import chain
from operator import lt
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from sparrow.base.errors import DirectoryUnreadable, NewerFormat
from sparrow.broker.queues.maps.range_map import RangeMap
from sparrow.broker.queues.rules.kept_page import KeptPage
from sparrow.broker.queues.rules.leases import Lease
from sparrow.broker.queues.rules.record_state import BELOW_LEASE, LEASE_SHIFT, PERSISTED, STATE_MASK

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable

    from sparrow.meta.store import Entry

START: Final = "queue-start"
PAGE: Final = "queue-page"
FAILED: Final = "queue-failed"
VERSION: Final = 1

_NOT_STORED: Final = (0, -1)

_FROM_0: Final = array("H", (0,))


class _StoredLease(msgspec.Struct, array_like=True):
    consumer: str
    first_ms: int
    last_ms: int
    due_wall_ms: int
    remaining_ms: int
    error: str
    reason: str


class _Page(msgspec.Struct, array_like=True):
    version: int
    leases: list[_StoredLease]
    kinds: list[tuple[int, int]]
    starts: bytes
    runs: bytes


class _Start(msgspec.Struct, array_like=True):
    version: int
    start: int


class _Failed(msgspec.Struct, array_like=True):
    version: int
    runs: list[tuple[int, int]]


_Stored = TypeVar("_Stored", _Page, _Start, _Failed)

_encode = msgspec.msgpack.Encoder().encode


def source_key(queue_id: uuid.UUID, subscriber: str, topic_id: uuid.UUID, partition: int) -> str:
    """Return the key of a source's start, which is the prefix of the keys of its pages."""
    return f"{queue_id.hex}/{subscriber}/{topic_id.hex}/{partition}"


def failed_key(queue_id: uuid.UUID, topic_id: uuid.UUID, partition: int) -> str:
    """Return the prefix of the keys of a source's failed parents."""
    return f"{queue_id.hex}/{topic_id.hex}/{partition}"


def encode_start(start: int) -> bytes:
    return _encode(_Start(VERSION, start))


def decode_start(entry: Entry) -> int:
    """Return the start that an entry holds. Raise DirectoryUnreadable or NewerFormat."""
    return _decoded(entry, _Start).start


def encode_page(
    columns: tuple[array[int], array[int]], leases: dict[int, Lease], now: Callable[[], tuple[int, int]]
) -> bytes | None:
    """Return the persisted form of a page; None if nothing need be persisted.

    Args:
        columns: the page, as `RangeMap.columns` returns it.
        now: (monotonic, wall) time in ms.
    """
    starts, values = columns
    encoded_leases: list[msgspec.Raw] = []
    numbers: dict[int, int] = {0: -1}
    kinds = [_NOT_STORED]
    codes: dict[int, int] = {}
    for value in set(values):
        if not value & PERSISTED[value & STATE_MASK]:
            codes[value] = 0
            continue
        number = value >> LEASE_SHIFT
        if number not in numbers:
            numbers[number] = len(encoded_leases)
            encoded_leases.append(msgspec.Raw(_encoded_lease(leases[number], now)))
        codes[value] = len(kinds)
        kinds.append((value & BELOW_LEASE, numbers[number]))
    if len(kinds) == 1:
        return None
    runs = array("H", map(codes.__getitem__, values))
    if sys.byteorder == "big":
        starts = starts[:]
        starts.byteswap()
        runs.byteswap()
    return _encode([VERSION, encoded_leases, kinds, starts.tobytes(), runs.tobytes()])


def _numbers(data: bytes) -> array[int]:
    numbers = array("H")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _encoded_lease(lease: Lease, now: Callable[[], tuple[int, int]]) -> bytes:
    if lease.encoded is None:
        now_ms, wall_ms = now()
        remaining_ms = max(0, lease.due_ms - now_ms) if lease.due_ms else 0
        due_wall_ms = wall_ms + remaining_ms if lease.due_ms else 0
        lease.encoded = _encode(
            _StoredLease(
                lease.consumer,
                lease.first_ms,
                lease.last_ms,
                due_wall_ms,
                remaining_ms,
                lease.error,
                lease.reason,
            )
        )
    return lease.encoded


def decode_page(entry: Entry, page: int, now_ms: int, wall_ms: int) -> KeptPage:
    """Return the states of a persisted page.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    stored = _decoded(entry, _Page)
    leases = [_decoded_lease(each, now_ms, wall_ms) for each in stored.leases]
    try:
        starts, kinds = _numbers(stored.starts), _numbers(stored.runs)
        kept = KeptPage(
            page,
            starts,
            kinds,
            [value for value, _ in stored.kinds],
            [leases[index] if index >= 0 else None for _, index in stored.kinds],
        )
    except (IndexError, ValueError):
        raise _unreadable(entry) from None
    is_ascending = all(map(lt, starts, chain(starts[1:], (RangeMap.PAGE,))))
    if len(starts) != len(kinds) or starts[:1] != _FROM_0 or not is_ascending:
        raise _unreadable(entry)
    if max(kinds) >= len(stored.kinds):
        raise _unreadable(entry)
    return kept


def _decoded_lease(stored: _StoredLease, now_ms: int, wall_ms: int) -> Lease:
    due_ms = 0
    if stored.due_wall_ms:
        due_ms = now_ms + max(0, min(stored.due_wall_ms - wall_ms, stored.remaining_ms))
        due_ms = due_ms or 1  # 0 means none
    return Lease(stored.consumer, stored.first_ms, stored.last_ms, due_ms, stored.error, stored.reason)


def encode_failed(runs: Iterable[tuple[int, int, int]], page: int) -> bytes | None:
    """Return the persisted form of a page's failed parents; None if there are none."""
    base = page << RangeMap.PAGE_BITS
    failed = [(first - base, end - base) for first, end, _ in runs]
    return _encode(_Failed(VERSION, failed)) if failed else None


def decode_failed(entry: Entry, page: int) -> list[tuple[int, int]]:
    """Return the failed parents that an entry holds. Raise DirectoryUnreadable or NewerFormat."""
    base = page << RangeMap.PAGE_BITS
    return [(base + first, base + end) for first, end in _decoded(entry, _Failed).runs]


def page_of(entry: Entry) -> int:
    """Return the number at the end of a page's key."""
    number = entry.key.rpartition("/")[2]
    if not number.isdecimal():
        raise _unreadable(entry)
    return int(number)


def _decoded(entry: Entry, kind: type[_Stored]) -> _Stored:
    try:
        version = msgspec.msgpack.decode(entry.value, type=list[msgspec.Raw])[0]
        number = msgspec.msgpack.decode(version, type=int)
        if number > VERSION:
            raise NewerFormat(
                f"the {entry.kind} {entry.key!r} was written by a later Sparrow (version {number}); "
                "start that one"
            )
        return msgspec.msgpack.decode(entry.value, type=kind)
    except (msgspec.DecodeError, IndexError):
        raise _unreadable(entry) from None


def _unreadable(entry: Entry) -> DirectoryUnreadable:
    return DirectoryUnreadable(
        f"the {entry.kind} {entry.key!r} of the meta store cannot be read; restore meta.db from a backup"
    )
