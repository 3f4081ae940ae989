"""msgspec accepts exactly those bodies and queries without a fault, for each route of the table."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.inspect import StructType, type_info

from sparrow.frontends.admin.operations import OPERATIONS
from sparrow.frontends.admin.topics import NewTopic
from sparrow.frontends.http.faults import Faults, check
from sparrow.frontends.http.routes.dead_letters import Browsing
from tests.repetitions import repetitions

ROUTES = [route for operation in OPERATIONS for route in operation.routes]
STRUCTS = {struct for route in ROUTES for struct in (route.body, route.query) if struct is not None}
BODIES = sorted({*STRUCTS, Browsing}, key=lambda each: f"{each.__module__} {each.__name__}")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 65), 1 << 65)
    | st.sampled_from([0, 1, 3, 4096, 1 << 31, 1 << 62, 10**15, 10**400])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.sampled_from(["Topic", "Read", "Allow", "Literal", "text", "SCRAM-SHA-256", "x" * 250, "0"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2) | st.just("0"), inner, max_size=3)
    ),
    max_leaves=4,
)


def value_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return values that often fit a type."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return value_of(kind.type)
    if isinstance(kind, StructType):
        return body_of(kind)
    if isinstance(kind, msgspec.inspect.ListType):
        return VALUES | st.lists(value_of(kind.item_type), max_size=3)
    return VALUES


def body_of(kind: StructType) -> st.SearchStrategy[dict[str, Any]]:
    fields = {each.encode_name: value_of(each.type) for each in kind.fields}
    return st.fixed_dictionaries({}, optional={**fields, "surplus": VALUES})


@pytest.mark.slow
@pytest.mark.parametrize("struct", BODIES, ids=lambda each: each.__name__)
def test_msgspec_and_the_list_of_faults_agree(struct: type[msgspec.Struct]) -> None:
    kind = type_info(struct)
    assert isinstance(kind, StructType)
    decode = msgspec.json.Decoder(struct).decode

    @settings(max_examples=repetitions(150))
    @given(body_of(kind))
    def agree(body: dict[str, Any]) -> None:
        faults: Faults = []
        checked = check(kind, body, "body", faults)
        try:
            decoded = decode(json.dumps(body).encode())
        except msgspec.DecodeError:
            if not faults:  # such as a partition as text with a space, which is accepted
                msgspec.convert(checked, struct)
        else:
            assert not faults
            assert msgspec.convert(checked, struct) == decoded

    agree()


def test_all_faults_are_listed_in_the_order_of_the_members() -> None:
    faults: Faults = []
    check(type_info(NewTopic), {"b": 1, "config": {"": []}, "partitions": "3", "a": 2}, "body", faults)
    assert [where for where, _ in faults] == [
        "body.name",
        "body.partitions",
        "body.config..[key]",
        "body.config..constrained-str",
        "body.config..bool",
        "body.config..int",
        "body.config..float",
        "body.b",
        "body.a",
    ]
