"""`sparrow log dump`: a segment file, offline."""

from __future__ import annotations

import json

import pytest

from sparrow.cli.ndjson import parse_line

BATCHES = 3


def test_batches_are_printed_with_offsets_and_positions(run, segment):
    found = run("log", "dump", segment)
    lines = found.out.splitlines()
    assert (found.code, found.err, len(lines)) == (0, "", BATCHES)
    assert lines[1].startswith("position ")
    assert "offsets 10..19 records 10 " in lines[1]
    assert "none epoch" in lines[1]
    assert "time 2026-05-01T12:00:00.000Z..2026-05-01T12:00:00.000Z" in lines[1]


def test_records_are_printed_when_asked_for(run, segment):
    lines = run("log", "dump", segment, "--records").out.splitlines()
    assert len(lines) == BATCHES + 30
    assert lines[1] == "  0 2026-05-01T12:00:00.000Z key 'k' value 'value 00' h=b'x'"


def test_json_is_one_object_per_line(run, segment):
    objects = [
        json.loads(line) for line in run("log", "dump", segment, "--json", "--records").out.splitlines()
    ]
    batch, record = objects[11], objects[12]
    assert (batch["base_offset"], batch["record_count"], batch["codec"]) == (10, 10, "none")
    assert (record["offset"], record["value"], record["headers"]) == (10, "value 10", {"h": "x"})


def damage(segment, position, data):
    with open(segment, "r+b") as file:
        file.seek(position)
        file.write(data)


def test_wrong_crc_is_reported_with_its_position_and_the_rest_is_printed(run, segment):
    size = segment.stat().st_size // BATCHES
    damage(segment, size + 100, b"\xff\xff")
    found = run("log", "dump", segment)
    assert found.code == 65
    assert [line.split()[3] for line in found.out.splitlines()] == ["0..9", "20..29"]
    assert f"position {size}: record batch's CRC is" in found.err


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (b"\x00" * 200, "no record batch begins here (only zeros)"),
        (b"\x01" * 200, "no record batch begins here (magic 1"),
        (b"\x00" * 5, "the last 5 bytes are too few for a batch: a torn tail"),
    ],
)
def test_bytes_that_are_no_batch_are_reported_with_their_position(run, segment, tail, problem):
    size = segment.stat().st_size
    damage(segment, size, tail)
    found = run("log", "dump", segment)
    assert found.code == 65
    assert len(found.out.splitlines()) == BATCHES
    assert f"position {size}: {problem}" in found.err


def test_torn_last_batch_is_reported(run, segment):
    size = segment.stat().st_size
    with open(segment, "r+b") as file:
        file.truncate(size - 10)
    found = run("log", "dump", segment)
    assert found.code == 65
    assert "the batch at offset 20 lacks its last 10 bytes: a torn tail" in found.err


def test_missing_file_is_named(run, tmp_path):
    found = run("log", "dump", tmp_path / "no.log")
    assert (found.code, found.out) == (66, "")
    assert "no.log: no such file" in found.err


def test_records_of_a_file_are_lines_that_publish_reads(run, segment):
    lines = run("log", "dump", segment, "--json", "--records").out.splitlines()
    records = [line for line in lines if "position" not in json.loads(line)]
    assert len(records) == 30
    assert {parse_line(line.encode()).partition for line in records} == {None}
