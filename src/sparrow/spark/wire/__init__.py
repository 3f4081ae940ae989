"""The blocking way to a broker, for drivers and tasks: a `Target` says where, `connect` gives a `Link`, `borrowed` one that is kept."""

from sparrow.spark.wire.borrowed import borrowed
from sparrow.spark.wire.link import PATIENCE_S, Channel, Link, connect
from sparrow.spark.wire.reading import FetchAhead, FetchedChunk, FetchWanted
from sparrow.spark.wire.target import Target

__all__ = [
    "PATIENCE_S",
    "Channel",
    "FetchAhead",
    "FetchWanted",
    "FetchedChunk",
    "Link",
    "Target",
    "borrowed",
    "connect",
]
