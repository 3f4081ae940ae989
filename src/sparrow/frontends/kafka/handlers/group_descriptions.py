"""Descriptions of groups whose partitions the broker assigns: ConsumerGroupDescribe (KIP-848) and
ShareGroupDescribe (KIP-932) have messages of the same form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from sparrow.base.errors import SparrowError
from sparrow.frontends.kafka.errors import state_name
from sparrow.frontends.kafka.wire_codes import group_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrow.broker.groups.consumer.description import TopicPartitions
    from sparrow.frontends.kafka.call import Call


def describe_groups(
    messages: Any,
    request: Any,
    call: Call,
    *,
    find: Callable[..., Any],
    member: Callable[[Any], Any],
    code: Callable[[SparrowError], ErrorCode],
) -> tuple[Any, ...]:
    """Describe groups; each has its own outcome.

    Args:
        messages: the module with the classes of the response.
        find: returns the description of a group, or raises its error.
        member: converts the description of a member.
        code: the code of an error.
    """

    def describe(group: str) -> Any:
        if not group:
            return failed(group, ErrorCode.invalid_group_id, None)
        try:
            found = find(group, principal=call.principal)
        except SparrowError as error:
            return failed(group, code(error), error.text)
        return messages.DescribedGroup(
            error_code=ErrorCode.none,
            group_id=group,
            group_state=state_name(str(found.state)),
            group_epoch=found.epoch,
            assignment_epoch=found.assignment_epoch,
            assignor_name=found.assignor,
            members=tuple(map(member, found.members)),
            **group_operations(call, group, are_requested=request.include_authorized_operations),
        )

    def failed(group: str, code: ErrorCode, text: str | None) -> Any:
        return messages.DescribedGroup(
            error_code=code,
            error_message=text,
            group_id=group,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
        )

    return tuple(map(describe, request.group_ids))


def named_assignment(messages: Any, parts: Iterable[TopicPartitions]) -> Any:
    """Return the partitions of a member by topic."""
    return messages.Assignment(
        topic_partitions=tuple(
            messages.TopicPartitions(topic_id=part.topic_id, topic_name=part.name, partitions=part.partitions)
            for part in parts
        )
    )
