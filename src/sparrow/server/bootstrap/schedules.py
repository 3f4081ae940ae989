"""Schedules of the configuration file.

    schedules:
      nightly:
        queue: reports
        cron: 30 2 * * MON-FRI
        time_zone: Europe/Berlin
        value: {kind: nightly}
      heartbeat: {queue: pulses, every: 10s}

The settings are those of `broker.schedules.settings`, which also checks them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.shapes import NAME, Part, Section, named
from sparrow.broker.schedules.settings import TABLE, new_settings
from sparrow.broker.schedules.timetable import read_cron
from sparrow.server.bootstrap.settings import part_of, without_aliases

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIASES = {each.word: each.name for each in TABLE.by_name.values() if each.word != each.name}


class ScheduleDeclaration(Struct, frozen=True):
    """A declared schedule."""

    name: str
    settings: Mapping[str, object]


def _make(values: dict[str, Any]) -> ScheduleDeclaration:
    values = without_aliases(values, ALIASES)
    name = values.pop(NAME)
    if not 0 < len(name) <= 200 or not name.isprintable() or "/" in name:
        raise misfit(
            f"a schedule cannot have the name {name[:80]!r}; a name has 1 to 200 printable "
            "characters without '/'"
        )
    try:
        checked = new_settings(values)
        if checked.cron:
            read_cron(checked.cron, checked.time_zone, time.time_ns() // 1_000_000)
    except SparrowError as error:
        raise misfit(error.text) from None
    return ScheduleDeclaration(name, values)


_PARTS: dict[str, Part] = {
    key: part_of(each, key, each.read) for each in TABLE.by_name.values() for key in (each.word, each.name)
}
SCHEDULES = named(
    Section(
        "a schedule",
        _PARTS,
        advice={
            "interval": "the time between two jobs is 'every'",
            "timezone": "the time zone is 'time_zone'",
            "body": "what each job carries is 'value'",
        },
    ),
    _make,
    "schedules",
)
