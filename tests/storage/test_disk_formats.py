"""The formats of all releases are read: the directories in `fixtures`."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from sparrow.base.errors import LogDamaged
from sparrow.records.batch import parse_header
from sparrow.records.record import decode
from sparrow.storage import names
from sparrow.storage.index import SegmentIndex
from sparrow.storage.index import decode as decode_index
from sparrow.storage.local import LocalLogStore
from tests.storage.batches import NOW_MS, append, numbered, payload, read_batches
from tests.storage.fixtures.write_fixture import EVENTS, EVENTS_CONFIG, JOURNAL, STATE, TABLE, TABLE_CONFIG

FIXTURES = Path(__file__).parent / "fixtures"
FORMATS = ["format-1", "format-1-checkpoint-2", "format-2-checkpoint-2"]


@pytest.mark.parametrize("name", FORMATS)
async def test_a_directory_of_each_format_is_opened(tmp_path: Path, name: str) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "data")
    store = LocalLogStore(str(tmp_path / "data"))
    assert store.clean_start
    assert store.ids() == [EVENTS, TABLE]
    events = store.open(EVENTS, EVENTS_CONFIG)
    assert (events.start_offset, events.end_offset) == (7, 125)
    assert events.saved_state() == (120, STATE)
    found = await read_batches(events)
    expected = [payload(bytes(numbered(number, 1 + number % 3)[1])) for number in range(60)]
    expected += [payload(bytes(numbered(number)[1])) for number in range(60, 65)]
    assert [payload(each) for each in found] == expected[-len(found) :]
    headers = [parse_header(each) for each in found]
    assert headers[0].base_offset <= 7 <= headers[0].last_offset
    assert headers[-1].last_offset == 124
    table = store.open(TABLE, TABLE_CONFIG)
    last = {record.key: record.value for data in await read_batches(table) for record in decode(data)}
    assert last == {b"k%d" % key: b"%d" % max(n for n in range(40) if n % 6 == key) * 10 for key in range(6)}
    append(table, numbered(1))
    assert store.repairs == []
    await store.close()


@pytest.mark.parametrize("name", FORMATS)
async def test_a_checkpoint_of_each_format_tells_that_its_segment_was_cut(tmp_path: Path, name: str) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "data")
    last = max((tmp_path / "data/logs/events-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-1])
    store = LocalLogStore(str(tmp_path / "data"))
    with pytest.raises(LogDamaged, match="offset 124 of events-0 is lost"):
        store.open(EVENTS, EVENTS_CONFIG)
    assert store.open(TABLE, TABLE_CONFIG).end_offset == 40
    await store.close()


async def test_the_journal_of_format_2_is_replayed_and_continued(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "format-2-checkpoint-2", tmp_path / "data")
    store = LocalLogStore(str(tmp_path / "data"))
    journal = store.open_journal((tmp_path / "data/journal.mark").read_bytes())
    assert [bytes(each) for each in journal.take_records()] == JOURNAL
    mark = await journal.begin()
    journal.release(mark)
    await journal.append(b"new")
    await journal.close()
    again = store.open_journal(mark)
    assert [bytes(each) for each in again.take_records()] == [b"new"]
    await store.close()


def test_the_fixture_has_kafkas_index_files() -> None:
    """Read here by the definition of Kafka's OffsetIndex and TimeIndex, not by the code under
    test.
    """
    log = FIXTURES / "format-1" / "logs" / "events-0"
    for path in sorted(log.glob("*.log"))[:-1]:
        data, base = path.read_bytes(), int(path.stem)
        entries = list(struct.iter_unpack(">ii", path.with_suffix(".index").read_bytes()))
        for relative, position in entries:
            assert parse_header(data, position).last_offset == base + relative
        assert entries == sorted(entries)
        times = list(struct.iter_unpack(">qi", path.with_suffix(".timeindex").read_bytes()))
        assert times[-1][0] == NOW_MS


def test_metadata_is_kafkas() -> None:
    text = (FIXTURES / "format-1" / "logs" / "events-0" / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: AYvP5WgAcACAAAAAAAAA4Q"
    assert names.maybe_topic_id(text.encode()) == EVENTS.topic_id
    assert names.maybe_topic_id(b"version: 0\ntopic_id: nonsense!") is None


def test_names_of_other_files_are_none_of_ours() -> None:
    assert names.maybe_segment_base("00000000000000000042.log") == 42
    for other in ("42.log", "0000000000000000004x.log", "00000000000000000042.index", "checkpoint"):
        assert names.maybe_segment_base(other) is None
    assert names.maybe_log_name("my-topic-3") == ("my-topic", 3)
    for other in (".deleted", "topic", "-3", "topic-x"):
        assert names.maybe_log_name(other) is None
    assert names.maybe_swap_range(names.swap_name(5, 77)) == (5, 77)


@pytest.mark.parametrize(
    "data", [(b"x", b""), (b"", b"y" * 13), (b"\0\0\0\5\0\0\0\0", b""), (b"\0\0\0\5\0\0\1\0", b"")]
)
def test_impossible_index_files_are_refused(data: tuple[bytes, bytes]) -> None:
    assert decode_index(0, 4096, *data, 200) is None


def test_an_index_is_read_as_it_was_written() -> None:
    index = SegmentIndex(1000, 100)
    for number in range(50):
        index.add(1000 + number, number * 90, 90, NOW_MS + number)
    index.seal()
    again = decode_index(1000, 100, index.encode(), index.encode_times(), 50 * 90)
    assert again is not None
    assert (again.encode(), again.encode_times()) == (index.encode(), index.encode_times())
    assert (again.max_timestamp, again.max_timestamp_offset) == (NOW_MS + 49, 1049)
    assert index.encode(0, 3) + index.encode(3) == index.encode()
