"""Losses that are harder to see: an older backup, an unopened log, files that the system refuses to
read, topics long gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.clock import ManualClock
from sparrow.base.errors import CorruptBatch, LogDamaged
from sparrow.broker.broker import Broker
from sparrow.cli.doctor import doctor
from sparrow.records.builder import build_batch
from sparrow.storage.damage import MAX_KEPT, Damage, Damages
from sparrow.storage.names import LOG
from tests.damage.directories import BATCHES, CONFIG, RECORDS, publish, read_what_can_be_read, value_of, write

END = BATCHES * RECORDS


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "data"
    asyncio.run(write(path))
    return path


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "data")
    return tmp_path / "data"


async def until_damages_are_known(broker: Broker) -> list[str]:
    async with asyncio.timeout(30):
        while not broker.damages.known():
            await asyncio.sleep(0.001)
    return [each.sentence for each in broker.damages.known()]


def damaged_lines(text: str) -> list[str]:
    return [each.removeprefix("damaged: ") for each in text.splitlines() if each.startswith("damaged: ")]


async def test_a_log_that_was_put_back_from_an_older_backup_is_closed_and_gives_no_offset_out_again(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own checkpoint fits its files; the second copy is newer."""
    shutil.copytree(data / "logs/orders-0", tmp_path / "backup")
    async with Broker(data, config=CONFIG) as broker:
        for number in range(BATCHES):
            await publish(broker, "orders", END + number * RECORDS)
    shutil.rmtree(data / "logs/orders-0")
    shutil.copytree(tmp_path / "backup", data / "logs/orders-0")
    assert doctor(str(data)) == 65
    sentences = damaged_lines(capsys.readouterr().out)
    assert sentences[0].endswith("are lost")
    async with Broker(data, config=CONFIG) as broker:
        with pytest.raises(LogDamaged):
            await publish(broker, "orders", END)
        assert await publish(broker, "events", END) == END
        assert [each.sentence for each in broker.damages.known()] == sentences
    assert doctor(str(data), accept_loss=True) in {0, 1}
    async with Broker(data, config=CONFIG) as broker:
        assert await publish(broker, "orders", 2 * END) == 2 * END
        found, problem = await read_what_can_be_read(broker, "orders")
        assert problem == ""
        assert found == [(at, value_of("orders", at)) for at in [*range(END), 2 * END, 2 * END + 1]]


async def test_a_directory_that_a_crash_left_behind_its_second_copy_is_whole(data: Path) -> None:
    """The second copy is written first, of what is on stable storage already."""
    before = (data / "logs/orders-0/checkpoint").read_bytes()
    async with Broker(data, config=CONFIG) as broker:
        for number in range(BATCHES):
            await publish(broker, "orders", END + number * RECORDS)
    (data / "logs/orders-0/checkpoint").write_bytes(before)
    (data / ".clean").unlink()
    assert doctor(str(data)) in {0, 1}
    async with Broker(data, config=CONFIG) as broker:
        assert await publish(broker, "orders", 2 * END) == 2 * END


