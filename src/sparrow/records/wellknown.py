"""The record headers that a queue understands: their names, and how their values are written and
read.

    message-id     UTF-8 text       name by which other records refer to this one as their parent
    parent-id      UTF-8 text       the message-id of a record that must be finished before this
                                    one; repeated for several parents
    deliver-at     ASCII decimal    ms since the epoch (wall time) before which the record is not
                                    delivered
    expires-at     ASCII decimal    ms since the epoch from which on it is not delivered any more
    priority       an ASCII digit   0 to 9, 9 first; 4 without
    redrive-queue  UTF-8 text       the only queue that takes the record; others skip it

A malformed value counts as absent; so do empty text and the time 0. If a header that may occur once
occurs several times, the last well-formed one counts (as in `Headers.lastHeader` of Kafka's
clients).

A value is bytes or None (a record's header may be null).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

MESSAGE_ID: Final = "message-id"
PARENT_ID: Final = "parent-id"
DELIVER_AT: Final = "deliver-at"
EXPIRES_AT: Final = "expires-at"
PRIORITY: Final = "priority"
REDRIVE_QUEUE: Final = "redrive-queue"

MESSAGE_ID_BYTES: Final = MESSAGE_ID.encode()
PARENT_ID_BYTES: Final = PARENT_ID.encode()
DELIVER_AT_BYTES: Final = DELIVER_AT.encode()
EXPIRES_AT_BYTES: Final = EXPIRES_AT.encode()
PRIORITY_BYTES: Final = PRIORITY.encode()
REDRIVE_QUEUE_BYTES: Final = REDRIVE_QUEUE.encode()

QUEUE_HEADERS: Final = (
    MESSAGE_ID_BYTES,
    PARENT_ID_BYTES,
    DELIVER_AT_BYTES,
    EXPIRES_AT_BYTES,
    PRIORITY_BYTES,
    REDRIVE_QUEUE_BYTES,
)
"""All of the above: a batch in whose bytes none of them occurs needs no further search by a
queue.
"""

SCHEDULE_NAME: Final = "schedule-name"
SCHEDULE_TIME: Final = "schedule-time"
"""Headers of a job of a schedule: the schedule's name, and the time at which the job was due (ms
since the epoch, ASCII decimal). Queues ignore them.
"""

REDRIVE_COUNT: Final = "redrive-count"
"""Number of times the record was sent back from the dead letters; queues ignore it."""

DEAD_LETTER_REASON: Final = "dead-letter-reason"
DEAD_LETTER_ERROR: Final = "dead-letter-error"
DEAD_LETTER_DELIVERY_COUNT: Final = "dead-letter-delivery-count"
DEAD_LETTER_QUEUE: Final = "dead-letter-queue"
DEAD_LETTER_SUBSCRIBER: Final = "dead-letter-subscriber"
DEAD_LETTER_TOPIC: Final = "dead-letter-topic"
DEAD_LETTER_PARTITION: Final = "dead-letter-partition"
DEAD_LETTER_OFFSET: Final = "dead-letter-offset"
DEAD_LETTER_TIMESTAMP: Final = "dead-letter-timestamp"
DEAD_LETTER_FIRST_DELIVERY: Final = "dead-letter-first-delivery"
DEAD_LETTER_LAST_DELIVERY: Final = "dead-letter-last-delivery"
"""Headers of a dead letter about its record; numbers and times (ms since the epoch) in ASCII
decimal, the rest UTF-8.
"""

LOWEST_PRIORITY: Final = 0
DEFAULT_PRIORITY: Final = 4
HIGHEST_PRIORITY: Final = 9
MAX_TIME_MS: Final = (1 << 62) - 1
"""The latest time that a record's own timestamp may have, too."""

_MAX_DIGITS: Final = 19
_ZERO: Final = ord("0")


def format_time_ms(time_ms: int) -> bytes:
    """Return the value of `deliver-at` or `expires-at`.

    Raises:
        InvalidArgument: not between 1 and `MAX_TIME_MS`.
    """
    if not 1 <= time_ms <= MAX_TIME_MS:
        raise InvalidArgument(f"{time_ms} is no time in ms since 1970; write 1 to {MAX_TIME_MS}")
    return b"%d" % time_ms


def parse_time_ms(value: bytes | None) -> int:
    """Return the time in `deliver-at` or `expires-at`, ms since the epoch; 0 if there is none."""
    if value is None or not value.isdigit() or len(value) > _MAX_DIGITS:
        return 0
    time_ms = int(value)
    return time_ms if time_ms <= MAX_TIME_MS else 0


def format_priority(priority: int) -> bytes:
    """Return the value of `priority`.

    Raises:
        InvalidArgument: not between 0 and 9.
    """
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise InvalidArgument(f"{priority} is no priority; write 0 to 9, 9 is delivered first")
    return b"%d" % priority


def maybe_parse_priority(value: bytes | None) -> int | None:
    """Return the priority in the header, 0 to 9; None if there is none."""
    if value is None or len(value) != 1 or not value.isdigit():
        return None
    return value[0] - _ZERO


def priority_of(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Return the priority of a record with these headers."""
    said = [maybe_parse_priority(value) for name, value in headers if name == PRIORITY]
    return next((priority for priority in reversed(said) if priority is not None), DEFAULT_PRIORITY)


def format_text(text: str) -> bytes:
    """Return the value of `message-id`, `parent-id` or `redrive-queue`.

    Raises:
        InvalidArgument: empty, or UTF-8 cannot write it.
    """
    if not text:
        raise InvalidArgument("an id must not be empty")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{text!r} cannot be written as UTF-8") from None


def parse_text(value: bytes | None) -> str:
    """Return the text in `message-id`, `parent-id` or `redrive-queue`; "" if there is none."""
    try:
        return value.decode() if value else ""
    except UnicodeDecodeError:
        return ""
