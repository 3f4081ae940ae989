"""Kafka's numbers for operations, resource types, configuration sources and the like, and sets of
operations as bits (KIP-430).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from kio.static.primitive import i8, i32

from sparrow.broker.access.acls import PatternType, Permission
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.broker.configs.changes import ConfigOperation
from sparrow.broker.configs.description import ConfigSource
from sparrow.broker.configs.service import ConfigResourceType
from sparrow.broker.configs.values import ConfigType
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.frontends.kafka.call import Call

# ── access rules ──────────────────────────────────────────────────────────────────────────────────

_ACL_OPERATIONS: Final = (
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
_ACL_RESOURCE_TYPES: Final = (
    ResourceType.ANY,
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)
_ACL_PATTERN_TYPES: Final = (PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)
_ACL_PERMISSIONS: Final = (Permission.ANY, Permission.DENY, Permission.ALLOW)

# Number 0 is UNKNOWN everywhere: a value that the other side does not know.
ACL_OPERATIONS: Final[Mapping[int, Operation]] = dict(enumerate(_ACL_OPERATIONS, 1))
ACL_RESOURCE_TYPES: Final[Mapping[int, ResourceType]] = dict(enumerate(_ACL_RESOURCE_TYPES, 1))
ACL_PATTERN_TYPES: Final[Mapping[int, PatternType]] = dict(enumerate(_ACL_PATTERN_TYPES, 1))
ACL_PERMISSIONS: Final[Mapping[int, Permission]] = dict(enumerate(_ACL_PERMISSIONS, 1))
ACL_CODES: Final[Mapping[Enum, i8]] = {
    word: i8(code)
    for words in (ACL_OPERATIONS, ACL_RESOURCE_TYPES, ACL_PATTERN_TYPES, ACL_PERMISSIONS)
    for code, word in words.items()
}

# ── configurations ────────────────────────────────────────────────────────────────────────────────

CONFIG_RESOURCE_TYPES: Final = {
    2: ConfigResourceType.TOPIC,
    4: ConfigResourceType.BROKER,
    8: ConfigResourceType.BROKER_LOGGER,
    16: ConfigResourceType.CLIENT_METRICS,
    32: ConfigResourceType.GROUP,
}
CONFIG_RESOURCE_CODES: Final = {type_: code for code, type_ in CONFIG_RESOURCE_TYPES.items()}

CONFIG_OPERATIONS: Final = {
    0: ConfigOperation.SET,
    1: ConfigOperation.DELETE,
    2: ConfigOperation.APPEND,
    3: ConfigOperation.SUBTRACT,
}

CONFIG_SOURCE_CODES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: 1,
    ConfigSource.DYNAMIC_BROKER_CONFIG: 2,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: 3,
    ConfigSource.STATIC_BROKER_CONFIG: 4,
    ConfigSource.DEFAULT_CONFIG: 5,
    ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG: 6,
    ConfigSource.CLIENT_METRICS_CONFIG: 7,
    ConfigSource.GROUP_CONFIG: 8,
}

CONFIG_TYPE_CODES: Final[dict[str, int]] = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
    ConfigType.PASSWORD: 9,
}

# ── sets of operations ────────────────────────────────────────────────────────────────────────────


def operation_bits(operations: Iterable[Operation]) -> i32:
    """Return a set of operations as a number in which each sets the bit of its code."""
    return i32(sum(1 << ACL_CODES[operation] for operation in operations))


def authorized_operations(call: Call, resource_type: ResourceType, name: str = CLUSTER_NAME) -> i32:
    """Return the operations that the caller may perform on a resource, for the field of a
    response.
    """
    return operation_bits(call.broker.access.authorized_operations(call.principal, resource_type, name))


def group_operations(call: Call, group: str, *, are_requested: bool) -> dict[str, i32]:
    """Return the operations that the caller may perform on a group, as a field of its description,
    if the request asks for it (KIP-430).
    """
    return (
        {"authorized_operations": authorized_operations(call, ResourceType.GROUP, group)}
        if are_requested
        else {}
    )


def cluster_operations(call: Call) -> i32:
    """Return the operations that the caller may perform on the cluster; 0 if it may not even
    describe it, as in Kafka.
    """
    allowed = call.broker.access.authorized_operations(call.principal, ResourceType.CLUSTER)
    return operation_bits(allowed) if Operation.DESCRIBE in allowed else i32(0)
