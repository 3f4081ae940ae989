"""Produce: record batches are appended to the log unchanged.

The response is a future: it is done when every partition is as safe as `acks` asks, while the
connection continues with the next request. Records that the partition refuses are named by their
indexes (KIP-467).
"""

from __future__ import annotations

import asyncio
import struct
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode
from kio.schema.produce.v12 import response as named
from kio.schema.produce.v13 import response as identified

from sparrow.base.errors import InvalidRecord, NotAuthorized, SparrowError, UnsupportedCompression
from sparrow.broker.access.authz import Operation
from sparrow.broker.publishes import ACKS_NONE, refuse_transactional
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.handlers import transactional_produce
from sparrow.frontends.kafka.handlers.transactional_produce import code_for, is_transactional
from sparrow.frontends.kafka.throttle import after_produce

if TYPE_CHECKING:
    from sparrow.broker.publishes import Admit, Published
    from sparrow.frontends.kafka.call import Call
    from sparrow.frontends.kafka.codec.responses import Piece

FIRST_WITH_IDS = 13
FIRST_WITH_ZSTD = 7
ACKS = (-1, 0, 1)
_INT32 = struct.Struct(">i")
_LENGTH_AT = 8
_LOG_OVERHEAD = 12
"""Base offset and length field, which the length does not include; Kafka ignores fewer bytes than
that after a batch.
"""
_MAGIC_AT = 16
_CODEC_AT = 22
_ZSTD = 4
_MAGIC = 2

Topic = "str | uuid.UUID"


def handle(request: Any, call: Call, admit: Admit | None = None) -> Any:
    """Append all batches; return the response once they are as safe as `acks` asks.

    Args:
        admit: admits the transaction of the batches; None: not known yet if there is one.
    """
    parts = _each(request, call)
    if admit is None and any(is_transactional(each.records) for _, each in parts):
        named = ((_name_of(topic, call), each) for topic, each in parts)
        batches = [((name, each.index), each.records) for name, each in named if name is not None]
        return transactional_produce.begin(request, call, batches, partial(handle, request, call))
    collector = _Collector(call, request.acks)
    for topic, each in parts:
        collector.add(topic, each.index, _publish(topic, each, request, call, admit or refuse_transactional))
    collector.throttle_ms = after_produce(call, lambda: (len(each.records or b"") for _, each in parts))
    return collector.finish()


def _each(request: Any, call: Call) -> list[tuple[Any, Any]]:
    has_ids = call.version >= FIRST_WITH_IDS
    return [
        (topic.topic_id if has_ids else topic.name, each)
        for topic in request.topic_data
        for each in topic.partition_data
    ]


def _name_of(topic: Any, call: Call) -> str | None:
    """Return the name of a topic given by name or id; None if the id is unknown."""
    if isinstance(topic, str):
        return topic
    return call.broker.topics.name_of(topic)


def _publish(
    topic: Any, each: Any, request: Any, call: Call, admit: Admit
) -> asyncio.Future[Published] | _Failure:
    """Return the future of the append, or the failure."""
    if request.acks not in ACKS:
        return _Failure(ErrorCode.invalid_required_acks, f"acks is {request.acks}; it must be -1, 0 or 1")
    name = _name_of(topic, call)
    if name is None:
        return _Failure(ErrorCode.unknown_topic_id, f"there is no topic with id {topic}")
    try:
        data = _records(name, each, call)
        return call.broker.records.publish(
            name, each.index, data, acks=request.acks, admit=admit, principal=call.principal
        )
    except NotAuthorized as error:
        failure = _failure_of(error, call.version)
        if not isinstance(topic, str):  # an id is not secret, the name is
            failure.text = "Authorization failed."
        return failure
    except SparrowError as error:
        return _failure_of(error, call.version)


def _records(name: str, each: Any, call: Call) -> memoryview:
    """Return the batch. As in Kafka, an unknown or forbidden partition is reported before an
    invalid batch.
    """
    try:
        return _checked(each.records, call.version)
    except SparrowError:
        call.broker.topics.partition(name, each.index, operation=Operation.WRITE, principal=call.principal)
        raise


def _checked(records: memoryview | None, version: int) -> memoryview:
    """Return the records after the checks that Kafka makes for a request as a whole.

    Raises:
        InvalidRecord: there is no batch, or it has an old format.
        UnsupportedCompression: zstd before version 7.
    """
    if not records or len(records) <= _CODEC_AT:
        raise InvalidRecord("a produce request must have a record batch for each partition")
    if records[_MAGIC_AT] != _MAGIC:
        raise InvalidRecord(
            f"records have format {records[_MAGIC_AT]}; produce requests from version 3 on carry format 2"
        )
    if version < FIRST_WITH_ZSTD and records[_CODEC_AT] & 7 == _ZSTD:
        raise UnsupportedCompression("zstd needs produce requests of version 7 or later (KIP-110)")
    (length,) = _INT32.unpack_from(records, _LENGTH_AT)
    if 0 <= length < len(records) - 2 * _LOG_OVERHEAD:
        raise InvalidRecord("a produce request must have exactly one record batch for each partition")
    return records


