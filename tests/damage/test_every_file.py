"""Every file of a data directory is cut, removed, flipped and zeroed: no offset is given out again,
no wrong byte is served.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from sparrow.base.errors import SparrowError
from sparrow.broker.broker import Broker
from sparrow.storage.filesystem import LocalFileSystem
from sparrow.storage.names import LOG
from sparrow.storage.recovery import examine_all
from tests.damage.directories import (
    ACKNOWLEDGED,
    BATCHES,
    CONFIG,
    DAMAGES,
    LEASED,
    QUEUE,
    RECORDS,
    TOPICS,
    files,
    publish,
    read_what_can_be_read,
    value_of,
    write,
)

END = BATCHES * RECORDS
MAY_REFUSE = {"format", "meta.db", "meta.db-wal"}
"""Files that may make a start fail, with an error that names the file."""
META = {"meta.db", "meta.db-wal", "meta.db-shm"}
JOURNAL = {"journal/0", "journal/1"}
"""Files that may make a start after a kill fail, with an error that says what is lost."""


@dataclass(frozen=True)
class Templates:
    clean: Path
    killed: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def templates(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Templates]:
    """Directories written once by a real broker: stopped in order, and as a kill -9 leaves it."""
    root = tmp_path_factory.mktemp("templates")
    await write(root / "clean", copy_to=root / "killed", works=True)
    (root / "killed/.lock").write_bytes(b"1\n")
    yield Templates(root / "clean", root / "killed")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("state", ["clean", "killed"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_damaged_file_costs_no_other_topic_and_gives_no_offset_out_again(
    templates: Templates, tmp_path: Path, state: str, damage: Callable[[Path], None]
) -> None:
    template: Path = getattr(templates, state)
    for name in files(template):
        directory = tmp_path / "data"
        shutil.copytree(template, directory)
        damage(directory / name)
        try:
            await _check(directory, name, is_killed=state == "killed")
        except Exception as error:
            error.add_note(f"{damage.__name__} {name} ({state})")
            raise
        shutil.rmtree(directory)


async def _check(directory: Path, name: str, *, is_killed: bool) -> None:
    said = _what_doctor_says(directory) if name not in META else set()
    broker = Broker(directory, config=CONFIG)
    try:
        await broker.start()
    except SparrowError as error:
        _check_refusal(name, error, is_killed=is_killed)
        return
    try:
        if name not in META and not ("logs/payments-0/" in name and name.endswith(LOG)):
            await _check_queue(broker)
        for topic in TOPICS:
            # All other files can be created again.
            is_damaged = f"logs/{topic}-0/" in name and name.endswith(LOG)
            await _check_topic(broker, topic, is_damaged=is_damaged, name=name)
        if name not in META:
            assert {each.sentence for each in broker.damages.known() if each.closes} == said
    finally:
        await broker.close()


async def _check_queue(broker: Broker) -> None:
    """Compare the states of the queue's records with what a consumer did before."""
    ready = [offset for offset in range(END) if offset not in {*LEASED, *ACKNOWLEDGED}]
    async with asyncio.timeout(10):
        while len(found := await _peeked(broker, "ready")) < len(ready):
            await asyncio.sleep(0.001)
    assert found == ready
    assert await _peeked(broker, "leased") == list(LEASED)


async def _peeked(broker: Broker, state: str) -> list[int]:
    return [record.offset for record in await broker.queues.peek(QUEUE, 1000, states=(state,))]


def _what_doctor_says(directory: Path) -> set[str]:
    found = examine_all(LocalFileSystem(), str(directory))
    return {damage.sentence for each in found for damage in each.damages + each.unreadable}


def _check_refusal(name: str, error: SparrowError, *, is_killed: bool) -> None:
    assert name in MAY_REFUSE or (is_killed and name in JOURNAL), error
    if name in JOURNAL:
        assert "the journal in" in error.text
        assert "--accept-loss" in error.text
    else:
        assert name.partition("-wal")[0] in error.text


def _check_closed(topic: str, error: SparrowError, *, is_expected: bool) -> None:
    assert is_expected, f"{topic}: {error}"
    assert error.code in {"LOG_DAMAGED", "UNKNOWN_TOPIC"}


async def _check_topic(broker: Broker, topic: str, *, is_damaged: bool, name: str) -> None:
    try:
        offset = await publish(broker, topic, END)
        assert offset >= END, "an offset that was acknowledged is given out again"
    except SparrowError as error:
        _check_closed(topic, error, is_expected=is_damaged or name in META)
    found, problem = (
        await read_what_can_be_read(broker, topic) if broker.parts.topic_registry.find(topic) else ([], "")
    )
    assert problem or len(found) == END + RECORDS or name in META, "records are gone without a word"
    assert [each for each in found if each[1] != value_of(topic, each[0])] == [], "a wrong record was served"
    if not is_damaged and name not in META:
        assert problem == ""
        assert [offset for offset, _ in found] == list(range(END + RECORDS))


@pytest.mark.parametrize("state", ["clean", "killed"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_removed_partition_directory_closes_that_partition_alone(
    templates: Templates, tmp_path: Path, state: str
) -> None:
    for topic in TOPICS:
        directory = tmp_path / topic
        shutil.copytree(getattr(templates, state), directory)
        shutil.rmtree(directory / f"logs/{topic}-0")
        broker = Broker(directory, config=CONFIG)
        await broker.start()
        try:
            for each in TOPICS:
                if each == topic:
                    with pytest.raises(SparrowError) as closed:
                        await publish(broker, each, END)
                    assert closed.value.code == "LOG_DAMAGED"
                    assert f"offsets 0 to {END - 1} of {topic}-0 are lost" in str(closed.value)
                else:
                    assert await publish(broker, each, END) == END
        finally:
            await broker.close()
