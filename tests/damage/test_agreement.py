"""Losses are described in the same words by the error, the broker's log, `/readyz`, the metric and
`sparrow doctor`; and the partition continues after they are accepted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

import sparrow.testing
from sparrow.base.errors import LogDamaged, SparrowError, UnknownQueue
from sparrow.broker.broker import Broker
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.cli.doctor import doctor
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


def segments(data: Path, topic: str) -> list[Path]:
    return sorted((data / f"logs/{topic}-0").glob(f"*{LOG}"))


def lose_middle(data: Path, topic: str) -> tuple[int, int]:
    """Remove a segment between two others. Return its offsets."""
    first, lost, after = segments(data, topic)[:3]
    del first
    lost.unlink()
    return int(lost.stem), int(after.stem)


def lose_end(data: Path, topic: str) -> tuple[int, int]:
    """Cut the last segment by a byte: its last batch is lost."""
    last = segments(data, topic)[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 1)
    return END - RECORDS, END


def lose_directory(data: Path, topic: str) -> tuple[int, int]:
    shutil.rmtree(data / f"logs/{topic}-0")
    return 0, END


LOSSES = [lose_middle, lose_end, lose_directory]


def get(url: str) -> tuple[int, dict[str, object], str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else {}, text
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text), text


@pytest.mark.parametrize("lose", LOSSES)
def test_error_log_readyz_metric_and_doctor_use_the_same_words(
    lose, data: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    first, end = lose(data, "payments")
    assert doctor(str(data)) == 65
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("damaged: ")]
    sentence = line.removeprefix("damaged: ")
    assert f"offsets {first} to {end - 1} of payments-0 are lost" in sentence
    assert str(data / "logs/payments-0") in sentence
    with caplog.at_level(logging.ERROR), sparrow.testing.broker(data_dir=str(data), http_port=0) as broker:
        status, body, _ = get(f"{broker.http}/readyz")
        assert (status, body) == (200, {"status": "degraded", "reasons": [sentence]})
        assert sentence in [record.getMessage() for record in caplog.records]
        assert "sparrow_damaged_partitions 1.0" in get(f"{broker.http}/metrics")[2]
        with sparrow.sync.connect(broker.url) as client:
            with pytest.raises(SparrowError, match="sparrow doctor --accept-loss") as refused:
                client.publish("payments", b"x")
            assert refused.value.code == "LOG_DAMAGED"
            assert sentence in refused.value.text
            client.publish("orders", b"x")
        status, body, _ = get(f"{broker.http}/v1/topics/payments/messages?partition=0&from=beginning")
        assert (status, body["status"]) == (503, 503)
        assert sentence in str(body["detail"])


@pytest.mark.parametrize("lose", LOSSES)
async def test_accept_loss_continues_behind_every_offset_that_was_given_out(
    lose, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, end = lose(data, "payments")
    assert doctor(str(data), accept_loss=True) in {0, 1}  # 1: indexes will be rebuilt
    assert f"accepted: offsets {first} to {end - 1} of payments-0 are a gap" in capsys.readouterr().out
    for round_ in range(2):  # the gap stays after a restart
        async with Broker(data, config=CONFIG) as broker:
            log = broker.parts.topic_registry.get("payments").partition(0).log
            if (first, end) != (0, END):
                assert log.gaps == [(first, end)]
            assert await publish(broker, "payments", END + round_ * RECORDS) == END + round_ * RECORDS
            found, problem = await read_what_can_be_read(broker, "payments")
            assert problem == ""
            assert found == [
                (offset, value_of("payments", offset))
                for offset in range(END + (round_ + 1) * RECORDS)
                if not first <= offset < end
            ]
    assert doctor(str(data), check_all=True) == 0


async def test_a_damaged_segment_under_a_queue_closes_that_queue_alone(data: Path) -> None:
    _, _ = lose_middle(data, "payments")
    async with Broker(data, config=CONFIG) as broker:
        with pytest.raises(LogDamaged, match="queue 'work' is closed"):
            broker.parts.queue_registry.get("work")
        with pytest.raises(LogDamaged, match="queue 'work' is closed"):
            await broker.parts.queue_registry.create("work", ("orders",))
        await broker.parts.queue_registry.create("other", ("orders",))
        assert broker.groups.fetch_offsets("readers")[0].offset == 7
    assert doctor(str(data), accept_loss=True) in {0, 1}
    async with Broker(data, config=CONFIG) as broker:
        assert broker.parts.queue_registry.get("work").definition.topics == ("payments",)


async def test_a_closed_queue_can_be_deleted_and_made_again(data: Path) -> None:
    lose_middle(data, "payments")
    for is_again in (False, True):
        async with Broker(data, config=CONFIG) as broker:
            if is_again:
                assert broker.parts.queue_registry.get("work").definition.topics == ("orders",)
                continue
            with pytest.raises(LogDamaged, match="queue 'work' is closed"):
                broker.queues.describe("work")
            await broker.queues.delete("work")
            with pytest.raises(UnknownQueue):
                await broker.queues.delete("work")
            await broker.parts.queue_registry.create("work", ("orders",))


def lose_state(data: Path) -> None:
    """Remove the state from the checkpoint by its second copy, so that the next start folds all
    headers.
    """
    (data / "logs/payments-0/checkpoint").unlink()
    (data / ".clean").unlink()


def zero_segment(data: Path, topic: str) -> tuple[int, int]:
    first, after = segments(data, topic)[:2]
    first.write_bytes(bytes(first.stat().st_size))
    return int(first.stem), int(after.stem)


def zero_header(data: Path, topic: str) -> tuple[int, int]:
    """Clear the magic of the second batch of a segment between others."""
    segment = segments(data, topic)[1]
    content = bytearray(segment.read_bytes())
    content[int.from_bytes(content[8:12], "big") + 12 + 16] = 0
    segment.write_bytes(content)
    return int(segment.stem) + RECORDS, int(segment.stem) + 2 * RECORDS


def zero_last_segment(data: Path, topic: str) -> tuple[int, int]:
    last = segments(data, topic)[-1]
    last.write_bytes(bytes(last.stat().st_size))
    return int(last.stem), END


@pytest.mark.parametrize("zero", [zero_segment, zero_header, zero_last_segment])
async def test_unreadable_headers_that_a_start_needs_close_the_partition_until_the_loss_is_accepted(
    zero: Callable[[Path, str], tuple[int, int]], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The producers' state is folded from headers: without the checkpoint's state the start reads
    them all.
    """
    first, end = zero(data, "payments")
    lose_state(data)
    assert doctor(str(data)) == 65
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("damaged: ")]
    sentence = line.removeprefix("damaged: ")
    assert str(data / "logs/payments-0") in sentence
    assert sentence.endswith(f"offsets {first} to {end - 1} of payments-0 are unreadable")
    async with Broker(data, config=CONFIG) as broker:
        with pytest.raises(LogDamaged, match="sparrow doctor --accept-loss") as closed:
            await publish(broker, "payments", END)
        assert sentence in closed.value.text
        assert [each.sentence for each in broker.damages.known()] == [sentence]
        assert broker.damages.closed_logs == 1
        assert await publish(broker, "orders", END) == END
        with pytest.raises(LogDamaged):
            broker.parts.queue_registry.get("work")
    assert doctor(str(data), accept_loss=True) in {0, 1}
    assert f"accepted: offsets {first} to {end - 1} of payments-0 are a gap" in capsys.readouterr().out
    for round_ in range(2):
        async with Broker(data, config=CONFIG) as broker:
            assert broker.parts.topic_registry.get("payments").partition(0).log.gaps == [(first, end)]
            assert await publish(broker, "payments", END + round_ * RECORDS) == END + round_ * RECORDS
            assert await read_what_can_be_read(broker, "payments") == (
                [
                    (offset, value_of("payments", offset))
                    for offset in range(END + (round_ + 1) * RECORDS)
                    if not first <= offset < end
                ],
                "",
            )
            assert broker.parts.queue_registry.get("work").definition.topics == ("payments",)
    assert doctor(str(data), check_all=True) == 0


