"""Format of dead letters: the copy of a record on the dead-letter topic, and the record that is
made of it again.

A dead letter has the key, the value and the headers of its record, and headers of its own
(`dead-letter-…`, `records/wellknown.py`) that say why it died and where it came from. Headers that
would keep it from being delivered there (`deliver-at`, `expires-at`, `redrive-queue`) are left out.
Its timestamp is the time at which the record died, so that the retention of the dead-letter topic
counts from there.

In a share group it has the headers of Kafka's dead letters, too (KIP-1191), and key, value and
headers only where the group is configured so (`errors.deadletterqueue.copy.record.enable`).

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.broker.queues.rules.settlement import DELIVERY_LIMIT, REJECTED
from sparrow.records.wellknown import (
    DEAD_LETTER_DELIVERY_COUNT,
    DEAD_LETTER_ERROR,
    DEAD_LETTER_FIRST_DELIVERY,
    DEAD_LETTER_LAST_DELIVERY,
    DEAD_LETTER_OFFSET,
    DEAD_LETTER_PARTITION,
    DEAD_LETTER_QUEUE,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SUBSCRIBER,
    DEAD_LETTER_TIMESTAMP,
    DEAD_LETTER_TOPIC,
    DELIVER_AT,
    EXPIRES_AT,
    REDRIVE_COUNT,
    REDRIVE_QUEUE,
    format_text,
    parse_text,
    parse_time_ms,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.records.record import Record

Header = tuple[str, bytes | None]

DEAD_LETTER_PREFIX: Final = "dead-letter-"
KAFKA_PREFIX: Final = "__dlq.errors."
_KAFKA_MESSAGES: Final = {
    DELIVERY_LIMIT: "Offset delivery count exceeded the threshold.",
    REJECTED: "Offset rejected by client.",
}
"""Messages of Kafka's broker. Consumers of dead letters compare them."""
_NOT_COPIED: Final = (DELIVER_AT, EXPIRES_AT, REDRIVE_QUEUE)
_MAX_REDRIVES: Final = 1 << 31


class Style(Enum):
    """Style of a dead letter."""

    SPARROW = "sparrow"
    KAFKA = "kafka"
    """Adds Kafka's headers, and leaves out the record's content."""
    KAFKA_WITH_CONTENT = "kafka, with content"


class Content(NamedTuple):
    """Content of a record, without its position."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]

    @property
    def size_bytes(self) -> int:
        """Estimated size in a batch."""
        headers = sum(len(name) + len(value or b"") + 4 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 24


@dataclass(frozen=True, slots=True)
class Death:
    """Why a record died, and where. Times are in ms since the epoch; -1: none."""

    queue: str
    subscriber: str
    topic: str
    partition: int
    reason: str
    error: str
    delivery_count: int
    first_delivery_ms: int
    last_delivery_ms: int


def dead_letter(record: Record, death: Death, style: Style) -> Content:
    """Return the copy of a record for the dead-letter topic."""
    headers = [header for header in record.headers if not _is_replaced(header[0])]
    if style is Style.KAFKA:
        headers = []
    headers += _headers_of(death, record.offset, record.timestamp)
    if style is not Style.SPARROW:
        headers += _kafka_headers_of(death, record.offset)
    if style is Style.KAFKA:
        return Content(None, None, headers)
    return Content(record.key, record.value, headers)


def dead_letter_without_content(offset: int, death: Death, style: Style) -> Content:
    """Return the dead letter of a record that cannot be read, because its batch is corrupt."""
    headers = _headers_of(death, offset, -1)
    if style is not Style.SPARROW:
        headers += _kafka_headers_of(death, offset)
    return Content(None, None, headers)


def _is_replaced(name: str) -> bool:
    return name in _NOT_COPIED or name.startswith((DEAD_LETTER_PREFIX, KAFKA_PREFIX))


def _headers_of(death: Death, offset: int, timestamp: int) -> list[Header]:
    named: list[tuple[str, str | int]] = [
        (DEAD_LETTER_REASON, death.reason),
        (DEAD_LETTER_ERROR, death.error),
        (DEAD_LETTER_DELIVERY_COUNT, death.delivery_count),
        (DEAD_LETTER_QUEUE, death.queue),
        (DEAD_LETTER_SUBSCRIBER, death.subscriber),
        (DEAD_LETTER_TOPIC, death.topic),
        (DEAD_LETTER_PARTITION, death.partition),
        (DEAD_LETTER_OFFSET, offset),
        (DEAD_LETTER_TIMESTAMP, timestamp),
        (DEAD_LETTER_FIRST_DELIVERY, death.first_delivery_ms),
        (DEAD_LETTER_LAST_DELIVERY, death.last_delivery_ms),
    ]
    return [(name, _bytes(value)) for name, value in named if value not in ("", -1)]


def _kafka_headers_of(death: Death, offset: int) -> list[Header]:
    named: list[tuple[str, str | int]] = [
        ("topic", death.topic),
        ("partition", death.partition),
        ("offset", offset),
        ("group", death.queue),
        ("delivery.count", death.delivery_count),
        ("message", _KAFKA_MESSAGES.get(death.reason, death.error or death.reason)),
    ]
    return [(KAFKA_PREFIX + name, _bytes(value)) for name, value in named]


def _bytes(value: str | int) -> bytes:
    return str(value).encode(errors="replace")


# ── back again ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a dead letter's record."""

    queue: str
    subscriber: str
    topic: str
    partition: int
    offset: int
    reason: str
    error: str
    has_content: bool
    """True if the dead letter has key, value and headers; else they are only where the record came
    from.
    """
    delivery_count: int = -1
    """Delivery count; -1, as for times: unknown."""
    timestamp_ms: int = -1
    """Timestamp of the record. The others are those of the first and the last delivery. All in ms
    since the epoch.
    """
    first_delivery_ms: int = -1
    last_delivery_ms: int = -1


