"""Operations on sinks. A sink has the access rules of a transactional id of its name: WRITE to
stage, commit, abort and delete, DESCRIBE to look.

Publishing into a stage takes WRITE on the topic as always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.sinks.stage_publisher import StagePublisher
from sparrow.model.sinks import SinkDescription, StageDescription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.broker.access.access import Access
    from sparrow.broker.sinks.coordinator import SinkCoordinator
    from sparrow.broker.sinks.stage import Stage
    from sparrow.broker.sinks.state import Caller, Sink
    from sparrow.broker.topics.registry import TopicRegistry
    from sparrow.broker.transactions.coordinator import TransactionCoordinator

_ID, _TOPIC = ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC


class SinkService:
    """`broker.sinks`. Loop thread only."""

    def __init__(
        self,
        coordinator: SinkCoordinator,
        transactions: TransactionCoordinator,
        topics: TopicRegistry,
        access: Access,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._coordinator = coordinator
        self._transactions = transactions
        self._topics = topics
        self._access = access

    # ── writing ───────────────────────────────────────────────────────────────────────────────────

    async def stage(
        self,
        sink: str,
        caller: Caller,
        *,
        task: int,
        attempt: int,
        timeout_ms: int,
        principal: Principal = ANONYMOUS,
    ) -> Stage | None:
        """Open a stage; see `SinkCoordinator.stage`.

        Raises:
            NotAuthorized, and what the coordinator raises.
        """
        self._access.require(principal, Operation.WRITE, _ID, sink)
        return await self._coordinator.stage(sink, caller, task=task, attempt=attempt, timeout_ms=timeout_ms)

    async def commit(
        self, sink: str, caller: Caller, stages: Sequence[str], *, principal: Principal = ANONYMOUS
    ) -> bool:
        """Publish a batch; see `SinkCoordinator.commit`. Raises as `stage`."""
        self._access.require(principal, Operation.WRITE, _ID, sink)
        return await self._coordinator.commit(sink, caller, stages)

    async def abort(
        self, sink: str, caller: Caller, stages: Sequence[str] = (), *, principal: Principal = ANONYMOUS
    ) -> tuple[bool, int]:
        """Drop a batch; see `SinkCoordinator.abort`. Raises as `stage`."""
        self._access.require(principal, Operation.WRITE, _ID, sink)
        return await self._coordinator.abort(sink, caller, stages)

    def renew(self, sink: str, run: str, batch: int, *, principal: Principal = ANONYMOUS) -> None:
        """Note that a batch is still in work; see `SinkCoordinator.renew`. Raises as `stage`."""
        self._access.require(principal, Operation.WRITE, _ID, sink)
        self._coordinator.renew(sink, run, batch)

    def publisher(self, stage_id: str, *, principal: Principal = ANONYMOUS) -> StagePublisher:
        """Return the publisher of a stage.

        Raises:
            StageExpired, NotAuthorized
        """
        stage = self._coordinator.stages.get(stage_id)
        self._access.require(principal, Operation.WRITE, _ID, stage.sink_id)
        return StagePublisher(
            stage,
            self._coordinator,
            self._topics,
            lambda topic: self._access.require(principal, Operation.WRITE, _TOPIC, topic),
        )

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def list(self, *, principal: Principal = ANONYMOUS) -> list[SinkDescription]:
        """Return the sinks that the principal may describe, by id, without their stages."""
        allows = self._access.allows
        return [
            self._info(each)
            for each in self._coordinator.all()
            if allows(principal, Operation.DESCRIBE, _ID, each.sink_id)
        ]

    def describe(self, sink: str, *, principal: Principal = ANONYMOUS) -> SinkDescription:
        """Return a sink with its stages.

        Raises:
            UnknownSink, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _ID, sink)
        stages = [
            self._stage_info(each, principal)
            for each in self._coordinator.stages.of_sink(sink)
            if each.epoch >= 0
        ]
        return self._info(self._coordinator.find(sink), stages)

    async def delete(self, sink: str, *, principal: Principal = ANONYMOUS) -> int:
        """Forget a sink and drop its stages; see `SinkCoordinator.delete`. Raises as `stage`."""
        with self._audit.act(principal, "sink.delete", _ID, sink):
            self._access.require(principal, Operation.WRITE, _ID, sink)
            return await self._coordinator.delete(sink)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _info(self, sink: Sink, stages: Sequence[StageDescription] = ()) -> SinkDescription:
        return SinkDescription(
            sink.sink_id,
            sink.query,
            sink.kind,
            sink.run,
            sink.epoch,
            sink.last_batch,
            sink.updated_ms,
            len(self._coordinator.stages.of_sink(sink.sink_id)),
            [*sink.past_runs],
            [*stages],
        )

    def _stage_info(self, stage: Stage, principal: Principal) -> StageDescription:
        found = self._transactions.maybe_find(stage.transactional_id)
        allows = self._access.allows
        partitions = () if found is None else sorted(found.partitions)
        return StageDescription(
            stage.stage_id,
            stage.run,
            stage.batch,
            stage.task,
            stage.attempt,
            stage.transactional_id,
            stage.producer_id,
            stage.epoch,
            stage.opened_ms,
            self._coordinator.left_ms(stage),
            [each for each in partitions if allows(principal, Operation.DESCRIBE, _TOPIC, each[0])],
        )