async def test_a_topic_with_unreadable_headers_can_be_deleted_and_made_again(data: Path) -> None:
    zero_segment(data, "payments")
    lose_state(data)
    async with Broker(data, config=CONFIG) as broker:
        with pytest.raises(LogDamaged):
            await publish(broker, "payments", END)
        await broker.topics.delete("payments")
        assert broker.damages.known() == []
        await broker.topics.create("payments")
        assert await publish(broker, "payments", 0) == 0
    assert doctor(str(data)) == 0


async def test_a_start_reads_no_headers_before_the_saved_state_even_where_no_producer_is_known(
    data: Path,
) -> None:
    """Producers without an id leave no state: an empty state is valid, too."""
    zero_segment(data, "orders")
    async with Broker(data, config=CONFIG) as broker:
        assert await publish(broker, "orders", END) == END
        found, problem = await read_what_can_be_read(broker, "orders")
    assert problem == "CORRUPT_BATCH"
    assert [offset for offset, _ in found] == list(
        range(int(segments(data, "orders")[1].stem), END + RECORDS)
    )


@pytest.mark.parametrize("position", [7, 100, 1900])
async def test_the_scrubber_finds_rot_in_closed_segments_and_doctor_says_the_same(
    data: Path, position: int, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = segments(data, "orders")[1]
    content = bytearray(segment.read_bytes())
    content[position] ^= 1
    segment.write_bytes(content)
    assert doctor(str(data), check_all=True) == 65
    lines = capsys.readouterr().out.splitlines()
    sentences = [each.removeprefix("damaged: ") for each in lines if each.startswith("damaged: ")]
    assert sentences
    async with Broker(data, config=CONFIG) as broker:
        log = broker.parts.topic_registry.get("orders").partition(0).log
        checked = 0
        while count := await log.scrub(300):
            checked += count
        assert checked > 2000
        assert [each.sentence for each in broker.damages.known()] == sentences
        assert not any(each.closes for each in broker.damages.known())
        assert await log.scrub(1 << 20) > 0  # the next pass


def test_a_wrong_crc_on_the_disk_is_a_500_and_counted(data: Path) -> None:
    segment = segments(data, "orders")[0]
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    with sparrow.testing.broker(data_dir=str(data), http_port=0) as broker:
        status, body, _ = get(f"{broker.http}/v1/topics/orders/messages?partition=0&from=beginning")
        assert (status, body["type"]) == (500, "urn:sparrow:error:corrupt-batch")
        metrics = get(f"{broker.http}/metrics")[2]
        assert 'sparrow_corrupt_batches_total{reader="http",rule="fail"} 1.0' in metrics


async def test_a_fetch_of_a_closed_partition_waits_as_long_as_one_of_an_idle_partition(data: Path) -> None:
    """Kafka's clients ask again at once: a response without delay would make them a busy loop."""
    lose_middle(data, "payments")
    async with Broker(data, config=CONFIG) as broker:
        closed, idle = FetchRequest("payments", 0, 0), FetchRequest("orders", 0, END)
        for wanted in ([closed], [closed, idle]):
            (first, *_) = await broker.records.fetch(wanted, max_wait_ms=60_000)
            assert isinstance(first.error, LogDamaged)
        waiting = asyncio.create_task(
            broker.records.fetch([closed, idle], max_wait_ms=60_000, is_patient=True)
        )
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await publish(broker, "orders", END)
        first, second = await waiting
        assert isinstance(first.error, LogDamaged)
        assert second.size_bytes > 0
        (alone,) = await broker.records.fetch([closed], max_wait_ms=1, is_patient=True)
        assert isinstance(alone.error, LogDamaged)


def test_kafka_consumers_of_a_closed_partition_are_no_busy_loop(data: Path) -> None:
    lose_middle(data, "payments")
    with sparrow.testing.broker(data_dir=str(data), http_port=0, kafka_port=0) as broker:
        consumer = KafkaConsumer(bootstrap_servers=broker.kafka, fetch_max_wait_ms=100)
        try:
            consumer.assign([TopicPartition("payments", 0)])
            consumer.seek(TopicPartition("payments", 0), 0)
            asked = time.monotonic()
            for _ in range(10):
                consumer.poll(timeout_ms=100)
            waited = time.monotonic() - asked
        finally:
            consumer.close()
        (count,) = [
            float(line.rpartition(" ")[2])
            for line in get(f"{broker.http}/metrics")[2].splitlines()
            if line.startswith('sparrow_request_seconds_count{door="kafka",request="Fetch"}')
        ]
    assert 1 <= count <= 2 + waited / 0.1


def test_kafka_clients_get_a_storage_error() -> None:
    from kio.schema.errors import ErrorCode

    from sparrow.frontends.kafka.errors import code_of

    assert code_of(LogDamaged("x")) is ErrorCode.kafka_storage_error
