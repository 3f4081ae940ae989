"""The kind of option that is a configuration of topics: Kafka's names, values with units."""

from __future__ import annotations

from sparrow.base.errors import SparrowError
from sparrow.base.faults import Fault, Misfit
from sparrow.base.settings import PAIRS, PAIRS_SCHEMA, Kind
from sparrow.base.units import plain_topic_config
from sparrow.broker.configs.topic import check_config


def _read(given: object) -> dict[str, str]:
    """Read a configuration by Kafka's names; units become numbers.

    Raises:
        Misfit: names every wrong one.
    """
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


TOPIC_CONFIG: Kind[dict[str, str]] = Kind(
    "name=value", _read, repeats=True, schema={"anyOf": [PAIRS_SCHEMA, {"type": "null"}]}
)
