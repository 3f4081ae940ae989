"""Spark's own Kafka connector, from Maven Central: the peer of the Spark part. It reads and writes
the same broker, through the Kafka frontend.
"""

from __future__ import annotations

from bench.peers import jars as maven

CONNECTOR = maven.CONNECTOR_VERSION
SETTINGS = "in the same Spark session, its defaults"


def version() -> str:
    """Return the version of the jars."""
    return CONNECTOR


def jars() -> list[str]:
    """Paths of the connector's jars, fetched when they are not there yet.

    Raises:
        NotInstalled: Maven Central cannot be reached.
    """
    return maven.fetched(maven.CONNECTOR)
