"""Publishing once: a publish that is repeated with the same idempotency key stores nothing a second time, and is answered as the first was.

The claim of the key (`broker/idempotency/keys.py`) holds the terms on which the first attempt cut its messages into batches. A repeated request has the
same messages, so the same terms give the same batches; those that are in the log are answered from there, the others are appended now.

What is refused for good (a message that is too large) is an answer, too, and kept. What failed for a cause that passes is not: the next attempt goes
on with it. If nothing was stored at all the key is free again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparrow.base.errors import IdempotencyKeyReused, SparrowError, Unavailable, UnknownTopic
from sparrow.broker.idempotency.kept import plan
from sparrow.broker.partition import ACKS_ALL
from sparrow.frontends.publishing import Columns, Run, Stored, Terms, cut_aside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.idempotency.kept import KeptPublish, KeptRun, Key
    from sparrow.broker.idempotency.keys import Claim
    from sparrow.broker.partition import Published
    from sparrow.frontends.publishing import Answer, Message, Publisher

_LOG = logging.getLogger(__name__)


class Answers(NamedTuple):
    """One for each message, in order."""

    answers: list[Answer]
    is_replay: bool = False
    """Nothing was done now: it is told again what was done then."""


class _Call(NamedTuple):
    key: Key
    topic: str
    columns: Columns
    partition: int
    acks: int
    principal: Principal


class OncePublisher:
    """One for each door. Loop thread only."""

    def __init__(self, broker: Broker, publisher: Publisher) -> None:
        self._broker = broker
        self._publisher = publisher

    async def publish(
        self,
        key: Key | None,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = -1,
        acks: int = ACKS_ALL,
        principal: Principal,
    ) -> Answers:
        """As `Publisher.publish`, but once for each key; None: as often as it is called.

        Another call with the same key waits until the first is done. A caller that is cancelled stops waiting; its publish goes on.

        Raises:
            IdempotencyKeyReused: the key was used for another request.
            TooManyIdempotencyKeys
            DiskFull, StorageFailed, Overloaded: the key could not be taken, or it cannot be found out what became of the first attempt.
            what `Publisher.publish` raises
        """
        if key is None or not messages:
            answers = await self._publisher.publish(
                topic, messages, partition=partition, acks=acks, principal=principal
            )
            return Answers(answers)
        told: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        columns = Columns.of(messages)
        call = _Call(key, topic, columns, partition, acks, principal)
        self._broker.idempotency.spawn(partial(self._carry_out, call, told), columns.most_bytes())
        return await told

    async def _carry_out(self, call: _Call, told: asyncio.Future[Answers]) -> None:
        """Tell the answers as soon as they are known; the key is held until they are kept."""
        keys = self._broker.idempotency
        async with keys.alone(call.key.digest):
            try:
                claim = await self._claimed(call)
                is_replay = claim.kept.is_settled
                runs = await _runs(call, claim.kept)
                failures = {} if is_replay else await self._published(call, claim.kept, runs)
                answers = _answers_of(runs, claim.kept.runs, failures)
            except Exception as error:  # noqa: BLE001 - whoever waits hears of everything
                _fail(told, error)
                return
            _tell(told, Answers(answers, is_replay))
            if is_replay:
                return
            if claim.kept.is_stored_in_part or _is_uncertain(failures):
                await keys.keep(claim)
            else:
                await keys.release(claim)

    # ── taking the key ────────────────────────────────────────────────────────────────────────────

    async def _claimed(self, call: _Call) -> Claim:
        broker, keys = self._broker, self._broker.idempotency
        if broker.topics.find(call.topic) is None:
            found = await keys.find(call.key)  # it may be told again though its topic is gone
            if found is not None and found.kept.is_settled:
                return found
            await self._publisher.ensure(call.topic, principal=call.principal)
        planned = await self._planned(call)
        claim = await keys.claim(call.key, planned)
        if claim.is_new or claim.kept.is_settled:
            return claim
        if claim.kept.topic_id != planned.topic_id:  # another topic of that name: the first attempt's is gone
            return await keys.replan(claim, planned)
        await keys.look(claim)
        await keys.keep(claim)
        return claim

    async def _planned(self, call: _Call) -> KeptPublish:
        producer_id = await self._broker.idempotency.new_producer_id()
        terms = self._publisher.terms(call.topic, call.partition, producer_id, principal=call.principal)
        topic = self._broker.topics.get(call.topic)
        runs = await cut_aside(call.columns, terms)
        return plan(
            call.key,
            topic.id,
            terms,
            [(run.partition, len(run.places)) for run in runs],
            producer_id=producer_id,
            created_ms=terms.now_ms,
            ends={run.partition: topic.partition(run.partition).visible_end for run in runs},
        )

    # ── publishing ────────────────────────────────────────────────────────────────────────────────

    async def _published(self, call: _Call, kept: KeptPublish, runs: Sequence[Run]) -> dict[int, _Failure]:
        """Append what is not in the log, and wait for it; the failures by the number of their run.

        Raises:
            UnknownTopic: it was deleted just now; nothing was appended.
        """
        topic = self._broker.topics.find(call.topic)
        if topic is None or topic.id.bytes != kept.topic_id:
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
    """Why a run has no place, for now."""

    error: SparrowError
    is_uncertain: bool
    """It was appended, but may not stay."""


async def _runs(call: _Call, kept: KeptPublish) -> list[Run]:
    """The batches of the first attempt.

    Raises:
        IdempotencyKeyReused: these are other messages.
    """
    runs = await cut_aside(call.columns, Terms(*kept.terms))
    if [(run.partition, len(run.places)) for run in runs] != [
        (run.partition, run.count) for run in kept.runs
    ]:
        raise IdempotencyKeyReused(
            f"the idempotency key {call.key.text!r} was used for other messages; take a new key for each publish"
        )
    return runs


def _settle(kept: KeptRun, promise: asyncio.Future[Published], *, is_refused: bool) -> _Failure | None:
    """Note what became of a run."""
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


def _answers_of(runs: Sequence[Run], kept: Sequence[KeptRun], failures: dict[int, _Failure]) -> list[Answer]:
    answers: dict[int, Answer] = {}
    for number, (run, known) in enumerate(zip(runs, kept, strict=True)):
        error = failures[number].error if number in failures else known.error
        for index, place in enumerate(run.places):
            time_ms = run.timestamps[index] if known.append_time_ms < 0 else known.append_time_ms
            answers[place] = error or Stored(run.partition, known.base_offset + index, time_ms)
    return [answers[place] for place in range(len(answers))]


def _tell(told: asyncio.Future[Answers], answers: Answers) -> None:
    if not told.done():  # the caller is gone
        told.set_result(answers)


def _fail(told: asyncio.Future[Answers], error: Exception) -> None:
    if not told.done():
        told.set_exception(error)
    elif not isinstance(error, SparrowError):
        _LOG.error("a publish with an idempotency key met a bug", exc_info=error)