@pytest.mark.parametrize("topic", ["orders", "events"])
async def test_losses_of_an_unopened_log_are_known_soon_after_a_clean_start(
    data: Path, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(data / f"logs/{topic}-0")
    assert doctor(str(data)) == 65
    sentences = damaged_lines(capsys.readouterr().out)
    async with Broker(data, config=CONFIG) as broker:
        assert await until_damages_are_known(broker) == sentences
        assert not broker.parts.topic_registry.get(topic).partition(0).is_open


async def test_a_file_that_the_system_refuses_to_read_closes_its_partition_alone(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = max((data / "logs/payments-0").glob(f"*{LOG}"))
    last.unlink()
    last.mkdir()
    # there is nothing to accept: the bytes may be there
    assert doctor(str(data), accept_loss=True) == 65
    (sentence,) = set(damaged_lines(capsys.readouterr().out))
    assert sentence == f"{last}: Is a directory; offsets 0 to {END - 1} of payments-0 are unreadable"
    async with Broker(data, config=CONFIG) as broker:
        with pytest.raises(LogDamaged, match="Is a directory"):
            await publish(broker, "payments", END)
        assert [each.sentence for each in broker.damages.known()] == [sentence]
        assert await publish(broker, "orders", END) == END


async def test_a_log_without_files_and_without_a_topic_is_forgotten(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the warning about logs of unknown topics asks people to do."""
    with contextlib.closing(sqlite3.connect(data / "meta.db")) as meta, meta:
        meta.execute("DELETE FROM fact WHERE kind = 'topic' AND key = 'orders'")
    async with Broker(data, config=CONFIG):
        assert "the log orders-0 belongs to no topic that is known" in caplog.text
    shutil.rmtree(data / "logs/orders-0")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        async with Broker(data, config=CONFIG) as broker:
            assert [each.id.topic for topic in broker.parts.topic_registry for each in topic.partitions] == [
                "events",
                "payments",
            ]
    assert "orders" not in caplog.text
    assert doctor(str(data)) == 0


async def test_one_damaged_place_is_one_damage_from_however_many_offsets_it_is_read(data: Path) -> None:
    segment = min((data / "logs/orders-0").glob(f"*{LOG}"))
    content = bytearray(segment.read_bytes())
    content[16] ^= 0xFF  # the magic
    segment.write_bytes(content)
    async with Broker(data, config=CONFIG) as broker:
        log = broker.parts.topic_registry.get("orders").partition(0).log
        for offset in (0, 1, 0, 1):
            with pytest.raises(CorruptBatch):
                await log.read(offset, 1)
        assert len(broker.damages.known()) == 1
        assert broker.damages.corrupt_reads == 4


def test_a_closed_partition_is_remembered_however_many_places_are_damaged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    damages = Damages()
    for offset in range(MAX_KEPT + 10):
        damages.add(Damage("a-0", "a", "x", offset, offset + 1, closes=False))
    assert len(damages.known()) == MAX_KEPT
    assert len(caplog.records) == MAX_KEPT + 1
    damages.add(Damage("b-0", "b", "x", 0, 1))
    assert damages.closed_logs == 1


async def test_damage_is_forgotten_when_retention_removes_its_file(data: Path) -> None:
    segment = min((data / "logs/orders-0").glob(f"*{LOG}"))
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    async with Broker(data, config=CONFIG) as broker:
        log = broker.parts.topic_registry.get("orders").partition(0).log
        while await log.scrub(1 << 20):
            pass
        assert [each.path for each in broker.damages.known()] == [str(segment)]
        await log.delete_records(END)
        await broker._maintenance.walk()
        assert log.start_offset == END
        assert broker.damages.known() == []


async def test_a_place_where_no_batch_begins_can_be_accepted_though_the_partition_is_open(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sparrow log skip` finds no batch there, and readers that skip do not know the next
    offset.
    """
    segment = sorted((data / "logs/orders-0").glob(f"*{LOG}"))[1]
    content = bytearray(segment.read_bytes())
    content[16] ^= 0xFF
    segment.write_bytes(content)
    first = int(segment.stem)
    async with Broker(data, config=CONFIG) as broker:
        with pytest.raises(CorruptBatch):
            await broker.topics.skip_batch("orders", 0, first)
    assert doctor(str(data), accept_loss=True) == 0, "no start needs it"
    assert doctor(str(data), check_all=True) == 65
    assert doctor(str(data), accept_loss=True, check_all=True) in {0, 1}
    text = capsys.readouterr().out
    assert f"accepted: offsets {first} to {first + RECORDS - 1} of orders-0 are a gap" in text
    assert doctor(str(data), check_all=True) == 0
    async with Broker(data, config=CONFIG) as broker:
        assert await publish(broker, "orders", END) == END
        found, problem = await read_what_can_be_read(broker, "orders")
        assert problem == ""
        assert [at for at, _ in found] == [
            at for at in range(END + RECORDS) if not first <= at < first + RECORDS
        ]


def test_dead_letters_for_a_closed_partition_stay_and_are_tried_again_with_few_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def prepare() -> None:
        async with Broker(tmp_path / "data", config=CONFIG) as broker:
            for topic in ("jobs", "jobs.dead"):
                await broker.topics.create(topic)
                await publish(broker, topic, 0)
            await broker.parts.queue_registry.create("jobs", ("jobs",))

    asyncio.run(prepare())
    shutil.rmtree(tmp_path / "data/logs/jobs.dead-0")
    with (
        sparrow.testing.broker(data_dir=str(tmp_path / "data")) as broker,
        sparrow.sync.connect(broker.url) as client,
    ):
        queue = client.queue("jobs")
        queue.lease(wait_s=10).reject("of no use")
        until = time.monotonic() + 30
        while caplog.text.count("cannot be moved to the dead letters") < 3 and time.monotonic() < until:
            time.sleep(0.02)
        statistics = queue.statistics()
        assert (statistics.moving, statistics.unfinished) == (RECORDS, RECORDS)
    assert caplog.text.count("cannot be moved to the dead letters") >= 3
    assert caplog.text.count("there is no queue on the dead-letter topic") == 1


# ── the scrubber ─────────────────────────────────────────────────────────────────────────────────


async def test_compaction_between_two_steps_of_the_scrubber_is_no_damage(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Broker(tmp_path / "data", config=CONFIG, clock=clock) as broker:
        config = {"cleanup.policy": "compact", "segment.bytes": "2048", "min.cleanable.dirty.ratio": "0"}
        await broker.topics.create("t", config=config)
        for number in range(200):
            key = b"%d" % (number % 7 if number % 3 else number)
            await broker.records.publish("t", 0, build_batch([b"x" * (number % 90)], keys=[key]))
        log = broker.parts.topic_registry.get("t").partition(0).log
        freed: list[int] = []
        for _ in range(3):
            for _ in range(5):
                await log.scrub(300)
            freed.append(await log.compact(clock.wall_ms()))
            for number in range(20):
                await broker.records.publish("t", 0, build_batch([b"x" * 80], keys=[b"%d" % number]))
        while await log.scrub(300):
            pass
        assert freed[0] > 0
        assert [each.sentence for each in broker.damages.known()] == []


async def test_the_scrubber_counts_every_byte_that_it_reads(data: Path) -> None:
    """Its rate is computed from its results; small logs are checked in one step each."""
    closed = sorted((data / "logs/orders-0").glob(f"*{LOG}"))[:-1]
    async with Broker(data, config=CONFIG) as broker:
        log = broker.parts.topic_registry.get("orders").partition(0).log
        checked = []
        while count := await log.scrub(1 << 20):
            checked.append(count)
        assert checked == [each.stat().st_size for each in closed]