def maybe_origin(letter: Record) -> Origin | None:
    """Return the origin of a dead letter; None if the record is no dead letter."""
    found = {name: value for name, value in letter.headers if name.startswith(DEAD_LETTER_PREFIX)}
    queue, topic = parse_text(found.get(DEAD_LETTER_QUEUE)), parse_text(found.get(DEAD_LETTER_TOPIC))
    partition, offset = _number(found.get(DEAD_LETTER_PARTITION)), _number(found.get(DEAD_LETTER_OFFSET))
    if not queue or not topic or partition < 0 or offset < 0:
        return None
    return Origin(
        queue,
        parse_text(found.get(DEAD_LETTER_SUBSCRIBER)),
        topic,
        partition,
        offset,
        parse_text(found.get(DEAD_LETTER_REASON)),
        (found.get(DEAD_LETTER_ERROR) or b"").decode(errors="replace"),
        letter.key is not None or letter.value is not None,
        _number(found.get(DEAD_LETTER_DELIVERY_COUNT)),
        _number(found.get(DEAD_LETTER_TIMESTAMP)),
        _number(found.get(DEAD_LETTER_FIRST_DELIVERY)),
        _number(found.get(DEAD_LETTER_LAST_DELIVERY)),
    )


def redriven(record: Record, origin: Origin, redrive_headers: Iterable[Header] | None = None) -> Content:
    """Return the content to publish again: the record without the headers of its dead letter.

    Args:
        record: the dead letter, or the record that it was made of.
        redrive_headers: headers of the dead letter, if `record` is not the dead letter.
    """
    only = f"{origin.queue}/{origin.subscriber}" if origin.subscriber else origin.queue
    described = record.headers if redrive_headers is None else redrive_headers
    count = max((parse_time_ms(value) for name, value in described if name == REDRIVE_COUNT), default=0)
    headers = [
        header for header in record.headers if not _is_replaced(header[0]) and header[0] != REDRIVE_COUNT
    ]
    headers.append((REDRIVE_QUEUE, format_text(only)))
    headers.append((REDRIVE_COUNT, b"%d" % min(count + 1, _MAX_REDRIVES)))
    return Content(record.key, record.value, headers)


def _number(value: bytes | None) -> int:
    """Return the number in a header; -1 if there is none."""
    return parse_time_ms(value) if value and value.isdigit() else -1
