"""Batches with any byte after the header changed and a correct CRC: refused, or decoded alike by
three decoders.

The three are Sparrow's decoder, librdkafka and kafka-python.

`make fuzz` runs it over 100,000 batches.
"""

from __future__ import annotations

import os
import random

import pytest

import sparrow.sync
from sparrow.records.compression import Compression
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.mutants import (
    Row,
    as_librdkafka_shows,
    mutant,
    of_kafka_python,
    of_librdkafka,
    ours,
    publish,
)
from tests.kafka_frontend.raw import RawClient

BATCHES = int(os.environ.get("SPARROW_FUZZ_BATCHES", "2000"))
"""Number of batches of all codecs together."""
SEED = int(os.environ.get("SPARROW_FUZZ_SEED", "15"))


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())
@pytest.mark.timeout(1800)
def test_a_changed_batch_is_refused_or_decoded_alike_by_three_decoders(
    broker: RunningBroker, raw: RawClient, topic: str, codec: Compression, capsys: pytest.CaptureFixture[str]
) -> None:
    # The records are years old: retention must not delete them during a large run.
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
    rng = random.Random(SEED * 10 + codec)
    count = BATCHES // len(Compression)
    taken, refused = publish(raw, topic, (mutant(rng, codec) for _ in range(count)))
    assert len(taken) + sum(refused.values()) == count
    assert set(refused) <= {"invalid_record", "message_too_large"}
    # Some are accepted and some refused: the test is effective.
    assert 0.02 * count < len(taken) < 0.9 * count

    expected: list[Row] = []
    for each in taken:
        rows = ours(each)
        assert of_kafka_python(each) == rows, each.batch.hex()
        expected += map(as_librdkafka_shows, rows)
    found, faults = of_librdkafka(broker.kafka, topic, expected[-1].offset + 1)
    assert faults == []
    differing = [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]]
    assert differing[:3] == []
    assert len(found) == len(expected)
    if "SPARROW_FUZZ_BATCHES" in os.environ:
        with capsys.disabled():
            print(
                f"\n{codec.name.lower()}: {len(taken)} taken with {len(expected)} records, refused: {refused}"
            )
