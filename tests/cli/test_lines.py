"""Lines from a descriptor."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidRecord
from sparrow.cli import lines as lines_module
from sparrow.cli.lines import read_lines


async def collect(descriptor):
    return [line async for lines in read_lines(descriptor) for line in lines]


def lines_of(chunks):
    """Return the lines that `read_lines` yields for chunks written to a pipe one by one."""
    reader, writer = os.pipe()

    def feed():
        for chunk in chunks:
            os.write(writer, chunk)
        os.close(writer)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        return asyncio.run(collect(reader))
    finally:
        thread.join()
        os.close(reader)


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_any_split_of_the_input_gives_the_same_lines(chunks):
    data = b"".join(chunks)
    expected = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    if expected[-1] == b"" and not data.endswith(b"\r"):
        expected.pop()
    assert lines_of(chunks) == expected


def test_last_line_needs_no_end():
    assert lines_of([b"one\ntwo\r\n\nthree"]) == [b"one", b"two", b"", b"three"]


def test_lines_come_before_the_input_ends():
    async def first_line():
        reader, writer = os.pipe()
        os.write(writer, b"early\nlat")
        found = await anext(read_lines(reader))
        os.close(writer)
        os.close(reader)
        return found

    assert asyncio.run(first_line()) == [b"early"]


def test_endless_line_is_refused(monkeypatch):
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 1000)
    with pytest.raises(InvalidRecord, match="longer than"):
        lines_of([b"x" * 2000])


def test_stopping_early_leaves_other_files_alone():
    reader, writer = os.pipe()

    async def stop_early():
        lines = read_lines(reader)
        first = await anext(lines)
        await lines.aclose()
        os.close(reader)
        return first

    os.write(writer, b"one\n")
    assert asyncio.run(stop_early()) == [b"one"]
    # The number of the closed descriptor is given out again; what is written there must not be
    # taken by the old reader.
    again = [lines_of([b"two\n"]) for _ in range(20)]
    os.close(writer)
    assert again == [[b"two"]] * 20
