"""How kinds of resources, sources and types of configurations are numbered on the wire."""

from __future__ import annotations

from typing import Final

from sparrow.broker.configs.changes import ConfigOperation
from sparrow.broker.configs.configs import ConfigResourceType
from sparrow.broker.configs.description import ConfigSource
from sparrow.broker.configs.values import ConfigType

RESOURCE_TYPES: Final = {
    2: ConfigResourceType.TOPIC,
    4: ConfigResourceType.BROKER,
    8: ConfigResourceType.BROKER_LOGGER,
    16: ConfigResourceType.CLIENT_METRICS,
    32: ConfigResourceType.GROUP,
}
RESOURCE_CODES: Final = {type_: code for code, type_ in RESOURCE_TYPES.items()}

OPERATIONS: Final = {
    0: ConfigOperation.SET,
    1: ConfigOperation.DELETE,
    2: ConfigOperation.APPEND,
    3: ConfigOperation.SUBTRACT,
}

SOURCE_CODES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: 1,
    ConfigSource.DYNAMIC_BROKER_CONFIG: 2,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: 3,
    ConfigSource.STATIC_BROKER_CONFIG: 4,
    ConfigSource.DEFAULT_CONFIG: 5,
    ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG: 6,
    ConfigSource.CLIENT_METRICS_CONFIG: 7,
    ConfigSource.GROUP_CONFIG: 8,
}

TYPE_CODES: Final = {
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