class _Failure:
    """Failure of one partition."""

    __slots__ = ("code", "indexes", "text")

    def __init__(self, code: ErrorCode, text: str, indexes: tuple[int, ...] = ()) -> None:
        self.code = code
        self.text = text
        self.indexes = indexes


def _failure_of(error: SparrowError, version: int) -> _Failure:
    return _Failure(code_for(error, version), error.text, getattr(error, "record_indexes", ()))


class _Collector:
    """Collects the outcomes of one request, in its order."""

    def __init__(self, call: Call, acks: int) -> None:
        self._call = call
        self._acks = acks
        self.throttle_ms = 0
        self._outcomes: list[tuple[Any, int, Published | _Failure | None]] = []
        self._pending = 0
        self._done: asyncio.Future[list[Piece]] | None = None

    def add(self, topic: Any, index: int, promise: asyncio.Future[Published] | _Failure) -> None:
        """Add the future or failure of one partition."""
        if isinstance(promise, _Failure):
            self._outcomes.append((topic, index, promise))
        elif promise.done():
            self._outcomes.append((topic, index, _outcome(promise, self._call.version)))
        else:
            position = len(self._outcomes)
            self._outcomes.append((topic, index, None))
            self._pending += 1
            promise.add_done_callback(partial(self._append_done, position))

    def finish(self) -> list[Piece] | asyncio.Future[list[Piece]] | None:
        """Return the response, or its future. With acks 0 there is none, and an error closes the
        connection, as in Kafka.
        """
        if self._acks == ACKS_NONE:
            for _, _, outcome in self._outcomes:
                if isinstance(outcome, _Failure):
                    self._hang_up(outcome)
                    break
            return None
        if not self._pending:
            return self._frame()
        self._done = asyncio.get_running_loop().create_future()
        return self._done

    def _append_done(self, position: int, promise: asyncio.Future[Published]) -> None:
        topic, index, _ = self._outcomes[position]
        outcome = _outcome(promise, self._call.version)
        self._outcomes[position] = (topic, index, outcome)
        self._pending -= 1
        if self._acks == ACKS_NONE and isinstance(outcome, _Failure):
            self._hang_up(outcome)
        if self._done is not None and not self._pending and not self._done.done():
            self._done.set_result(self._frame())

    def _hang_up(self, failure: _Failure) -> None:
        self._call.connection.fail(f"produce with acks 0 failed: {failure.text}")

    def _frame(self) -> list[Piece]:
        has_ids = self._call.version >= FIRST_WITH_IDS
        schema: Any = identified if has_ids else named
        by_topic: dict[Any, list[Any]] = {}
        for topic, index, outcome in self._outcomes:
            assert outcome is not None
            by_topic.setdefault(topic, []).append(_partition(topic, index, outcome, self._call, schema))
        responses = tuple(
            schema.TopicProduceResponse(
                **{"topic_id" if has_ids else "name": topic}, partition_responses=tuple(each)
            )
            for topic, each in by_topic.items()
        )
        throttle_time = timedelta(milliseconds=self.throttle_ms) if self.throttle_ms else NO_THROTTLE
        return self._call.frame(schema.ProduceResponse(responses=responses, throttle_time=throttle_time))


def _outcome(promise: asyncio.Future[Published], version: int) -> Published | _Failure:
    error = promise.exception()
    if error is None:
        return promise.result()
    if isinstance(error, SparrowError):
        return _failure_of(error, version)
    raise error


def _partition(topic: Any, index: int, outcome: Published | _Failure, call: Call, schema: Any) -> Any:
    if isinstance(outcome, _Failure):
        return schema.PartitionProduceResponse(
            index=index,
            error_code=outcome.code,
            base_offset=-1,
            log_append_time=None,
            record_errors=tuple(
                schema.BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message=outcome.text)
                for each in outcome.indexes
            ),
            error_message=outcome.text,
        )
    stamped_ms = outcome.log_append_time_ms
    return schema.PartitionProduceResponse(
        index=index,
        error_code=ErrorCode.none,
        base_offset=outcome.base_offset,
        log_append_time=stamped_ms if stamped_ms >= 0 else None,
        log_start_offset=call.broker.records.log_start_offset(topic, index),
        record_errors=(),
    )
