"""The Spark source at a batch with a right CRC and unreadable records, through a real broker,
without a JVM.
"""

from __future__ import annotations

import pytest

import sparrow.testing
from sparrow.base.errors import BadInput
from sparrow.spark.kernels import DecodeOptions
from tests.corrupt import bad
from tests.corrupt.bad import BEFORE, BEHIND, KINDS, good_bad_good
from tests.spark.source.without_spark import read_batch
from tests.spark_kernels.both import EVERYTHING, decoded, try_decoding

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
def test_the_source_names_the_place_or_skips_and_goes_on(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with sparrow.testing.broker() as broker:
        topic = good_bad_good(broker, kind)
        options = {"url": broker.url, "subscribe": topic, "columns": "value,headers"}
        with pytest.raises(BadInput, match=f"topic {topic}, partition 0, batch at offset 3: .* offset 6"):
            read_batch(**options)
        found = read_batch(**options, onCorrupt="skip")
        assert [bytes(row[0]) for row in found] == BEFORE + BEHIND
        assert f"1 corrupt batches of topic {topic}, partition 0 were skipped" in caplog.text
        # Ranges that end before the batch are read as usual.
        bounded = read_batch(**options, endingOffsets=f'{{"{topic}": {{"0": 3}}}}')
        assert [bytes(row[0]) for row in bounded] == BEFORE


@pytest.mark.parametrize("kind", KINDS)
def test_both_kernels_skip_the_whole_batch_and_nothing_else(kind: str) -> None:
    batches = [bad.good("a"), KINDS[kind](), bad.good("b")]
    data = [(3 * number).to_bytes(8, "big") + batch[8:] for number, batch in enumerate(batches)]
    assert isinstance(try_decoding(data).error, BadInput)
    skipped = decoded(*data, options=DecodeOptions(EVERYTHING, skip_corrupt=True))
    assert [row[3] for row in skipped.rows] == BEFORE + BEHIND
    assert skipped.skipped_batches == 1
