"""Topics of the configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import SparrowError
from sparrow.base.faults import Fault, Misfit, misfit
from sparrow.base.settings import PAIRS, PAIRS_SCHEMA, Kind, integer
from sparrow.base.shapes import NAME, Part, Section, named
from sparrow.base.units import plain_topic_config

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTITIONS = integer(1, 10_000)


@dataclass(frozen=True, slots=True)
class TopicDeclaration:
    """A declared topic, with at least these partitions and this configuration. `partitions` -1: the
    broker's default.
    """

    name: str
    partitions: int
    config: Mapping[str, str]


def read_topic_config(given: object) -> dict[str, str]:
    """Read a configuration by Kafka's names; units become numbers.

    Raises:
        Misfit: names every wrong one.
    """
    from sparrow.broker.configs.topic import check_config

    values: dict[str, str] = {}
    faults: list[Fault] = []
    for name, value in PAIRS.read({} if given is None else given).items():
        try:
            values |= check_config(plain_topic_config({name: value}))
        except SparrowError as error:
            faults.append(Fault((name,), f": {error.text}"))
        except ValueError as error:
            faults.append(Fault((name,), f": it takes {error}"))
    if faults:
        raise Misfit(faults)
    return values


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


TOPIC_CONFIG: Kind[dict[str, str]] = Kind(
    "name=value", read_topic_config, repeats=True, schema={"anyOf": [PAIRS_SCHEMA, {"type": "null"}]}
)
_TOPIC = Section("a topic", {"partitions": Part(PARTITIONS), "config": Part(TOPIC_CONFIG)})
TOPICS: Kind[tuple[TopicDeclaration, ...]] = named(_TOPIC, _make, "topics")
