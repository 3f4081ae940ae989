"""Kafka's jars from Maven Central, kept in a cache directory."""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

CENTRAL = "https://repo1.maven.org/maven2"
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
JARS = tuple(f"org.apache.kafka:{name}:{KAFKA}" for name in _KAFKA_JARS) + _OTHER_JARS


class CannotRun(Exception):
    """Something that this machine lacks."""


def cache() -> Path:
    """Where the jars are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "sparrow-compat" / KAFKA


def classpath() -> str:
    """All jars, fetched when they are not there yet.

    Raises:
        CannotRun: Maven Central cannot be reached.
    """
    return ":".join(str(_fetch(jar)) for jar in JARS)


def _fetch(coordinates: str) -> Path:
    group, artifact, version = coordinates.split(":")
    kept = cache() / f"{artifact}-{version}.jar"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    url = f"{CENTRAL}/{group.replace('.', '/')}/{artifact}/{version}/{kept.name}"
    try:
        with urllib.request.urlopen(url, timeout=60, context=ssl.create_default_context()) as answer:
            content = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise CannotRun(f"Maven Central cannot be reached ({url}: {error})") from error
    # Under another name first, so that a fetch that was cut short leaves no half of a jar.
    part = kept.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(kept)
    return kept
