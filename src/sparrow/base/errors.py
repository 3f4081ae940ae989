"""The error tree. Everything that Sparrow raises on purpose is a `SparrowError`.

Each class says whose fault it was (its branch), has a stable `code` that travels on the wire, and says whether the same
call may succeed later (`retriable`). Errors of the operating system and of libraries are translated at the borders:
storage, meta store, sockets. A message is a sentence for a person: what failed, where, and what to do.

    SparrowError
    ├── BadInput                  the caller's fault; the same call fails again
    │   ├── InvalidArgument       INVALID_ARGUMENT
    │   ├── InvalidTopicName      INVALID_TOPIC_NAME
    │   ├── InvalidConfig         INVALID_CONFIG
    │   ├── RecordTooLarge        RECORD_TOO_LARGE
    │   ├── CorruptBatch          CORRUPT_BATCH
    │   ├── UnsupportedCompression UNSUPPORTED_COMPRESSION
    │   ├── InvalidTimestamp      INVALID_TIMESTAMP
    │   ├── InvalidRecord         INVALID_RECORD
    │   └── OffsetOutOfRange      OFFSET_OUT_OF_RANGE
    ├── NotFound                  the thing named does not exist
    │   ├── UnknownTopic          UNKNOWN_TOPIC
    │   ├── UnknownPartition      UNKNOWN_PARTITION
    │   └── UnknownGroup          UNKNOWN_GROUP
    ├── Conflict                  the state of the broker says no
    │   ├── TopicExists           TOPIC_EXISTS
    │   ├── GroupNotEmpty         GROUP_NOT_EMPTY
    │   ├── OutOfOrderSequence    OUT_OF_ORDER_SEQUENCE
    │   ├── DuplicateSequence     DUPLICATE_SEQUENCE
    │   ├── ProducerFenced        PRODUCER_FENCED
    │   ├── UnknownProducer       UNKNOWN_PRODUCER
    │   ├── UnknownMember         UNKNOWN_MEMBER
    │   ├── StaleMember           STALE_MEMBER
    │   └── ConditionFailed       CONDITION_FAILED
    ├── Refused                   who you are does not allow it
    │   ├── NotAuthenticated      NOT_AUTHENTICATED
    │   └── NotAuthorized         NOT_AUTHORIZED
    ├── Unavailable               the broker or the network cannot now; retriable
    │   ├── DiskFull              DISK_FULL
    │   ├── StorageFailed         STORAGE_FAILED (not retriable: restart after repair)
    │   ├── Draining              DRAINING
    │   ├── Overloaded            OVERLOADED
    │   ├── TimedOut              TIMED_OUT
    │   └── ConnectionLost        CONNECTION_LOST
    ├── ProtocolError             the peer does not speak as agreed; the connection ends
    │   ├── BadFrame              BAD_FRAME
    │   ├── FrameTooLarge         FRAME_TOO_LARGE
    │   └── UnsupportedVersion    UNSUPPORTED_VERSION
    └── DataDirectoryError        the data directory cannot be used
        ├── DirectoryInUse        DIRECTORY_IN_USE
        ├── NewerFormat           NEWER_FORMAT
        └── DirectoryUnreadable   DIRECTORY_UNREADABLE

`InternalError` (INTERNAL) stands for a bug: the broker logs the traceback, the client sees the code.
"""

from __future__ import annotations

from typing import ClassVar


class SparrowError(Exception):
    """Root of all errors that Sparrow raises on purpose."""

    code: ClassVar[str] = "ERROR"
    retriable: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """The sentence for people."""
        return str(self.args[0]) if self.args else type(self).__name__


class InternalError(SparrowError):
    """A bug in Sparrow; the log has the traceback."""

    code = "INTERNAL"


# ── the caller's fault ────────────────────────────────────────────────────────────────────────────


class BadInput(SparrowError):
    """The call is wrong in itself; repeating it does not help."""

    code = "BAD_INPUT"


class InvalidArgument(BadInput):
    code = "INVALID_ARGUMENT"


class InvalidTopicName(BadInput):
    code = "INVALID_TOPIC_NAME"


class InvalidConfig(BadInput):
    code = "INVALID_CONFIG"


class RecordTooLarge(BadInput):
    code = "RECORD_TOO_LARGE"


class CorruptBatch(BadInput):
    code = "CORRUPT_BATCH"


