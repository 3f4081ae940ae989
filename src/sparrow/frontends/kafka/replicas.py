"""Replicas of a single broker: each partition has one, on it."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from sparrow.frontends.kafka.errors import RequestRefusal


def check_replication_factor(factor: int, most: int) -> None:
    """Accept 1 to `most`, and -1 for the default.

    Raises:
        RequestRefusal: INVALID_REPLICATION_FACTOR.
    """
    if factor < -1 or factor == 0:
        raise RequestRefusal(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if factor > most:
        raise RequestRefusal(
            ErrorCode.invalid_replication_factor,
            f"Replication factor {factor} is larger than the number of brokers: there is 1, which "
            "keeps every record itself. "
            "Use 1, or -1 for the default; where programs insist on more, "
            "kafka.max_replication_factor of the broker lets them ask for it.",
        )


def check_assignment(brokers: Sequence[int], node_id: int) -> None:
    """Accept only this broker.

    Raises:
        RequestRefusal: INVALID_REPLICA_ASSIGNMENT.
    """
    if not brokers:
        _refuse("an empty replica list")
    for broker in brokers:
        if broker < 0:
            _refuse(f"broker {broker}, and no broker has a negative number")
        if broker != node_id:
            _refuse(f"broker {broker}, but no such broker is registered: there is broker {node_id} alone")
    if len(brokers) > 1:
        _refuse(f"the broker {node_id} more than once")


def _refuse(what: str) -> None:
    raise RequestRefusal(
        ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes {what}."
    )


def check_new_assignments(assignments: Sequence[tuple[int, Sequence[int]]], node_id: int) -> int:
    """Check the assignments of a new topic, given as (partition, brokers). Return the number of
    partitions.

    Raises:
        RequestRefusal: INVALID_REPLICA_ASSIGNMENT.
    """
    seen: set[int] = set()
    for partition, brokers in assignments:
        if partition in seen:
            raise RequestRefusal(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {partition}.",
            )
        check_assignment(brokers, node_id)
        seen.add(partition)
    if seen != set(range(len(seen))):
        raise RequestRefusal(
            ErrorCode.invalid_replica_assignment,
            "Partitions should be a consecutive 0-based integer sequence.",
        )
    return len(seen)
