"""Access rules against a model that applies every rule as Kafka's documentation describes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.access import Access
from sparrow.broker.access.acl_store import StoredAuthorizer
from sparrow.broker.access.acls import AclBinding, AclFilter, AclTable, PatternType, Permission, check_rule
from sparrow.broker.access.authz import (
    ANONYMOUS,
    OPERATIONS_OF,
    SYSTEM,
    Operation,
    Principal,
    ResourceType,
)

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE = Principal("alice", host="10.0.0.1")
BOB = Principal("bob", host="10.0.0.2")

NAMES = ["a", "ab", "abc", "b", "*"]
ASKED = [o for o in Operation if o not in (Operation.ANY, Operation.ALL)]

rules = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([o for o in Operation if o is not Operation.ANY]),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
filters = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, TOPIC, GROUP]),
    st.sampled_from([None, *NAMES]),
    st.sampled_from(list(PatternType)),
    st.sampled_from([None, "User:alice", "User:*"]),
    st.sampled_from([None, "*", "10.0.0.1"]),
    st.sampled_from(list(Operation)),
    st.sampled_from(list(Permission)),
)


def allow(
    operation: Operation, name: str = "a", pattern: PatternType = LITERAL, **other: object
) -> AclBinding:
    fields: dict[str, object] = {
        "resource_type": TOPIC,
        "principal": "User:alice",
        "host": "*",
        "permission": ALLOW,
        **other,
    }
    return AclBinding(name=name, pattern_type=pattern, operation=operation, **fields)  # type: ignore[arg-type]


def table(*given_rules: AclBinding) -> AclTable:
    made = AclTable()
    for rule in given_rules:
        made.add(rule)
    return made


def matches(rule: AclBinding, kind: ResourceType, name: str) -> bool:
    if rule.resource_type is not kind:
        return False
    if rule.pattern_type is PREFIXED:
        return name.startswith(rule.name)
    return rule.name in ("*", name)


def naive(
    given_rules: list[AclBinding], who: Principal, op: Operation, kind: ResourceType, name: str
) -> bool | None:
    matching = [r for r in given_rules if matches(r, kind, name)]
    if not matching:
        return None
    mine = [r for r in matching if r.principal in (str(who), "User:*") and r.host in (who.host, "*")]
    if any(r.permission is DENY and r.operation in (op, Operation.ALL) for r in mine):
        return False
    implied_by = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }.get(op, set())
    return any(r.permission is ALLOW and r.operation in {op, Operation.ALL} | implied_by for r in mine)


@given(
    st.lists(rules, max_size=12),
    st.lists(st.integers(0, 11), max_size=4),
    st.sampled_from([ALICE, BOB, Principal("carol")]),
    st.sampled_from(ASKED),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([*NAMES, "abcd", "c"]),
)
def test_the_table_decides_as_the_naive_model(
    given_rules: list[AclBinding],
    removed: list[int],
    who: Principal,
    operation: Operation,
    kind: ResourceType,
    name: str,
) -> None:
    made = table(*given_rules)
    left = list(given_rules)
    for index in removed:
        if index < len(given_rules):
            made.discard(given_rules[index])
            left = [r for r in left if r != given_rules[index]]
    assert made.decide(who, operation, kind, name) == naive(left, who, operation, kind, name)
    assert len(made) == len(set(left))


@given(st.lists(rules, max_size=10), filters)
def test_a_filter_selects_the_rules_that_match_field_by_field(
    given_rules: list[AclBinding], by: AclFilter
) -> None:
    def selected(rule: AclBinding) -> bool:
        if by.resource_type not in (ResourceType.ANY, rule.resource_type):
            return False
        if by.pattern_type in (LITERAL, PREFIXED) and rule.pattern_type is not by.pattern_type:
            return False
        if by.name is not None:
            if by.pattern_type is PatternType.MATCH:
                if not (matches(rule, rule.resource_type, by.name)):
                    return False
            elif rule.name != by.name:
                return False
        return (
            by.principal in (None, rule.principal)
            and by.host in (None, rule.host)
            and by.operation in (Operation.ANY, rule.operation)
            and by.permission in (Permission.ANY, rule.permission)
        )

    assert table(*given_rules).selected(by) == [r for r in dict.fromkeys(given_rules) if selected(r)]


def test_a_denial_wins_over_every_permission() -> None:
    made = table(allow(Operation.ALL), allow(Operation.READ, permission=DENY, principal="User:*"))
    assert made.decide(ALICE, Operation.WRITE, TOPIC, "a") is True
    assert made.decide(ALICE, Operation.READ, TOPIC, "a") is False
    assert made.decide(ALICE, Operation.DESCRIBE, TOPIC, "a") is True, "a denial implies nothing"


def test_a_rule_closes_its_resource_to_everybody_else() -> None:
    authorizer = StoredAuthorizer()
    authorizer.change(added=[allow(Operation.READ, "orders")])
    assert authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")
    assert not authorizer.allows(BOB, Operation.READ, TOPIC, "orders")
    assert authorizer.allows(BOB, Operation.READ, TOPIC, "other"), (
        "no rule names it, and the default is to allow"
    )


@pytest.mark.parametrize("default", [True, False])
def test_the_default_holds_where_no_rule_names_the_resource(default: bool) -> None:
    authorizer = StoredAuthorizer(allow_unnamed=default)
    for added in ([], [allow(Operation.READ, "orders")]):
        authorizer.change(added=added)
        assert authorizer.allows(BOB, Operation.WRITE, TOPIC, "unnamed") is default


def test_super_users_and_the_broker_itself_stand_above_all_rules() -> None:
    authorizer = StoredAuthorizer(["User:root"], allow_unnamed=False)
    authorizer.change(added=[allow(Operation.ALL, "*", principal="User:*", permission=DENY)])
    for principal, expected in ((Principal("root"), True), (SYSTEM, True), (Principal("sparrow"), False)):
        assert authorizer.allows(principal, Operation.DELETE, TOPIC, "a") is expected


def test_a_decision_is_not_remembered_beyond_the_change_of_a_rule() -> None:
    authorizer = StoredAuthorizer(allow_unnamed=False)
    rule = allow(Operation.WRITE, "orders")
    changes: list[int] = []
    stop = authorizer.watch(lambda: changes.append(len(authorizer.rules)))
    assert not authorizer.allows(ALICE, Operation.WRITE, TOPIC, "orders")
    authorizer.change(added=[rule])
    assert authorizer.allows(ALICE, Operation.WRITE, TOPIC, "orders")
    authorizer.change(removed=[rule])
    assert not authorizer.allows(ALICE, Operation.WRITE, TOPIC, "orders")
    stop()
    authorizer.change(added=[rule])
    assert changes == [1, 0]


def test_a_rule_for_one_address_holds_for_that_address_alone() -> None:
    authorizer = StoredAuthorizer()
    authorizer.change(added=[allow(Operation.READ, host="10.0.0.1")])
    assert authorizer.allows(Principal("alice", host="10.0.0.1"), Operation.READ, TOPIC, "a")
    assert not authorizer.allows(Principal("alice", host="10.0.0.9"), Operation.READ, TOPIC, "a")
    assert not authorizer.allows(Principal("alice"), Operation.READ, TOPIC, "a")


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::AB", "fe80::ab%eth0"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
    ],
)
def test_an_address_is_the_same_however_it_is_written(written: str, seen: str) -> None:
    """Otherwise a denial that was copied from Kafka would deny nothing."""
    authorizer = StoredAuthorizer()
    authorizer.change(added=[allow(Operation.READ), allow(Operation.READ, host=written, permission=DENY)])
    assert not authorizer.allows(Principal("alice", host=seen), Operation.READ, TOPIC, "a")
    assert authorizer.allows(Principal("alice", host="10.0.0.9"), Operation.READ, TOPIC, "a")


def test_names_that_a_client_makes_up_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrow.broker.access.acl_store.MAX_REMEMBERED", 100)
    authorizer = StoredAuthorizer(allow_unnamed=False)
    for number in range(1000):
        assert not authorizer.allows(ALICE, Operation.READ, TOPIC, f"made-up-{number}")
    assert len(authorizer._decisions) <= 100


def test_a_principal_is_the_same_from_every_address() -> None:
    assert Principal("alice", host="10.0.0.1") == Principal("alice")
    assert len({Principal("alice", host="10.0.0.1"), Principal("alice")}) == 1


def test_all_allowed_operations_of_a_resource_are_returned() -> None:
    authorizer = StoredAuthorizer(["User:root"], allow_unnamed=False)
    authorizer.change(added=[allow(Operation.WRITE, "orders"), allow(Operation.ALTER_CONFIGS, "orders")])
    assert Access(authorizer).authorized_operations(ALICE, TOPIC, "orders") == {
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.ALTER_CONFIGS,
        Operation.DESCRIBE_CONFIGS,
    }
    assert Access(authorizer).authorized_operations(ANONYMOUS, TOPIC, "orders") == set()
    for kind, everything in OPERATIONS_OF.items():
        assert Access(authorizer).authorized_operations(Principal("root"), kind, "any") == everything


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"resource_type": ResourceType.ANY}, "resource type Any"),
        ({"operation": Operation.ANY}, "operation Any"),
        ({"permission": Permission.ANY}, "permission Any"),
        ({"pattern": PatternType.MATCH}, "pattern type Match"),
        ({"name": ""}, "name is empty"),
        ({"resource_type": CLUSTER, "name": "my-cluster"}, "kafka-cluster"),
        ({"principal": "alice"}, "Could not parse principal"),
        ({"principal": "User:"}, "Could not parse principal"),
        ({"host": ""}, "host is empty"),
    ],
)
def test_a_rule_that_can_mean_nothing_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_rule(allow(**{"operation": Operation.READ, **changed}))  # type: ignore[arg-type]
