"""Options of reading: those of Spark's Kafka source by the same names, and a few of Sparrow's own.

Faults that depend on whether it is a batch or a stream are reported by `check_batch` and
`check_stream`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sparrow.base.errors import InvalidArgument
from sparrow.base.faults import suggestion
from sparrow.base.settings import BOOLEAN, TEXT, WORDS, Kind, choice, duration, integer, size
from sparrow.spark.options.connection import with_connection
from sparrow.spark.options.declare import DataSourceOption, Values

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""Columns that a row can have, in this order."""
EARLIEST, LATEST = "earliest", "latest"
AT_END, AT_START = -1, -2
"""Offsets by which Kafka writes these positions."""
SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
_MAX: Final = (1 << 63) - 1
_MANY: Final = 1_000_000


# ── kinds ─────────────────────────────────────────────────────────────────────────────────────────


def _read_topics(given: object) -> tuple[str, ...]:
    names = WORDS.read(given)
    if not names:
        raise ValueError("names of topics with commas between")
    return tuple(dict.fromkeys(names))


def _read_pattern(given: object) -> str:
    try:
        re.compile(str(given))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return str(given)


def _parsed(given: object, example: str) -> dict[str, Any]:
    try:
        found = json.loads(str(given))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"JSON such as {example}")  # noqa: TRY004 - readers raise ValueError with what is allowed
    return {topic: value for topic, value in found.items() if not topic.startswith("$")}


def _read_assigned(given: object) -> dict[str, tuple[int, ...]]:
    example = '{"orders": [0, 1]}'
    found = _parsed(given, example)
    for partitions in found.values():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(p) for p in partitions):
            raise ValueError(f"JSON such as {example}, with at least one partition for each topic")
    if not found:
        raise ValueError(f"JSON such as {example}")
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in found.items()}


def _read_by_partition(given: object, example: str, lowest: int) -> dict[str, dict[int, int]]:
    values: dict[str, dict[int, int]] = {}
    for topic, partitions in _parsed(given, example).items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"JSON such as {example}")
        for partition, value in partitions.items():
            if (
                not partition.isdecimal()
                or isinstance(value, bool)
                or not isinstance(value, int)
                or not lowest <= value <= _MAX
            ):
                raise ValueError(
                    f"JSON such as {example}; {partition!r}: {value!r} of {topic!r} does not fit"
                )
            values.setdefault(topic, {})[int(partition)] = value
    if not values:
        raise ValueError(f"JSON such as {example}")
    return values


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _offsets_or(*words: str) -> Kind[Any]:
    """Return a kind of option: one of these words, or offsets by partition."""
    example = '{"orders": {"0": 23, "1": -2}}'

    def read(given: object) -> str | dict[str, dict[int, int]]:
        text = str(given).strip()
        if text.lower() in words:
            return text.lower()
        try:
            return _read_by_partition(text, example, AT_START)
        except ValueError as error:
            raise ValueError(f"{', '.join(words)} or {error}") from None

    return Kind("|".join([*words, "JSON"]), read)


def _read_times(given: object) -> dict[str, dict[int, int]]:
    return _read_by_partition(given, '{"orders": {"0": 1700000000000}} (ms)', 0)


def _read_columns(given: object) -> tuple[str, ...]:
    spelled = {column.lower(): column for column in COLUMNS}
    words = [word.lower() for word in WORDS.read(given)]
    for word in words:
        if word not in spelled:
            raise ValueError(f"some of {', '.join(COLUMNS)}{suggestion(word, spelled)}")
    if not words or len(set(words)) != len(words):
        raise ValueError(f"some of {', '.join(COLUMNS)}, each once")
    return tuple(spelled[word] for word in words)


_TOPICS: Final = Kind("names", _read_topics)
_PATTERN: Final = Kind("regular expression", _read_pattern)
_ASSIGNED: Final = Kind("JSON", _read_assigned)
_TIMES: Final = Kind("JSON", _read_times)
_COLUMNS: Final = Kind("names", _read_columns)
_OFFSETS: Final = _offsets_or(EARLIEST, LATEST)
_TIME: Final = integer(0, _MAX)


