"""Queues, their statistics, and the records in them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sparrow.model.result import Result
from sparrow.records.record import Record


class QueueConsumerListing(Result, frozen=True):
    """A consumer of a queue, and the number of records it has leased. `subscriber` is set in an
    "all of" queue.
    """

    consumer_id: str
    client_name: str = ""
    subscriber: str = ""
    leased: int = 0


class SubscriberStatistics(Result, frozen=True):
    """Unfinished records of one subscriber of an "all of" queue, by state."""

    ready: int = 0
    leased: int = 0
    delayed: int = 0
    blocked: int = 0


class QueueStatistics(Result, frozen=True):
    """Statistics of a queue, in records: current numbers, then counts since the broker started.

    A current number of an "all of" queue is the largest of its subscribers'.
    """

    ready: int = 0
    """Includes records that the queue has not read yet, some of which may prove delayed or
    blocked.
    """
    leased: int = 0
    delayed: int = 0
    """Waiting for a time: `deliver-at`, or the delay after a failed delivery."""
    blocked: int = 0
    """Waiting for unfinished parents, or for an earlier record with the same key."""
    moving: int = 0
    """Being written to the dead-letter topic."""
    unfinished: int = 0
    """The sum of all these."""
    oldest_ms: int = -1
    """Age of the oldest unfinished record; -1: there is none, or its age is not known without
    reading from the disk.
    """
    oldest_by_priority: dict[int, int] = {}
    """Age in ms of the oldest ready record of each priority."""
    dead: int = 0
    """Unfinished records on the dead-letter topic."""
    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    rejected: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    """Given up in a queue without a dead-letter topic."""
    lost: int = 0
    """Deleted by retention before they were finished."""
    published_rate: float = 0.0
    """Per second, averaged over about ten seconds."""
    delivered_rate: float = 0.0
    acknowledged_rate: float = 0.0
    consumers: list[QueueConsumerListing] = []
    subscribers: dict[str, SubscriberStatistics] = {}
    """Statistics per subscriber of an "all of" queue."""


class QueueDescription(Result, frozen=True):
    """A queue: a subscription to `topics` that keeps a state for each record. `kind` is "queue",
    "share" (a Kafka share group) or "dead".

    `policy` has every setting by name; see `docs/queues.md`.
    """

    name: str
    id: str
    kind: str
    topics: list[str]
    policy: dict[str, Any]
    is_paused: bool = False
    statistics: QueueStatistics = QueueStatistics()


class PeekedRecord(Record, frozen=True, gc=False):
    """A record with its state in a queue."""

    state: str = ""
    """ "ready", "leased", "delayed", "blocked" or "moving"."""
    delivery_count: int = 0
    priority: int = 4
    consumer: str = ""
    """The consumer that has it leased, or had it last."""
    deliver_at_ms: int = 0
    """Earliest delivery, ms since the epoch; 0: the publisher set none."""
    error: str = ""
    """Error of the last delivery."""


class DeadLetter(Record, frozen=True, gc=False):
    """A record that a queue gave up, as stored in the dead-letter topic, and the reason.
    `timestamp` is the time at which it was given up.

    Times are ms since the epoch; -1 where a time or a number is not known.
    """

    state: str = ""
    """State in the queue of the dead-letter topic: "ready", "leased", "delayed", "blocked" or
    "moving" (being sent back).
    """
    reason: str = ""
    """ "DELIVERY_LIMIT", "REJECTED", "PARENT_FAILED", "PARENT_MISSING", "PARENT_CYCLE"."""
    error: str = ""
    """The last error's text, or the reason of the rejection."""
    delivery_count: int = -1
    subscriber: str = ""
    origin_topic: str = ""
    origin_partition: int = -1
    origin_offset: int = -1
    origin_timestamp: int = -1
    """Timestamp of the original record."""
    first_delivery_ms: int = -1
    last_delivery_ms: int = -1


class DeadLetterGroup(Result, frozen=True):
    """Dead letters of one queue with the same reason and error."""

    reason: str
    error: str
    count: int
    first_ms: int
    """When the first of them died."""
    last_ms: int
    topics: list[str] = []
    """Where they came from."""


class DeadLetterSummary(Result, frozen=True):
    """Dead letters by reason and error, the most frequent first. `next_skip`: how many to skip to
    go on; -1: these are all.
    """

    groups: list[DeadLetterGroup] = []
    looked_at: int = 0
    next_skip: int = -1


class RedriveProgress(Result, frozen=True):
    """Progress of a redrive: records sent back, skipped because they do not match, and failed to
    move. `error`: why it ended early.
    """

    moved: int = 0
    skipped: Annotated[int, Meta(description="Messages that do not match.")] = 0
    failed: Annotated[int, Meta(description="Messages that could not be moved and stay where they were.")] = 0
    is_running: bool = False
    error: Annotated[str, Meta(description="Reason of an early end.")] = ""
