"""Administrative requests from plain values, in any version."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.index import load_request_schema

from sparrow.frontends.kafka.codec.schema import wire_fields
from tests.kafka_frontend.raw import RawClient

TIMEOUT = timedelta(seconds=30)
OK = 0
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def build(kind: Any, **given: Any) -> Any:
    """Build a message whose parts may be dicts; fields that the version lacks are omitted, missing
    ones have defaults.
    """
    values = {}
    for each in wire_fields(kind):
        value = given.get(each.name, each.default)
        values[each.name] = _part(each.entity, value) if each.entity is not None else value
    return kind(**values)


def _part(kind: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_part(kind, each) for each in value)
    return build(kind, **value) if isinstance(value, dict) else value


def ask(raw: RawClient, api_key: int, version: int, **given: Any) -> Any:
    """Send a request and return the response."""
    kind = load_request_schema(api_key, version)
    return raw.call(build(kind, **{"timeout": TIMEOUT, **given}))


def new_topic(
    name: str, partitions: int = 1, factor: int = -1, config: Any = None, **more: Any
) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in (config or {}).items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "configs": configs,
        **more,
    }


def create(raw: RawClient, *topics: dict[str, Any], version: int = 7, **given: Any) -> list[Any]:
    return list(ask(raw, 19, version, topics=topics, **given).topics)


def make(raw: RawClient, name: str, partitions: int = 1, config: Any = None) -> Any:
    (made,) = create(raw, new_topic(name, partitions, config=config))
    assert made.error_code == OK, made.error_message
    return made


def describe_configs(
    raw: RawClient, type_: int, name: str, *names: str, version: int = 4, **given: Any
) -> Any:
    (found,) = ask(
        raw,
        32,
        version,
        resources=[{"resource_type": type_, "resource_name": name, "configuration_keys": names or None}],
        **given,
    ).results
    return found


def values(raw: RawClient, type_: int, name: str, *names: str) -> dict[str, str | None]:
    found = describe_configs(raw, type_, name, *names)
    assert found.error_code == OK, found.error_message
    return {each.name: each.value for each in found.configs}


def alter(raw: RawClient, type_: int, name: str, *changes: tuple[str, int, str | None], **given: Any) -> Any:
    """Send IncrementalAlterConfigs for one resource; `changes` are (name, operation, value)."""
    configs = [
        {"name": key, "config_operation": operation, "value": value} for key, operation, value in changes
    ]
    resources = [{"resource_type": type_, "resource_name": name, "configs": configs}]
    (done,) = ask(raw, 44, given.pop("version", 1), resources=resources, **given).responses
    return done


def replace(raw: RawClient, type_: int, name: str, config: dict[str, str | None], **given: Any) -> Any:
    """Send AlterConfigs for one resource."""
    configs = [{"name": key, "value": value} for key, value in config.items()]
    resources = [{"resource_type": type_, "resource_name": name, "configs": configs}]
    (done,) = ask(raw, 33, given.pop("version", 2), resources=resources, **given).responses
    return done
