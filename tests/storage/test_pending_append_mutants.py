"""The faults that pending appends once had are found by the conformance suite of partitions over
late appends, when they are put back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sparrow.broker.producers import ProducerStates, _accepted
from sparrow.storage.local import LocalLogStore
from sparrow.storage.store import Appended
from tests.conformance.partition import PartitionMachine
from tests.repetitions import repetitions
from tests.storage.test_late_log_store import ON_THE_LOOP

if TYPE_CHECKING:
    from sparrow.records.batch import BatchHeader
    from sparrow.storage.faulty import FaultyFileSystem

FINDING = settings(
    max_examples=repetitions(300),
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


class Machine(PartitionMachine):
    """Clients over local files, whose appends are late and sometimes fail."""

    @staticmethod
    def open_inner(fs: FaultyFileSystem) -> LocalLogStore:
        return LocalLogStore("/data", fs, options=ON_THE_LOOP)


def accept_at_once(
    self: ProducerStates, header: BatchHeader, promised: asyncio.Future[Appended], now_ms: int
) -> None:
    """Count a pending batch as one of the log: its future stays where the offsets belong."""
    producer = self._producers.get(header.producer_id)
    if producer is None or producer.epoch != header.producer_epoch:
        self.accept(header, Appended(0, header.last_offset_delta), now_ms)
        producer = self._producers[header.producer_id]
        producer.batches.pop()
    producer.batches.append(_accepted(header, promised))


def keep_failed(self: ProducerStates) -> None:
    """Leave the batches of a failed append where the next ones are checked against them."""
    for each in self._pending:
        header: Any = each.header
        if header is not None:
            self.accept(header, Appended(0, header.last_offset_delta), each.now_ms)
    self._pending.clear()
    self._ahead.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "mutant"), [("accept_pending", accept_at_once), ("_forget_pending", keep_failed)]
)
def test_a_fault_that_is_put_back_is_found(
    method: str, mutant: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProducerStates, method, mutant)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=FINDING)
