"""Options of the sink, read without Spark."""

from __future__ import annotations

import pytest

from sparrow.base.errors import InvalidArgument
from sparrow.spark.options.sink import SINK_OPTIONS


def told(**given: str) -> str:
    with pytest.raises(InvalidArgument) as raised:
        SINK_OPTIONS.read(given)
    return raised.value.text


def test_defaults_write_plain_batches_of_a_megabyte_that_are_kept_as_long_as_the_broker_finds_right():
    values = SINK_OPTIONS.read({})

    assert (values["topic"], values["sinkId"], values["batchId"]) == (None, None, None)
    assert values["compression"] == "none"
    assert values["maxBatchBytes"] == 1 << 20
    assert values["stageTimeout"] is None
    assert values["includeHeaders"] is True
    assert values["takeOver"] is False


def test_option_names_of_kafkas_producer_are_understood():
    values = SINK_OPTIONS.read(
        {
            "kafka.compression.type": "zstd",
            "kafka.transaction.timeout.ms": "60000",
            "kafka.acks": "all",
            "kafka.linger.ms": "5",
        }
    )

    assert values["compression"] == "zstd"
    assert values["stageTimeout"] == 60_000
    assert len(values.warnings) == 2


def test_names_have_no_case_because_spark_has_none():
    values = SINK_OPTIONS.read({"sinkid": "orders", "BATCHID": "7", "stagetimeout": "2m"})

    assert (values["sinkId"], values["batchId"], values["stageTimeout"]) == ("orders", 7, 120_000)


def test_all_that_is_wrong_is_told_at_once():
    text = told(compresion="lz4", stageTimeout="soon", batchId="-1", maxBatchBytes="1", compression="brotli")

    assert "there is no option 'compresion'; did you mean 'compression'?" in text
    for name in ("stageTimeout", "batchId", "maxBatchBytes", "compression cannot be 'brotli'"):
        assert name in text


def test_a_batch_id_without_a_sink_id_is_refused():
    assert "batchId is given without sinkId" in told(batchId="3")


def test_an_empty_topic_or_sink_id_is_refused():
    text = told(topic=" ", sinkId="")

    assert "topic is empty" in text
    assert "sinkId is empty" in text


@pytest.mark.parametrize("name", ["subscribe", "subscribePattern", "assign"])
def test_options_of_the_source_are_answered_with_those_of_the_sink(name):
    assert "topic" in told(**{name: "orders"})


def test_a_transactional_id_is_answered_with_the_sink_id():
    assert "sinkId" in told(**{"kafka.transactional.id": "x"})
