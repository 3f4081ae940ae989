"""Idempotent publishing: a publish that is repeated with the same idempotency key stores nothing a
second time and returns the result of the first.

The claim of the key (`broker/idempotency/keys.py`) holds the terms by which the first attempt
divided its messages into batches. A repeated request has the same messages, so the same terms give
the same batches. Those that are in the log are not appended again; the others are appended now.

A permanent refusal (a message that is too large) is a result, too, and is stored. A temporary
failure is not: the next attempt continues from there. If nothing was stored at all, the key is
released.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import IdempotencyKeyReused, SparrowError, Unavailable, UnknownTopic
from sparrow.broker.access.authz import Operation
from sparrow.broker.idempotency.stored_publish import plan
from sparrow.broker.publishes import ACKS_ALL
from sparrow.frontends.publisher import EncodedRun, MessageColumns, PublishTerms, Stored, make_runs_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.idempotency.keys import Claim
    from sparrow.broker.idempotency.stored_publish import IdempotencyKey, StoredPublish, StoredRun
    from sparrow.broker.publishes import Published
    from sparrow.frontends.publisher import Message, Publisher, PublishResult

_LOG = logging.getLogger(__name__)


class PublishResults(NamedTuple):
    """The results of one publish, one per message, in order."""

    results: list[PublishResult]
    is_replay: bool = False
    """True if nothing was stored now and the results are those of an earlier publish."""


class _Call(NamedTuple):
    key: IdempotencyKey
    topic: str
    columns: MessageColumns
    partition: int
    acks: int
    principal: Principal


class IdempotentPublisher:
    """Publishes once per idempotency key; one instance per frontend. Loop thread only."""

    def __init__(self, broker: Broker, publisher: Publisher) -> None:
        self._broker = broker
        self._publisher = publisher

    async def publish(
        self,
        key: IdempotencyKey | None,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> PublishResults:
        """Publish messages as `Publisher.publish` does, but once per key; without a key, on each
        call.

        Another call with the same key waits until the first is done. If the caller is cancelled,
        its publish continues.

        Raises:
            IdempotencyKeyReused: the key was used for another request.
            TooManyIdempotencyKeys: no more keys can be stored.
            DiskFull, StorageFailed, Overloaded: the key could not be stored, or the outcome of the
                first attempt cannot be determined.
            SparrowError: as `Publisher.publish`.
        """
        if key is None or not messages:
            results = await self._publisher.publish(
                topic, messages, partition=partition, acks=acks, principal=principal
            )
            return PublishResults(results)
        outcome: asyncio.Future[PublishResults] = asyncio.get_running_loop().create_future()
        columns = MessageColumns.of(messages)
        call = _Call(key, topic, columns, partition, acks, principal)
        self._broker.idempotency.spawn(partial(self._publish_once, call, outcome), columns.estimate_bytes())
        return await outcome

    async def _publish_once(self, call: _Call, outcome: asyncio.Future[PublishResults]) -> None:
        """Set `outcome` as soon as the results are known; the key stays locked until they are
        stored.
        """
        keys = self._broker.idempotency
        async with keys.locked(call.key.digest):
            try:
                claim = await self._claimed(call)
                is_replay = claim.kept.is_settled
                runs = await _runs(call, claim.kept)
                failures = {} if is_replay else await self._published(call, claim.kept, runs)
                results = _results_of(runs, claim.kept.runs, failures)
            except Exception as error:  # noqa: BLE001 - the caller gets every error
                _fail(outcome, error)
                return
            _set_result(outcome, PublishResults(results, is_replay))
            if is_replay:
                return
            if claim.kept.is_stored_in_part or _is_uncertain(failures):
                await keys.keep(claim)
            else:
                await keys.release(claim)

    # ── taking the key ────────────────────────────────────────────────────────────────────────────

    async def _claimed(self, call: _Call) -> Claim:
        broker, keys = self._broker, self._broker.idempotency
        if not broker.topics.exists(call.topic):
            # its result can be returned although its topic is deleted
            found = await keys.find(call.key)
            if found is not None and found.kept.is_settled:
                return found
            await self._publisher.ensure(call.topic, principal=call.principal)
        planned = await self._planned(call)
        claim = await keys.claim(call.key, planned)
        if claim.is_new or claim.kept.is_settled:
            return claim
        # another topic of that name: the topic of the first attempt is deleted
        if claim.kept.topic_id != planned.topic_id:
            return await keys.replan(claim, planned)
        await keys.look(claim)
        await keys.keep(claim)
        return claim

    async def _planned(self, call: _Call) -> StoredPublish:
        producer_id = await self._broker.idempotency.new_producer_id()
        terms = self._publisher.terms(call.topic, call.partition, producer_id, principal=call.principal)
        topics = self._broker.topics
        topic_id = topics.id_of(call.topic)
        assert topic_id is not None  # `terms` has looked
        runs = await make_runs_async(call.columns, terms)
        return plan(
            call.key,
            topic_id,
            terms,
            [(run.partition, len(run.indexes)) for run in runs],
            producer_id=producer_id,
            created_ms=terms.now_ms,
            ends={
                run.partition: topics.partition(
                    call.topic, run.partition, operation=Operation.WRITE, principal=call.principal
                ).visible_end
                for run in runs
            },
        )

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    async def _published(
        self, call: _Call, kept: StoredPublish, runs: Sequence[EncodedRun]
    ) -> dict[int, _Failure]:
        """Append the runs that are not in the log and wait for them. Return the failures by run
        number.

        Raises:
            UnknownTopic: the topic was just deleted; nothing was appended.
        """
        topic_id = self._broker.topics.id_of(call.topic)
        if topic_id is None or topic_id.bytes != kept.topic_id:
            raise UnknownTopic(f"topic {call.topic!r} was deleted while messages were published to it")
        begun = {
            number: self._publisher.append(call.topic, run, call.acks, call.principal)
            for number, run in enumerate(runs)
            if not kept.runs[number].is_settled
        }
        refused = {number for number, promise in begun.items() if promise.done() and promise.exception()}
        if begun:
            await asyncio.wait(begun.values())
        return {
            number: failure
            for number, promise in begun.items()
            if (failure := _settle(kept.runs[number], promise, is_refused=number in refused)) is not None
        }


class _Failure(NamedTuple):
    """Reason why a run is not stored, for now."""

    error: SparrowError
    is_uncertain: bool
    """The run was appended but may not survive."""


async def _runs(call: _Call, kept: StoredPublish) -> list[EncodedRun]:
    """Return the batches of the first attempt.

    Raises:
        IdempotencyKeyReused: the messages differ from those of the first attempt.
    """
    runs = await make_runs_async(call.columns, PublishTerms(*kept.terms))
    if [(run.partition, len(run.indexes)) for run in runs] != [
        (run.partition, run.count) for run in kept.runs
    ]:
        raise IdempotencyKeyReused(
            f"the idempotency key {call.key.text!r} was used for other messages; take a new key "
            "for each publish"
        )
    return runs


def _settle(kept: StoredRun, promise: asyncio.Future[Published], *, is_refused: bool) -> _Failure | None:
    """Record the outcome of a run in the claim; return its failure, if any."""
    error = promise.exception()
    if error is None:
        done = promise.result()
        kept.base_offset, kept.append_time_ms = done.base_offset, done.log_append_time_ms
        return None
    if not isinstance(error, SparrowError):
        raise error
    if is_refused and not error.retriable and not isinstance(error, Unavailable):
        kept.refuse(error)
    return _Failure(error, is_uncertain=not is_refused)


def _is_uncertain(failures: dict[int, _Failure]) -> bool:
    return any(failure.is_uncertain for failure in failures.values())


def _results_of(
    runs: Sequence[EncodedRun], kept: Sequence[StoredRun], failures: dict[int, _Failure]
) -> list[PublishResult]:
    results: dict[int, PublishResult] = {}
    for number, (run, known) in enumerate(zip(runs, kept, strict=True)):
        error = failures[number].error if number in failures else known.error
        for position, index in enumerate(run.indexes):
            time_ms = run.timestamps[position] if known.append_time_ms < 0 else known.append_time_ms
            results[index] = error or Stored(run.partition, known.base_offset + position, time_ms)
    return [results[index] for index in range(len(results))]


def _set_result(outcome: asyncio.Future[PublishResults], results: PublishResults) -> None:
    if not outcome.done():  # the caller is gone
        outcome.set_result(results)


def _fail(outcome: asyncio.Future[PublishResults], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)
    elif not isinstance(error, SparrowError):
        _LOG.error("an internal error occurred in a publish with an idempotency key", exc_info=error)
