"""The blocking way to a broker, for drivers and tasks: a `Target` says where, `connect` gives a
`Session`, `borrowed` one that is kept.
"""

from sparrow.spark.wire.fetches import FetchAhead, FetchedChunk, FetchWanted
from sparrow.spark.wire.pool import borrowed
from sparrow.spark.wire.session import PATIENCE_S, Channel, Session, connect
from sparrow.spark.wire.target import Target

__all__ = [
    "PATIENCE_S",
    "Channel",
    "FetchAhead",
    "FetchWanted",
    "FetchedChunk",
    "Session",
    "Target",
    "borrowed",
    "connect",
]