# ── the options ───────────────────────────────────────────────────────────────────────────────────

_DECLARED: Final = (
    DataSourceOption("subscribe", _TOPICS, None, "The topics to read, with commas between."),
    DataSourceOption(
        "subscribePattern",
        _PATTERN,
        None,
        "Regular expression of the topics to read, also of those made later.",
    ),
    DataSourceOption(
        "assign",
        _ASSIGNED,
        None,
        'The partitions to read: `{"orders": [0, 1]}`. One of these three.',
    ),
    DataSourceOption(
        "startingOffsets",
        _OFFSETS,
        None,
        'Where a batch or a new stream begins: `earliest`, `latest` (streams only) or `{"orders": '
        '{"0": 23, "1": -2}}` (-2 earliest, -1 latest).',
        show="earliest (batch), latest (stream)",
    ),
    DataSourceOption(
        "startingTimestamp",
        _TIME,
        None,
        "Begin at the first record of this time (ms since 1970) or later. Wins over the other two.",
    ),
    DataSourceOption(
        "startingOffsetsByTimestamp",
        _TIMES,
        None,
        'The same by partition: `{"orders": {"0": 1700000000000}}`. Wins over `startingOffsets`.',
    ),
    DataSourceOption(
        "startingOffsetsByTimestampStrategy",
        choice("error", LATEST),
        "error",
        "Behaviour if no record is that late: fail, or begin at the end.",
    ),
    DataSourceOption(
        "endingOffsets", _OFFSETS, None, "Where a batch ends (streams have no end).", show=LATEST
    ),
    DataSourceOption(
        "endingTimestamp",
        _TIME,
        None,
        "A batch ends before the first record of this time or later. Wins over the other two.",
    ),
    DataSourceOption("endingOffsetsByTimestamp", _TIMES, None, "The same by partition."),
    DataSourceOption(
        "maxOffsetsPerTrigger",
        integer(1, _MAX),
        None,
        "Maximum number of offsets of a micro-batch, spread over partitions by their waiting records.",
        ("maxRowsPerBatch",),
        show="all",
    ),
    DataSourceOption(
        "maxBytesPerTrigger",
        size(1, _MAX),
        None,
        "Approximate size of a micro-batch in bytes; `64m`.",
        ("maxBytesPerBatch",),
        show="all",
    ),
    DataSourceOption(
        "minPartitions",
        integer(1, _MANY),
        None,
        "At least this many tasks, if there are that many offsets.",
    ),
    DataSourceOption(
        "maxRecordsPerPartition", integer(1, _MAX), None, "A task gets at most this many offsets.", show="all"
    ),
    DataSourceOption(
        "maxBytesPerPartition",
        size(1 << 16, _MAX),
        128 << 20,
        "A task gets at most about this many bytes, or less (16 MiB at least) where cores of the "
        "driver would be idle; larger partitions of a topic are split.",
    ),
    DataSourceOption(
        "packBytes",
        size(0, 1 << 40),
        4 << 20,
        "Small partitions are read by one task up to about this many bytes; 0: a task for each.",
    ),
    DataSourceOption(
        "failOnDataLoss", BOOLEAN, True, "Fail when records to be read are gone; `false`: warn and go on."
    ),
    DataSourceOption(
        "failOnCorrupt",
        BOOLEAN,
        True,
        "Fail at a batch that cannot be read; `false`: skip it, with a warning and a count.",
    ),
    DataSourceOption(
        "onCorrupt",
        choice("fail", "skip"),
        None,
        "The same by the word that all readers have: `skip` is `failOnCorrupt=false`.",
        show="fail",
    ),
    DataSourceOption("includeHeaders", BOOLEAN, False, "With a column `headers`."),
    DataSourceOption(
        "columns",
        _COLUMNS,
        None,
        "The columns to make; what is not made costs nothing.",
        show="all, no headers",
    ),
    DataSourceOption(
        "isolation.level",
        choice("read_committed", "read_uncommitted"),
        "read_committed",
        "`read_uncommitted`: also records of transactions that are open or were aborted.",
        ("kafka.isolation.level", "isolationLevel"),
    ),
    DataSourceOption(
        "pushdown",
        choice("auto", "true", "false"),
        "auto",
        "Filters on partition, offset and timestamp limit what a batch reads. `auto`: when "
        "`spark.sql.python.filterPushdown.enabled` is on.",
    ),
    DataSourceOption(
        "fetchBytes",
        size(1 << 16, 64 << 20),
        4 << 20,
        "Bytes that a task fetches at a time.",
    ),
    DataSourceOption(
        "pollTimeout",
        duration(0, 5000),
        500,
        "Time that a stream waits at the broker for new records.",
        show="500 ms",
    ),
    DataSourceOption(
        "lag", BOOLEAN, True, "A stream commits how far it is as a consumer group, so that its lag is seen."
    ),
    DataSourceOption(
        "groupIdPrefix", TEXT, "spark", "The group's name is this, a hyphen and the query's name."
    ),
    DataSourceOption("kafka.group.id", TEXT, None, "The whole name of that group.", ("groupId",)),
)

