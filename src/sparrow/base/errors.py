"""The error tree. Everything that Sparrow raises on purpose is a `SparrowError`.

Each class says who is at fault (its branch), has a stable `code` on the wire, and
says whether the same call may succeed later (`retriable`). Errors of the operating system and of
libraries are translated at the borders: storage, meta store, sockets. A message is a sentence for a
person: what failed, where, and what to do.

    SparrowError
    ├── BadInput                  the caller's fault; the same call fails again
    │   ├── InvalidArgument       INVALID_ARGUMENT
    │   │   └── InvalidPartitions INVALID_PARTITIONS
    │   ├── InvalidTopicName      INVALID_TOPIC_NAME
    │   ├── InvalidConfig         INVALID_CONFIG
    │   ├── RecordTooLarge        RECORD_TOO_LARGE
    │   ├── CorruptBatch          CORRUPT_BATCH
    │   │   └── CorruptStoredBatch CORRUPT_BATCH: the broker's disk, not the caller
    │   ├── UnsupportedCompression UNSUPPORTED_COMPRESSION
    │   ├── InvalidTimestamp      INVALID_TIMESTAMP
    │   ├── InvalidRecord         INVALID_RECORD
    │   ├── UnsupportedAssignor   UNSUPPORTED_ASSIGNOR
    │   ├── InvalidRegularExpression INVALID_REGULAR_EXPRESSION
    │   ├── UnacceptableCredential UNACCEPTABLE_CREDENTIAL
    │   ├── UnsupportedMechanism  UNSUPPORTED_MECHANISM
    │   ├── DuplicateResource     DUPLICATE_RESOURCE
    │   ├── InvalidGroupId        INVALID_GROUP_ID
    │   ├── InvalidSessionTimeout INVALID_SESSION_TIMEOUT
    │   ├── OffsetMetadataTooLarge OFFSET_METADATA_TOO_LARGE
    │   ├── InvalidTransactionTimeout INVALID_TRANSACTION_TIMEOUT
    │   ├── IdempotencyKeyReused  IDEMPOTENCY_KEY_REUSED
    │   ├── UsedAfterFork         USED_AFTER_FORK
    │   └── OffsetOutOfRange      OFFSET_OUT_OF_RANGE
    ├── NotFound                  the thing named does not exist
    │   ├── UnknownTopic          UNKNOWN_TOPIC
    │   │   └── UnknownTopicId    UNKNOWN_TOPIC_ID
    │   ├── UnknownPartition      UNKNOWN_PARTITION
    │   ├── UnknownUser           UNKNOWN_USER
    │   ├── UnknownTransaction    UNKNOWN_TRANSACTION
    │   ├── UnknownQueue          UNKNOWN_QUEUE
    │   ├── UnknownWebhook        UNKNOWN_WEBHOOK
    │   ├── UnknownSchedule       UNKNOWN_SCHEDULE
    │   ├── UnknownSink           UNKNOWN_SINK
    │   └── UnknownGroup          UNKNOWN_GROUP
    ├── Conflict                  the state of the broker forbids the call
    │   ├── TopicExists           TOPIC_EXISTS
    │   ├── QueueExists           QUEUE_EXISTS
    │   ├── NotLeased             NOT_LEASED
    │   │   ├── LeaseExpired      LEASE_EXPIRED
    │   │   └── LeasedByAnother   LEASED_BY_ANOTHER
    │   ├── PolicyViolation       POLICY_VIOLATION
    │   ├── UserExists            USER_EXISTS
    │   ├── GroupNotEmpty         GROUP_NOT_EMPTY
    │   ├── GroupSubscribedToTopic GROUP_SUBSCRIBED_TO_TOPIC
    │   ├── GroupTypeMismatch     GROUP_TYPE_MISMATCH
    │   ├── InconsistentGroupProtocol INCONSISTENT_GROUP_PROTOCOL
    │   ├── GroupFull             GROUP_FULL
    │   ├── RebalanceInProgress   REBALANCE_IN_PROGRESS (retriable)
    │   ├── MemberIdRequired      MEMBER_ID_REQUIRED
    │   ├── UnstableOffset        UNSTABLE_OFFSET (retriable)
    │   ├── FencedInstance        FENCED_INSTANCE
    │   ├── OutOfOrderSequence    OUT_OF_ORDER_SEQUENCE
    │   ├── DuplicateSequence     DUPLICATE_SEQUENCE
    │   ├── ProducerFenced        PRODUCER_FENCED
    │   ├── UnknownProducer       UNKNOWN_PRODUCER
    │   ├── ProducerMismatch      PRODUCER_MISMATCH
    │   ├── InvalidTransactionState INVALID_TRANSACTION_STATE
    │   │   └── NotInTransaction  NOT_IN_TRANSACTION
    │   ├── ConcurrentTransactions CONCURRENT_TRANSACTIONS (retriable)
    │   ├── StageExpired          STAGE_EXPIRED
    │   ├── SinkFenced            SINK_FENCED
    │   ├── SinkTaken             SINK_TAKEN
    │   ├── UnknownMember         UNKNOWN_MEMBER
    │   ├── StaleMember           STALE_MEMBER
    │   ├── StaleMemberEpoch      STALE_MEMBER_EPOCH
    │   ├── FencedMemberEpoch     FENCED_MEMBER_EPOCH
    │   ├── UnreleasedInstanceId  UNRELEASED_INSTANCE_ID
    │   └── ConditionFailed       CONDITION_FAILED
    ├── Refused                   the caller's identity does not allow it
    │   ├── NotAuthenticated      NOT_AUTHENTICATED
    │   └── NotAuthorized         NOT_AUTHORIZED
    ├── Unavailable               the broker or the network cannot now; retriable
    │   ├── DiskFull              DISK_FULL
    │   ├── StorageFailed         STORAGE_FAILED (not retriable: restart after repair)
    │   │   └── LogDamaged        LOG_DAMAGED (not retriable: the partition is closed)
    │   ├── Draining              DRAINING
    │   ├── Overloaded            OVERLOADED
    │   │   └── TooManyIdempotencyKeys TOO_MANY_IDEMPOTENCY_KEYS
    │   ├── TimedOut              TIMED_OUT
    │   └── ConnectionLost        CONNECTION_LOST
    ├── ProtocolError             the peer violates the protocol; the connection ends
    │   ├── BadFrame              BAD_FRAME
    │   ├── FrameTooLarge         FRAME_TOO_LARGE
    │   └── UnsupportedVersion    UNSUPPORTED_VERSION
    └── DataDirectoryError        the data directory cannot be used
        ├── DirectoryInUse        DIRECTORY_IN_USE
        ├── NewerFormat           NEWER_FORMAT
        └── DirectoryUnreadable   DIRECTORY_UNREADABLE

`InternalError` (INTERNAL) is a bug: the broker logs the traceback, the client sees the
code.
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
    """The call itself is wrong; repeating it does not help."""

    code = "BAD_INPUT"


class InvalidArgument(BadInput):
    code = "INVALID_ARGUMENT"


class InvalidPartitions(InvalidArgument):
    """A number of partitions that a topic cannot have."""

    code = "INVALID_PARTITIONS"


class InvalidTopicName(BadInput):
    code = "INVALID_TOPIC_NAME"


class InvalidConfig(BadInput):
    code = "INVALID_CONFIG"


class RecordTooLarge(BadInput):
    code = "RECORD_TOO_LARGE"


class CorruptBatch(BadInput):
    """A batch that cannot be read.

    Attributes:
        offset: the first unreadable one of the batch; -1 if none can be named: its bytes are
            damaged (CRC), or this reader cannot read it (codec, size) and another one may.
        topic, partition: location of the batch; "" and -1 if the reader did not name it.
        base_offset: of the batch; -1 if its header cannot be read.
        next_offset: beginning of the next batch, from which reading may continue; -1 likewise.
        is_limit: its bytes are correct, and beyond what this reader can read (codec, size).
    """

    code = "CORRUPT_BATCH"

    def __init__(
        self,
        text: str = "",
        offset: int = -1,
        *,
        topic: str = "",
        partition: int = -1,
        base_offset: int = -1,
        next_offset: int = -1,
        is_limit: bool = False,
    ) -> None:
        super().__init__(text)
        self.is_limit = is_limit
        self.offset = offset
        self.topic = topic
        self.partition = partition
        self.base_offset = base_offset
        self.next_offset = next_offset


class CorruptStoredBatch(CorruptBatch):
    """A batch was damaged after it was stored. The caller is not at fault, in spite of the
    branch.
    """


class UnsupportedCompression(BadInput):
    code = "UNSUPPORTED_COMPRESSION"


class _WithRecordIndexes(Exception):
    """Base of errors with `record_indexes`: the wrong records of the batch, from 0; empty if the
    batch as a whole is wrong.
    """

    def __init__(self, text: str = "", record_indexes: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.record_indexes = record_indexes


class InvalidTimestamp(_WithRecordIndexes, BadInput):
    code = "INVALID_TIMESTAMP"


class InvalidRecord(_WithRecordIndexes, BadInput):
    code = "INVALID_RECORD"


class UnacceptableCredential(BadInput):
    code = "UNACCEPTABLE_CREDENTIAL"


class UnsupportedMechanism(BadInput):
    code = "UNSUPPORTED_MECHANISM"


class DuplicateResource(BadInput):
    """One call names the same thing twice."""

    code = "DUPLICATE_RESOURCE"


class UnsupportedAssignor(BadInput):
    """A consumer group has no such server-side assignor (KIP-848)."""

    code = "UNSUPPORTED_ASSIGNOR"


class InvalidRegularExpression(BadInput):
    """No regular expression of RE2's syntax (KIP-848)."""

    code = "INVALID_REGULAR_EXPRESSION"


