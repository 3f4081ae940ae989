"""Logs and files of JSON lines as messages: each line once and in its order, in any encoding; what cannot be a message is counted."""

from __future__ import annotations

import gzip
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.demo.lines import LogFile, Tally

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"]
plain_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=30)


def log(tmp_path, content: bytes, **options) -> LogFile:
    path = tmp_path / "server.log"
    path.write_bytes(content)
    return LogFile(str(path), **options)


def values(source: LogFile) -> list[str]:
    return [each.value.decode() for each in source.messages()]


@settings(max_examples=50)
@given(
    lines=st.lists(plain_text, max_size=20),
    encoding=st.sampled_from(ENCODINGS),
    end=st.sampled_from(["\n", "\r\n"]),
    is_packed=st.booleans(),
)
def test_every_line_with_text_is_a_message_in_any_encoding(lines, encoding, end, is_packed, tmp_path_factory):
    # The first lines are long enough to tell how the others are encoded.
    lines = ["a first line in plain letters", *lines]
    content = end.join(lines).encode(encoding)
    source = log(tmp_path_factory.mktemp("log"), gzip.compress(content) if is_packed else content)
    kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    assert values(source) == [line for _, line in kept]
    assert [each.id for each in source.messages()] == [f"server.log:{number}" for number, _ in kept]
    assert [each for each, _ in source.truth()] == [each.id for each in source.messages()]
    assert source.count() == len(kept)
    ends_empty = not lines[-1]
    assert source.tally.empty == len(lines) - len(kept) - ends_empty


@settings(max_examples=50)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=30),
    most=st.integers(1, 12),
    end=st.sampled_from([b"\n", b"\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-16"]),
    is_ended=st.booleans(),
)
def test_lines_that_no_broker_takes_are_counted_and_the_others_kept(
    lengths, most, end, encoding, is_ended, tmp_path_factory
):
    lines = [b"x", *(b"x" * length for length in lengths)]
    content = (end.join(lines) + (end if is_ended else b"")).decode().encode(encoding)
    source = log(tmp_path_factory.mktemp("log"), content, max_line_bytes=most)
    assert values(source) == [line.decode() for line in lines if 0 < len(line) <= most]
    assert source.tally.too_long == sum(len(line) > most for line in lines)
    numbers = [int(each.id.rpartition(":")[2]) for each in source.messages()]
    assert numbers == [number for number, line in enumerate(lines, 1) if 0 < len(line) <= most]


def test_lines_that_are_not_utf_8_are_read_as_windows_1252_and_counted(tmp_path):
    source = log(tmp_path, b"caf\xe9 is open\nplain\n\x81\xff\n")
    assert values(source) == ["café is open", "plain", "\N{REPLACEMENT CHARACTER}ÿ"]
    assert source.count() == 3
    assert source.note == "2 lines are not UTF-8 and were read as Windows-1252"


def test_what_is_left_out_is_said(tmp_path):
    source = log(tmp_path, b"\none\n  \n" + b"y" * 2000 + b"\n", max_line_bytes=1000)
    assert source.count() == 1
    assert source.note == "left out: 2 empty, 1 longer than 1,000 bytes"
    assert source.title == "lines of server.log"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no lines with text"),
        (b"\n \n\r\n", "has no lines with text"),
        (b"\x7fELF\0\0\0rest", "is no text"),
        (gzip.compress(b"a line\n" * 10_000)[:-30], "is not a whole gzip file"),
        (b"\x1f\x8b no gzip", "is not a whole gzip file"),
    ],
)
def test_what_is_no_log_is_refused_with_its_name(content, said, tmp_path):
    with pytest.raises(InvalidArgument, match=f"server.log {said}"):
        log(tmp_path, content).count()


def test_a_file_that_cannot_be_read_again_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("pipe", "give a plain file"), ("", "give a plain file"), ("none", "No such file")):
        with pytest.raises(InvalidArgument, match=said):
            LogFile(str(tmp_path / name))


def test_json_lines_are_known_by_most_of_the_first_ones_and_broken_ones_count_as_text(tmp_path):
    objects = [b'{"level": "info", "n": %d}' % number for number in range(5)]
    lines = [b"no json", *objects, b'{"level": "wa']
    source = log(tmp_path, b"\n".join(lines))
    assert source.is_ndjson
    assert source.count() == 7
    assert source.note == "1 lines are no JSON objects and count as text"
    assert [source.shape.read(line)[0] for line in values(source)] == ["other", *["INFO"] * 5, "other"]
    assert not log(tmp_path, b"{ is how this log begins\n{ and goes on").is_ndjson


def test_objects_that_know_their_parents_are_called_by_their_own_ids(tmp_path):
    objects = [
        {"id": "a", "parents": []},
        {"id": 2, "parents": ["a", "a", "nobody", 7]},
        {"id": "a", "parents": [2]},
        {"id": "c", "parents": ["server.log:3", "d"]},
        {"id": "d", "parents": "a"},
    ]
    source = log(tmp_path, b"\n".join(json.dumps(each).encode() for each in objects))
    assert source.is_parented
    assert list(source.truth()) == [
        ("a", ()),
        ("2", ("a",)),
        ("server.log:3", ("2",)),
        ("c", ("server.log:3",)),
        ("d", ()),
    ]
    assert source.tally.parents_left_out == 3
    assert "3 parents are not the id of a line before" in source.note
    assert sorted(each.id for each in source.messages()) == sorted(each for each, _ in source.truth())
    assert [each.id for each in source.messages()][:2] == ["d", "c"], "the last first"
    assert not log(tmp_path, b'{"id": 1}\n{"id": 2}').is_parented


def test_lines_that_grow_by_being_read_count_as_they_are_in_the_broker(tmp_path):
    source = log(tmp_path, b"ok\n" + b"\x80" * 9 + b"\n" + b"\xe9" * 5, max_line_bytes=10)
    assert values(source) == ["ok", "é" * 5]
    assert (source.tally.too_long, source.tally.recoded) == (1, 2)


@pytest.mark.parametrize("pack", [lambda content: content, gzip.compress], ids=["plain", "gz"])
def test_what_is_written_to_the_file_meanwhile_plays_no_part(pack, tmp_path):
    source = log(tmp_path, pack(b"one\ntwo\nthr"))
    with open(source.path, "ab") as file:
        file.write(pack(b"ee\nfour\n"))
    assert values(source) == ["one", "two", "thr"]
    assert source.count() == 3


def test_long_lines_are_kept_up_to_the_limit_and_skipped_beyond_it(tmp_path):
    source = log(tmp_path, b"\n".join([b"z" * 900_000] * 5 + [b"y" * 3_000_000, b"b"]))
    tally = Tally()
    assert [len(line) for _, line in source.lines(tally)] == [900_000] * 5 + [1]
    assert tally.too_long == 1
