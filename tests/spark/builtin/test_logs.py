"""The built-in pipelines on whole log files: those in the folder that SPARROW_LOGHUB names, and
lines made from a seed, which need no folder.

Each file is a topic, each line a message, keyed by the host or component if the line names one.
Half of the topics are written by Sparrow's client, half by a Kafka client.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrow.pipelines import builtin
from sparrow.pipelines.builtin.directory import TableDirectory
from sparrow.sync.client import Client
from sparrow.testing.running_broker import RunningBroker
from tests.spark.builtin.loglines import BEGIN_MS, Line, lines
from tests.spark.builtin.published import got, publish_as_kafka_client, publish_natively, values_of

FOLDER = os.environ.get("SPARROW_LOGHUB", "")


def _from_file(path: Path) -> Iterator[Line]:
    """Return the lines of a file byte for byte, without line ends; a minute apart."""
    for number, line in enumerate(path.read_bytes().split(b"\n")):
        words = line.split()
        key = words[3] if len(words) > 4 and number % 3 else None
        headers = (("file", path.name.encode()), ("line", b"%d" % number))
        yield Line(key, line, headers if number % 2 else (), BEGIN_MS + number * 60_000)


def _there_and_back(
    name: str,
    files: dict[str, list[Line]],
    broker: RunningBroker,
    client: Client,
    where: dict[str, Any],
    to: Path,
) -> None:
    """Publish all files to topics, archive them in two runs, compact, and replay to other
    topics.
    """
    for number, (topic, found) in enumerate(files.items()):
        client.admin.create_topic(topic, partitions=1 + number % 3)
        _publish(number, topic, found[: len(found) // 2], broker, client)
    archive = str(to / "archive")
    first = builtin.archive(f"{name}.*", archive, **where)
    for number, (topic, found) in enumerate(files.items()):
        _publish(number, topic, found[len(found) // 2 :], broker, client)
    second = builtin.archive(f"{name}.*", archive, **where)
    assert first.rows + second.rows == sum(map(len, files.values()))
    assert not first.lost + second.lost
    before = TableDirectory(archive).maybe_manifest()
    compacted = builtin.compact_table(archive, spark=where["spark"])
    after = TableDirectory(archive).maybe_manifest()
    assert before is not None
    assert after is not None
    assert after.topics == before.topics
    assert len(after.files) == compacted.files_after == len({file.directory for file in before.files})
    for topic, found in files.items():
        builtin.replay(
            archive, f"again.{topic}", from_topic=topic, keep_partitions=True, keep_timestamps=True, **where
        )
        records = got(broker, topic)
        assert got(broker, f"again.{topic}") == records
        assert sorted(map(repr, values_of(records))) == sorted(repr(line.value) for line in found)
    _check_stats(name, files, where)


def _publish(number: int, topic: str, found: Iterable[Line], broker: RunningBroker, client: Client) -> None:
    if number % 2:
        publish_as_kafka_client(broker, topic, found)
    else:
        publish_natively(client, topic, found)


def _check_stats(name: str, files: dict[str, list[Line]], where: dict[str, Any]) -> None:
    rows = builtin.stats(f"{name}.*", exact=True, **where)
    assert [row.topic for row in rows] == sorted(files)
    for row in rows:
        found = files[row.topic]
        assert row.messages == len(found)
        assert row.bytes == sum(len(line.key or b"") + len(line.value or b"") for line in found)
        assert row.distinct_keys == len({line.key for line in found if line.key is not None})


@pytest.mark.skipif(not os.path.isdir(FOLDER), reason="SPARROW_LOGHUB names no folder of logs")
@pytest.mark.timeout(300)
def test_real_logs_come_back_byte_for_byte(
    broker: RunningBroker, client: Client, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    paths = sorted(Path(FOLDER).glob("*.log"))
    assert paths
    files = {f"{name}.{path.stem.lower()}": list(_from_file(path)) for path in paths}
    _there_and_back(name, files, broker, client, where, tmp_path)


def test_generated_logs_come_back_byte_for_byte(
    broker: RunningBroker, client: Client, where: dict[str, Any], name: str, tmp_path: Path
) -> None:
    files = {f"{name}.{seed}": list(lines(200, seed, step_ms=400_000)) for seed in range(2)}
    _there_and_back(name, files, broker, client, where, tmp_path)