class InvalidGroupId(BadInput):
    code = "INVALID_GROUP_ID"


class InvalidSessionTimeout(BadInput):
    code = "INVALID_SESSION_TIMEOUT"


class OffsetMetadataTooLarge(BadInput):
    code = "OFFSET_METADATA_TOO_LARGE"


class InvalidTransactionTimeout(BadInput):
    code = "INVALID_TRANSACTION_TIMEOUT"


class IdempotencyKeyReused(BadInput):
    """The key belongs to another request."""

    code = "IDEMPOTENCY_KEY_REUSED"


class UsedAfterFork(BadInput):
    """A client, or an object of one, is used in a process that was forked from the one in which it
    was connected.
    """

    code = "USED_AFTER_FORK"


class OffsetOutOfRange(BadInput):
    code = "OFFSET_OUT_OF_RANGE"


# ── not found ─────────────────────────────────────────────────────────────────────────────────────


class NotFound(SparrowError):
    """The thing named does not exist."""

    code = "NOT_FOUND"


class UnknownTopic(NotFound):
    code = "UNKNOWN_TOPIC"


class UnknownTopicId(UnknownTopic):
    """The name exists, but under another id: the topic was deleted and created again."""

    code = "UNKNOWN_TOPIC_ID"


class UnknownPartition(NotFound):
    code = "UNKNOWN_PARTITION"


