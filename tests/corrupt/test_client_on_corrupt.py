"""The native client, asynchronous and blocking, and `sparrow consume` at a batch that cannot be
read.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import sparrow
import sparrow.sync
from sparrow.base.errors import CorruptBatch
from sparrow.testing.running_broker import RunningBroker
from tests.corrupt.bad import BEFORE, BEHIND, KINDS, good_bad_good


@pytest.mark.parametrize("kind", KINDS)
def test_subscription_hands_out_earlier_records_then_names_the_corrupt_offset(
    broker: RunningBroker, kind: str
) -> None:
    topic = good_bad_good(broker, kind)
    with sparrow.sync.connect(broker.url) as client, client.subscribe(topic, start="beginning") as reading:
        messages = iter(reading)
        found = [next(messages).value for _ in BEFORE]
        with pytest.raises(CorruptBatch) as raised:
            next(messages)
        with pytest.raises(CorruptBatch):
            reading.pull(10)
    assert found == BEFORE
    error = raised.value
    assert (error.topic, error.partition, error.base_offset, error.next_offset) == (topic, 0, 3, 6)
    assert f"topic {topic!r}, partition 0" in error.text
    assert "offset 6" in error.text


@pytest.mark.parametrize("mode", ["push", "pull"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_subscription_that_skips_reads_on_behind(broker: RunningBroker, kind: str, mode: str) -> None:
    topic = good_bad_good(broker, kind)
    found: list[bytes | None] = []
    with (
        sparrow.sync.connect(broker.url) as client,
        client.subscribe(topic, start="beginning", mode=mode, on_corrupt="skip") as reading,  # type: ignore[arg-type]
    ):
        while len(found) < 6:
            found += [message.value for message in reading.pull(2)]
        assert reading.skipped_batches == 1
    assert found == BEFORE + BEHIND


async def test_batches_and_commits_of_a_group_end_before_the_batch(broker: RunningBroker) -> None:
    topic = good_bad_good(broker)
    async with sparrow.connect(broker.url) as client:
        async with client.subscribe(topic, start="beginning", group="g-" + topic) as reading:
            assert [m.value for m in await reading.next_batch()] == BEFORE
            with pytest.raises(CorruptBatch):
                await reading.next_batch()
            await reading.commit()
        async with client.subscribe(topic, group="g-" + topic, on_corrupt="skip") as reading:
            assert [m.value for m in await reading.next_batch()] == BEHIND
            await reading.commit()
            assert reading.positions == {(topic, 0): 9}


def test_sparrow_consume_prints_the_records_before_and_skips_on_request(broker: RunningBroker) -> None:
    topic = good_bad_good(broker)
    command = [sys.executable, "-m", "sparrow", "consume", topic, "--url", broker.url, "--format", "raw"]
    failed = subprocess.run(command, capture_output=True, check=False, timeout=30)
    assert failed.stdout.split() == BEFORE
    assert failed.returncode == 65
    assert b"offsets 3 to 5" in failed.stderr
    skipped = subprocess.run([*command, "--on-corrupt", "skip"], capture_output=True, check=False, timeout=30)
    assert skipped.returncode == 0, skipped.stderr
    assert skipped.stdout.split() == BEFORE + BEHIND
    assert b"offsets 3 to 5" in skipped.stderr
