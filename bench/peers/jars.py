"""Jars from Maven Central, kept in a cache directory: Kafka's own broker and tools, and Spark's
connector for it.
"""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bench.peers.daemon import NotInstalled

CENTRAL = "https://repo1.maven.org/maven2"
TIMEOUT_S = 60
KAFKA = "4.2.1"
_KAFKA_JARS = (
    "kafka_2.13",
    "kafka-clients",
    "kafka-coordinator-common",
    "kafka-group-coordinator",
    "kafka-group-coordinator-api",
    "kafka-metadata",
    "kafka-raft",
    "kafka-server",
    "kafka-server-common",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-storage-api",
    "kafka-tools",
    "kafka-tools-api",
    "kafka-transaction-coordinator",
)
_OTHER_JARS = (
    "at.yawk.lz4:lz4-java:1.10.1",
    "com.dynatrace.hash4j:hash4j:0.22.0",
    "com.fasterxml.jackson.core:jackson-annotations:2.21",
    "com.fasterxml.jackson.core:jackson-core:2.21.2",
    "com.fasterxml.jackson.core:jackson-databind:2.21.2",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:2.21.2",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.21.2",
    "com.github.ben-manes.caffeine:caffeine:3.2.0",
    "com.github.luben:zstd-jni:1.5.6-10",
    "com.google.re2j:re2j:1.8",
    "com.typesafe.scala-logging:scala-logging_2.13:3.9.6",
    "com.yammer.metrics:metrics-core:2.2.0",
    "commons-logging:commons-logging:1.3.5",
    "commons-validator:commons-validator:1.10.1",
    "jakarta.servlet:jakarta.servlet-api:6.0.0",
    "net.sf.jopt-simple:jopt-simple:5.0.4",
    "net.sourceforge.argparse4j:argparse4j:0.7.0",
    "org.apache.logging.log4j:log4j-api:2.25.4",
    "org.apache.logging.log4j:log4j-core:2.25.4",
    "org.hdrhistogram:HdrHistogram:2.2.2",
    "org.pcollections:pcollections:4.0.2",
    "org.scala-lang:scala-library:2.13.17",
    "org.slf4j:slf4j-api:1.7.36",
    "org.xerial.snappy:snappy-java:1.1.10.7",
    "org.yaml:snakeyaml:2.5",
)
BROKER = tuple(f"org.apache.kafka:{name}:{KAFKA}" for name in _KAFKA_JARS) + _OTHER_JARS
"""Kafka's broker, tools and clients, as group:artifact:version."""
CONNECTOR_VERSION = "4.2.0"
"""The newest on Maven Central; it runs in Spark 4.3."""
CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


_out_of_reach: dict[str, NotInstalled] = {}
"""Where it is fetched from → why it could not be fetched: a machine that could not reach it once
does not wait again in this run.
"""


def cache() -> Path:
    """Where the jars are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "sparrow-jars"


def is_kept(jars: Sequence[str]) -> bool:
    """Return True if all jars exist, so that no network is needed."""
    return all(_kept(each).exists() for each in jars)


def fetched(jars: Sequence[str]) -> list[str]:
    """Paths of the jars, fetched where they are not there yet.

    Raises:
        NotInstalled: Maven Central cannot be reached.
    """
    return [str(_fetch(each)) for each in jars]


def _kept(coordinates: str) -> Path:
    _, artifact, version = coordinates.split(":")
    return cache() / f"{artifact}-{version}.jar"


def _fetch(coordinates: str) -> Path:
    kept = _kept(coordinates)
    if kept.exists():
        return kept
    group, artifact, version = coordinates.split(":")
    if CENTRAL in _out_of_reach:
        raise _out_of_reach[CENTRAL]
    url = f"{CENTRAL}/{group.replace('.', '/')}/{artifact}/{version}/{kept.name}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=ssl.create_default_context()) as answer:
            content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        missing = NotInstalled(f"{kept.name} cannot be fetched from Maven Central ({url}: {error})")
        _out_of_reach[CENTRAL] = missing
        raise missing from None
    # Under another name first, so that a fetch that was cut short leaves no half of a jar.
    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(kept)
    return kept