class UnknownUser(NotFound):
    code = "UNKNOWN_USER"


class UnknownTransaction(NotFound):
    """No producer of this transactional id is known."""

    code = "UNKNOWN_TRANSACTION"


class UnknownQueue(NotFound):
    """There is no queue of that name."""

    code = "UNKNOWN_QUEUE"


class UnknownWebhook(NotFound):
    """The queue has no webhook of that name."""

    code = "UNKNOWN_WEBHOOK"


class UnknownSchedule(NotFound):
    """There is no schedule of that name."""

    code = "UNKNOWN_SCHEDULE"


class UnknownSink(NotFound):
    """There is no sink of that id."""

    code = "UNKNOWN_SINK"


class UnknownGroup(NotFound):
    code = "UNKNOWN_GROUP"


# ── conflicts with the broker's state ─────────────────────────────────────────────────────────────


class Conflict(SparrowError):
    """The state of the broker forbids the call."""

    code = "CONFLICT"


class TopicExists(Conflict):
    code = "TOPIC_EXISTS"


class QueueExists(Conflict):
    """A queue of that name exists, with other topics or another policy than requested."""

    code = "QUEUE_EXISTS"


class NotLeased(Conflict):
    """A record was settled that is not leased: it was settled before, or never delivered. Nothing
    was changed.
    """

    code = "NOT_LEASED"


class LeaseExpired(NotLeased):
    """The lease ended before the record was settled; another consumer may have the record, or will.
    Nothing was changed.
    """

    code = "LEASE_EXPIRED"


class LeasedByAnother(NotLeased):
    """The record is leased by another consumer. Nothing was changed."""

    code = "LEASED_BY_ANOTHER"


class UserExists(Conflict):
    code = "USER_EXISTS"


class PolicyViolation(Conflict):
    """A rule of the broker or of the topic forbids it to everybody."""

    code = "POLICY_VIOLATION"


class GroupNotEmpty(Conflict):
    code = "GROUP_NOT_EMPTY"


class GroupSubscribedToTopic(Conflict):
    """Members of the group read the topic."""

    code = "GROUP_SUBSCRIBED_TO_TOPIC"


class GroupTypeMismatch(Conflict):
    """The name belongs to a group of another kind, which has members."""

    code = "GROUP_TYPE_MISMATCH"


class InconsistentGroupProtocol(Conflict):
    """The member has no assignment protocol in common with the group."""

    code = "INCONSISTENT_GROUP_PROTOCOL"


class GroupFull(Conflict):
    """The group has as many members as it may have."""

    code = "GROUP_FULL"


class RebalanceInProgress(Conflict):
    """The members of the group are joining again; the caller should, too."""

    code = "REBALANCE_IN_PROGRESS"
    retriable = True


class UnstableOffset(Conflict):
    """A transaction that is not decided has committed offsets for the partition (KIP-447)."""

    code = "UNSTABLE_OFFSET"
    retriable = True


class MemberIdRequired(Conflict):
    """Join again with `member_id`, so that a lost response makes no second member (KIP-394)."""

    code = "MEMBER_ID_REQUIRED"

    def __init__(self, text: str = "", member_id: str = "") -> None:
        super().__init__(text)
        self.member_id = member_id


