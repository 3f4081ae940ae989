"""Markers: read back, and batches that are none."""

from __future__ import annotations

import pytest

from sparrow.base.errors import CorruptBatch, InvalidArgument
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import build_batch
from sparrow.records.control import ControlType, Marker, build_marker, maybe_parse_marker
from tests.records.columns import NOW_MS
from tests.records.naive import with_fields


def control(key: bytes | None, value: bytes | None) -> bytes:
    return with_fields(
        build_batch([value], [key], timestamps=NOW_MS, producer_id=4, producer_epoch=1), attributes=0x30
    )


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_marker_has_the_bytes_of_kip_98(kind: ControlType) -> None:
    batch = build_marker(kind, 7, 2, NOW_MS, 5)
    assert batch[HEADER_BYTES:].hex() == f"20000000080000000{kind.value}0c000000000005" + "00"


def test_marker_of_another_coordinators_epoch_is_read() -> None:
    marker = maybe_parse_marker(control(b"\0\0\0\1", b"\0\0\0\0\0\x09"))
    assert marker == Marker(ControlType.COMMIT, 4, 1, 9, 0, NOW_MS)


def test_marker_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    marker = maybe_parse_marker(control(b"\0\1\0\0more", b"\0\1\0\0\0\x09more"))
    assert marker == Marker(ControlType.ABORT, 4, 1, 9, 0, NOW_MS)


@pytest.mark.parametrize("number", [2, 3, 6, 900])
def test_control_record_of_kafkas_quorum_is_some_other(number: int) -> None:
    marker = maybe_parse_marker(control(b"\0\0" + number.to_bytes(2, "big"), b"anything"))
    assert marker is not None
    assert (marker.type, marker.coordinator_epoch) == (ControlType.OTHER, -1)


def test_control_batch_that_compaction_emptied_says_nothing() -> None:
    assert maybe_parse_marker(with_fields(control(b"", b"")[:HEADER_BYTES], record_count=0)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\0"),
        (b"\0\0\0", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_malformed_marker_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        maybe_parse_marker(control(key, value))


def test_batch_of_records_is_no_marker() -> None:
    with pytest.raises(InvalidArgument, match="no control batch"):
        maybe_parse_marker(build_batch([b"a"]))


def test_transaction_ends_with_commit_or_abort_only() -> None:
    with pytest.raises(InvalidArgument):
        build_marker(ControlType.OTHER, 7, 2, NOW_MS)
