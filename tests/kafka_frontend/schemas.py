"""Hypothesis strategies for any message of kio's schemas."""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from sparrow.frontends.kafka.codec.schema import WireField, wire_fields
from sparrow.records.builder import build_batch
from sparrow.records.control import ControlType, build_marker


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.one_of(st.integers(-2, 3) if signed else st.integers(0, 3), st.integers(low, high))


KNOWN_NAMES = ["t", "g", "txn", "User:ANONYMOUS", "1", "consumer", "range", "retention.ms", "PLAIN"]
"""Names that a broker under test may know, so that requests pass the first check."""
KNOWN_IDS: list[uuid.UUID] = []
"""Topic ids for the same purpose; filled by a test."""
_BATCHES = [
    build_batch([b"v"], [b"k"]),
    build_batch([b"v"], producer_id=0, producer_epoch=0, base_sequence=0),
    build_batch([b"v"], producer_id=0, producer_epoch=0, base_sequence=0, transactional=True),
    build_marker(ControlType.COMMIT, 0, 0, 0),
]
_TEXT = st.sampled_from(KNOWN_NAMES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint8": _integers(8, signed=False),
    "uint16": _integers(16, signed=False),
    "uint32": _integers(32, signed=False),
    "uint64": _integers(64, signed=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "string": _TEXT,
    "bytes": st.binary(max_size=40),
    "records": st.sampled_from(_BATCHES) | st.binary(max_size=80),
    "uuid": st.none() | st.integers(0, 3).map(lambda n: _identity(n)),  # noqa: PLW0108 - defined below
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(-1, 50).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-1, 50).map(lambda ms: timedelta(milliseconds=ms)),
}


def _identity(n: int) -> uuid.UUID:
    return KNOWN_IDS[n] if n < len(KNOWN_IDS) else uuid.UUID(int=n + 1)


@cache
def messages(kind: Any) -> st.SearchStrategy[Any]:
    """Generate messages of a kio class. Times that handlers give in ms as plain integers are
    null.
    """
    return st.builds(kind, **{each.name: _field(each) for each in wire_fields(kind)})


def _field(field: WireField) -> st.SearchStrategy[Any]:
    if field.kind == "datetime_i64":
        # kio does not accept -1 for a field without null in its schema, though Kafka itself sends
        # one (DescribeTransactions of a transaction that never began).
        return st.none() if field.is_nullable else st.just(0)
    one = messages(field.entity) if field.entity is not None else _KINDS[field.kind]
    found = st.lists(one, max_size=3).map(tuple) if field.is_array else one
    if field.is_nullable and field.tag is None:
        return found | st.none()
    return found
