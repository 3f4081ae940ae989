"""Topics of the configuration file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.settings import Kind, integer
from sparrow.base.shapes import NAME, Part, Section, named
from sparrow.broker.configs.topic_kind import TOPIC_CONFIG

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTITIONS = integer(1, 10_000)


class TopicDeclaration(Struct, frozen=True):
    """A declared topic, with at least these partitions and this configuration. `partitions` -1: the
    broker's default.
    """

    name: str
    partitions: int
    config: Mapping[str, str]


def check_topic(name: str, *path: str | int) -> str:
    """Return the name if a topic can have it.

    Raises:
        Misfit: it cannot.
    """
    from sparrow.broker.names import check_topic_name

    try:
        return check_topic_name(name)
    except SparrowError as error:
        raise misfit(error.text, *path) from None


def _make(values: dict[str, Any]) -> TopicDeclaration:
    name = check_topic(values[NAME])
    return TopicDeclaration(name, values.get("partitions", -1), values.get("config", {}))


_TOPIC = Section("a topic", {"partitions": Part(PARTITIONS), "config": Part(TOPIC_CONFIG)})
TOPICS: Kind[tuple[TopicDeclaration, ...]] = named(_TOPIC, _make, "topics")