class UnsupportedCompression(BadInput):
    code = "UNSUPPORTED_COMPRESSION"


class InvalidTimestamp(BadInput):
    code = "INVALID_TIMESTAMP"


class InvalidRecord(BadInput):
    code = "INVALID_RECORD"


class OffsetOutOfRange(BadInput):
    code = "OFFSET_OUT_OF_RANGE"


# ── not found ─────────────────────────────────────────────────────────────────────────────────────


class NotFound(SparrowError):
    """The thing named does not exist."""

    code = "NOT_FOUND"


class UnknownTopic(NotFound):
    code = "UNKNOWN_TOPIC"


class UnknownPartition(NotFound):
    code = "UNKNOWN_PARTITION"


class UnknownGroup(NotFound):
    code = "UNKNOWN_GROUP"


# ── conflicts with the broker's state ─────────────────────────────────────────────────────────────


class Conflict(SparrowError):
    """The state of the broker says no."""

    code = "CONFLICT"


class TopicExists(Conflict):
    code = "TOPIC_EXISTS"


class GroupNotEmpty(Conflict):
    code = "GROUP_NOT_EMPTY"


class OutOfOrderSequence(Conflict):
    code = "OUT_OF_ORDER_SEQUENCE"


class DuplicateSequence(Conflict):
    """The batch was accepted before, so long ago that its first answer is forgotten."""

    code = "DUPLICATE_SEQUENCE"


class ProducerFenced(Conflict):
    code = "PRODUCER_FENCED"


class UnknownProducer(Conflict):
    code = "UNKNOWN_PRODUCER"


class UnknownMember(Conflict):
    code = "UNKNOWN_MEMBER"


class StaleMember(Conflict):
    code = "STALE_MEMBER"


class ConditionFailed(Conflict):
    """A conditional write met another version."""

    code = "CONDITION_FAILED"


# ── refused ───────────────────────────────────────────────────────────────────────────────────────


class Refused(SparrowError):
    """Who the caller is does not allow it."""

    code = "REFUSED"


class NotAuthenticated(Refused):
    code = "NOT_AUTHENTICATED"


class NotAuthorized(Refused):
    code = "NOT_AUTHORIZED"


# ── unavailable ───────────────────────────────────────────────────────────────────────────────────


class Unavailable(SparrowError):
    """Not now; the same call may succeed later."""

    code = "UNAVAILABLE"
    retriable = True


class DiskFull(Unavailable):
    code = "DISK_FULL"


class StorageFailed(Unavailable):
    """A write or a sync failed; what was promised is kept, nothing more is accepted until a restart."""

    code = "STORAGE_FAILED"
    retriable = False


class Draining(Unavailable):
    code = "DRAINING"


class Overloaded(Unavailable):
    code = "OVERLOADED"


class TimedOut(Unavailable):
    code = "TIMED_OUT"


class ConnectionLost(Unavailable):
    code = "CONNECTION_LOST"


# ── the peer ──────────────────────────────────────────────────────────────────────────────────────


class ProtocolError(SparrowError):
    """The peer does not speak as agreed; the connection ends."""

    code = "PROTOCOL_ERROR"


class BadFrame(ProtocolError):
    code = "BAD_FRAME"


class FrameTooLarge(ProtocolError):
    code = "FRAME_TOO_LARGE"


class UnsupportedVersion(ProtocolError):
    code = "UNSUPPORTED_VERSION"


# ── the data directory ────────────────────────────────────────────────────────────────────────────


class DataDirectoryError(SparrowError):
    """The data directory cannot be used."""

    code = "DATA_DIRECTORY"


class DirectoryInUse(DataDirectoryError):
    code = "DIRECTORY_IN_USE"


class NewerFormat(DataDirectoryError):
    code = "NEWER_FORMAT"


class DirectoryUnreadable(DataDirectoryError):
    code = "DIRECTORY_UNREADABLE"


def _leaves(root: type[SparrowError]) -> dict[str, type[SparrowError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_leaves(child))
    return found


_BY_CODE = _leaves(SparrowError)


def from_code(code: str, text: str) -> SparrowError:
    """The error that a peer named by `code`; an unknown code becomes a plain `SparrowError` that says so."""
    kind = _BY_CODE.get(code)
    return kind(text) if kind else SparrowError(f"{text} (code {code})")
