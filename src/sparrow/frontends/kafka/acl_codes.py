"""Operations, resource types, pattern types and permissions as Kafka numbers them, and sets of operations as bits (KIP-430)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from kio.static.primitive import i8, i32

from sparrow.broker.access.acls import PatternType, Permission
from sparrow.broker.access.authz import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.frontends.kafka.dispatch import Call

_OPERATIONS: Final = (
    Operation.ANY,
    Operation.ALL,
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
    Operation.CREATE_TOKENS,
    Operation.DESCRIBE_TOKENS,
    Operation.TWO_PHASE_COMMIT,
)
_RESOURCE_TYPES: Final = (
    ResourceType.ANY,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)
_PATTERN_TYPES: Final = (PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)
_PERMISSIONS: Final = (Permission.ANY, Permission.DENY, Permission.ALLOW)

# Number 0 is UNKNOWN everywhere: a word that the other side does not know.
OPERATIONS: Final[Mapping[int, Operation]] = dict(enumerate(_OPERATIONS, 1))
RESOURCE_TYPES: Final[Mapping[int, ResourceType]] = dict(enumerate(_RESOURCE_TYPES, 1))
PATTERN_TYPES: Final[Mapping[int, PatternType]] = dict(enumerate(_PATTERN_TYPES, 1))
PERMISSIONS: Final[Mapping[int, Permission]] = dict(enumerate(_PERMISSIONS, 1))
CODES: Final[Mapping[Enum, i8]] = {
    word: i8(code)
    for words in (OPERATIONS, RESOURCE_TYPES, PATTERN_TYPES, PERMISSIONS)
    for code, word in words.items()
}


def bits(operations: Iterable[Operation]) -> i32:
    """A set of operations as a number in which each has the bit of its code."""
    return i32(sum(1 << CODES[operation] for operation in operations))


def authorized_operations(call: Call, resource_type: ResourceType, name: str = CLUSTER_NAME) -> i32:
    """What the caller may do to a resource, for the fields that responses have for it."""
    return bits(call.broker.authorized_operations(call.principal, resource_type, name))


def group_operations(call: Call, group: str, *, are_asked: bool) -> dict[str, i32]:
    """What the caller may do to a group, as a field of its description where the request asks for it (KIP-430)."""
    return (
        {"authorized_operations": authorized_operations(call, ResourceType.GROUP, group)} if are_asked else {}
    )


def cluster_operations(call: Call) -> i32:
    """What the caller may do to the cluster; 0 for who may not even describe it, as in Kafka."""
    may_see = call.broker.authorizer.allows(
        call.principal, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
    )
    return authorized_operations(call, ResourceType.CLUSTER) if may_see else i32(0)
