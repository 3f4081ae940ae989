"""The stored form of a claim: entries of version 1 can be read for ever."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from sparrow.base.errors import DirectoryUnreadable, InvalidArgument, NewerFormat, RecordTooLarge
from sparrow.broker.idempotency.stored_publish import (
    KIND,
    MAX_RUNS,
    IdempotencyKey,
    StoredPublish,
    StoredRun,
    decode,
    plan,
)
from sparrow.meta.store import Entry

KEY = IdempotencyKey("User:alice", "one", b"f" * 16)
DIGEST = "f661440e39b8567aa872f2178949cf5f"
VERSION_1 = bytes.fromhex(
    "9901cf0000018bcfe56800aa557365723a616c696365c41066666666666666666666666666666666c410000000000000"
    "000000000000000000072996ff0402cf0000018bcfe56800ce0010000c29939602030acf0000018bcfe56801a0a09600"
    "01ffffb05245434f52445f544f4f5f4c41524745a9746f6f206c61726765960001ffffa0a082020a0005"
)
TIME_MS = 1_700_000_000_000


def written() -> StoredPublish:
    kept = plan(
        KEY,
        uuid.UUID(int=7),
        [-1, 4, 2, TIME_MS, 1_048_588, 41],
        [(2, 3), (0, 1), (0, 1)],
        producer_id=41,
        created_ms=TIME_MS,
        ends={2: 10, 0: 5},
    )
    kept.runs[0] = StoredRun(2, 3, 10, TIME_MS + 1)
    kept.runs[1].refuse(RecordTooLarge("too large"))
    return kept


def test_version_1_is_written_and_read_as_it_was_released() -> None:
    put = written().put(KEY.digest, 0)
    assert (put.kind, put.key, put.value) == (KIND, DIGEST, VERSION_1)
    kept = decode(Entry(KIND, DIGEST, VERSION_1, 1))
    assert kept == written()
    assert [run.is_settled for run in kept.runs] == [True, True, False]
    assert isinstance(kept.runs[1].error, RecordTooLarge)
    assert not kept.is_settled
    assert kept.is_stored_in_part


def test_entry_of_a_later_version_is_refused() -> None:
    later = written()
    later.version = 2
    with pytest.raises(NewerFormat, match="was written by a later Sparrow"):
        decode(Entry(KIND, DIGEST, msgspec.msgpack.encode(later), 1))


@pytest.mark.parametrize("value", [b"", b"\xc1", VERSION_1[:-1], msgspec.msgpack.encode([1, 2])])
def test_unreadable_entries_are_named(value: bytes) -> None:
    with pytest.raises(DirectoryUnreadable, match="restore"):
        decode(Entry(KIND, DIGEST, value, 1))


def test_more_batches_than_numbers_are_refused() -> None:
    runs = [(0, 1)] * (MAX_RUNS + 1)
    with pytest.raises(InvalidArgument, match="send fewer messages together"):
        plan(KEY, uuid.UUID(int=7), [], runs, producer_id=1, created_ms=0, ends={})
