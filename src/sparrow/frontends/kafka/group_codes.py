"""Groups' errors and states as Kafka's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from sparrow.base.errors import DiskFull, StorageFailed
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from sparrow.base.errors import SparrowError
    from sparrow.broker.groups.description import GroupState


def group_code(error: SparrowError) -> ErrorCode:
    """The code of an error, to a member: one that clients of groups know how to go on after."""
    if isinstance(error, (DiskFull, StorageFailed)):
        return ErrorCode.coordinator_not_available
    return code_of(error)


def state_word(state: GroupState) -> str:
    """ "preparing-rebalance" is "PreparingRebalance"."""
    return "".join(part.capitalize() for part in state.value.split("-"))
