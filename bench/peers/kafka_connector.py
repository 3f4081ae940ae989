"""Spark's own Kafka connector, from Maven Central: the peer of the Spark part. It reads and writes the same broker, through the Kafka door."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

from bench.peers.daemon import NotInstalled

CENTRAL = "https://repo1.maven.org/maven2"
CONNECTOR = "4.2.0"
"""The newest on Maven Central; it runs in Spark 4.3."""
_JARS = (
    f"org/apache/spark/spark-sql-kafka-0-10_2.13/{CONNECTOR}/spark-sql-kafka-0-10_2.13-{CONNECTOR}.jar",
    f"org/apache/spark/spark-token-provider-kafka-0-10_2.13/{CONNECTOR}/spark-token-provider-kafka-0-10_2.13-{CONNECTOR}.jar",
    "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar",
    "org/apache/commons/commons-pool2/2.13.1/commons-pool2-2.13.1.jar",
)


def jars() -> list[str]:
    """Paths of the connector's jars, fetched when they are not there yet.

    Raises:
        NotInstalled: Maven Central cannot be reached.
    """
    return [str(_fetch(each)) for each in _JARS]


def _fetch(path: str) -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparrow-bench"
    kept = root / path.rpartition("/")[2]
    if kept.exists():
        return kept
    try:
        with urllib.request.urlopen(f"{CENTRAL}/{path}", timeout=30) as answer:
            content = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise NotInstalled(f"spark-sql-kafka cannot be fetched from Maven Central: {error}") from None
    root.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.rename(kept)
    return kept