class FencedInstance(Conflict):
    """Another member has taken over this instance id (KIP-345)."""

    code = "FENCED_INSTANCE"


class OutOfOrderSequence(Conflict):
    code = "OUT_OF_ORDER_SEQUENCE"


class DuplicateSequence(Conflict):
    """The batch was accepted before, so long ago that its first result is forgotten."""

    code = "DUPLICATE_SEQUENCE"


class ProducerFenced(Conflict):
    code = "PRODUCER_FENCED"


class UnknownProducer(Conflict):
    code = "UNKNOWN_PRODUCER"


class ProducerMismatch(Conflict):
    """The producer id is not the one that the transactional id has (Kafka:
    INVALID_PRODUCER_ID_MAPPING).
    """

    code = "PRODUCER_MISMATCH"


class InvalidTransactionState(Conflict):
    """The transaction is not in a state that allows this."""

    code = "INVALID_TRANSACTION_STATE"


class NotInTransaction(InvalidTransactionState):
    """The partition or group was not added to the producer's transaction, or there is none open."""

    code = "NOT_IN_TRANSACTION"


class ConcurrentTransactions(Conflict):
    """The last transaction is still being completed; try again in a moment."""

    code = "CONCURRENT_TRANSACTIONS"
    retriable = True


class StageExpired(Conflict):
    """A stage of a sink was aborted, or never existed: it cannot be written to or committed. The
    batch must be written again.
    """

    code = "STAGE_EXPIRED"


class SinkFenced(Conflict):
    """A later run of the query writes to the sink now; this one must stop."""

    code = "SINK_FENCED"


class SinkTaken(Conflict):
    """The sink belongs to another query."""

    code = "SINK_TAKEN"


class UnknownMember(Conflict):
    code = "UNKNOWN_MEMBER"


class StaleMember(Conflict):
    code = "STALE_MEMBER"


class StaleMemberEpoch(Conflict):
    """The member of a consumer group is at another epoch; heartbeat, then try again (KIP-848)."""

    code = "STALE_MEMBER_EPOCH"


class FencedMemberEpoch(Conflict):
    """The member of a consumer group must give up its partitions and join again (KIP-848)."""

    code = "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceId(Conflict):
    """Another member has this instance id and has not left (KIP-848)."""

    code = "UNRELEASED_INSTANCE_ID"


class ConditionFailed(Conflict):
    """A conditional write met another version."""

    code = "CONDITION_FAILED"


# ── refused ───────────────────────────────────────────────────────────────────────────────────────


class Refused(SparrowError):
    """The caller's identity does not allow the call."""

    code = "REFUSED"


class NotAuthenticated(Refused):
    code = "NOT_AUTHENTICATED"


class NotAuthorized(Refused):
    """The principal may not do this. `resource_type` is Kafka's name of the refused resource's type
    ("Topic", "Group", …), "" if unknown.
    """

    code = "NOT_AUTHORIZED"

    def __init__(self, text: str = "", resource_type: str = "") -> None:
        super().__init__(text)
        self.resource_type = resource_type


# ── unavailable ───────────────────────────────────────────────────────────────────────────────────


class Unavailable(SparrowError):
    """Not now; the same call may succeed later."""

    code = "UNAVAILABLE"
    retriable = True


class DiskFull(Unavailable):
    code = "DISK_FULL"


class StorageFailed(Unavailable):
    """A write or a sync failed; promised records are kept, no more are accepted until a restart."""

    code = "STORAGE_FAILED"
    retriable = False


class LogDamaged(StorageFailed):
    """Records that were on stable storage are missing; the partition is closed until an operator
    decides.
    """

    code = "LOG_DAMAGED"


class Draining(Unavailable):
    code = "DRAINING"
    owner = ""
    """Host and port of the broker that serves instead, if it is known."""


class Overloaded(Unavailable):
    code = "OVERLOADED"


class TooManyIdempotencyKeys(Overloaded):
    """The limit of stored keys is reached."""

    code = "TOO_MANY_IDEMPOTENCY_KEYS"


class TimedOut(Unavailable):
    code = "TIMED_OUT"


class ConnectionLost(Unavailable):
    code = "CONNECTION_LOST"


# ── the peer ──────────────────────────────────────────────────────────────────────────────────────


class ProtocolError(SparrowError):
    """The peer violates the protocol; the connection ends."""

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
        for code, kind in _leaves(child).items():
            found.setdefault(code, kind)
    return found


_BY_CODE = _leaves(SparrowError)


def from_code(code: str, text: str) -> SparrowError:
    """Return the error that a peer named by `code`; an unknown code becomes a plain `SparrowError`
    that says so.
    """
    kind = _BY_CODE.get(code)
    return kind(text) if kind else SparrowError(f"{text} (code {code})")
