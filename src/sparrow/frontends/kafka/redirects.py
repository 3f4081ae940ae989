"""The refusals of a broker that leads no partition, coordinates no group and controls nothing.

Requests that clients send to leaders, coordinators and the controller are refused by the codes that
make them look for another one. A response repeats what the request named (topics, partitions,
groups, …), each with the code, and has the owner where its version has room for it (KIP-951). It is
made by the schemas of request and response, so one function serves all APIs and versions. Lists of
what is only here are empty.

Requests that clients send to any broker end the connection: no code makes every client try another
broker, and the end of the connection does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from sparrow.frontends.kafka.codec.schema import Class, WireField, response_class, wire_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.frontends.kafka.call import Call

TEXT: Final = "This broker stands by; ask the broker that Metadata names."
_PRODUCE, _FETCH, _INIT_PRODUCER_ID = 0, 1, 22
_OF_SHARES: Final = frozenset({78, 79})
_OF_LEADERS: Final = frozenset({_PRODUCE, _FETCH, 2, 21, 23, 61}) | _OF_SHARES
_OF_COORDINATORS: Final = frozenset(
    {8, 9, 11, 12, 13, 14, 15, _INIT_PRODUCER_ID, 24, 25, 26, 28, 42, 47, 65, 68, 69, 76, 77, 90, 91, 92}
)
_OF_THE_CONTROLLER: Final = frozenset({19, 20, 37, 43, 45, 46, 57})
_LISTS: Final = frozenset({16, 35, 66})
"""Requests that clients send to each broker: ListGroups, DescribeLogDirs, ListTransactions."""
_REPEATED: Final[dict[int, tuple[tuple[str, ...], str]]] = {
    # API key: the array of the request, under its names in all versions, and that of the response
    _PRODUCE: (("topic_data",), "responses"),
    _FETCH: (("topics",), "responses"),
    2: (("topics",), "topics"),
    8: (("topics",), "topics"),
    9: (("groups",), "groups"),
    15: (("groups",), "groups"),
    19: (("topics",), "topics"),
    20: (("topics", "topic_names"), "responses"),
    21: (("topics",), "topics"),
    23: (("topics",), "topics"),
    24: (("v3_and_below_topics", "topics"), "results_by_topic_v3_and_below"),
    28: (("topics",), "topics"),
    37: (("topics",), "results"),
    42: (("groups_names",), "results"),
    61: (("topics",), "topics"),
    65: (("transactional_ids",), "transaction_states"),
    69: (("group_ids",), "groups"),
    77: (("group_ids",), "groups"),
    78: (("topics",), "responses"),
    79: (("topics",), "responses"),
    90: (("groups",), "groups"),
}
_PARTS: Final = ("partition_data", "partitions", "partition_indexes")
"""Names of the partitions of a topic in requests."""
_PARTS_OF_RESPONSES: Final = frozenset({"partition_responses", "partitions", "results_by_partition"})
_CODES: Final = frozenset({"error_code", "partition_error_code"})
_NOWHERE: Final = -1
"""An offset that is not known."""
_PARTITION: Final = ("partition_index", "partition", "index")
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    # field of a response: fields of the request that may have the value
    **dict.fromkeys(_PARTITION, _PARTITION),
    "name": ("name", "topic"),
    "topic": ("topic", "name"),
    **{name: (name,) for name in ("topic_id", "group_id", "transactional_id")},
}


def refuse(request: Any, call: Call) -> Any:
    """Return the response that sends the client to the owner; None closes the connection."""
    key = call.header.api_key
    code = _code(request, call)
    if code is None:
        call.connection.finish()
        return None
    kind = response_class(key, call.version)
    values = {each.name: each.default for each in wire_fields(kind)}
    if key in _LISTS:
        return kind(**values)
    if (lost := _lost_session(request, key)) is not None:
        return kind(**{**values, "error_code": lost})
    wanted, repeated = _REPEATED.get(key, ((), ""))
    items = next((getattr(request, name) for name in wanted if hasattr(request, name)), None)
    array = next((each for each in wire_fields(kind) if each.name == repeated), None)
    if array is not None and items is not None:
        values[repeated] = tuple(_repeated(array, item, code, call) for item in items)
    elif "error_code" in values:
        values["error_code"] = code
        if "error_message" in values:
            values["error_message"] = TEXT
    else:
        call.connection.finish()
        return None
    if "node_endpoints" in values:
        values["node_endpoints"] = tuple(_endpoints(kind, call))
    return kind(**values)


def _lost_session(request: Any, key: int) -> ErrorCode | None:
    """Return the error of a request that continues a session of fetches: it need not name any
    partition, so the client has to begin with all.
    """
    if key == _FETCH and getattr(request, "session_id", 0) > 0:
        return ErrorCode.fetch_session_id_not_found
    if key in _OF_SHARES and request.share_session_epoch > 0:
        return ErrorCode.share_session_not_found
    return None


def _code(request: Any, call: Call) -> ErrorCode | None:
    """Return the code of a request; None if the connection is to end."""
    key = call.header.api_key
    if key in _OF_LEADERS:
        has_response = key != _PRODUCE or request.acks != 0
        return ErrorCode.not_leader_or_follower if has_response else None
    if key == _INIT_PRODUCER_ID and request.transactional_id is None:
        return None
    if key in _OF_COORDINATORS:
        return ErrorCode.not_coordinator if _has_owner(call) else ErrorCode.coordinator_not_available
    return ErrorCode.not_controller if key in _OF_THE_CONTROLLER or key in _LISTS else None


def _repeated(array: WireField, item: Any, code: ErrorCode, call: Call) -> Any:
    """Return the element of a response for one of the request."""
    kind: Class = array.entity
    fields = wire_fields(kind)
    has_code = any(each.name == "error_code" for each in fields)
    return kind(**{each.name: _value(each, item, code, call, has_code=has_code) for each in fields})


def _value(field: WireField, item: Any, code: ErrorCode, call: Call, *, has_code: bool) -> Any:
    name = field.name
    if name in _CODES:
        return code
    if name in _KEYS:
        return _key(field, item)
    if name == "current_leader":
        return _current_leader(field, call)
    if name in _PARTS_OF_RESPONSES and not has_code:
        parts: Iterable[Any] = next((getattr(item, each) for each in _PARTS if hasattr(item, each)), ())
        return tuple(_repeated(field, part, code, call) for part in parts)
    if name == "error_message":
        return TEXT
    return _NOWHERE if field.kind == "int64" and not field.is_array else field.default


def _key(field: WireField, item: Any) -> Any:
    """Return the value that names an element: an item of the request, or one of its fields."""
    if isinstance(item, (int, str)):
        return item
    return next((getattr(item, each) for each in _KEYS[field.name] if hasattr(item, each)), field.default)


def _has_owner(call: Call) -> bool:
    return call.frontend.leader_id >= 0


def _current_leader(field: WireField, call: Call) -> Any:
    if not _has_owner(call):
        return field.default
    kind: Class = field.entity
    return kind(leader_id=call.frontend.leader_id, leader_epoch=call.broker.leader_epoch)


def _endpoints(kind: Class, call: Call) -> Iterable[Any]:
    if not _has_owner(call):
        return
    array = next(each for each in wire_fields(kind) if each.name == "node_endpoints")
    entity: Class = array.entity
    host, port = call.frontend.advertised(call.connection)
    yield entity(node_id=call.frontend.leader_id, host=host, port=port, rack=None)