_ADVICE: Final = {
    "minOffsetsPerTrigger": "a micro-batch starts as soon as there is something; use a longer "
    "trigger interval to have fewer, larger ones",
    "maxTriggerDelay": "it belongs to minOffsetsPerTrigger; use a longer trigger interval",
    "topic": "name the topics to read by subscribe",
    "topics": "name the topics to read by subscribe",
    "headers": "say includeHeaders",
    "startingPosition": "say startingOffsets",
    "endingPosition": "say endingOffsets",
    "schema": "give it by .schema(…), or choose columns by columns",
}


def _selection(values: Values) -> Iterable[str]:
    given = [name for name in SELECTIONS if values[name] is not None]
    if not given:
        yield "what to read is not said; give subscribe, subscribePattern or assign"
    elif len(given) > 1:
        yield f"{' and '.join(given)} are given together; give one"
    if values["columns"] is not None and values["includeHeaders"] and "headers" not in values["columns"]:
        yield (
            "includeHeaders and columns without headers are given together; add headers to columns or "
            "leave out includeHeaders"
        )


def _on_corrupt(values: Values) -> Iterable[str]:
    fails = values["failOnCorrupt"]
    if {"failOnCorrupt", "onCorrupt"} <= set(values.given) and fails != (values["onCorrupt"] == "fail"):
        names = f"onCorrupt={values['onCorrupt']} and failOnCorrupt={str(fails).lower()}"
        yield f"{names} contradict each other; give one of them"


SOURCE: Final = with_connection(_DECLARED, rules=(_selection, _on_corrupt), advice=_ADVICE)
"""All options, with those of the connection."""


def fails_on_corrupt(values: Values) -> bool:
    """Return True if a batch that cannot be read ends the reading."""
    return bool(values["failOnCorrupt"]) and values["onCorrupt"] != "skip"


def read_source_options(given: Mapping[str, str]) -> Values:
    """Read the options of `spark.read` or `spark.readStream`.

    Raises:
        InvalidArgument: names all that is wrong.
    """
    return SOURCE.read(given)


def check_batch(values: Values) -> None:
    """Refuse options that make no sense for a batch.

    Raises:
        InvalidArgument: names them.
    """
    faults = []
    if _has(values["startingOffsets"], LATEST, AT_END):
        faults.append("startingOffsets cannot be latest (-1) in a batch, which would have no rows")
    if _has(values["endingOffsets"], EARLIEST, AT_START):
        faults.append("endingOffsets cannot be earliest (-2), which would have no rows")
    _tell("batch", faults)


def check_stream(values: Values) -> None:
    """Refuse options that make no sense for a stream.

    Raises:
        InvalidArgument: names them.
    """
    given = [
        name
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
        if values[name] is not None
    ]
    if given:
        _tell("stream", [f"{' and '.join(given)}: a stream has no end; use trigger(availableNow=True)"])


def _has(value: Any, word: str, number: int) -> bool:
    if isinstance(value, dict):
        return any(number in partitions.values() for partitions in value.values())
    return bool(value == word)


def _tell(what: str, faults: list[str]) -> None:
    if faults:
        raise InvalidArgument(f"options do not fit a {what}: {'; '.join(faults)}")
